/**
 * The paged cache of a replica: a number of blocks, and the prefix cache among them. A cached unit is one or several
 * blocks with an identity. What nobody uses stands in one row, in the order in which it was given back, and is taken
 * from its front, whether anybody might ask for it again or not (as vLLM's block pool does, and as SGLang and TRT-LLM
 * keep answers): blocks without identities are entries that only count.
 */
import { NONE } from './requests.js';

export class BlockPool {
  /** Blocks that nobody uses and nobody will ask for. */
  free: number;
  /** Blocks of units that nobody uses. */
  idle = 0;
  /** Units by identity. */
  private readonly known = new Map<number, number>();
  /** Of an entry: of which unit, NONE for blocks without one; its blocks; requests that use it. */
  private readonly identity: number[] = [];
  private readonly blocks: number[] = [];
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
    this.append(this.entry(NONE, total));
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
    while (blocks > 0) {
      const entry = this.oldest;
      if (entry === NONE) throw new Error('more blocks are taken than there are');
      if (this.identity[entry] !== NONE) this.forget(entry);
      const taken = Math.min(blocks, this.blocks[entry]!);
      this.free -= taken;
      blocks -= taken;
      if ((this.blocks[entry]! -= taken) > 0) continue;
      this.unlist(entry);
      this.unused.push(entry);
    }
  }

  /** Gives back blocks without identities. */
  give(blocks: number): void {
    if (blocks === 0) return;
    this.free += blocks;
    const { newest } = this;
    if (newest !== NONE && this.identity[newest] === NONE) this.blocks[newest]! += blocks;
    else this.append(this.entry(NONE, blocks));
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
    const unit = this.entry(identity, this.unitBlocks);
    this.users[unit] = 1;
    this.known.set(identity, unit);
    return true;
  }

  /** Ends the use of a unit; without users it is kept until its blocks are needed. */
  leave(identity: number): void {
    const unit = this.known.get(identity)!;
    if (--this.users[unit]! > 0) return;
    this.append(unit);
    this.idle += this.unitBlocks;
  }

  /** Makes a unit at the row's front blocks without an identity. */
  private forget(unit: number): void {
    this.known.delete(this.identity[unit]!);
    this.identity[unit] = NONE;
    this.idle -= this.unitBlocks;
    this.free += this.unitBlocks;
  }

  private entry(identity: number, blocks: number): number {
    const entry = this.unused.pop() ?? this.identity.length;
    this.identity[entry] = identity;
    this.blocks[entry] = blocks;
    return entry;
  }

  private append(entry: number): void {
    this.previous[entry] = this.newest;
    this.next[entry] = NONE;
    if (this.newest === NONE) this.oldest = entry;
    else this.next[this.newest] = entry;
    this.newest = entry;
  }

  private unlist(entry: number): void {
    const [before, after] = [this.previous[entry]!, this.next[entry]!];
    if (before === NONE) this.oldest = after;
    else this.next[before] = after;
    if (after === NONE) this.newest = before;
    else this.previous[after] = before;
  }
}
