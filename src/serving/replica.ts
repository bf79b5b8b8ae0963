/** A replica: its schedule on the simulated clock. An iteration ends after the seconds that its price says. */
import type { Metrics } from './metrics.js';
import type { Listener } from './scheduler/listener.js';
import type { Scheduler } from './scheduler/scheduler.js';
import { NONE, type Requests } from './scheduler/requests.js';

/** What a replica tells its surroundings. */
export interface Surroundings {
  /** The last token of a request is out. Its place is free afterwards. */
  completed(slot: number, now: number): void;
  /** The prompt of a request is done, and another replica decodes. */
  prefilled(slot: number, now: number): void;
}

export class Replica implements Listener {
  readonly schedule: Scheduler;
  busy = false;
  /** Requests that it has, waiting ones included. */
  outstanding = 0;
  private readonly seconds: () => number;
  private now = 0;
  /** When the iteration began that runs or ran last, and when that ended. */
  private since = 0;
  private endedAt = NONE;
  /** When sequences had their last token, where iterations of prompts alone came since; else −1. */
  private pausedSince = NONE;
  /** Sequences that decode for the first time, and had their last token at a time of their own. */
  private readonly apart: number[] = [];

  /** @param make its schedule, and the seconds of an iteration that has begun */
  constructor(
    readonly index: number,
    private readonly requests: Requests,
    private readonly metrics: Metrics,
    private readonly around: Surroundings,
    make: (listener: Listener) => { readonly schedule: Scheduler; readonly seconds: () => number },
  ) {
    ({ schedule: this.schedule, seconds: this.seconds } = make(this));
  }

  /** Begins an iteration. @returns its seconds, or −1 where there is nothing to do */
  begin(now: number): number {
    const { metrics, schedule } = this;
    this.now = now;
    const isScheduled = schedule.options.asyncScheduling === true && this.endedAt === now;
    // Where nothing was scheduled, the server looks at once.
    if (!(isScheduled && schedule.begin(this.since)) && !schedule.begin()) return NONE;
    const seconds = this.seconds();
    this.busy = true;
    this.since = now;
    const { running, waiting, limit } = schedule;
    const { used } = schedule.pool;
    metrics.iterations++;
    metrics.busySeconds += seconds;
    metrics.sequenceSeconds += seconds * running.length;
    if (running.length > metrics.mostSequences) metrics.mostSequences = running.length;
    metrics.blockSeconds += seconds * used;
    if (used > metrics.mostBlocks) metrics.mostBlocks = used;
    if (waiting.size > 0 && limit >= 0) metrics.limitSeconds[limit]! += seconds * waiting.size;
    metrics.timeline.add(now + seconds, seconds, running.length, waiting.size, used);
    return seconds;
  }

  /** Ends the iteration that `begin` began. */
  end(now: number): void {
    this.now = now;
    this.endedAt = now;
    this.busy = false;
    if (this.schedule.batch.paused && this.pausedSince < 0) this.pausedSince = this.since;
    this.schedule.end();
  }

  began(slot: number): void {
    const { requests } = this;
    requests.replica[slot] = this.index;
    if (requests.scheduled[slot]! < 0) requests.scheduled[slot] = this.now;
  }

  token(slot: number): void {
    const { requests, metrics, now } = this;
    if (requests.firstToken[slot]! < 0) requests.firstToken[slot] = now;
    else metrics.itl.add(now - requests.lastToken[slot]!);
    requests.lastToken[slot] = now;
  }

  stepped(sequences: number): void {
    const { requests, metrics, now, apart } = this;
    const gap = now - (this.pausedSince < 0 ? this.since : this.pausedSince);
    this.pausedSince = NONE;
    for (const slot of apart) metrics.itl.add(now - requests.lastToken[slot]!);
    if (sequences > apart.length) metrics.itl.add(gap, sequences - apart.length);
    apart.length = 0;
  }

  joined(slot: number): void {
    this.apart.push(slot);
  }

  left(slot: number): void {
    const at = this.apart.indexOf(slot);
    if (at >= 0) this.apart.splice(at, 1);
    else this.requests.lastToken[slot] = this.pausedSince < 0 ? this.now : this.pausedSince;
  }

  ended(slot: number): void {
    this.outstanding--;
    this.around.completed(slot, this.now);
  }

  prefilled(slot: number): void {
    this.outstanding--;
    this.around.prefilled(slot, this.now);
  }
}
