/** Counted calls of prefill are those that its schedule lists, whatever the prompt, its chunks, and what is decoded. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { findPreset } from '../../src/geometry/presets.js';
import { forEachPrefillCall } from '../../src/schedule/prefill/calls.js';
import { prefillSchedule, type WholePrompt } from '../../src/schedule/prefill/prefill.js';
import { forEachOp } from '../../src/schedule/expand.js';
import { type Configuration } from '../../src/schedule/schedule.js';
import { workOf, type KernelCall } from '../../kernels/registry.js';
import { configuration, HUGINN, lla } from '../contract/geometries.js';
import { SEED } from '../gpu/random.js';
import { callsOf, counted } from './listed.js';

const METHODS: readonly WholePrompt[] = ['accumulated', 'chunked', 'by-layer', 'one-shot'];
const EVICTIONS = [
  null,
  { policy: 'streaming', sinkTokens: 4, windowTokens: 21, budgetTokens: 25 },
  { policy: 'streaming', sinkTokens: 0, windowTokens: 9, budgetTokens: 9 },
  { policy: 'budget', budgetTokens: 30 },
  { policy: 'h2o', heavyTokens: 7, recentTokens: 12, budgetTokens: 19 },
] as const;
const CONFIGURATIONS: readonly Partial<Configuration>[] = [
  {},
  { codec: { kind: 'kv-quant', bits: 4 } },
  { codec: { kind: 'cla', shareLayers: 6 } },
  { codec: { kind: 'final-loop' } },
  { codec: { kind: 'final-loop', shared: 'decode' } },
  { codec: { kind: 'final-loop', shared: 'all' } },
  { codec: { kind: 'mean-loop' } },
  { geometry: HUGINN, codec: { kind: 'mean-loop', shared: 'all' } },
  ...(['reconstruct', 'block-absorbed', 'absorbed', 'fast'] as const).map((path) => ({ codec: lla(96, 160), path })),
  { codec: { kind: 'lla-2d', rankK: 36, rankV: 60 }, path: 'absorbed' },
  { codec: { kind: 'mla-head', rankK: 48, rankV: 80 }, path: 'reconstruct' },
  { geometry: HUGINN, codec: lla(96, 160), path: 'reconstruct' },
  { geometry: findPreset('hrm-text-1b') },
  { geometry: findPreset('nandi-mini-150m'), codec: { kind: 'kv-quant', bits: 4 } },
  { gpus: 4 },
  { codec: lla(96, 160), path: 'reconstruct', gpus: 2 },
  { codec: lla(27, 45), path: 'reconstruct', bindingBytes: 2 ** 24 },
];

describe(`counted calls of prefill (LLA_SIM_SEED=${SEED})`, () => {
  it('are those of the schedule, as often', () => {
    fc.assert(
      fc.property(
        fc.constantFrom(...CONFIGURATIONS),
        fc.constantFrom(...METHODS),
        fc.constantFrom(...EVICTIONS),
        fc.integer({ min: 1, max: 90 }),
        fc.integer({ min: 1, max: 40 }),
        (of, method, eviction, promptTokens, chunkTokens) => {
          const c = configuration({ ...of, eviction });
          const s = prefillSchedule(c, promptTokens, chunkTokens, method);
          const listed = counted(callsOf((add) => forEachOp(c, s, add)));
          const found: [KernelCall, number][] = [];
          const frame = forEachPrefillCall(c, { method, promptTokens, chunkTokens }, (...of) => found.push(of));
          expect(counted(found)).toEqual(listed);
          const exchanged = (list: typeof s.collectives): Record<string, number> => {
            const bytes: Record<string, number> = {};
            for (const { label, kind, bytesEach, calls } of list)
              bytes[`${label} ${kind} ${bytesEach}`] = (bytes[`${label} ${kind} ${bytesEach}`] ?? 0) + calls;
            return bytes;
          };
          expect(exchanged(frame.collectives)).toEqual(exchanged(s.collectives));
          const operations = [...listed.values()].reduce((sum, times) => sum + times, 0);
          expect(frame.submissions).toBeGreaterThanOrEqual(operations / 256);
        },
      ),
      { numRuns: 80, seed: SEED },
    );
  });

  it('of packed loops, which run on different tokens, are those listed, in chunks of a 512th of long ones', () => {
    for (const tokens of ['prompt', 'generated'] as const)
      for (const [promptTokens, chunkTokens, listed] of [
        [90, 7, 7],
        [4096, 2048, 2048],
        [8192, 2048, 2048],
        [5120, 8, 10],
      ] as const) {
        const c = configuration({ codec: { kind: 'flashloop', tokens } });
        const plan = { method: 'accumulated', promptTokens, chunkTokens } as const;
        const whole = prefillSchedule(c, promptTokens, listed, 'accumulated');
        expect(counted(callsOf((add) => forEachPrefillCall(c, plan, add)))).toEqual(
          counted(callsOf((add) => forEachOp(c, whole, add))),
        );
      }
  });

  it.each(['accumulated', 'chunked'] as const)(
    'of a prompt of very many chunks (%s) are told apart at a few hundred places, with the same work',
    (method) => {
      const c = configuration({ codec: lla(96, 160), path: 'reconstruct' });
      const work = (promptTokens: number): { flops: number; calls: number; shapes: number } => {
        const sum = { flops: 0, calls: 0, shapes: 0 };
        forEachPrefillCall(c, { method, promptTokens, chunkTokens: 8 }, (call, times) => {
          sum.flops += times * workOf(call).flops;
          sum.calls += times;
          sum.shapes++;
        });
        return sum;
      };
      // Work over n tokens is a + b n + c n²: three prompts whose chunks are all told apart say what a long one takes.
      const [x, y, z] = [1024, 2048, 4096].map((n) => work(n).flops) as [number, number, number];
      const quadratic = ((z - x) / 3072 - (y - x) / 1024) / 2048;
      const linear = (y - x) / 1024 - quadratic * 3072;
      const long = work(65_536);
      expect(long.flops / (x + linear * (65_536 - 1024) + quadratic * (65_536 ** 2 - 1024 ** 2))).toBeCloseTo(1, 2);
      expect(long.shapes).toBeLessThan(1200);
      expect(work(65_536 * 64).shapes).toBeLessThan(1200);
    },
  );
});
