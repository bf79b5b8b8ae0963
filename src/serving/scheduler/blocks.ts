/**
 * The paged cache of a replica: a number of blocks, and the prefix cache among them. A cached unit is one or several
 * blocks with an identity. It is in use by requests, or it is kept until its blocks are needed, the least recently used
 * first (as vLLM's block pool does). Requests without identities only count.
 */
const NONE = -1;

export class BlockPool {
  /** Blocks that nobody uses and that hold nothing. */
  free: number;
  /** Blocks of units that nobody uses. */
  idle = 0;
  /** Units by identity. */
  private readonly known = new Map<number, number>();
  private readonly identity: number[] = [];
  private readonly users: number[] = [];
  private readonly next: number[] = [];
  private readonly previous: number[] = [];
  private readonly unused: number[] = [];
  private oldest = NONE;
  private newest = NONE;

  /** @param unitBlocks blocks of a unit of the prefix cache */
  constructor(
    readonly total: number,
    readonly unitBlocks: number,
  ) {
    this.free = total;
  }

  /** Blocks that can be taken. */
  get available(): number {
    return this.free + this.idle;
  }

  /** Blocks in use by requests. */
  get used(): number {
    return this.total - this.free - this.idle;
  }

  /** Takes blocks; the caller has seen that they are available. */
  take(blocks: number): void {
    while (this.free < blocks) this.forgetOldest();
    this.free -= blocks;
  }

  give(blocks: number): void {
    this.free += blocks;
  }

  /** True where a unit of this identity is cached. */
  has(identity: number): boolean {
    return this.known.has(identity);
  }

  /** True where it is cached and nobody uses it. */
  isIdle(identity: number): boolean {
    return this.users[this.known.get(identity)!] === 0;
  }

  /** Uses a cached unit. */
  use(identity: number): void {
    const unit = this.known.get(identity)!;
    if (this.users[unit]!++ === 0) {
      this.unlist(unit);
      this.idle -= this.unitBlocks;
    }
  }

  /** Names blocks that the caller holds. @returns false where the identity is known: then they stay the caller's own */
  name(identity: number): boolean {
    if (this.known.has(identity)) return false;
    const unit = this.unused.pop() ?? this.identity.length;
    this.identity[unit] = identity;
    this.users[unit] = 1;
    this.known.set(identity, unit);
    return true;
  }

  /** Ends the use of a unit; without users it is kept until its blocks are needed. */
  leave(identity: number): void {
    const unit = this.known.get(identity)!;
    if (--this.users[unit]! > 0) return;
    this.previous[unit] = this.newest;
    this.next[unit] = NONE;
    if (this.newest === NONE) this.oldest = unit;
    else this.next[this.newest] = unit;
    this.newest = unit;
    this.idle += this.unitBlocks;
  }

  private forgetOldest(): void {
    const unit = this.oldest;
    if (unit === NONE) throw new Error('more blocks are taken than there are');
    this.unlist(unit);
    this.known.delete(this.identity[unit]!);
    this.unused.push(unit);
    this.idle -= this.unitBlocks;
    this.free += this.unitBlocks;
  }

  private unlist(unit: number): void {
    const [before, after] = [this.previous[unit]!, this.next[unit]!];
    if (before === NONE) this.oldest = after;
    else this.next[before] = after;
    if (after === NONE) this.newest = before;
    else this.previous[after] = before;
  }
}
