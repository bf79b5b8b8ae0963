/** A run under targets: whether its requests meet them, by one rule for every search. */
import { type Otherwise, type Service, type Setting } from './candidate.js';
import { figuresOf } from './figures.js';
import type { Targets } from './metrics.js';
import { enoughFor, leastFor, RUN_PARTS } from './misses.js';
import type { Bound } from './price/price.js';
import type { Least, Requested } from './workload/read.js';
import type { RunFigures } from './types.js';

export interface Trial {
  readonly meets: boolean;
  readonly missed: 'ttft' | 'tpot' | null;
  readonly figures: RunFigures;
  /** Output tokens of a request that comes: none of one that is refused. */
  readonly tokensEach: number;
  /** By which share another draw brings more load at most. */
  readonly margin: number;
  /** Too many requests are longer than the cache, or than the server takes. */
  readonly tooLong: boolean;
}

/** A first look takes so many seconds, in which a batch grows to what its rate makes of it, or those of a whole run. */
const LOOK_SECONDS = 120;
/** Lengths of a request that just meets its targets, in a part of a run: what one part has, the next has not. */
const SPANS_OF_A_PART = 3;

/** Where few sequences fit, each token takes an iteration: a run then has fewer requests, and a wider margin. */
const MOST_ITERATIONS = 300_000;

/** Of a first look: enough to tell a rate that is far off. */
export const look = (setting: Setting, service: Service): Least => ({
  requests: Math.min(enoughFor(1 - setting.targets.share), bearable(setting, service)),
  seconds: Math.min(LOOK_SECONDS, secondsOf(setting)),
});

/** Requests that tell the share that misses, part by part. */
const wantedOf = ({ share }: Targets): number => RUN_PARTS * enoughFor(1 - share);

/** Of a run whose parts each tell the share of requests that miss. */
export const whole = (setting: Setting, service: Service): Least => ({
  requests: Math.min(wantedOf(setting.targets), bearable(setting, service)),
  seconds: secondsOf(setting),
});

/** Requests of a run that is as long as a search's, at a rate: a queue takes time to grow. */
export const asLong = (setting: Setting, rate: number): Least => ({
  requests: 0,
  seconds: Math.min(secondsOf(setting), MOST_OF_A_LONG_RUN / rate),
});
const MOST_OF_A_LONG_RUN = 20_000;

const secondsOf = ({ targets, workload }: Setting): number =>
  // Of conversations, so that they come to their end in a part, and prompts are as long as they become.
  RUN_PARTS *
  SPANS_OF_A_PART *
  workload.turns *
  (targets.ttftSeconds + workload.meanOutputTokens * targets.tpotSeconds);

/** Requests of a run that takes not much longer than that, but so many that something may be sure. */
function bearable({ targets, workload, request, server }: Setting, { options }: Service): number {
  const tokens = workload.meanPromptTokens + workload.meanOutputTokens;
  const fitting = Math.min(options.maxNumSeqs, (options.blocks * options.blockTokens) / tokens);
  const passes = server.depth?.batching === 'loops' ? request.geometry.loops : 1;
  const each = (workload.meanOutputTokens * passes) / (Math.max(1, fitting) * options.replicas);
  return Math.max(leastFor(1 - targets.share), Math.ceil(MOST_ITERATIONS / each));
}

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
    meets: meets && (metrics.tpot.count > 0 || !targets.tpotAsked),
    // A request that is refused has no first token.
    missed: meets ? null : metrics.lateFirst + metrics.rejected >= metrics.slowTokens ? 'ttft' : 'tpot',
    figures: figuresOf(metrics),
    tokensEach: metrics.outputTokens / Math.max(1, metrics.completed + metrics.rejected),
    margin: metrics.load.margin,
    tooLong: metrics.rejected > allowed * (metrics.completed + metrics.rejected),
  };
}

/** Says that a rate is searched with more requests than were asked for. */
export const raisedNote = (targets: Targets, asked: number): string[] =>
  asked >= wantedOf(targets) ? [] : [`--requests ${asked} are too few to be sure of a rate: it is searched with more`];
