/**
 * What a run counts, under the names of vLLM's serving benchmark. Times in seconds.
 *
 * TTFT: arrival to first token. TPOT: (E2EL − TTFT) / (output tokens − 1), one value a request of at least two tokens.
 * ITL: every gap between two tokens of a request (with speculation between rounds). E2EL: arrival to last token.
 * Goodput: requests that meet every target, a second. Duration: first arrival to last token.
 */
import { Load, Misses } from './misses.js';
import { Sketch } from './sketch.js';
import { Timeline } from './timeline.js';

/** Why a replica could not begin a request that waits for it; last that its cache waited to be sent there. */
export const LIMITS = ['kv-blocks', 'max-num-seqs', 'token-budget', 'transfer'] as const;
export type Limit = (typeof LIMITS)[number];

export interface Targets {
  readonly ttftSeconds: number;
  readonly tpotSeconds: number;
  /** The user asked for it: then requests without a second token, of which it is not known, do not meet it. */
  readonly tpotAsked?: boolean;
  /** Share of the requests that must meet them, such as 0.99. */
  readonly share: number;
}

/** One request that has ended. */
export interface Ended {
  readonly number: number;
  readonly arrival: number;
  readonly promptTokens: number;
  readonly outputTokens: number;
  /** Arrival to the first time that it was scheduled. */
  readonly queueSeconds: number;
  readonly ttftSeconds: number;
  readonly tpotSeconds: number | null;
  readonly e2elSeconds: number;
  readonly preemptions: number;
  readonly replica: number;
}

export class Metrics {
  readonly ttft = new Sketch();
  readonly tpot = new Sketch();
  readonly itl = new Sketch();
  readonly e2el = new Sketch();
  readonly queue = new Sketch();
  readonly timeline = new Timeline();
  readonly misses: Misses;
  readonly load: Load;
  completed = 0;
  rejected = 0;
  /** Requests that met every target. */
  good = 0;
  /** Requests that missed the target of TTFT, of TPOT. */
  lateFirst = 0;
  slowTokens = 0;
  inputTokens = 0;
  outputTokens = 0;
  preemptions = 0;
  /** Tokens that were computed again after a preemption. */
  recomputedTokens = 0;
  iterations = 0;
  /** Seconds that replicas worked, and how many sequences decoded meanwhile. */
  busySeconds = 0;
  sequenceSeconds = 0;
  mostSequences = 0;
  mostBlocks = 0;
  blockSeconds = 0;
  /** Prompt tokens that were looked up in the prefix cache, and those that were found. */
  lookedUpTokens = 0;
  hitTokens = 0;
  transferSeconds = 0;
  transfers = 0;
  /** Seconds that requests waited while this stood in the way of the first of them, in the order of LIMITS. */
  readonly limitSeconds = new Float64Array(LIMITS.length);
  /** ∫ requests in the system dt, for Little's law. */
  systemSeconds = 0;
  firstArrival = NaN;
  lastToken = 0;
  lastArrival = 0;

  constructor(
    private readonly targets: Targets,
    /** Called for every request that ends. */
    private readonly listener: ((ended: Ended) => void) | null = null,
    /** Of the whole run; 0 where nobody knows. */
    requests = 0,
  ) {
    this.misses = new Misses(requests);
    this.load = new Load(requests);
  }

  /** A request that is too long for the server: it has no answer, and misses the targets. */
  reject(number: number): void {
    this.rejected++;
    this.misses.add(number, true);
  }

  end(ended: Ended): void {
    this.completed++;
    this.inputTokens += ended.promptTokens;
    this.outputTokens += ended.outputTokens;
    this.ttft.add(ended.ttftSeconds);
    this.e2el.add(ended.e2elSeconds);
    this.queue.add(ended.queueSeconds);
    if (ended.tpotSeconds !== null) this.tpot.add(ended.tpotSeconds);
    const { targets } = this;
    const late = ended.ttftSeconds > targets.ttftSeconds;
    const slow = (ended.tpotSeconds ?? 0) > targets.tpotSeconds;
    if (late) this.lateFirst++;
    if (slow) this.slowTokens++;
    if (!late && !slow) this.good++;
    this.misses.add(ended.number, late || slow);
    this.lastToken = ended.arrival + ended.e2elSeconds;
    this.listener?.(ended);
  }

  get durationSeconds(): number {
    return this.completed === 0 ? 0 : this.lastToken - this.firstArrival;
  }
}
