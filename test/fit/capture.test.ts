/** Keys and values captured from the GPU decoder beside the float64 network's, and a codec that loses nothing. */
import '../gpu/narrow.js';
import { expect, it } from 'vitest';
import type { Codec } from '../../src/codecs/codec.js';
import type { StorageChoice } from '../../src/codecs/layout.js';
import { openDecoder } from '../../src/decoder/gpu/index.js';
import type { TensorSource } from '../../src/decoder/index.js';
import { loadModel, type Model } from '../../src/decoder/reference/model.js';
import { run, type Projection } from '../../src/decoder/reference/network.js';
import { exactAttention } from '../../src/decoder/reference/forward.js';
import { modelTensors } from '../../src/decoder/tensors.js';
import { fabricate } from '../../src/decoder/weights.js';
import { parseEviction } from '../../src/eviction/policy.js';
import { capture, exactConfiguration } from '../../src/fit/capture.js';
import { attentionError } from '../../src/fidelity/attention-error.js';
import type { Row } from '../../src/fidelity/grid.js';
import { openJudge, type Judged } from '../../src/fidelity/judge.js';
import { fitCodec } from '../../src/fit/run.js';
import { GEOMETRIES, promptOf } from '../decoder/models.js';
import { relative } from '../decoder/gpu-cases.js';
import { describeGpu } from '../gpu/device.js';
import { SEED } from '../gpu/random.js';

describeGpu('capture and fit', (device) => {
  const g = GEOMETRIES[0] as (typeof GEOMETRIES)[number];
  const teacher = { device, geometry: g, normEpsilon: 1e-6, weights: { storage: 'f32' as const, seed: SEED } };
  const windows = [promptOf(g, 40, SEED), promptOf(g, 33, SEED + 1)];
  const fit = (codec: Codec) =>
    fitCodec(teacher, windows, { codec, initialisation: 'svd', seed: SEED }, { memoryBytes: 2 ** 20 });

  it(`captures what the network projects, before rotation (seed ${SEED})`, async () => {
    const model = loadModel(g, fabricate(modelTensors(g), { seed: SEED, tiedEmbeddings: false, codec: 'random' }));
    const expected = new Map<string, Projection[]>();
    for (const window of windows) {
      const exact = exactAttention(model);
      const positions = window.map((_, n) => n);
      run(model, window, positions, (site, tokens) => {
        const key = `${site.layer} ${site.loop}`;
        expected.set(key, [...(expected.get(key) ?? []), ...tokens]);
        return exact(site, tokens);
      });
    }
    await capture(teacher, windows, async (captured) => {
      expect(captured.tokens).toBe(73);
      for (const [axis, part] of [
        ['key', 'keys'],
        ['value', 'values'],
      ] as const)
        for (let layer = 0; layer < g.layers; layer++) {
          const loops = await captured.columns(axis, layer);
          loops.forEach((heads, loop) =>
            heads.forEach((columns, head) => {
              const tokens = expected.get(`${layer} ${loop}`) as Projection[];
              columns.forEach((column, i) => {
                const own = tokens.map((t) => t[part][head]?.[i] as number);
                expect(relative(column, own)).toBeLessThan(1e-4);
              });
            }),
          );
        }
    });
  });

  it(`judges the full cache as itself, and fewer directions as worse (seed ${SEED})`, async () => {
    const item = { kind: 'text', prompt: (windows[0] as number[]).slice(0, 20) } as const;
    const texts = [
      { ...item, continuation: (windows[1] as number[]).slice(0, 4) },
      { ...item, kind: 'rollout' as const, continuation: [] },
    ];
    const judge = await openJudge(teacher, texts);
    const plain = { storage: 'f32', eviction: null, initialisation: 'svd' } as const;
    const full = await judge({ codec: { kind: 'full' }, path: 'full', ...plain }, undefined);
    expect(full).toMatchObject({ kl: { estimate: 0 }, top1: { estimate: 1 }, agreement: { estimate: 1 } });
    expect(full.attentionError).toBeLessThan(1e-6);
    const width = g.loops * g.headDim;
    const judged = [];
    for (const rank of [2, width]) {
      const codec = { kind: 'lla', rankK: rank, rankV: rank } as const;
      const { fitted } = await fit(codec);
      judged.push(await judge({ codec, path: 'reconstruct', ...plain }, fitted.tensors));
    }
    const [few, all] = judged as [Judged, Judged];
    expect(all.kl?.estimate).toBeLessThan(1e-3);
    expect(few.kl?.estimate).toBeGreaterThan(10 * (all.kl?.estimate as number));
    expect(few.attentionError as number).toBeGreaterThan(10 * (all.attentionError as number));
    expect(few.codecFingerprint).not.toBe(all.codecFingerprint);
  });

  it(`a fitted codec of full rank decodes as the full cache does (seed ${SEED})`, async () => {
    const width = g.loops * g.headDim;
    const logitsOf = async (own: object, tensors?: TensorSource): Promise<Float32Array> => {
      const decoder = await openDecoder(
        device,
        { ...exactConfiguration(teacher), ...own },
        { weights: { ...teacher.weights, ...(tensors ? { codec: tensors } : {}) }, batch: 1, contextTokens: 64 },
      );
      try {
        for (const token of windows[0] as number[]) await decoder.step([token]);
        return await decoder.logits();
      } finally {
        decoder.close();
      }
    };
    const exact = await logitsOf({});
    const errorOf = async (rankK: number): Promise<number> => {
      const codec = { kind: 'lla', rankK, rankV: width } as const;
      const { fitted, kept } = await fit(codec);
      if (rankK === width) expect(kept.svd).toBeCloseTo(1, 6);
      expect(kept['first-loop']).toBeLessThan(1);
      return relative(await logitsOf({ codec, path: 'reconstruct' }, fitted.tensors), exact);
    };
    // Directions are kept as f16, which moves logits by 0.0003 to 0.011: a weight's draw decides. One direction fewer
    // moves them 11 to 160 times as far (eight seeds, among them 541103260).
    const [whole, fewer] = [await errorOf(width), await errorOf(width - 1)];
    expect(whole).toBeLessThan(0.03);
    expect(whole).toBeLessThan(fewer / 4);
  });
});

it('attention whose scores are others by design has no error', () => {
  const of = (row: Partial<Row>) =>
    attentionError({} as Model, row as Row, {} as StorageChoice, {} as TensorSource, []);
  const lla = { kind: 'lla', rankK: 8, rankV: 8 } as const;
  expect(of({ codec: lla, path: 'absorbed', eviction: null })).toBeNull();
  expect(of({ codec: lla, path: 'reconstruct', eviction: parseEviction('h2o:4+4', '') })).toBeNull();
  expect(of({ codec: { kind: 'flashloop' }, path: 'full', eviction: null })).toBeNull();
});
