/**
 * Correctness: logits of a few decode steps against the float64 reference, before anything that the decoder does is
 * timed.
 */
import { hasOwnStorage, isPacked } from '../../codecs/registry.js';
import { ReferenceDecoder } from '../../decoder/reference/decoder.js';
import { loadModel } from '../../decoder/reference/model.js';
import { codecTensors, modelTensors } from '../../decoder/tensors.js';
import { fabricate, type FabricationOptions } from '../../decoder/weights.js';
import type { Geometry } from '../../geometry/geometry.js';
import { mix } from '../../numbers/hash.js';
import { median } from '../../numbers/statistics.js';
import type { Configuration } from '../../schedule/schedule.js';
import type { Device } from '../../gpu/index.js';
import { withDecoder } from '../decoding.js';
import { eachConfiguration, type MemoryReport, type MemoryRules } from './memory.js';

/**
 * Largest difference of a logit over the root mean square of the step's logits. Caches are in f32, so that only
 * arithmetic differs. A value that is rounded once more (codes, materialised rows in f16) may be between two
 * neighbours, and either is right; a random model amplifies that difference, and it stays in the cache. Where it is
 * more, the median of three random models counts: what is wrong is so in each. A model that amplifies rounding by
 * thousands has more: see amplification().
 */
export const LOGIT_TOLERANCE = { f32: 1e-3, rounded: 2e-2 };
const STEPS = 6;
/** So many that groups of tokens are packed. */
const PACKING_STEPS = 20;
const stepsOf = ({ codec }: Configuration): number => (isPacked(codec) ? PACKING_STEPS : STEPS);

export interface CorrectnessReport extends Pick<MemoryReport, 'notRun' | 'notReached'> {
  readonly rows: readonly {
    readonly id: string;
    readonly model: string;
    readonly error: number;
    readonly tolerance: number;
  }[];
}

export interface CorrectnessRules extends MemoryRules {
  /** Type of the cache; f32 unless given, so that nothing is rounded. */
  readonly storage?: 'f16';
}

/**
 * Rounding errors of a step's arithmetic in f32, in those of its cached rows: up to 75 in 35,000 steps of random
 * models.
 */
const ARITHMETIC = 100;

const made = (g: Geometry, seed: number): FabricationOptions => ({
  seed,
  tiedEmbeddings: g.tiedEmbeddings,
  codec: 'random',
});
const tokenOf = (g: Geometry, seed: number, step: number): number => mix(seed + step) % g.vocab;

function referenceOf(c: Configuration, seed: number, exactStorage: boolean): ReferenceDecoder {
  const model = loadModel(c.geometry, fabricate(modelTensors(c.geometry), made(c.geometry, seed)));
  const own = fabricate(codecTensors(c.geometry, c.codec, c.path, c.branch), made(c.geometry, seed));
  return new ReferenceDecoder(model, own, { ...c, exactStorage });
}

/** Logits of the reference and of the device for one case: the worst relative error of its steps. */
async function worstError(device: Device, c: Configuration, contextTokens: number, seed: number): Promise<number> {
  const reference = referenceOf(c, seed, false);
  return withDecoder(device, c, seed, { batch: 1, contextTokens }, async (decoder) => {
    let worst = 0;
    for (let i = 0; i < stepsOf(c); i++) {
      const token = tokenOf(c.geometry, seed, i);
      const expected = reference.step(token);
      await decoder.step([token]);
      worst = Math.max(worst, relativeError(await decoder.logits(), expected));
    }
    return worst;
  });
}

/**
 * Change of the reference's logits when its cached rows are rounded to f32: how much this random model amplifies
 * rounding.
 */
function amplification(c: Configuration, seed: number): number {
  const [rounded, exact] = [referenceOf(c, seed, false), referenceOf(c, seed, true)];
  let worst = 0;
  for (let i = 0; i < STEPS; i++) {
    const token = tokenOf(c.geometry, seed, i);
    worst = Math.max(worst, relativeError(rounded.step(token), exact.step(token)));
  }
  return worst;
}

/** Largest difference over the root mean square of what is expected; infinite where a value is no number. */
export function relativeError(actual: ArrayLike<number>, expected: ArrayLike<number>): number {
  let [worst, squares] = [0, 0];
  for (let i = 0; i < expected.length; i++) {
    const difference = Math.abs((actual[i] as number) - (expected[i] as number));
    if (Number.isNaN(difference)) return Infinity;
    worst = Math.max(worst, difference);
    squares += (expected[i] as number) ** 2;
  }
  return worst / Math.sqrt(squares / expected.length);
}

/** @throws GpuError for any failure but an operation without a kernel */
export async function checkCorrectness(device: Device, rules: CorrectnessRules): Promise<CorrectnessReport> {
  const { results, ...without } = await eachConfiguration('correctness', rules, async ({ c: exact, contextTokens }) => {
    const c: Configuration = { ...exact, choice: { ...exact.choice, storage: rules.storage ?? 'f32' } };
    const coarse = hasOwnStorage(c.codec) || c.materialised;
    let error = await worstError(device, c, contextTokens, rules.seed);
    let tolerance = coarse ? LOGIT_TOLERANCE.rounded : LOGIT_TOLERANCE.f32;
    // Computed only for a case that would fail: it needs two more references.
    if (!coarse && c.choice.storage === 'f32' && error > tolerance)
      tolerance = Math.max(tolerance, ARITHMETIC * amplification(c, rules.seed));
    if (coarse && error > tolerance) {
      const [second, third] = [mix(rules.seed + 1), mix(rules.seed + 2)];
      const errors = [error, await worstError(device, c, contextTokens, second)];
      error = median([...errors, await worstError(device, c, contextTokens, third)]);
    }
    return { error, tolerance };
  });
  return { rows: results.map(({ one: { id, c }, result }) => ({ id, model: c.geometry.name, ...result })), ...without };
}
