/**
 * Bits of quantised weights, by what a `config.json` says of them. The cache of such a model is as it was: servers keep
 * it in 16 bits.
 *
 * Each format stores a scale and often a zero point for a group of weights:
 *   awq, gptq, auto-round   bits + (16 + bits) / group; a symmetric gptq file has zero points all the same
 *   compressed-tensors      bits + 16 / group, without zero points where it is symmetric
 *   bitsandbytes            4 bits + 32 / 64, or + 8 / 64 + 32 / (64 · 256) with a second quantisation; 8 bits + 32 a
 * row
 *   fp8                     8 bits (a scale a tensor or block of 128 × 128)
 *   mlx                     bits + 32 / group, tables included
 * Tables and the head stay in the file's dtype unless the format takes them too.
 */
import { show } from '../errors.js';
import { received, type Config } from './config.js';
import type { QuantisedWeights } from './geometry.js';

const SCALE_BITS = 16;
const FLOAT8 = { float8: true } as const;
const BLOCKS = { float8: true, blocks: true } as const;
const UNPACKED = { unpacked: true } as const;
const HINT = 'give the config.json of an unquantised copy, whose cache is the same';

/** Weights of one scale: of a group, or of a row where the group is -1. */
function scaledBits(bits: number, scale: number, group: number, row: number): number {
  return bits + scale / (group > 0 ? group : row);
}

const bitsOf = (c: Config, key: string): number => c.integer(key, 8, undefined, 2);

/** Size of a group; -1 is a whole row. */
function groupOf(c: Config, fallback: number): number {
  const value = c.get('group_size') ?? fallback;
  if (typeof value === 'number' && Number.isInteger(value) && (value === -1 || (value >= 1 && value <= 65_536)))
    return value;
  return c.refuse(`group_size must be a whole number of weights, or -1, ${received(value)}`, HINT);
}

/**
 * How the weights of a model are stored, from the field that says so.
 * @param typeBits bits of the file's own dtype
 * @param row inputs of a projection: weights of one scale where groups are whole rows
 * @returns undefined where they are not quantised
 * @throws UserError for a format that is not known
 */
export function quantisedWeights(c: Config, typeBits: number, row: number): QuantisedWeights | undefined {
  const key = ['quantization_config', 'compression_config', 'quantization'].find((k) => c.on(k));
  if (key === undefined) return undefined;
  const q = c.object(key);
  const method = q.get('quant_method');
  if (method === undefined && q.get('bits') !== undefined && q.get('group_size') !== undefined) {
    if ((q.get('mode') ?? 'affine') !== 'affine')
      q.refuse(`mode must be "affine", ${received(q.get('mode'))}; bytes of others are not known here`, HINT);
    const plain = bitsOf(q, 'bits');
    const bits = scaledBits(plain, 2 * SCALE_BITS, groupOf(q, 64), row);
    return { layerBits: bits, tableBits: bits, name: `mlx ${plain} bit` };
  }
  const inLayers = (layerBits: number, name: string): QuantisedWeights => ({ layerBits, tableBits: typeBits, name });
  switch (method) {
    case 'awq':
    case 'gptq':
    case 'auto-round':
    case 'intel/auto-round': {
      const bits = bitsOf(q, q.has('w_bit') ? 'w_bit' : 'bits');
      return inLayers(scaledBits(bits, SCALE_BITS + bits, groupOf(q, 128), row), `${method} ${bits} bit`);
    }
    case 'bitsandbytes': {
      if (!q.boolean('load_in_4bit', false)) return { ...inLayers(8 + 32 / row, 'bitsandbytes 8 bit'), ...UNPACKED };
      const twice = q.boolean('bnb_4bit_use_double_quant', false);
      const bits = 4 + (twice ? 8 / 64 + 32 / (64 * 256) : 32 / 64);
      return { ...inLayers(bits, 'bitsandbytes 4 bit'), ...UNPACKED };
    }
    case 'fp8':
    case 'fbgemm_fp8':
      return q.has('weight_block_size')
        ? { ...inLayers(8, 'fp8 blocks'), ...BLOCKS }
        : { ...inLayers(8, 'fp8'), ...FLOAT8 };
    case 'compressed-tensors':
      return compressedTensors(q, row, inLayers);
    default:
      return c.refuse(
        `${key} has quant_method ${show(method)}, whose bytes are not known here; awq, gptq, auto-round, ` +
          'bitsandbytes, fp8, compressed-tensors and mlx are',
        HINT,
      );
  }
}

/** One group of layers whose weights are alike; others have another number of bytes. */
function compressedTensors(
  q: Config,
  row: number,
  inLayers: (bits: number, name: string) => QuantisedWeights,
): QuantisedWeights {
  const groups = q.object('config_groups');
  const [name, other] = groups.keys;
  if (name === undefined || other !== undefined)
    return q.refuse(`config_groups must have one group, not ${groups.keys.length}`, HINT);
  const weights = groups.object(name).object('weights');
  const bits = bitsOf(weights, 'num_bits');
  const symmetric = weights.boolean('symmetric', true);
  const group = groupOf(weights, -1);
  const stored = inLayers(
    scaledBits(bits, SCALE_BITS + (symmetric ? 0 : bits), group, row),
    `compressed-tensors ${bits} bit`,
  );
  if (bits !== 8 || weights.get('type') !== 'float') return stored;
  if (weights.get('strategy') === 'block') return { ...stored, ...BLOCKS };
  return group === -1 ? { ...stored, ...FLOAT8 } : stored;
}
