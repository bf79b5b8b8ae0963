/** Fabricated weights: values, their spread, and what stands for a model on disk. */
import { describe, expect, it } from 'vitest';
import { codecTensors, elementsOf, modelTensors } from '../../src/decoder/tensors.js';
import {
  combined,
  counterHash,
  fabricate,
  fabricatedValue,
  levelsOf,
  storedAs,
  tensorSeed,
} from '../../src/decoder/weights.js';
import { mix } from '../../src/numbers/hash.js';
import { parameterCount } from '../../src/geometry/geometry.js';
import { PRESETS } from '../../src/geometry/presets.js';
import { codecParameters } from '../../src/codecs/registry.js';
import { undecodable } from '../../src/decoder/decodable.js';
import { halfBits, halfValue } from '../../kernels/host/half.js';
import { SEED } from '../gpu/random.js';
import { BRANCH, GEOMETRIES, learnedCodecs } from './models.js';

const options = { seed: SEED, tiedEmbeddings: false, codec: 'random' } as const;

describe('tensors', () => {
  const decoded = PRESETS.filter((g) => undecodable(g) === undefined);
  it.each([...decoded, ...GEOMETRIES])('of $name are all of its parameters', (g) => {
    // A last norm that also follows the core is one parameter set, of which the decoder keeps two copies.
    const twice = g.normAfterCore ? g.hidden : 0;
    // What tells LoopUS when to stop (a norm with a bias, and a row with one) is not decoded.
    const stop = g.changeRank === undefined ? 0 : 3 * g.hidden + 1;
    const elements = modelTensors(g).reduce((sum, { shape }) => sum + elementsOf(shape), 0);
    expect(elements).toBe(parameterCount(g) + twice - stop);
  });

  it.each(GEOMETRIES)('of a codec on $name are those that the memory model counts', (g) => {
    for (const codec of learnedCodecs(g, 0.5)) {
      for (const path of ['reconstruct', 'absorbed'] as const) {
        const elements = codecTensors(g, codec, path, BRANCH).reduce((sum, { shape }) => sum + elementsOf(shape), 0);
        expect(elements).toBe(codecParameters(g, codec, path, BRANCH));
      }
    }
    expect(codecTensors(g, { kind: 'full' }, 'full', BRANCH)).toEqual([]);
  });

  it.each(PRESETS.filter((g) => undecodable(g) !== undefined))('of $name are refused with the reason', (g) => {
    expect(() => modelTensors(g)).toThrow(`${g.name} ${undecodable(g)}, which the decoder does not run`);
  });

  it('are those of Ouro, Huginn, Nanbeige and retrofitted Llamas', () => {
    expect(decoded.map((g) => g.name)).toEqual(
      expect.arrayContaining(['ouro-1.4b', 'huginn-3.5b', 'nanbeige4.2-3b', 'recurrent-tinyllama-1.1b']),
    );
  });

  it('of a layout that the decoder does not know are refused', () => {
    const g = GEOMETRIES[0]!;
    expect(() => modelTensors({ ...g, extraParametersPerLayer: 5 })).toThrow('5 parameters a layer');
    expect(() => modelTensors({ ...g, mlp: 'plain' })).toThrow('without a gate');
  });
});

describe('fabricated weights (seed ' + SEED + ')', () => {
  const specs = [
    { name: 'm', shape: [300, 200], role: 'matrix' },
    { name: 'other', shape: [300, 200], role: 'matrix' },
    { name: 'n', shape: [3000], role: 'norm' },
    { name: 'b', shape: [3000], role: 'bias' },
    { name: 'codec.layers.0.key.down', shape: [2, 512, 96], role: 'codec' },
    { name: 'codec.layers.0.key.up', shape: [2, 512, 96], role: 'codec' },
  ] as const;
  const source = fabricate(specs, options);

  it('are halves, spread as stated around 0 or 1', () => {
    for (const [name, mean, deviation] of [
      ['m', 0, 200 ** -0.5],
      ['n', 1, 0.25 / Math.sqrt(3)],
      ['b', 0, 0.1],
      ['codec.layers.0.key.down', 0, 512 ** -0.5],
    ] as const) {
      const values = [...source.read(name)];
      for (const x of values) expect(halfValue(halfBits(x))).toBe(x);
      const average = values.reduce((a, b) => a + b, 0) / values.length;
      const variance = values.reduce((a, b) => a + (b - average) ** 2, 0) / values.length;
      expect(Math.abs(average - mean)).toBeLessThan((5 * deviation) / Math.sqrt(values.length));
      expect(Math.sqrt(variance) / deviation).toBeCloseTo(1, 1);
    }
  });

  it('depend on seed, name and index only, so that any part can be made alone', () => {
    const all = source.read('m');
    expect([...source.read('m', 12345, 10)]).toEqual([...all.subarray(12345, 12355)]);
    const spec = specs[0];
    expect(fabricatedValue(tensorSeed(SEED, 'm'), levelsOf(spec, false), 777)).toBe(all[777]);
    const same = (a: Float32Array, b: Float32Array): number =>
      a.reduce((n, x, i) => n + (x === b[i] ? 1 : 0), 0) / a.length;
    expect(same(all, source.read('other'))).toBeLessThan(0.01);
    expect(same(all, fabricate(specs, { ...options, seed: SEED + 1 }).read('m'))).toBeLessThan(0.01);
  });

  it('are no permutation of one another: single hashes of two tensors are, when their seeds are close', () => {
    const [a] = tensorSeed(SEED, 'm');
    const words = (hash: (i: number) => number): Set<number> =>
      new Set(Array.from({ length: 4096 }, (_, i) => hash(i)));
    const overlap = (x: Set<number>, y: Set<number>): number => [...x].filter((w) => y.has(w)).length;
    expect(
      overlap(
        words((i) => mix(i ^ a)),
        words((i) => mix(i ^ (a ^ 5))),
      ),
    ).toBe(4096);
    expect(
      overlap(
        words((i) => counterHash([a, 1], i)),
        words((i) => counterHash([a ^ 5, 2], i)),
      ),
    ).toBeLessThan(5);
  });

  it('of a codec: columns nearly orthonormal, W_up the slices of W_down, or an identity', () => {
    const down = source.read('codec.layers.0.key.down', 0, 512 * 96);
    const column = (r: number): number[] => Array.from({ length: 512 }, (_, i) => down[i * 96 + r]!);
    const dot = (a: number[], b: number[]): number => a.reduce((sum, x, i) => sum + x * b[i]!, 0);
    expect(dot(column(3), column(3))).toBeCloseTo(1, 0);
    expect(Math.abs(dot(column(3), column(4)))).toBeLessThan(0.3);
    expect(source.read('codec.layers.0.key.up')).toEqual(source.read('codec.layers.0.key.down'));
    const identity = fabricate(specs, { ...options, codec: 'identity' }).read('codec.layers.0.key.down');
    for (let i = 0; i < identity.length; i++) expect(identity[i]).toBe(Math.floor(i / 96) % 512 === i % 96 ? 1 : 0);
  });

  it('cannot be read beyond their end', () => {
    expect(() => source.read('m', 59_999, 2)).toThrow(RangeError);
    expect(() => source.read('m', -1)).toThrow(RangeError);
    expect(() => source.read('nothing')).toThrow('no tensor nothing');
  });
});

describe('sources', () => {
  const plain = {
    shapes: new Map([['x', [3]]]),
    read: (_: string, from = 0, count = 3 - from) => Float32Array.from([1 / 3, 65504, 70000].slice(from, from + count)),
  };

  it('hold weights as halves, and refuse what no half can hold', () => {
    expect([...storedAs(plain, 'f16').read('x', 0, 2)]).toEqual([halfValue(halfBits(1 / 3)), 65504]);
    expect(() => storedAs(plain, 'f16').read('x', 1)).toThrow(
      'tensor x holds 70000 at element 2, beyond the range of f16',
    );
    expect(storedAs(plain, 'f32')).toBe(plain);
  });

  it('are combined by name, which must be unique', () => {
    const other = fabricate([{ name: 'y', shape: [2], role: 'norm' }], options);
    const both = combined(plain, other);
    expect([...both.shapes.keys()]).toEqual(['x', 'y']);
    expect(both.read('y')).toEqual(other.read('y'));
    expect(() => both.read('z')).toThrow(RangeError);
    expect(() => combined(plain, plain)).toThrow('tensor x is given twice');
  });
});
