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
/** Of 8-bit weights those that servers make from a model's own as they load it. */
const SMALL_WEIGHTS = 'fp8';

/**
 * The least change of each kind with which a sequence fits: more GPUs, weights in 8 bits (alone, or on fewer GPUs than
 * without), other codecs, a shorter context, eviction.
 * @param scenario with which nothing fits
 * @returns words such as `--gpus 2`; none where no such change helps
 */
function remediesFor(scenario: Scenario, sources: Sources): string[] {
  const fits = (changed: Scenario): boolean => {
    try {
      const model = withWeights(sources.model, changed.weightType === scenario.weightType ? undefined : SMALL_WEIGHTS);
      const { request, refused } = prepare(changed, { ...sources, model });
      return hasSolution(makePlan(request, refused, { everyRow: false }));
    } catch (error) {
      // A change that cannot be asked of this model, such as eviction.
      if (error instanceof UserError) return false;
      throw error;
    }
  };
  const { request } = prepare(scenario, sources);
  const degrees = degreesFor(request.geometry).filter((n) => n > request.gpus);
  const gpus = degrees.find((n) => fits({ ...scenario, gpus: n }));
  const small: Scenario = { ...scenario, weightType: SMALL_WEIGHTS };
  const smallOn =
    scenario.weightType !== undefined
      ? undefined
      : fits(small)
        ? request.gpus
        : degrees.find((n) => (gpus === undefined || n < gpus) && fits({ ...small, gpus: n }));
  const contexts: number[] = [];
  for (let tokens = 2 ** (Math.ceil(Math.log2(request.contextTokens)) - 1); tokens >= SHORTEST_CONTEXT; tokens /= 2)
    contexts.push(tokens);
  const context = contexts.find((tokens) => fits({ ...scenario, context: tokens }));
  const { codec, ratio, ranks, path, window: _window, shared: _shared, ...open } = scenario;
  const named = Object.entries({ codec, ratio, ranks, path }).flatMap(([name, value]) => (value ? [`--${name}`] : []));
  return present([
    gpus !== undefined && `--gpus ${gpus}`,
    smallOn !== undefined && `${smallOn > request.gpus ? `--gpus ${smallOn} ` : ''}--weight-type ${SMALL_WEIGHTS}`,
    named.length > 0 && fits(open) && `other codecs, without ${named.join(', ')}`,
    context !== undefined && `--ctx ${formatTokens(context)}`,
    scenario.eviction === undefined &&
      fits({ ...scenario, eviction: [EVICTION] }) &&
      `--eviction ${EVICTION}, which drops tokens`,
  ]);
}

/** The next step where nothing fits. */
export function remedyWords(scenario: Scenario, sources: Sources): string {
  const found = remediesFor(scenario, sources);
  return found.length === 0 ? 'take a larger GPU' : `what fits: ${found.join('; or ')}`;
}
