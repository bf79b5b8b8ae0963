/** The closed-form start of HLA's maps, on fabricated weights and random inputs. */
import { describe, expect, it } from 'vitest';
import type { Codec } from '../../src/codecs/codec.js';
import { hybridTensor, layerTensor, modelTensors } from '../../src/decoder/tensors.js';
import { fabricate } from '../../src/decoder/weights.js';
import { fitHybridLayer, refuseHybridFit } from '../../src/fit/hybrid.js';
import { fitText, type FitReport } from '../../src/fit/report.js';
import { emptyMoments, momentsPlan, type LayerMoments } from '../../src/fit/moments.js';
import type { Geometry } from '../../src/geometry/geometry.js';
import { GEOMETRIES } from '../decoder/models.js';
import { randomOf, SEED } from '../gpu/random.js';

const TOKENS = 40;
/** Wide enough for a sketch. */
const g: Geometry = { ...(GEOMETRIES[0] as Geometry), heads: 4, kvHeads: 4 };
const { loops, kvHeads, headDim: d, hidden } = g;
const model = fabricate(modelTensors(g), { seed: SEED, tiedEmbeddings: false, codec: 'random' });
const random = randomOf(SEED);
/** Attention's inputs of each loop and token; loops resemble each other. */
const inputs = (() => {
  const draw = () => random.whole(-1000, 1000) / 1000;
  const shared = Array.from({ length: TOKENS }, () => Array.from({ length: hidden }, draw));
  return Array.from({ length: loops }, () => shared.map((x) => x.map((value) => value + 0.3 * draw())));
})();

/** [loop][KV head][component][token] of a projection. */
const columnsOf = (letter: 'k' | 'v'): Float64Array[][][] => {
  const weights = model.read(layerTensor(0, `self_attn.${letter}_proj.weight`));
  return inputs.map((tokens) =>
    Array.from({ length: kvHeads }, (_, head) =>
      Array.from({ length: d }, (_, i) =>
        Float64Array.from(tokens, (x) =>
          x.reduce((sum, value, j) => sum + value * (weights[(head * d + i) * hidden + j] as number), 0),
        ),
      ),
    ),
  );
};
const columns = { key: columnsOf('k'), value: columnsOf('v') };

function fitted(codec: Codec, widestExact?: number) {
  const plan = momentsPlan(g, [{ codec, initialisation: 'svd' }], widestExact);
  const moments: LayerMoments = emptyMoments(plan);
  for (const axis of ['key', 'value'] as const)
    moments[axis].forEach((own, i) => {
      for (const vectors of plan.stacks[axis][i]!.vectors(columns[axis])) own.add(vectors, TOKENS);
    });
  const { tensors, energy } = fitHybridLayer(g, codec, 0, moments, model);
  const read = (part: 'first' | 'shared', map: 'encode' | 'key' | 'value'): Float32Array =>
    tensors.find(({ name }) => name === hybridTensor(0, part, map))!.values;
  return { read, energy };
}

/** Squared size of keys or values that a latent stands for, and of what it leaves of them. */
type Read = ReturnType<typeof fitted>['read'];
function lossOf(codec: Codec, part: 'first' | 'shared', axis: 'key' | 'value', read: Read) {
  const [k, v] = part === 'first' ? [codec.rankFirst!, codec.rankFirst!] : [codec.rankK!, codec.rankV!];
  const [from, rank] = axis === 'key' ? [0, k] : [k, v];
  const own = part === 'first' ? [0] : Array.from({ length: loops - 1 }, (_, i) => i + 1);
  const [encode, map] = [read(part, 'encode'), read(part, axis)];
  let [size, left] = [0, 0];
  for (let token = 0; token < TOKENS; token++) {
    const weight = (row: number, r: number): number => encode[row * (k + v) + from + r] as number;
    const share = (loop: number, t: number, r: number): number =>
      inputs[loop]![token]!.reduce((sum, x, j) => sum + x * weight(t * hidden + j, r), 0);
    const latent = Array.from({ length: rank }, (_, r) => own.reduce((sum, loop, t) => sum + share(loop, t, r), 0));
    own.forEach((loop, t) => {
      for (let row = 0; row < kvHeads * d; row++) {
        const exact = columns[axis][loop]![Math.floor(row / d)]![row % d]![token] as number;
        const rebuilt = latent.reduce((sum, c, r) => sum + c * (map[(t * kvHeads * d + row) * rank + r] as number), 0);
        size += exact ** 2;
        left += (exact - rebuilt) ** 2;
      }
    });
  }
  return left / size;
}

describe(`fit of hla, seed ${SEED}`, () => {
  const hla = (rankK: number, rankV: number, rankFirst: number): Codec => {
    return { kind: 'hla', rankK, rankV, rankFirst, windowTokens: 0 };
  };
  const parts = (['first', 'shared'] as const).flatMap((part, group) =>
    (['key', 'value'] as const).map((axis) => ({ part, group, axis })),
  );

  it('loses nothing at full ranks', () => {
    const codec = hla(32, 32, 16);
    const { read } = fitted(codec);
    for (const { part, axis } of parts) expect(lossOf(codec, part, axis, read), `${part} ${axis}`).toBeLessThan(1e-9);
  });

  it('keeps the share of squared keys and values that it says, of values from a sketch at least that', () => {
    const codec = hla(8, 5, 4);
    for (const widest of [1024, 8]) {
      const { read, energy } = fitted(codec, widest);
      expect(energy.some(({ below }) => below !== undefined)).toBe(widest === 8);
      for (const { part, group, axis } of parts) {
        const kept = 1 - lossOf(codec, part, axis, read);
        const own = energy.find((e) => e.axis === axis && e.group === group)!;
        expect(kept - own.kept, `${part} ${axis}`).toBeGreaterThan(-1e-6);
        expect(kept - own.kept - (own.below ?? 0), `${part} ${axis}`).toBeLessThan(1e-6);
      }
    }
  });

  it('begins with its own eigenvectors alone, and needs projections without biases', () => {
    expect(() => refuseHybridFit(g, 'random')).toThrow('eigenvectors of its own, not random');
    const qkv = { ...g, extraParametersPerLayer: 3 * 4 * 4 };
    expect(() => refuseHybridFit(qkv, 'svd')).toThrow('have biases');
  });
});

describe('the text of a fit', () => {
  const text = (codec: Codec, groups: readonly number[]): string =>
    fitText(g, {
      schema: 'lla-sim/fit',
      schemaVersion: 1,
      model: { name: g.name, fingerprint: '' },
      codec,
      ratio: 4,
      initialisation: 'svd',
      tokens: 2000,
      passes: 1,
      meanKept: { svd: 0.9, random: 0.5 },
      energy: groups.flatMap((group) =>
        (['key', 'value'] as const).map((axis) => ({ layer: 0, axis, group, kept: axis === 'key' ? 0.9 : 0.8 })),
      ),
    } as FitReport);

  it('names its latents: parts of hla, or heads; those that lose most; controls', () => {
    const parts = text({ kind: 'hla', rankK: 8, rankV: 5, rankFirst: 4, windowTokens: 0 }, [0, 1]);
    expect(parts).toMatch(/^layer axis first loop later loops$/m);
    expect(parts).toContain('loses most: layer 0 V first loop (80.0 % kept), layer 0 V later loops (80.0 % kept), ');
    const heads = text({ kind: 'lla', rankK: 8, rankV: 5 }, [0, 1, 2, 3]);
    expect(heads).toMatch(/^layer axis head 0 head 1 head 2 head 3$/m);
    expect(heads).toContain('on 2000 tokens in 1 pass\n');
    expect(heads).toMatch(/^    0 K    90.0 % 90.0 % 90.0 % 90.0 %$/m);
    expect(heads).toContain('mean kept: 90.0 %; random 50.0 %');
  });
});
