/** Requests that are in the system, field by field in arrays. A place is used again when its request has ended. */

/** What a workload says of one request. */
export interface Draft {
  /** Arrival, seconds. */
  time: number;
  promptTokens: number;
  outputTokens: number;
  /** Number of the conversation, −1 for none. */
  session: number;
  turn: number;
  /**
   * Identities of the prompt's blocks, in order (hash ids of a trace); null: block i of the session has the identity
   * (session, i). Requests without either share nothing.
   */
  hashes: readonly number[] | null;
}

export const emptyDraft = (): Draft => ({
  time: 0,
  promptTokens: 0,
  outputTokens: 0,
  session: -1,
  turn: 0,
  hashes: null,
});

/** No item, slot or place. */
export const NONE = -1;

/** Where a request is. */
export const STATE = { free: 0, waiting: 1, prefill: 2, decode: 3, transfer: 4 } as const;

type Column = Float64Array | Int32Array | Uint8Array;

/** A longer column with the numbers of this one; `empty` lies behind them. */
export function lengthened<T extends Column>(old: T, length: number, empty = 0): T {
  const column = new (old.constructor as new (length: number) => T)(length).fill(empty) as T;
  column.set(old as never);
  return column;
}

export class Requests {
  /** Requests that ever came; the number of the next. */
  created = 0;
  /** Requests in the system. */
  active = 0;

  number = new Float64Array(64);
  arrival = new Float64Array(64);
  /** When it joined the queue that it waits in. */
  queued = new Float64Array(64);
  prompt = new Int32Array(64);
  output = new Int32Array(64);
  session = new Int32Array(64);
  turn = new Int32Array(64);
  state = new Uint8Array(64);
  replica = new Int32Array(64);
  /** Output tokens before the current stretch of decoding began. */
  emitted = new Int32Array(64);
  /** Tokens whose keys and values must be computed before the next output token, and those that are. */
  target = new Int32Array(64);
  computed = new Int32Array(64);
  /** Decoding: iteration at which it began, cached tokens then, and the segment of the price table. */
  began = new Float64Array(64);
  segment = new Int32Array(64);
  /** Leading blocks that it shares through the prefix cache, in units of the cache. */
  units = new Int32Array(64);
  scheduled = new Float64Array(64);
  firstToken = new Float64Array(64);
  lastToken = new Float64Array(64);
  preemptions = new Int32Array(64);
  readonly hashes: (readonly number[] | null)[] = [];
  /** Places that are free: the last is taken first. */
  private readonly free: number[] = [];
  private capacity = 0;

  constructor() {
    this.extend(64);
  }

  /** Takes a place for a request. */
  add(draft: Draft): number {
    if (this.free.length === 0) this.extend(2 * this.capacity);
    const slot = this.free.pop()!;
    this.number[slot] = this.created++;
    this.arrival[slot] = draft.time;
    this.prompt[slot] = draft.promptTokens;
    this.output[slot] = draft.outputTokens;
    this.session[slot] = draft.session;
    this.turn[slot] = draft.turn;
    this.hashes[slot] = draft.hashes;
    this.state[slot] = STATE.waiting;
    this.replica[slot] = -1;
    this.emitted[slot] = 0;
    this.target[slot] = draft.promptTokens;
    this.computed[slot] = 0;
    this.units[slot] = 0;
    this.scheduled[slot] = -1;
    this.firstToken[slot] = -1;
    this.lastToken[slot] = -1;
    this.preemptions[slot] = 0;
    this.active++;
    return slot;
  }

  remove(slot: number): void {
    this.state[slot] = STATE.free;
    this.hashes[slot] = null;
    this.free.push(slot);
    this.active--;
  }

  private extend(capacity: number): void {
    const columns = this as unknown as Record<string, Column>;
    for (const [name, old] of Object.entries(this))
      if (ArrayBuffer.isView(old)) columns[name] = lengthened(old as Column, capacity);
    for (let slot = capacity - 1; slot >= this.capacity; slot--) this.free.push(slot);
    this.capacity = capacity;
  }
}
