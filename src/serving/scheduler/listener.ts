/** What a schedule tells: its driver, and what is counted. */
import type { Metrics } from '../metrics.js';

/** What the schedule tells its driver. */
export interface Listener {
  /** A request has a place, for the first time or again. */
  began(slot: number): void;
  /** A request gets output tokens, apart from those of `stepped`. Those that it had before are not counted yet. */
  token(slot: number, tokens: number): void;
  /** Its last token is out, and its place is free. */
  ended(slot: number): void;
  /** Its prompt is done, and another replica decodes. */
  prefilled(slot: number): void;
  /** It lost its cache, and waits again. */
  preempted?(slot: number): void;
  /** So many sequences have a token each. */
  stepped?(sequences: number): void;
  /** A sequence decodes from now on, whose last token came at another time than those of the others. */
  joined?(slot: number): void;
  /** A sequence of those that are counted is preempted. */
  left?(slot: number): void;
}

/** What is counted of a schedule. */
export type Counts = Pick<Metrics, 'preemptions' | 'recomputedTokens' | 'lookedUpTokens' | 'hitTokens'>;
