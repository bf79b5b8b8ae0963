/** Blocks of prompts that later prompts may begin with: which they are, and what a request finds of them. */
import type { BlockPool } from './blocks.js';
import type { ReplicaOptions } from './options.js';
import { NONE, type Requests } from './requests.js';
import type { Counts } from './listener.js';

/** Identities of a session's blocks are session · this + number of the block. */
const BLOCKS_OF_A_SESSION = 2 ** 22;
/** Requests that belong to no session are numbered beyond all sessions. */
const FIRST_OF_REQUESTS = 2 ** 30;

export class Prefixes {
  constructor(
    private readonly options: ReplicaOptions,
    private readonly requests: Requests,
    private readonly pool: BlockPool,
    private readonly counts: Counts,
  ) {}

  /** Identity of a request's block, −1 where it shares none. */
  private identityOf(slot: number, unit: number): number {
    const { requests, options } = this;
    const hashes = requests.hashes[slot];
    if (hashes) return unit < hashes.length ? hashes[unit]! : NONE;
    const session = requests.session[slot]!;
    if (session < 0) {
      // What a preempted request left is found again where it is still there.
      return requests.preemptions[slot]! > 0
        ? -(FIRST_OF_REQUESTS + requests.number[slot]!) * BLOCKS_OF_A_SESSION - unit
        : NONE;
    }
    // Identities of traces are not negative; those of sessions are.
    if ((unit + 1) * options.unitTokens <= options.sharedPrefixTokens) return -2 - unit;
    return -(session + 1) * BLOCKS_OF_A_SESSION - unit;
  }

  private get caches(): boolean {
    return this.options.prefixCaching;
  }

  /** Units of a prompt that are cached. At least its last token is computed, since the next one follows from it. */
  hitsOf(slot: number, tokens: number): number {
    if (!this.caches) return 0;
    const { pool, options } = this;
    const most = Math.floor((tokens - 1) / options.unitTokens);
    let hits = 0;
    for (; hits < most; hits++) {
      const identity = this.identityOf(slot, hits);
      if (identity === NONE || !pool.has(identity)) break;
    }
    return hits;
  }

  /** Blocks among the hits that count as available, and will not be. */
  idleHits(slot: number, hits: number): number {
    let idle = 0;
    for (let unit = 0; unit < hits; unit++) if (this.pool.isIdle(this.identityOf(slot, unit))) idle++;
    return idle * this.pool.unitBlocks;
  }

  useHits(slot: number, hits: number): void {
    const { requests, counts } = this;
    requests.units[slot] = hits;
    if (!this.caches) return;
    for (let unit = 0; unit < hits; unit++) this.pool.use(this.identityOf(slot, unit));
    const found = hits * this.options.unitTokens;
    if (requests.preemptions[slot]! > 0) counts.recomputedTokens -= found;
    else if (this.identityOf(slot, 0) !== NONE) {
      counts.lookedUpTokens += requests.target[slot]!;
      counts.hitTokens += found;
    }
  }

  /** Puts whole units of `tokens` computed tokens into the prefix cache. */
  nameUnits(slot: number, tokens: number): void {
    if (!this.caches) return;
    const { requests, options, pool } = this;
    const whole = Math.floor(Math.min(tokens, options.capTokens) / options.unitTokens);
    for (let unit = requests.units[slot]!; unit < whole; unit++) {
      const identity = this.identityOf(slot, unit);
      // Where another request computed the same meanwhile, the rest stays its own.
      if (identity === NONE || !pool.name(identity)) return;
      requests.units[slot] = unit + 1;
    }
  }

  /** Gives back the units that a request has named, the last one first. */
  leave(slot: number): void {
    const { requests, pool } = this;
    for (let unit = requests.units[slot]! - 1; unit >= 0; unit--) pool.leave(this.identityOf(slot, unit));
    requests.units[slot] = 0;
  }
}
