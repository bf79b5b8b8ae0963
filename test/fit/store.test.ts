/** A fit that ends early and goes on, and the memory that it takes: no GPU, keys and values made up. */
import {
  appendFileSync,
  existsSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  truncateSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { afterAll, describe, expect, it, vi } from 'vitest';
import { codecTensors, writeCodecFile } from '../../src/decoder/index.js';
import type { Captured, Teacher } from '../../src/fit/capture.js';
import { fitLayer } from '../../src/fit/fit.js';
import { emptyMoments, layerBytes, momentsPlan, workBytes } from '../../src/fit/moments.js';
import { fitCodec, type FitOptions } from '../../src/fit/run.js';
import { FitFolder } from '../../src/fit/store.js';
import { fingerprintOfSeed } from '../../src/io/fingerprint.js';
import { randomFrom } from '../../src/numbers/random.js';
import type { Geometry } from '../../src/geometry/geometry.js';
import { GEOMETRIES } from '../decoder/models.js';
import { SEED } from '../gpu/random.js';

const g = GEOMETRIES[0] as Geometry;

/** Keys and values of a batch that depend on where they are and nothing else. */
function madeUp(of: Geometry, batch: number, tokens: number): Captured {
  return {
    tokens,
    columns: (axis, layer) => {
      const random = randomFrom(SEED + 100 * batch + 10 * layer + (axis === 'key' ? 0 : 1));
      const head = () =>
        Array.from({ length: of.headDim }, (_, i) => Float64Array.from({ length: tokens }, () => random() / (1 + i)));
      const loop = () => Array.from({ length: of.kvHeads }, head);
      return Promise.resolve(Array.from({ length: of.loops }, loop));
    },
  };
}

const BATCHES = 4;
vi.mock('../../src/fit/capture.js', () => ({
  windowsTogether: () => 1,
  longestOf: () => 30,
  capture: async (
    { geometry }: Teacher,
    windows: readonly unknown[],
    visit: (captured: Captured, done: number) => Promise<void>,
    first = 0,
  ) => {
    for (let n = first; n < windows.length; n++) await visit(madeUp(geometry, n, 30), n + 1);
  },
}));

const folder = mkdtempSync(join(tmpdir(), 'fit-'));
afterAll(() => rmSync(folder, { recursive: true }));

describe(`a fit that goes on (seed ${SEED})`, () => {
  const codec = { kind: 'lla', rankK: 3, rankV: 5 } as const;
  const branch = { width: 6, perHead: false };
  const specs = codecTensors(g, codec, 'reconstruct', branch);
  const teacher = { geometry: g } as Teacher;
  const windows = Array.from({ length: BATCHES }, () => [1, 2]);
  const at = join(folder, 'codec.capture');
  // One layer a pass.
  const plan = momentsPlan(g, [{ codec, initialisation: 'svd' }]);
  const memoryBytes = workBytes(g, plan, 30) + layerBytes(plan);
  const fit = (options: Partial<FitOptions> = {}) =>
    fitCodec(teacher, windows, { codec, initialisation: 'svd', seed: 3 }, { memoryBytes, ...options });
  const bytesOf = (run: Awaited<ReturnType<typeof fit>>): Buffer => {
    const path = join(folder, 'codec.safetensors');
    const facts = { codec: 'lla', rankK: 3, rankV: 5, model: fingerprintOfSeed(g, 1), initialisation: 'svd' } as const;
    writeCodecFile(path, specs, run.fitted.tensors, { ...facts, tokens: run.tokens });
    return readFileSync(path);
  };
  const killed = new Error('killed');

  it.each([1, 3, 4, 5, 6])('killed at report %i, it ends with the bytes of one that was not', async (last) => {
    const whole = await fit();
    expect(whole.passes).toBe(2);
    let reports = 0;
    const first = new FitFolder(at, 'q', specs);
    // Nothing runs after this, as nothing does after SIGKILL.
    const onProgress = (): void => {
      if (++reports === last) throw killed;
    };
    await expect(fit({ folder: first, onProgress })).rejects.toBe(killed);
    const seen: number[] = [];
    const second = new FitFolder(at, 'q', specs);
    const resumed = await fit({ folder: second, onProgress: (done) => seen.push(done) });
    expect(bytesOf(resumed)).toEqual(bytesOf(whole));
    expect(resumed.fitted.energy).toEqual(whole.fitted.energy);
    expect(resumed.kept).toEqual(whole.kept);
    // The first report is of what the killed run had not done; the first batch is always saved.
    expect(seen[0]).toBeGreaterThan(last < 5 ? 1 / 8 : 3 / 8);
    first.close();
    second.remove();
    expect(existsSync(at)).toBe(false);
  });

  it('asked to end, it saves first and says how to go on', async () => {
    const stop = new AbortController();
    const own = new FitFolder(at, 'q', specs);
    const ended = fit({ folder: own, signal: stop.signal, onProgress: (done) => done > 0.3 && stop.abort() });
    await expect(ended).rejects.toMatchObject({ exitCode: 130, hint: 'run it again: it goes on from there' });
    expect(readdirSync(at).sort()).toEqual(['pass', 'question']);
    const next: number[] = [];
    await fit({ folder: new FitFolder(at, 'q', specs), onProgress: (done) => next.push(done) });
    expect(next[0]).toBeGreaterThan(0.3);
    own.remove();
  });

  it('refused before anything is saved, it leaves no folder', async () => {
    const own = new FitFolder(at, 'q', specs);
    await expect(fit({ folder: own, memoryBytes: 1000 })).rejects.toThrow(/of --memory/);
    own.close();
    expect(existsSync(at)).toBe(false);
  });

  it('goes on with nothing but its own, whole files', async () => {
    const made = new FitFolder(at, 'q', specs);
    await fit({ folder: made });
    made.close();
    expect(() => new FitFolder(at, 'other', specs)).toThrow(/of another model/);
    appendFileSync(join(at, 'layer-0001.safetensors'), 'x');
    expect(() => new FitFolder(at, 'q', specs)).toThrow(/layer-0001.safetensors is damaged/);
    rmSync(join(at, 'layer-0001.safetensors'));
    const half = new FitFolder(at, 'q', specs);
    const moments = ['key', 'value'].flatMap((axis) => emptyMoments(plan)[axis as 'key']);
    half.save([1], 2, moments);
    for (const size of [4, 40, readFileSync(join(at, 'pass')).length - 8]) {
      truncateSync(join(at, 'pass'), size);
      await expect(fit({ folder: half }), String(size)).rejects.toThrow(/pass is damaged/);
      half.save([1], 2, moments);
    }
    // The pass of other layers is not this one's.
    half.save([0, 1], 2, moments);
    expect((await fit({ folder: half })).passes).toBe(2);
    writeFileSync(join(at, 'mine.txt'), 'kept');
    half.remove();
    expect(readdirSync(at)).toEqual(['mine.txt']);
    rmSync(at, { recursive: true });
    writeFileSync(at, 'a file');
    expect(() => new FitFolder(at, 'q', specs)).toThrow(/cannot be written/);
    rmSync(at);
  });
});

it(`takes no more memory than is stated (seed ${SEED})`, async () => {
  setFlagsFromString('--expose_gc');
  const collect = runInNewContext('gc') as () => void;
  const arrays = (): number => {
    // The second waits for what the first has left to another thread.
    collect();
    collect();
    return process.memoryUsage().arrayBuffers;
  };
  const wide = { ...g, layers: 1, loops: 4, kvHeads: 8, headDim: 32 };
  const codec = { kind: 'lla-2d', rankK: 48, rankV: 64 } as const;
  const request = { codec, initialisation: 'svd', seed: 1, geometry: wide } as const;
  // What the test itself and its runner allocate.
  const noise = 2 ** 19;
  for (const widestExact of [512, 2048]) {
    const plan = momentsPlan(wide, [request], widestExact);
    const made = madeUp(wide, 0, 60);
    const stacked = (await made.columns('key', 0)).flat(2);
    const before = arrays();
    const moments = emptyMoments(plan);
    for (const axis of ['key', 'value'] as const) moments[axis][0]?.add(stacked, made.tokens);
    const kept = arrays() - before;
    expect(kept).toBeLessThanOrEqual(layerBytes(plan) + noise);
    expect(kept).toBeGreaterThan(layerBytes(plan) / 2);
    // Eigenvectors of a whole covariance of this width take half a minute.
    if (plan.columns) {
      // What is made while directions are found, collected or not.
      const began = arrays();
      const { tensors } = fitLayer(request, 0, moments);
      expect(process.memoryUsage().arrayBuffers - began).toBeLessThanOrEqual(2 * workBytes(wide, plan, 60) + noise);
      expect(tensors.length).toBe(6);
    }
    expect(moments.key[0]?.count).toBe(60);
  }
});
