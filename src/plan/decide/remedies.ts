/** What would make a question fit in which nothing fits: each remedy is planned before it is named. Pure. */
import { UserError } from '../../errors.js';
import type { Scenario } from '../../schema/settings.js';
import { formatTokens } from '../../numbers/units.js';
import { present } from '../../present.js';
import { prepare, type Sources } from '../ask/prepare.js';
import { withWeights } from '../ask/sources.js';
import { degreesFor } from './fleet.js';
import { hasSolution, makePlan } from '../plan.js';

/** Shorter contexts are no answer to a question about a long one. */
const SHORTEST_CONTEXT = 1024;
/** Sinks and a window, as StreamingLLM uses them: a thousand tokens stay. */
const EVICTION = 'streaming:4+1020';
/** Where a whole prompt's own bytes are too many. */
const CHUNKED = ' --prefill chunked';
/** Of 8-bit weights those that servers make from a model's own as they load it. */
const SMALL_WEIGHTS = 'fp8';

/**
 * The least change of each kind with which a sequence fits: more GPUs, weights in 8 bits (alone, or on fewer GPUs than
 * without), other codecs, a shorter context, eviction.
 * @param scenario with which nothing fits
 * @returns words such as `--gpus 2`; none where no such change helps
 */
function remediesFor(scenario: Scenario, sources: Sources): string[] {
  // With room for a prompt beside a sequence: nothing else is recommended.
  const fits = (changed: Scenario): boolean => {
    try {
      const model = withWeights(sources.model, changed.weightType === scenario.weightType ? undefined : SMALL_WEIGHTS);
      const { request, refused } = prepare(changed, { ...sources, model });
      const report = makePlan(request, refused, { everyRow: false });
      return hasSolution(report) && report.plans.some((p) => p.prefill.fits);
    } catch (error) {
      // A change that cannot be asked of this model, such as eviction.
      if (error instanceof UserError) return false;
      throw error;
    }
  };
  /** What makes room for a prompt there, if anything does. */
  const withRoom = (changed: Scenario): string | null =>
    fits(changed) ? '' : scenario.prefill === undefined && fits({ ...changed, prefill: 'chunked' }) ? CHUNKED : null;
  /** The first of these values with which a prompt has room, in words too. */
  const first = <T>(values: readonly T[], flagOf: (value: T) => string, change: (value: T) => Partial<Scenario>) => {
    for (const value of values) {
      const room = withRoom({ ...scenario, ...change(value) });
      if (room !== null) return { value, words: `${flagOf(value)}${room}` };
    }
    return null;
  };
  const { request } = prepare(scenario, sources);
  const degrees = degreesFor(request.geometry).filter((n) => n > request.gpus);
  const more = first(
    degrees,
    (n) => `--gpus ${n}`,
    (gpus) => ({ gpus }),
  );
  const small: Scenario = { ...scenario, weightType: SMALL_WEIGHTS };
  const smallOn =
    scenario.weightType !== undefined
      ? undefined
      : fits(small)
        ? request.gpus
        : degrees.find((n) => (more === null || n < more.value) && fits({ ...small, gpus: n }));
  const contexts: number[] = [];
  const { maxPositions } = request.geometry;
  for (let tokens = 2 ** (Math.ceil(Math.log2(request.contextTokens)) - 1); tokens >= SHORTEST_CONTEXT; tokens /= 2)
    if (tokens <= maxPositions) contexts.push(tokens);
  const shorter = first(
    contexts,
    (tokens) => `--ctx ${formatTokens(tokens)}`,
    (context) => ({ context }),
  );
  const { codec, ratio, ranks, path, window: _window, shared: _shared, ...open } = scenario;
  const named = Object.entries({ codec, ratio, ranks, path }).flatMap(([name, value]) => (value ? [`--${name}`] : []));
  const evicting = first(
    scenario.eviction === undefined ? [EVICTION] : [],
    (policy) => `--eviction ${policy}`,
    (policy) => ({ eviction: [policy] }),
  );
  return present([
    more?.words,
    smallOn !== undefined && `${smallOn > request.gpus ? `--gpus ${smallOn} ` : ''}--weight-type ${SMALL_WEIGHTS}`,
    named.length > 0 && fits(open) && `other codecs, without ${named.join(', ')}`,
    shorter?.words,
    evicting && `${evicting.words}, which drops tokens`,
  ]);
}

/** The next step where nothing fits. */
export function remedyWords(scenario: Scenario, sources: Sources): string {
  const found = remediesFor(scenario, sources);
  return found.length === 0 ? 'take a larger GPU' : `what fits: ${found.join('; or ')}`;
}
