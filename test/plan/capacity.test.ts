/** What fits: the published maximum batches, the exact ones, the memory they are made of, and prefill peaks. */
import { join } from 'node:path';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  bytesPerSequence,
  maxBatch,
  memoryModel,
  onGrid,
  prefillPeaks,
  totalBytes,
  weightBytes,
} from '../../src/cost/memory.js';
import { CODECS, LATENT_KINDS } from '../../src/codecs/registry.js';
import type { Codec, Path } from '../../src/codecs/codec.js';
import {
  configuration,
  F16,
  GiB,
  HUGINN,
  lla,
  MiB,
  OURO,
  OURO_26,
  SHARED,
  smallGeometry,
} from '../contract/geometries.js';
import { plan } from '../../src/index.js';
import { readSources } from '../../src/plan/ask/on-disk.js';
import { planFleet } from '../../src/plan/decide/fleet.js';
import { fleetText } from '../../src/report/text/fleet-text.js';
import type { Scenario } from '../../src/schema/settings.js';
import { simulateFleet } from '../../src/serving/fleet.js';
import { ROOT } from '../cli/program.js';
import { randomOf, SEED } from '../gpu/random.js';
import { planOwn as planOf, row } from './requests.js';

const random = randomOf(SEED);

it('no more sequences fit beside a prompt than without one', async () => {
  for (const model of ['ouro-1.4b', 'nandi-mini-150m']) {
    const { plans } = await plan({ model, device: 'b300', codec: ['full'], context: random.whole(64, 512) });
    const [{ maxBatch: most, prefill }] = plans as [(typeof plans)[number]];
    expect(prefill.batchBesidePrefill, `${model}, seed ${SEED}`).toBeLessThanOrEqual(most.exact);
  }
});
const modelFile = (name: string): string =>
  name.startsWith('llama') ? join(ROOT, `ledger/models/${name}.json`) : name;
const DRIVER_H200 = 143_771 * MiB;

describe('what more GPUs do not divide, notes say', () => {
  const noteOf = (notes: readonly string[]): string => notes.find((note) => note.includes('those of one of')) ?? '';

  it('latents that all heads read: the codecs named are those whose bytes a GPU stay', async () => {
    const [one, eight] = await Promise.all(
      [1, 8].map((gpus) => planOf({ device: 'h100', gpus, codec: [...LATENT_KINDS] })),
    );
    const whole = one!.plans.filter(({ id, path, memory }) => {
      const own = eight!.plans.find((p) => p.id === id);
      return path !== 'fast' && own?.memory.kvBytesPerToken === memory.kvBytesPerToken;
    });
    const kinds = [...new Set(whole.map(({ codec }) => codec.kind))];
    expect(kinds.length).toBeGreaterThan(1);
    const [, named] = /each holds the latents of (.*) whole/.exec(noteOf(eight!.notes)) ?? [];
    expect(named?.split(/, | and /).sort()).toEqual(kinds.sort());
    expect(noteOf(one!.notes)).toBe('');
  });

  it.each([
    ['recurrent-tinyllama-1.1b', 2, ''],
    ['recurrent-tinyllama-1.1b', 8, '; each of the 4 KV heads is on 2 of them'],
  ])('KV heads that are fewer than GPUs: %s on %i', async (model, gpus, words) => {
    const { notes } = await planOf({ device: 'h100', model, gpus, codec: ['full'] });
    expect(noteOf(notes)).toBe(`memory, KV/token and KV at 1M are those of one of the ${gpus} GPUs${words}`);
  });
});

const GRID = [1, ...Array.from({ length: 13 }, (_, k) => [2 ** (k + 1), 3 * 2 ** k]).flat()];

describe('the largest batch at 4096 tokens and 141 GB', () => {
  it.each([
    ['ouro-1.4b', 'full/full', 32],
    ['ouro-1.4b', 'lla-4x/reconstruct', 128],
    ['ouro-1.4b', 'lla-4x/block-absorbed', 128],
    ['ouro-1.4b', 'lla-21.33x/reconstruct', 768],
    ['ouro-1.4b', 'lla-21.33x/block-absorbed', 768],
    ['ouro-1.4b', 'lla-21.33x/reconstruct-materialised', 512],
    ['ouro-2.6b', 'full/full', 16],
    ['ouro-2.6b', 'lla-4x/reconstruct', 64],
    ['ouro-2.6b', 'lla-4x/block-absorbed', 64],
  ])('%s %s: %i on the grid', async (model, id, grid) => {
    const report = await planOf({ vram: '141GB', context: 4096, model, codec: ['full', 'lla'] });
    expect(row(report, id).maxBatch.onGrid).toBe(grid);
    expect(row(report, id).maxBatch.exact).toBeGreaterThanOrEqual(grid);
  });

  it('materialising K and V leaves about 744 of 768', async () => {
    const report = await planOf({ vram: '141GB', codec: ['lla'], ratio: [21.33], reserve: '0' });
    expect(Math.abs(row(report, 'lla-21.33x/reconstruct-materialised').maxBatch.exact - 744)).toBeLessThanOrEqual(4);
  });

  it.each([
    ['1.4B full', OURO, { kind: 'full' }, 'full', 45],
    ['1.4B 4×', OURO, lla(96, 160), 'reconstruct', 183],
    ['1.4B 21.33×', OURO, lla(18, 30), 'reconstruct', 979],
    ['2.6B full', OURO_26, { kind: 'full' }, 'full', 22],
    ['2.6B 4×', OURO_26, lla(96, 160), 'reconstruct', 90],
  ] as [string, typeof OURO, Codec, Path, number][])(
    'weights, codec and cache alone allow, of the 143,771 MiB that an H200 reports: %s',
    (_name, geometry, codec, path, batch) => {
      const m = memoryModel(configuration({ geometry, codec, path }), 4096, 32);
      expect(Math.floor((DRIVER_H200 - m.weightsBytes - m.codecBytes) / m.kvBytesPerSequence)).toBe(batch);
      expect(maxBatch(m, DRIVER_H200)).toBeLessThanOrEqual(batch);
      // The next point of the grid needs 144 GiB of cache, in all five cases.
      const next = GRID.find((g) => g > onGrid(batch)) as number;
      expect(next * m.kvBytesPerSequence).toBe(144 * GiB);
    },
  );

  it('the grid is 2^k and 3·2^(k−1)', () => {
    for (let n = 1; n < 5000; n++) expect(onGrid(n)).toBe(Math.max(...GRID.filter((x) => x <= n)));
    expect(onGrid(0)).toBe(0);
  });
});

const anyPlan = fc.oneof(smallGeometry, fc.constantFrom(OURO, OURO_26, HUGINN)).chain((geometry) =>
  fc
    .constantFrom('full' as const, 'lla' as const, 'lla-2d' as const, 'mla-head' as const, 'kv-quant' as const)
    .chain((kind) => {
      const codec: Codec =
        kind === 'full' ? { kind } : kind === 'kv-quant' ? { kind, bits: 4 } : { kind, rankK: 3, rankV: 5 };
      return fc
        .record({
          path: fc.constantFrom(...CODECS[kind].paths),
          materialised: fc.boolean(),
          evict: fc.constantFrom(
            null,
            { policy: 'h2o', heavyTokens: 100, recentTokens: 200, budgetTokens: 300 } as const,
            { policy: 'streaming', sinkTokens: 4, windowTokens: 60, budgetTokens: 64 } as const,
          ),
        })
        .map(({ path, materialised, evict }) =>
          configuration({
            geometry,
            codec,
            path,
            materialised: materialised && path === 'reconstruct',
            eviction: evict,
          }),
        );
    }),
);

describe('memory, for any codec, path and policy', () => {
  it('is never less for a longer context, and the batch never more', () => {
    fc.assert(
      fc.property(
        anyPlan,
        fc.integer({ min: 1, max: 1e6 }),
        fc.integer({ min: 1, max: 1e5 }),
        fc.integer({ min: 1e6, max: 2e11 }),
        (c, context, more, usable) => {
          const [a, b] = [memoryModel(c, context, 32), memoryModel(c, context + more, 32)];
          expect(b.kvBytesPerSequence).toBeGreaterThanOrEqual(a.kvBytesPerSequence);
          expect(bytesPerSequence(b)).toBeGreaterThanOrEqual(bytesPerSequence(a));
          expect(maxBatch(b, usable)).toBeLessThanOrEqual(maxBatch(a, usable));
        },
      ),
      { numRuns: 400 },
    );
  });

  it('the largest batch fits, and one more does not', () => {
    fc.assert(
      fc.property(
        anyPlan,
        fc.integer({ min: 1, max: 1e5 }),
        fc.integer({ min: 1, max: 4e11 }),
        (c, context, usable) => {
          const m = memoryModel(c, context, 32);
          const batch = maxBatch(m, usable);
          if (batch > 0) expect(totalBytes(m, batch)).toBeLessThanOrEqual(usable);
          expect(totalBytes(m, batch + 1)).toBeGreaterThan(usable);
        },
      ),
      { numRuns: 400 },
    );
  });

  it('the cache shrinks when the ratio grows, by the ratio', () => {
    fc.assert(
      fc.property(
        fc.constantFrom(OURO, OURO_26),
        fc.double({ min: 1.1, max: 60, noNaN: true }),
        fc.double({ min: 1.3, max: 4, noNaN: true }),
        (geometry, ratio, factor) => {
          const at = (r: number) =>
            memoryModel(
              configuration({ geometry, codec: CODECS.lla.fromRatio(geometry, r) as Codec, path: 'reconstruct' }),
              4096,
              32,
            );
          expect(at(ratio * factor).kvBytesPerToken).toBeLessThan(at(ratio).kvBytesPerToken);
          expect(at(ratio * factor).codecBytes).toBeLessThan(at(ratio).codecBytes);
          expect(maxBatch(at(ratio * factor), 141e9)).toBeGreaterThanOrEqual(maxBatch(at(ratio), 141e9));
        },
      ),
      { numRuns: 200 },
    );
  });

  it('eviction holds the budget whatever the context', () => {
    fc.assert(
      fc.property(
        anyPlan.filter((c) => c.eviction !== null),
        fc.integer({ min: 400, max: 1e8 }),
        (c, context) => {
          expect(memoryModel(c, context, 32).kvBytesPerSequence).toBe(memoryModel(c, 400, 32).kvBytesPerSequence);
        },
      ),
      { numRuns: 100 },
    );
  });

  it('splitting over GPUs never makes a GPU hold more, and together they hold at least the whole', () => {
    for (const geometry of [OURO, OURO_26]) {
      for (const gpus of [2, 4, 8, 16]) {
        for (const [codec, path] of [
          [{ kind: 'full' }, 'full'],
          [lla(96, 160), 'absorbed'],
          [{ kind: 'lla-2d', rankK: 96, rankV: 160 }, 'reconstruct'],
        ] as [Codec, Path][]) {
          const [one, part] = [1, gpus].map((n) =>
            memoryModel(configuration({ geometry, codec, path, gpus: n }), 4096, 32),
          ) as [ReturnType<typeof memoryModel>, ReturnType<typeof memoryModel>];
          for (const field of [
            ...(['weightsBytes', 'codecBytes', 'kvBytesPerSequence'] as const),
            ...(['inFlightBytesPerSequence', 'workspaceBytesPerSequence'] as const),
          ]) {
            expect(part[field], field).toBeLessThanOrEqual(one[field]);
            if (field !== 'codecBytes')
              expect(part[field] * gpus, `${field} ${codec.kind}`).toBeGreaterThanOrEqual(one[field]);
          }
        }
      }
      expect(memoryModel(configuration({ geometry, gpus: 2 }), 4096, 32).kvBytesPerToken).toBe(
        memoryModel(configuration({ geometry }), 4096, 32).kvBytesPerToken / 2,
      );
      expect(weightBytes(geometry, 2)).toBeLessThan(weightBytes(geometry, 1) * 0.51);
    }
  });

  it('materialising takes 32 MiB a sequence at 4k on 1.4B beside the fused path', () => {
    const at = (materialised: boolean) =>
      memoryModel(configuration({ codec: lla(18, 30), path: 'reconstruct', materialised }), 4096, 32)
        .workspaceBytesPerSequence;
    expect(at(true) - at(false)).toBeGreaterThan(31.9 * MiB);
    expect(at(true) - at(false)).toBeLessThan(32.1 * MiB);
  });

  it('H2O allocates one token more than its budget', () => {
    const eviction = { policy: 'h2o', heavyTokens: 128, recentTokens: 128, budgetTokens: 256 } as const;
    expect(memoryModel(configuration({ eviction }), 4096, 32).kvBytesPerSequence).toBe(288 * 786_432);
    expect(memoryModel(configuration({ eviction }), 100, 32).kvBytesPerSequence).toBe(128 * 786_432);
  });
});

describe('prefill peaks on 1.4B', () => {
  const peaks = (context: number, codec: Codec = lla(96, 160)) =>
    prefillPeaks(configuration({ codec, path: 'reconstruct', choice: F16, branch: SHARED }), context);
  /** Residual stream and its norm, one chunk's MLP and attention, logits: what every kind pays. */
  const activations = (context: number) => prefillPeaks(configuration(), context).accumulated;

  it('one-shot captures take 96 GiB at 32k and 192 GiB at 64k', () => {
    expect(peaks(32 * 1024)['one-shot'] - activations(32 * 1024)).toBe(96 * GiB);
    expect(peaks(64 * 1024)['one-shot'] - activations(64 * 1024)).toBe(192 * GiB);
  });
  it('captures by layer: T - 1 loops before the last, and its first layer (the paper counts T: 48 GiB at 64k)', () => {
    expect(peaks(64 * 1024)['by-layer'] - activations(64 * 1024)).toBe((48 * GiB * (3 * 24 + 1)) / 96);
  });
  it('a latent that is complete within its layer is captured and accumulated for one layer', () => {
    const tokens = 2 ** 15;
    for (const c of [
      configuration({ codec: { kind: 'mla-head', rankK: 96, rankV: 160 }, path: 'reconstruct' }),
      configuration({
        geometry: { ...OURO, loops: 1 },
        codec: { kind: 'lla-2d', rankK: 96, rankV: 160 },
        path: 'reconstruct',
      }),
    ]) {
      const p = prefillPeaks(c, tokens);
      expect(p['by-layer'] - activations(tokens)).toBe(2 * 2048 * 2 * tokens);
      expect(p.accumulated - activations(tokens)).toBe((2 * 2048 * 2 + 256 * 4) * tokens);
    }
  });
  it('accumulation keeps one layer and loop (8 GiB at 2^20 tokens) beside the accumulators', () => {
    const accumulators = (96 + 160) * 16 * 24 * 4 * 2 ** 20;
    expect(peaks(2 ** 20).accumulated - activations(2 ** 20) - accumulators).toBe(8 * GiB);
  });
  it('a chunk needs the same at any length', () => {
    expect(peaks(2 ** 20).chunked).toBe(peaks(2 ** 16).chunked);
    expect(peaks(2 ** 20).chunked).toBeLessThan(GiB * 2);
  });
  it('orders the kinds: chunked ≤ accumulated ≤ by-layer ≤ one-shot at published ratios from 4×', () => {
    for (const context of [1024, 4096, 2 ** 16, 2 ** 20]) {
      const p = peaks(context);
      expect(p.chunked).toBeLessThanOrEqual(p.accumulated);
      expect(p['by-layer']).toBeLessThanOrEqual(p['one-shot']);
      expect(p.accumulated).toBeLessThanOrEqual(p['by-layer']);
    }
  });
  it('a plan says that its prompt cannot be prefilled', async () => {
    const asked = { context: '64k', codec: ['lla'], ratio: [4], path: ['reconstruct'], prefill: 'one-shot' };
    const report = await planOf({ vram: '141GB', ...asked });
    const p = row(report, 'lla-4x/reconstruct');
    expect(p.prefill.fits).toBe(false);
    expect(p.limitedBy).toBe('prefill');
    expect(p.marks.map((m) => m.code)).toContain('prefill-does-not-fit');
    expect(report.answer.deploy).toBeNull();
  });
});

describe('what a server keeps for sequences beyond its usual limit', () => {
  it('is counted before the limit is named: as many fit when it is', async () => {
    const asked: Scenario = {
      model: random.pick(['nanbeige4.2-3b', 'llama-3.1-8b'].map(modelFile)),
      device: random.pick(['h200', 'b200'] as const),
      stack: 'vllm',
      context: random.whole(64, 300),
      codec: ['full'],
    };
    const because = `${JSON.stringify(asked)}, seed ${SEED}`;
    const fits = async (more: Partial<Scenario>): Promise<number> =>
      (await plan({ ...asked, ...more })).plans[0]?.maxBatch.exact ?? 0;
    const most = await fits({});
    expect(most, because).toBeGreaterThan(1024);
    expect(await fits({ server: { maxNumSeqs: most } }), because).toBeGreaterThanOrEqual(most);
    const beyond = most + 2;
    expect(await fits({ server: { maxNumSeqs: beyond } }), because).toBeLessThan(beyond);
  });
});

describe('the longest sequence of a server that was simulated', () => {
  it('is as many whole blocks as its cache has', async () => {
    const device = random.pick(['l40s', 'rtx-5090']);
    const asked: Scenario = { model: 'ouro-2.6b', device, codec: ['full'], gpus: 1 };
    const workload = { arrivals: 'closed', think: '10s', promptTokens: random.whole(500, 1500), outputTokens: 100 };
    const s: Scenario = { ...asked, ttft: '20s', tpot: '500ms', workload };
    const sources = await readSources(s);
    const planned = planFleet(s, 4, sources);
    const found = simulateFleet(s, planned, sources);
    const text = fleetText(planned.fleet, planned.reports[0]!, { width: 400, colour: false, best: false }, found);
    const longest = Number(/--max-model-len (\d+)/.exec(text)?.[1]);
    const fits = async (context: number): Promise<number> =>
      (await plan({ ...asked, context })).plans[0]?.maxBatch.exact ?? 0;
    expect(await fits(longest), `${text}, seed ${SEED}`).toBe(1);
    expect(await fits(longest + 1), `${text}, seed ${SEED}`).toBe(0);
  });
});
