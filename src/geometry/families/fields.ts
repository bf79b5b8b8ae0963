/** Fields that families read alike, and what a family is. */
import { CONVENTIONAL, Config, LIMITS, received } from '../config.js';
import { isObject } from '../../io/json.js';
import { WEIGHT_BYTES, type Geometry } from '../geometry.js';
import { quantisedWeights } from '../quantised.js';

/** How one class of models writes its config. */
export interface Family {
  /** Names of its classes; null where files name none. */
  readonly architecture: RegExp | null;
  /** The field that counts its loops; null for a family without. */
  readonly loops: string | null;
  /** Other fields about loops or the cache that it reads, or refuses by itself. */
  readonly about?: readonly string[];
  read(c: Config, modelType: string): Geometry;
}

const TYPES = new Map<unknown, Geometry['weightType']>([
  ['bfloat16', 'bf16'],
  ['float16', 'f16'],
  ['float32', 'f32'],
]);

/** Element type of the weights, and how they are quantised. @param row inputs of a projection */
export function weightsOf(c: Config, row: number) {
  const value = c.get('dtype') ?? c.get('torch_dtype');
  const named = typeof value === 'string' ? value.replace(/^torch\./, '') : value;
  const weightType = value === undefined ? 'bf16' : TYPES.get(named);
  if (weightType === undefined)
    return c.refuse(
      `torch_dtype must be bfloat16, float16 or float32, ${received(value)}`,
      'give the config.json of the unquantised model',
    );
  const quantised = quantisedWeights(c, 8 * WEIGHT_BYTES[weightType], row);
  return {
    fields: { weightType, ...(quantised ? { quantised } : {}) },
    note: value === undefined ? '; no dtype stated, bf16 assumed' : '',
  };
}

/** Base of the rotary angles, under the first of the keys, or in rope_parameters. */
export function ropeTheta(c: Config, keys: readonly string[], fallback = 10_000): number {
  const parameters = c.get('rope_parameters');
  const nested = isObject(parameters) ? new Config(parameters, c.name).get('rope_theta') : undefined;
  const value = keys.map((k) => c.get(k)).find((v) => v !== undefined) ?? nested ?? fallback;
  if (typeof value === 'number' && value >= 1 && value <= 1e12) return value;
  return c.refuse(`${keys[0]} must be a number from 1 to 1e12, ${received(value)}`, `correct ${keys[0]}`);
}

/** Class defaults of attention's shape, where they are not the usual ones. */
export interface AttentionDefaults {
  /** The class default of num_key_value_heads is a number, not the query heads: so it must be stated. */
  readonly kvHeadsRequired?: boolean;
  /** Where it is not hidden / heads. */
  readonly headDim?: number;
  readonly headDimKeys?: readonly string[];
}

/** Heads, KV heads and head width, with the divisions that attention needs. */
export function attentionShape(
  c: Config,
  hidden: number,
  { kvHeadsRequired = false, headDim: headDimDefault, headDimKeys = ['head_dim'] }: AttentionDefaults = {},
): Pick<Geometry, 'heads' | 'kvHeads' | 'headDim'> {
  const heads = c.integer(['num_attention_heads', 'n_heads'], LIMITS.heads);
  const kvHeads = c.integer('num_key_value_heads', LIMITS.heads, kvHeadsRequired ? undefined : heads);
  if (heads % kvHeads !== 0)
    c.refuse(
      `num_attention_heads (${heads}) must be a multiple of num_key_value_heads (${kvHeads})`,
      'correct one of the two',
    );
  if (headDimDefault === undefined && headDimKeys.every((k) => c.get(k) === undefined) && hidden % heads !== 0) {
    c.refuse(
      `the hidden width (${hidden}) must be a multiple of the heads (${heads}) when head_dim is absent`,
      'add head_dim',
    );
  }
  const headDim = c.integer(headDimKeys, LIMITS.headDim, headDimDefault ?? hidden / heads, 2);
  if (headDim % 2 !== 0)
    c.refuse(
      `head_dim must be even, because rotary position embedding turns pairs, not ${headDim}`,
      'correct head_dim',
    );
  return { heads, kvHeads, headDim };
}

/** Refuses options that a class has and its published models leave off. @param layout whose alone is modelled */
export function refuseOptions(c: Config, keys: readonly string[], layout: string): void {
  const key = keys.find((k) => c.on(k));
  if (key !== undefined)
    c.refuse(
      `${key} is set, which changes the layers or the loops; only the layout of ${layout} is modelled`,
      CONVENTIONAL,
    );
}

/** Refuses fields that have another value than that of the layout that is modelled. */
export function refuseOthers(c: Config, fixed: readonly (readonly [string, unknown])[], layout: string): void {
  for (const [key, expected] of fixed) {
    const value = c.get(key) ?? expected;
    if (value !== expected)
      c.refuse(
        `${key} must be ${JSON.stringify(expected)} as in ${layout}, ${received(value)}; other layouts are not ` +
          'modelled',
        CONVENTIONAL,
      );
  }
}
