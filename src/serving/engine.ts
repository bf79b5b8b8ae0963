/** The simulation: requests come, replicas work, and one queue of events says what is next. */
import { fastEnd } from '../cost/first-token.js';
import { turn } from '../io/turn.js';
import type { IterationPricer } from './scheduler/batch.js';
import type { Depth } from './depth.js';
import { loopedSeconds, rowsOf, type LoopPricer } from './price/loop-price.js';
import { LIMITS, Metrics, type Ended } from './metrics.js';
import { blocksOf, type ServerOptions } from './scheduler/options.js';
import { Replica, type Surroundings } from './replica.js';
import { CountedScheduler } from './scheduler/counted.js';
import { Heap } from './scheduler/heap.js';
import { LoopedScheduler } from './scheduler/looped.js';
import { acceptedOf, type Speculation } from './speculation.js';
import { emptyDraft, Requests, STATE, type Draft } from './scheduler/requests.js';
import { WaitingQueue } from './scheduler/waiting.js';

/** Where requests come from. */
export interface Source {
  /** Writes the next request whose arrival does not depend on the simulation. @returns false where there is none */
  next(draft: Draft): boolean;
  /** Writes the request that follows one that ended (closed loops, sessions). @returns false where none does */
  after(completed: CompletedRequest, draft: Draft): boolean;
  /** Frees what it holds. */
  close?(): void;
}

export interface CompletedRequest {
  readonly time: number;
  readonly session: number;
  readonly turn: number;
  readonly promptTokens: number;
  readonly outputTokens: number;
  /** It was too long for the server, and has no answer. */
  readonly refused: boolean;
}

export interface RunOptions {
  readonly server: ServerOptions;
  readonly source: Source;
  readonly pricer: IterationPricer;
  /** How many will come. */
  readonly requests?: number;
  /** What lies between a user and the server's scheduler, seconds a request. */
  readonly requestSeconds?: number;
  /** At an end of the interval: how much further from the estimate first tokens are than steps (ServerSpread). */
  readonly firstTokenFactor?: number;
  /** No first token is faster than this for each token of its prompt, unless a prefix was cached. */
  readonly leastPerPromptToken?: number;
  /** Iterations by passes over the looped layers; without a prefix cache. */
  readonly depth?: null | {
    readonly of: Depth;
    /** Null: an iteration takes all loops, and `pricer` above has its price. */
    readonly pricer: LoopPricer | null;
    readonly weightOf: (loops: number) => number;
    readonly inTurns: boolean;
    readonly promptsRotate?: boolean;
    readonly speculation: Speculation | null;
  };
  /** Called for every request that ends. */
  readonly onEnd?: (ended: Ended) => void;
  /** Asked now and then; true ends the run early. */
  readonly stop?: (metrics: Metrics) => boolean;
}

export interface RunResult {
  readonly metrics: Metrics;
  readonly replicas: number;
  /** False where `stop` ended it. */
  readonly finished: boolean;
  /** Blocks in use at the end: 0 in a finished run. */
  readonly blocksInUse: number;
}

/** Events between two questions whether to stop, and between two turns of the event loop. */
const EVENTS_A_QUESTION = 1024;
const EVENTS_A_TURN = 2 ** 17;

/**
 * What happens at a time. Of events at one time the kind with the smaller number comes first, then what was told first.
 */
const EVENT = { iterationEnd: 0, transfer: 1, arrival: 2 } as const;
type EventKind = (typeof EVENT)[keyof typeof EVENT];
const EVENTS_OF_A_KIND = 2 ** 48;

/** Runs until every request has ended. The same options give the same result, to the bit. */
export function run(options: RunOptions): RunResult {
  const simulation = new Simulation(options);
  try {
    while (simulation.advance(Infinity));
    return simulation.result();
  } finally {
    options.source.close?.();
  }
}

/** The same, in turns: signals are handled meanwhile. @param ended called between them; true ends the run early */
export async function runInTurns(options: RunOptions, ended: (metrics: Metrics) => boolean): Promise<RunResult> {
  const simulation = new Simulation(options);
  try {
    while (simulation.advance(EVENTS_A_TURN)) {
      await turn();
      if (ended(simulation.metrics)) break;
    }
    return simulation.result();
  } finally {
    options.source.close?.();
  }
}

class Simulation implements Surroundings {
  readonly metrics: Metrics;
  private readonly source: Source;
  private readonly server: ServerOptions;
  readonly replicas: Replica[] = [];
  private readonly decoders: Replica[];
  private readonly prefillers: Replica[];
  private readonly requests = new Requests();
  /** By time, kind and number. Of a replica, or of a request. */
  private readonly events = new Heap();
  private told = 0;
  private readonly draft = emptyDraft();
  private turnOfPrefill = 0;
  private turnOfDecode = 0;
  /** When a replica's link has sent or received all that it was given. */
  private readonly linkFree: number[] = [];
  /** The request that the source announced, −1 where it has no more. */
  private announced = -1;
  /** Requests in the system, and when that changed. */
  private inSystem = 0;
  private lastChange = 0;
  private finished = false;

  constructor(private readonly options: RunOptions) {
    const { server, source, pricer } = options;
    this.server = server;
    this.source = source;
    this.metrics = new Metrics(server.targets, options.onEnd ?? null, options.requests);
    const make = (count: number, prefillOnly: boolean): Replica[] => {
      const newQueue = (): WaitingQueue => new WaitingQueue(server.policy, this.requests);
      const shared = server.router === 'shared-queue' ? newQueue() : null;
      return Array.from({ length: count }, () => {
        const replica = new Replica(this.replicas.length, this.requests, this.metrics, this, (listener) => {
          const own = { ...server, prefillOnly };
          const common = [this.requests, shared ?? newQueue(), listener, this.metrics] as const;
          const { depth } = options;
          if (!depth) {
            const schedule = new CountedScheduler(own, ...common, pricer.knots);
            return { schedule, seconds: () => pricer.seconds(schedule.batch) };
          }
          const { of, pricer: passes, speculation: drawn, ...how } = depth;
          const speculation = drawn && {
            ...drawn,
            accepted: (slot: number) => acceptedOf(drawn, this.requests.number[slot]!, this.requests.emitted[slot]!),
          };
          // What is cached of a token depends on its depth, and servers that take prompts first have no loops.
          const never = { prefixCaching: false, promptsFirst: false };
          const looped = { ...own, ...how, depth: of, speculation, ...never };
          const schedule = new LoopedScheduler(looped, ...common, (passes ?? pricer).knots);
          const seconds = (): number =>
            passes ? loopedSeconds(schedule, passes) : pricer.seconds(rowsOf(schedule, () => 1));
          return { schedule, seconds };
        });
        this.replicas.push(replica);
        return replica;
      });
    };
    this.prefillers = make(server.disaggregation?.prefillReplicas ?? 0, true);
    this.decoders = make(server.replicas, false);
    this.announce();
  }

  /** Works on some events. @returns false where the run has ended */
  advance(most: number): boolean {
    const { events, options, metrics } = this;
    for (let n = 1; events.size > 0; n++) {
      if (n > most) return true;
      const { key: time, first: subject } = events;
      const kind = Math.floor(events.tie / EVENTS_OF_A_KIND);
      events.pop();
      if (kind === EVENT.iterationEnd) {
        const replica = this.replicas[subject]!;
        replica.end(time);
        this.begin(replica, time);
        // Requests may have come back to a queue that others share.
        if (this.server.router === 'shared-queue' && replica.schedule.waiting.size > 0) this.wake(replica, time);
      } else if (kind === EVENT.arrival) this.arrive(subject, time);
      else this.join(this.replicas[this.requests.replica[subject]!]!, subject, time);
      if (n % EVENTS_A_QUESTION === 0 && options.stop?.(metrics)) return false;
    }
    if (this.requests.active > 0) throw new Error(`${this.requests.active} requests wait for nothing`);
    this.finished = true;
    return false;
  }

  result(): RunResult {
    return {
      metrics: this.metrics,
      replicas: this.replicas.length,
      finished: this.finished,
      blocksInUse: this.replicas.reduce((sum, r) => sum + r.schedule.pool.used, 0),
    };
  }

  /** Puts the source's next request among the events. */
  private announce(): void {
    this.announced = this.source.next(this.draft) ? this.expect() : -1;
  }

  private expect(): number {
    const slot = this.requests.add(this.draft);
    this.tell(this.draft.time, EVENT.arrival, slot);
    return slot;
  }

  private tell(time: number, kind: EventKind, subject: number): void {
    this.events.push(time, kind * EVENTS_OF_A_KIND + this.told++, subject);
  }

  private begin(replica: Replica, now: number): void {
    const seconds = replica.begin(now);
    if (seconds >= 0) this.tell(now + seconds, EVENT.iterationEnd, replica.index);
  }

  private arrive(slot: number, now: number): void {
    const { requests, metrics, server } = this;
    if (slot === this.announced) this.announce();
    this.count(now, 0);
    if (Number.isNaN(metrics.firstArrival)) metrics.firstArrival = now;
    metrics.lastArrival = now;
    metrics.load.add(requests.number[slot]!, now, requests.prompt[slot]!, requests.output[slot]!);
    const tokens = requests.prompt[slot]! + requests.output[slot]! - 1;
    const blocks = blocksOf(tokens, server);
    if (tokens >= server.maxModelLen || blocks > server.blocks) {
      metrics.reject(requests.number[slot]!);
      this.follow(slot, now, true);
      return;
    }
    this.inSystem++;
    const first = this.prefillers.length > 0 ? this.prefillers : this.decoders;
    const replica = this.route(first, first === this.prefillers);
    replica.outstanding++;
    this.join(replica, slot, now);
  }

  private count(now: number, change: number): void {
    this.metrics.systemSeconds += this.inSystem * (now - this.lastChange);
    this.lastChange = now;
    this.inSystem += change;
  }

  /** Lets an idle replica that the queue belongs to begin. */
  private wake(replica: Replica, now: number): void {
    if (this.server.router !== 'shared-queue') {
      if (!replica.busy) this.begin(replica, now);
      return;
    }
    const group = this.prefillers.includes(replica) ? this.prefillers : this.decoders;
    for (const other of group) if (!other.busy && other.schedule.waiting.size > 0) this.begin(other, now);
  }

  private route(among: readonly Replica[], prefill: boolean): Replica {
    if (among.length === 1 || this.server.router === 'shared-queue') return among[0]!;
    if (this.server.router === 'round-robin') {
      const turn = prefill ? this.turnOfPrefill++ : this.turnOfDecode++;
      return among[turn % among.length]!;
    }
    let least = among[0]!;
    for (const replica of among) if (replica.outstanding < least.outstanding) least = replica;
    return least;
  }

  prefilled(slot: number, now: number): void {
    const { requests, server, metrics } = this;
    const link = server.disaggregation!;
    const seconds = (Math.min(requests.target[slot]!, link.capTokens) * link.bytesPerToken) / link.linkBytesPerSecond;
    metrics.transferSeconds += seconds;
    metrics.transfers++;
    requests.state[slot] = STATE.transfer;
    const to = this.route(this.decoders, false);
    to.outstanding++;
    let done = this.occupy(requests.replica[slot]!, now, seconds);
    // Of a queue that all share, whichever is free receives.
    if (server.router !== 'shared-queue') done = Math.max(done, this.occupy(to.index, now, seconds));
    metrics.limitSeconds[LIMITS.indexOf('transfer')]! += done - now - seconds;
    requests.replica[slot] = to.index;
    this.tell(done, EVENT.transfer, slot);
  }

  /** A replica's link does one transfer after another. @returns when it has done one more */
  private occupy(replica: number, now: number, seconds: number): number {
    return (this.linkFree[replica] = Math.max(now, this.linkFree[replica] ?? 0) + seconds);
  }

  private join(replica: Replica, slot: number, now: number): void {
    this.requests.queued[slot] = now;
    replica.schedule.waiting.push(slot);
    this.wake(replica, now);
  }

  completed(slot: number, now: number): void {
    const { requests, metrics } = this;
    const { requestSeconds = 0, firstTokenFactor: factor = 1, leastPerPromptToken: least = 0 } = this.options;
    this.count(now, -1);
    const arrival = requests.arrival[slot]!;
    const outputTokens = requests.output[slot]!;
    const promptTokens = requests.prompt[slot]!;
    const first = requests.firstToken[slot]!;
    const queueSeconds = requests.scheduled[slot]! - arrival;
    const firstToken = first - arrival + requestSeconds;
    // The fast end has no first token before its request was scheduled.
    const began = firstToken - queueSeconds;
    const ttftSeconds = factor < 1 ? queueSeconds + fastEnd(began, factor, least * promptTokens) : firstToken * factor;
    const further = ttftSeconds - firstToken;
    const e2elSeconds = now - arrival + requestSeconds + further;
    metrics.end({
      number: requests.number[slot]!,
      arrival,
      promptTokens,
      outputTokens,
      queueSeconds,
      ttftSeconds,
      tpotSeconds: outputTokens > 1 ? (now - first) / (outputTokens - 1) : null,
      e2elSeconds,
      preemptions: requests.preemptions[slot]!,
      replica: requests.replica[slot]!,
    });
    // A user has the answer after the scheduler is done with it; at the fast end not before.
    this.follow(slot, Math.max(now, arrival + e2elSeconds), false);
  }

  /** Frees the place of a request that ended, and takes the one that follows it. */
  private follow(slot: number, now: number, refused: boolean): void {
    const { requests } = this;
    const ended: CompletedRequest = {
      time: now,
      session: requests.session[slot]!,
      turn: requests.turn[slot]!,
      promptTokens: requests.prompt[slot]!,
      outputTokens: requests.output[slot]!,
      refused,
    };
    requests.remove(slot);
    if (this.source.after(ended, this.draft)) this.expect();
  }
}
