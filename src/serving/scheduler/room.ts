/** Places and blocks of a replica that an iteration can have, and what requests were promised of them. */
import type { BlockPool } from './blocks.js';
import { blocksOf, type ReplicaOptions } from './options.js';
import type { Requests } from './requests.js';

/** What requests have of a server; `promised`: blocks to their ends. */
interface Share {
  readonly places: number;
  readonly blocks: number;
  readonly promised: number;
}

const NOTHING: Share = { places: 0, blocks: 0, promised: 0 };

export class Room {
  /** Blocks that those need to their end which have a place. */
  private promised = 0;
  /** What requests left since an iteration was scheduled, and what of it the next one cannot have yet. */
  private left = NOTHING;
  private held = NOTHING;

  /** @param running requests that have a place */
  constructor(
    private readonly options: ReplicaOptions,
    private readonly requests: Requests,
    private readonly running: readonly number[],
    private readonly pool: BlockPool,
  ) {}

  /** An iteration is scheduled. @param early before the one before it ended: what was left since is not seen */
  begin(early: boolean): void {
    this.held = early ? this.left : NOTHING;
  }

  /** It has been scheduled. */
  scheduled(): void {
    this.left = NOTHING;
  }

  /** Blocks that this iteration can have. */
  get blocks(): number {
    return this.pool.available - this.held.blocks;
  }

  /** Places and blocks became free that this iteration cannot have yet. */
  get holds(): boolean {
    return this.held !== NOTHING;
  }

  get hasPlace(): boolean {
    return this.running.length + this.held.places < this.options.maxNumSeqs;
  }

  opened(slot: number): void {
    this.promised += this.blocksToEnd(slot);
  }

  /** A request gave back its place and so many blocks. */
  closed(slot: number, blocks: number): void {
    const promised = this.blocksToEnd(slot);
    this.promised -= promised;
    const { left } = this;
    this.left = { places: left.places + 1, blocks: left.blocks + blocks, promised: left.promised + promised };
  }

  /** Whether one more may take blocks that those with a place were promised. */
  breaksPromises(slot: number): boolean {
    const { options, running, pool, promised, held } = this;
    const most = pool.total - held.promised;
    return options.reserveAnswer === true && running.length > 0 && promised + this.blocksToEnd(slot) > most;
  }

  /** Blocks that a request needs to its end. */
  private blocksToEnd(slot: number): number {
    const { prompt, output } = this.requests;
    return blocksOf(prompt[slot]! + (this.options.prefillOnly ? 0 : output[slot]! - 1), this.options);
  }
}
