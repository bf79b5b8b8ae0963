/** Covariances, bases and the file of codec weights, without a GPU. */
import { cpSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { codecFacts, codecTensors, openCodecFile, SafetensorsFile, writeCodecFile } from '../../src/decoder/index.js';
import { fabricate } from '../../src/decoder/weights.js';
import { latentGroups } from '../../src/decoder/tensors.js';
import { effectiveRank, principalBasis, randomBasis } from '../../src/fit/basis.js';
import { Covariance, type Moments } from '../../src/fit/covariance.js';
import { layerBytes, layersOfPasses, momentsPlan, workBytes } from '../../src/fit/moments.js';
import { Sketch, sketchColumns } from '../../src/fit/sketch.js';
import { energyKept, latentWeights } from '../../src/fit/fit.js';
import { windowsOf } from '../../src/fit/windows.js';
import { fingerprintOfSeed } from '../../src/io/fingerprint.js';
import { findPreset } from '../../src/geometry/presets.js';
import { randomFrom } from '../../src/numbers/random.js';
import { GEOMETRIES } from '../decoder/models.js';
import { inProcess } from '../cli/program.js';
import { removeTemporary, safetensors, temporary, temporaryFolder } from '../decoder/files.js';

removeTemporary();

const g = GEOMETRIES[0] as (typeof GEOMETRIES)[number];

/** Correlated vectors with a large mean: [component][vector]. */
function columnsOf(seed: number, width: number, count: number): Float64Array[] {
  const random = randomFrom(seed);
  const mix = Array.from({ length: width }, () => Array.from({ length: width }, () => random() - 0.5));
  const hidden = mix.map((_, k) => Array.from({ length: count }, () => (random() - 0.5) / (1 + k)));
  const sum = (row: readonly number[], n: number) => row.reduce((s, w, k) => s + w * (hidden[k]?.[n] as number), 0);
  return mix.map((row) => Float64Array.from({ length: count }, (_, n) => 1000 + sum(row, n)));
}

/** The moments with all vectors added, block by block. */
function streamed<T extends Moments>(own: T, columns: readonly Float64Array[], block: number): T {
  const count = columns[0]?.length as number;
  for (let from = 0; from < count; from += block)
    own.add(
      columns.map((c) => c.slice(from, from + block)),
      Math.min(block, count - from),
    );
  return own;
}
const covarianceOf = (columns: readonly Float64Array[], block: number): Covariance =>
  streamed(new Covariance(columns.length), columns, block);

/** Checks streams of any seed, size from 1 to `most` and block. */
const forStreams = (
  { most, runs }: { most: number; runs: number },
  check: (seed: number, size: number, block: number) => void,
): void =>
  fc.assert(fc.property(fc.integer(), fc.integer({ min: 1, max: most }), fc.integer({ min: 1, max: 40 }), check), {
    numRuns: runs,
  });

const normalOf = (seed: number): (() => number) => {
  const random = randomFrom(seed);
  return () => random() + random() + random() - 1.5;
};

describe('fit', () => {
  it('a folder without weights is refused, instead of weights made up for it', async () => {
    const folder = temporaryFolder();
    cpSync('models/lla-tiny/config.json', join(folder, 'config.json'));
    for (const [command, ...output] of [['fit', '-o', join(folder, 'codec.safetensors')], ['fidelity']] as const) {
      const { code, err } = await inProcess(command, '--model', folder, ...output);
      expect(code, err).toBe(2);
      expect(err).toMatch(/has no weights: neither model\.safetensors nor .*; put them there/);
    }
    expect(readdirSync(folder)).toEqual(['config.json']);
  });

  it('the covariance of a stream is that of all vectors at once, whatever the blocks', () => {
    forStreams({ most: 7, runs: 30 }, (seed, width, block) => {
      const columns = columnsOf(seed, width, 37);
      const own = covarianceOf(columns, block);
      const means = columns.map((c) => c.reduce((s, x) => s + (x - 1000), 0) / 37);
      for (let i = 0; i < width; i++)
        for (let j = 0; j < width; j++) {
          const off = (k: number, n: number): number => (columns[k]?.[n] as number) - 1000 - (means[k] as number);
          let sum = 0;
          for (let n = 0; n < 37; n++) sum += off(i, n) * off(j, n);
          expect(Math.abs(own.at(i, j) - sum / 37)).toBeLessThan(1e-10);
        }
      own.mean.forEach((m, i) => expect(Math.abs(m - 1000 - (means[i] as number))).toBeLessThan(1e-9));
    });
  });

  it('a basis is orthonormal, and what it loses is the tail of the spectrum', () => {
    fc.assert(
      fc.property(fc.integer(), fc.integer({ min: 1, max: 12 }), (seed, rank) => {
        const own = covarianceOf(columnsOf(seed, 12, 50), 16);
        const groups = { loops: 3, heads: 1, count: 1, width: 12 };
        for (const basis of [principalBasis(own, rank), randomBasis(12, rank, normalOf(seed))])
          for (let a = 0; a < rank; a++)
            for (let b = 0; b < rank; b++) {
              let sum = 0;
              for (let i = 0; i < 12; i++)
                sum += (basis.vectors[i * rank + a] as number) * (basis.vectors[i * rank + b] as number);
              expect(Math.abs(sum - (a === b ? 1 : 0))).toBeLessThan(1e-10);
            }
        const { variances } = principalBasis(own, rank);
        const tail = variances.slice(rank).reduce((s, v) => s + v, 0);
        const kept = (init: 'svd' | 'first-loop' | 'random'): number =>
          energyKept(own, latentWeights(init, groups, rank, own, own, normalOf(seed)));
        expect(Math.abs(kept('svd') - (1 - tail / own.trace))).toBeLessThan(1e-9);
        // No other subspace keeps more.
        expect(kept('random')).toBeLessThanOrEqual(kept('svd') + 1e-9);
        expect(kept('first-loop')).toBeLessThanOrEqual(kept('svd') + 1e-9);
      }),
      { numRuns: 20 },
    );
  });

  it('a sketch tells what its directions keep at least, and what the best ones keep beyond that at most', () => {
    forStreams({ most: 8, runs: 20 }, (seed, rank, block) => {
      const columns = columnsOf(seed, 60, 90);
      const exact = covarianceOf(columns, 90);
      const sketch = streamed(new Sketch(60, sketchColumns(60, rank)), columns, block);
      const groups = { loops: 3, heads: 1, count: 1, width: 60 };
      const own = latentWeights('svd', groups, rank, sketch, sketch, normalOf(seed));
      const real = energyKept(exact, own);
      const best = latentWeights('svd', groups, rank, exact, exact, normalOf(seed)).kept;
      expect(sketch.trace / exact.trace).toBeCloseTo(1, 9);
      sketch.mean.forEach((m, i) => expect(Math.abs(m - (exact.mean[i] as number))).toBeLessThan(1e-9));
      expect(own.kept).toBeLessThanOrEqual(real + 1e-9);
      expect(best).toBeLessThanOrEqual(own.kept + (own.below as number) + 1e-9);
      // It is worth something: the spectrum falls, and the bound knows it.
      expect(best - real).toBeLessThan(0.1);
      expect(own.below).toBeLessThan(0.5);
    });
  });

  it('a sketch of few directions, or of none, has no others', () => {
    const sine = Float64Array.from({ length: 50 }, (_, n) => Math.sin(n));
    const line = Array.from({ length: 40 }, (_, i) => sine.map((x) => (i + 1) * x));
    const sketch = new Sketch(40, sketchColumns(40, 4));
    sketch.add(line, 50);
    const { kept, below, vectors, variances } = sketch.basis(4);
    expect(kept).toBeCloseTo(1, 9);
    expect(below).toBeLessThan(1e-9);
    expect((variances[0] as number) / sketch.trace).toBeCloseTo(1, 9);
    expect(vectors.every(Number.isFinite)).toBe(true);
    const constant = [1, 2, 3, 4, 5].map((x) => Float64Array.of(x, x));
    const still = streamed(new Sketch(5, 3), constant, 2);
    expect(still.basis(2)).toMatchObject({ kept: 1, below: 0 });
  });

  it('the effective rank counts directions', () => {
    expect(effectiveRank([1, 1, 1, 1])).toBeCloseTo(1, 12);
    expect(effectiveRank([1, 0, 0, 0])).toBeCloseTo(0.25, 12);
    expect(effectiveRank([2, 2, 0, 0])).toBeCloseTo(0.5, 12);
  });

  it('layers share the memory, one layer too large is refused', () => {
    const plan = momentsPlan(g, [{ codec: { kind: 'lla', rankK: 2, rankV: 3 }, initialisation: 'svd' }]);
    const [each, work] = [layerBytes(plan), workBytes(g, plan, 40)];
    const layers = (memory: number): number[][] => layersOfPasses(g, plan, memory, 40);
    expect(layers(work + 2 * each)).toEqual([[0, 1]]);
    expect(layers(work + 2 * each - 1)).toEqual([[0], [1]]);
    expect(() => layers(work + each - 1)).toThrow(/of covariances .* more than the .* of --memory/);
  });

  it('wide stacks are sketched, unless a control needs the covariance', () => {
    const ouro = findPreset('ouro-1.4b');
    const codec = { kind: 'lla-2d', rankK: 1536, rankV: 2560 } as const;
    const plan = momentsPlan(ouro, [{ codec, initialisation: 'svd' }]);
    expect(plan.columns).toEqual({ key: 1920, value: 3200 });
    // Covariances of one layer take 1.07 GB, and those of all layers 26 GB.
    expect(layerBytes(plan)).toBeLessThan(0.35e9);
    expect(layersOfPasses(ouro, plan, 2e9, 5 * 256).flat()).toEqual(Array.from({ length: 24 }, (_, i) => i));
    expect(momentsPlan(ouro, [{ codec, initialisation: 'random' }]).columns).toBeNull();
    const narrow = { kind: 'lla', rankK: 2, rankV: 3 } as const;
    expect(momentsPlan(ouro, [{ codec: narrow, initialisation: 'svd' }]).columns).toBeNull();
  });

  it('windows cover a text without overlap', () => {
    const tokens = Array.from({ length: 25 }, (_, i) => i);
    expect(windowsOf(tokens, 10).map((w) => w.length)).toEqual([10, 10, 5]);
    expect(windowsOf(tokens.slice(0, 24), 10).flat()).toEqual(tokens.slice(0, 20));
    expect(windowsOf(tokens.slice(0, 3), 10)).toEqual([[0, 1, 2]]);
  });
});

describe('file of codec weights', () => {
  const codec = { kind: 'lla', rankK: 3, rankV: 5 } as const;
  const specs = codecTensors(g, codec, 'reconstruct', { width: 6, perHead: false });
  const model = fingerprintOfSeed(g, 1);
  const facts = { codec: 'lla', rankK: 3, rankV: 5, model, initialisation: 'svd', tokens: 99 } as const;
  const write = (): string => {
    const path = `${temporaryFolder()}/codec.safetensors`;
    writeCodecFile(path, specs, fabricate(specs, { seed: 4, tiedEmbeddings: false, codec: 'random' }), facts);
    return path;
  };

  it('comes back as it was written', () => {
    const path = write();
    const file = openCodecFile(path, model, codec);
    const source = fabricate(specs, { seed: 4, tiedEmbeddings: false, codec: 'random' });
    expect(codecFacts(file)).toEqual(facts);
    expect([...file.shapes.keys()]).toEqual(specs.map(({ name }) => name));
    for (const { name, shape } of specs) {
      expect(file.shapes.get(name)).toEqual(shape);
      expect(file.read(name)).toEqual(source.read(name));
    }
    file.close();
    expect(latentGroups(g, codec).width).toBe(specs[0]?.shape[1]);
  });

  it('of another model, codec or maker is refused', () => {
    const path = write();
    expect(() => openCodecFile(path, fingerprintOfSeed(g, 2), codec)).toThrow(/fitted to another model/);
    expect(() => openCodecFile(path, fingerprintOfSeed({ ...g, loops: 4 }, 1), codec)).toThrow(/another model/);
    expect(() => openCodecFile(path, model, { kind: 'lla', rankK: 3, rankV: 4 })).toThrow(/ranks 3\/5, not lla/);
    expect(() => openCodecFile(path, model, { kind: 'mla-head', rankK: 3, rankV: 5 })).toThrow(/not mla-head/);
    const foreign = temporary(safetensors({ a: { dtype: 'F32', shape: [1], values: [1] } }, { format: 'pt' }));
    expect(() => openCodecFile(foreign, model, codec)).toThrow(/holds no codec of lla-sim fit/);
    const open = new SafetensorsFile(path);
    expect(open.metadata['ranks']).toBe('3/5');
    const { metadata } = open;
    open.close();
    const wrong = { codec: 'zip', ranks: '3/-5', model: 'mine', initialisation: 'luck' };
    for (const [name, value] of Object.entries(wrong))
      for (const text of ['', value])
        expect(() => codecFacts({ file: 'a.safetensors', metadata: { ...metadata, [name]: text } } as never)).toThrow(
          'a.safetensors does not say which codec it holds and of which model',
        );
    for (const name of ['schema', 'schemaVersion'])
      expect(() => codecFacts({ file: 'b', metadata: { ...metadata, [name]: '7' } } as never)).toThrow(
        'b says of itself',
      );
  });
});
