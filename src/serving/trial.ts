/** A run under targets: whether its requests meet them, by one rule for every search. */
import { type Otherwise, type Service, type Setting } from './candidate.js';
import { figuresOf } from './figures.js';
import type { Targets } from './metrics.js';
import { enoughFor, RUN_PARTS } from './misses.js';
import type { Bound } from './price/price.js';
import type { Least, Requested } from './question.js';
import type { RunFigures } from './types.js';

/** A run under targets. */
export interface Trial {
  readonly meets: boolean;
  readonly missed: 'ttft' | 'tpot' | null;
  readonly figures: RunFigures;
  /** By which share another draw brings more load at most. */
  readonly margin: number;
  /** Too many requests are longer than the cache, or than the server takes. */
  readonly tooLong: boolean;
}

/** Made-up requests of a first look come for at least this long, so that a batch grows to what a rate makes of it. */
const LOOK_SECONDS = 120;
/** Lengths of a request that just meets its targets, in a part of a run: what one part has, the next has not. */
const SPANS_OF_A_PART = 3;

/** Of long answers a whole run has fewer requests, and a wider margin: a token of one sequence takes an iteration. */
const MOST_TOKENS = 1.5e6;

/** Of a first look: enough to tell a rate that is far off. */
export const look = ({ targets }: Setting): Least => ({
  requests: enoughFor(1 - targets.share),
  seconds: LOOK_SECONDS,
});

/** Of a run whose parts each tell the share of requests that miss. */
export function whole(setting: Setting): Least {
  const enough = enoughFor(1 - setting.targets.share);
  const bearable = Math.ceil(MOST_TOKENS / setting.workload.meanOutputTokens);
  return {
    requests: Math.max(enough, Math.min(RUN_PARTS * enough, bearable)),
    seconds: RUN_PARTS * SPANS_OF_A_PART * spanOf(setting),
  };
}

const spanOf = ({ targets, workload }: Setting): number =>
  targets.ttftSeconds + workload.meanOutputTokens * targets.tpotSeconds;

/**
 * Serves requests until too many of them have missed a target. At the slow end of the prices it has to be sure that no
 * more do in the long run; else what this draw says counts.
 */
export function trial(
  service: Service,
  targets: Targets,
  bound: Bound,
  requested: Requested,
  asked?: Otherwise,
): Trial {
  const allowed = 1 - targets.share;
  const sure = bound === 'high';
  const { metrics, finished } = service.run(bound, requested, (m) => m.misses.tooMany(allowed, sure), asked);
  const { share, atMost } = metrics.misses;
  const few = share !== null && (sure ? atMost : share) <= allowed + 1e-9;
  const meets = finished && few;
  return {
    // Without a second token nothing is known about the time between tokens.
    meets: meets && metrics.tpot.count > 0,
    // A request that is refused has no first token.
    missed: meets ? null : metrics.lateFirst + metrics.rejected >= metrics.slowTokens ? 'ttft' : 'tpot',
    figures: figuresOf(metrics),
    margin: metrics.load.margin,
    tooLong: metrics.rejected > allowed * (metrics.completed + metrics.rejected),
  };
}
