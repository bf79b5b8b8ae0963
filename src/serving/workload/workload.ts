/** Requests that are made up: arrivals and lengths from distributions, users who wait, conversations of turns. */
import type { WORKLOAD_SETTINGS } from '../../schema/serving.js';
import { drawLength, exponential, gamma, streamOf, type Lengths, type Uniform } from './draws.js';
import type { CompletedRequest, Source } from '../engine.js';
import type { Draft } from '../scheduler/requests.js';

/** Pairs of lengths that were observed, drawn with equal chances. */
export interface Observed {
  readonly prompts: Int32Array;
  readonly outputs: Int32Array;
}

export interface SyntheticWorkload {
  readonly arrivals: (typeof WORKLOAD_SETTINGS.arrivals.choices)[number];
  /** Requests a second; of a conversation every turn counts. */
  readonly requestsPerSecond: number;
  /** Shape of the gamma distribution of the gaps: 1 is Poisson, less is burstier (vLLM's --burstiness). */
  readonly burstiness: number;
  /** Closed loop: users, each with one request at a time. */
  readonly users: number;
  /** Between an answer and the user's next request or turn, exponential with this mean. */
  readonly thinkSeconds: number;
  /** Closed loop: users begin one after the other within this time, not all at once. */
  readonly rampSeconds: number;
  readonly prompt: Lengths;
  readonly output: Lengths;
  /** Replaces `prompt` and `output`. */
  readonly observed: Observed | null;
  readonly requests: number;
  /** Requests that the client keeps open at most; the next one is sent when one of them has ended. */
  readonly mostOpen: number;
  /** Turns of a conversation: each prompt is what was said before, and as many new tokens as `prompt` draws. */
  readonly turns: number;
  /** Tokens that every conversation begins with. */
  readonly sharedPrefixTokens: number;
  readonly seed: number;
}

/** Streams of random numbers, by purpose. */
const PURPOSE = { arrivals: 0, lengths: 1, thinking: 2, history: 3 } as const;

/** The next turn of a conversation that began before the run. */
interface Waiting {
  readonly time: number;
  readonly turn: number;
}

export class SyntheticSource implements Source {
  private readonly arrivals: Uniform;
  private readonly lengths: Uniform;
  private readonly thinking: Uniform;
  private readonly history: Uniform;
  private drawn = 0;
  private sessions = 0;
  /** Conversations of those that may be open at once, or users, who have sent a request. */
  private begun = 0;
  private clock = 0;
  /** When the next conversation begins; null before it is drawn. */
  private upcoming: number | null = null;
  /** Latest first. */
  private readonly waiting: Waiting[];
  /** True where prompts have identities that later ones may share. */
  private readonly identified: boolean;

  constructor(private readonly w: SyntheticWorkload) {
    this.arrivals = streamOf(w.seed, PURPOSE.arrivals);
    this.lengths = streamOf(w.seed, PURPOSE.lengths);
    this.thinking = streamOf(w.seed, PURPOSE.thinking);
    this.history = streamOf(w.seed, PURPOSE.history);
    this.waiting = this.begunBefore();
    this.identified = w.turns > 1 || w.sharedPrefixTokens > 0;
  }

  next(draft: Draft): boolean {
    const { w } = this;
    if (this.drawn >= w.requests) return false;
    if (w.arrivals === 'closed') {
      // Users who have begun already ask again meanwhile: their sessions do not count.
      if (this.begun >= w.users) return false;
      draft.time = (this.begun++ / w.users) * w.rampSeconds;
      this.goOn(draft, Math.floor(this.history() * w.turns));
      return true;
    }
    // The others are sent as these end.
    if (this.begun >= w.mostOpen) return false;
    const next = this.waiting.at(-1);
    this.upcoming ??= this.clock + this.gap();
    if (next && next.time <= this.upcoming) {
      this.waiting.pop();
      draft.time = next.time;
      this.goOn(draft, next.turn);
      return true;
    }
    this.begun++;
    draft.time = this.clock = this.upcoming;
    this.upcoming = null;
    this.write(draft, this.sessions++, 0, 0);
    return true;
  }

  /**
   * Conversations whose user thinks as the run begins: as many as at any later time, since a run begins anywhere in the
   * traffic. What is left of an exponential time has the same distribution.
   */
  private begunBefore(): Waiting[] {
    const { turns, thinkSeconds, requestsPerSecond, arrivals, mostOpen, requests } = this.w;
    const followUps = (requestsPerSecond * (turns - 1)) / turns;
    if (arrivals === 'closed' || mostOpen < Infinity || requestsPerSecond === Infinity || turns === 1) return [];
    const count = Math.min(requests, Math.round(followUps * thinkSeconds));
    return Array.from({ length: count }, () => ({
      time: thinkSeconds * exponential(this.history),
      turn: 1 + Math.floor(this.history() * (turns - 1)),
    })).sort((a, b) => b.time - a.time);
  }

  /** A conversation at one of its turns, with what was said before. */
  private goOn(draft: Draft, turn: number): void {
    let said = turn === 0 ? 0 : this.w.sharedPrefixTokens;
    for (let i = 0; i < turn; i++) {
      const { prompt, output } = this.drawExchange(this.history);
      said += prompt + output;
    }
    this.write(draft, this.sessions++, turn, said);
  }

  after(completed: CompletedRequest, draft: Draft): boolean {
    const { w } = this;
    if (this.drawn >= w.requests) return false;
    const said = completed.promptTokens + completed.outputTokens;
    const goesOn = !completed.refused && completed.turn + 1 < w.turns;
    if (!goesOn && w.arrivals !== 'closed') {
      if (w.mostOpen === Infinity) return false;
      this.clock += this.gap();
      draft.time = Math.max(completed.time, this.clock);
    } else draft.time = completed.time + (w.thinkSeconds === 0 ? 0 : w.thinkSeconds * exponential(this.thinking));
    if (goesOn) this.write(draft, completed.session, completed.turn + 1, said);
    else this.write(draft, this.sessions++, 0, 0);
    return true;
  }

  private gap(): number {
    const { arrivals, burstiness, requestsPerSecond, turns } = this.w;
    const mean = turns / requestsPerSecond;
    if (arrivals === 'constant') return mean;
    return mean * (arrivals === 'gamma' ? gamma(this.arrivals, burstiness) : exponential(this.arrivals));
  }

  private write(draft: Draft, session: number, turn: number, said: number): void {
    const { w } = this;
    this.drawn++;
    const { prompt, output } = this.drawExchange(this.lengths);
    draft.promptTokens = said + prompt + (turn === 0 ? w.sharedPrefixTokens : 0);
    draft.outputTokens = output;
    draft.session = this.identified ? session : -1;
    draft.turn = turn;
    draft.hashes = null;
  }

  private drawExchange(from: Uniform): { readonly prompt: number; readonly output: number } {
    const { observed, prompt, output } = this.w;
    const i = observed ? Math.floor(from() * observed.prompts.length) : 0;
    return {
      prompt: observed ? observed.prompts[i]! : drawLength(prompt, from),
      output: Math.max(1, observed ? observed.outputs[i]! : drawLength(output, from)),
    };
  }
}
