/**
 * Weights as named arrays. They come from a file (safetensors.ts) or are fabricated from a seed, at any size and
 * element by element, so that a GPU kernel can fill the same values in place and nothing is ever uploaded.
 */
import { UserError } from '../errors.js';
import { mix } from '../numbers/hash.js';
import { halfBits, halfValue } from '../../kernels/host/half.js';
import { elementsOf, type TensorSpec } from './tensors.js';

/** Tensors that can be read in parts. */
export interface TensorSource {
  readonly shapes: ReadonlyMap<string, readonly number[]>;
  /**
   * Elements [from, from + count) of a tensor, row-major, in f32 without loss; all of it by default.
   * @throws UserError when the tensor's file cannot be read, or holds NaN or infinity there
   * @throws RangeError for a tensor that does not exist, or elements beyond its end
   */
  read(name: string, from?: number, count?: number): Float32Array;
}

export interface NamedTensor {
  readonly name: string;
  readonly shape: readonly number[];
  readonly values: Float32Array;
}

/** Tensors in memory as a source; their values are not copied. */
export function inMemory(tensors: readonly NamedTensor[]): TensorSource {
  const byName = new Map(tensors.map((tensor) => [tensor.name, tensor]));
  return {
    shapes: new Map(tensors.map(({ name, shape }) => [name, shape])),
    read(name, from = 0, count) {
      const tensor = byName.get(name);
      if (!tensor) throw new RangeError(`no tensor ${name}`);
      return tensor.values.slice(from, count === undefined ? undefined : from + count);
    },
  };
}

/** All tensors of a source, read. @param prefix before their names */
export const listed = (source: TensorSource, prefix = ''): NamedTensor[] =>
  [...source.shapes].map(([name, shape]) => ({ name: prefix + name, shape: [...shape], values: source.read(name) }));

/** The two words that a tensor's values depend on beside the index: from the seed and the name (FNV-1a). */
export function tensorSeed(seed: number, name: string): readonly [number, number] {
  let hash = 0x811c9dc5;
  for (const character of name) hash = Math.imul(hash ^ (character.codePointAt(0) as number), 0x01000193);
  const first = mix(mix(seed) ^ hash);
  return [first, mix(first ^ 0x9e3779b9)];
}

/** Word `index` of a tensor. Two rounds: with one, two tensors would be the same words in another order. */
export const counterHash = ([first, second]: readonly [number, number], index: number): number =>
  mix(mix(index ^ first) + second);

/**
 * The values that a fabricated tensor can take: base + step · (2k + 1 − count) for k = 0 … count − 1, all equally
 * likely. `step` is a power of two and `count` at most 2048, so every value is a half: nothing is rounded, on any
 * device.
 */
export interface Levels {
  readonly base: number;
  readonly step: number;
  readonly count: number;
}

const MOST_LEVELS = 2048;

/** Levels around 0 with this standard deviation: step² (count² − 1) / 3 is the variance. */
function levelsWithDeviation(deviation: number): Levels {
  const exponent = Math.ceil(Math.log2((Math.sqrt(3) * deviation) / MOST_LEVELS));
  if (exponent < -24)
    throw new RangeError(`a standard deviation of ${deviation} is below what half precision resolves`);
  const step = 2 ** exponent;
  return { base: 0, step, count: Math.min(MOST_LEVELS, Math.round(Math.sqrt(3 * (deviation / step) ** 2 + 1))) };
}

/** Deviation of fabricated biases and means: visible beside activations of size 1, and not dominant. */
const BIAS_DEVIATION = 0.1;
/** Norm weights lie within 1 ± 0.25. */
const NORM_LEVELS: Levels = { base: 1, step: 2 ** -10, count: 256 };

/**
 * The levels of a tensor. Matrices keep the size of what they multiply (variance 1 / inputs); columns of codec matrices
 * have length 1, as the singular vectors of the paper's initialisation; a tied embedding is scaled for its use as the
 * output head.
 */
export function levelsOf(spec: TensorSpec, tiedEmbeddings: boolean): Levels {
  switch (spec.role) {
    case 'norm':
      return NORM_LEVELS;
    case 'bias':
    case 'mean':
      return levelsWithDeviation(BIAS_DEVIATION);
    case 'embedding':
      return levelsWithDeviation(tiedEmbeddings ? (spec.shape[1] as number) ** -0.5 : 1);
    case 'codec':
    case 'matrix':
      return levelsWithDeviation((spec.shape[1] as number) ** -0.5);
  }
}

/** Element `index` of a fabricated tensor: integer arithmetic in 32 bits up to the last product. */
export function fabricatedValue(
  words: readonly [number, number],
  { base, step, count }: Levels,
  index: number,
): number {
  const level = ((counterHash(words, index) >>> 16) * count) >>> 16;
  return base + step * (2 * level + 1 - count);
}

export interface FabricationOptions {
  readonly seed: number;
  readonly tiedEmbeddings: boolean;
  /**
   * `random` codec matrices lose what their rank cannot hold; `identity` ones copy the first `rank` components of the
   * stacked vector, so that full ranks reproduce the uncompressed cache.
   */
  readonly codec: 'random' | 'identity';
}

/** What a codec's up-projection takes its values from: the paper initialises it with the slices of W_down. */
const valueName = (name: string): string => name.replace(/^(codec\..*)\.up$/, '$1.down');

/** Fabricated tensors with these names and shapes. Values depend on the seed, the tensor's name and the index only. */
export function fabricate(specs: readonly TensorSpec[], options: FabricationOptions): TensorSource {
  const byName = new Map(specs.map((spec) => [spec.name, spec]));
  return {
    shapes: new Map(specs.map((spec) => [spec.name, spec.shape])),
    read(name, from = 0, count) {
      const spec = byName.get(name);
      if (!spec) throw new RangeError(`no tensor ${name}`);
      const length = checkedLength(name, elementsOf(spec.shape), from, count);
      if (spec.role === 'codec' && options.codec === 'identity') {
        const [, width, rank] = spec.shape as [number, number, number];
        return Float32Array.from({ length }, (_, i) =>
          Math.floor((from + i) / rank) % width === (from + i) % rank ? 1 : 0,
        );
      }
      const words = tensorSeed(options.seed, valueName(name));
      const levels = levelsOf(spec, options.tiedEmbeddings);
      const values = new Float32Array(length);
      for (let i = 0; i < length; i++) values[i] = fabricatedValue(words, levels, from + i);
      return values;
    },
  };
}

/** The number of elements to read. @throws RangeError beyond the tensor's end */
export function checkedLength(name: string, elements: number, from: number, count = elements - from): number {
  if (!Number.isInteger(from) || !Number.isInteger(count) || from < 0 || count < 0 || from + count > elements) {
    throw new RangeError(`elements ${from} to ${from + count} of ${name}, which has ${elements}`);
  }
  return count;
}

/** Element types in which a decoder holds weights. */
export type WeightStorage = 'f16' | 'f32';

/**
 * The same tensors as a decoder holds them: rounded to the nearest half, or as they are.
 * @throws UserError on reading a value that no half can hold
 */
export function storedAs(source: TensorSource, storage: WeightStorage): TensorSource {
  if (storage === 'f32') return source;
  return {
    shapes: source.shapes,
    read(name, from = 0, count) {
      const values = source.read(name, from, count);
      for (let i = 0; i < values.length; i++) {
        const value = values[i] as number;
        values[i] = halfValue(halfBits(value));
        if (!Number.isFinite(values[i]))
          throw new UserError(
            `tensor ${name} holds ${value} at element ${from + i}, beyond the range of f16`,
            'store the weights as f32',
          );
      }
      return values;
    },
  };
}

/** One source over several: a model's tensors and its codec's. Names must differ. */
export function combined(...sources: readonly TensorSource[]): TensorSource {
  const owners = new Map<string, TensorSource>();
  for (const source of sources) {
    for (const name of source.shapes.keys()) {
      if (owners.has(name)) throw new UserError(`tensor ${name} is given twice`, 'leave one of the files out');
      owners.set(name, source);
    }
  }
  return {
    shapes: new Map([...owners].map(([name, source]) => [name, source.shapes.get(name) as readonly number[]])),
    read(name, from, count) {
      const owner = owners.get(name);
      if (!owner) throw new RangeError(`no tensor ${name}`);
      return owner.read(name, from, count);
    },
  };
}
