/** The operations of a prompt's prefill: two passes where a codec has latents, causal attention in chunks. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { workOf } from '../../kernels/registry.js';
import { PREFILL_CHUNK_TOKENS, prefillSchedule } from '../../src/schedule/prefill/prefill.js';
import { type Configuration, type Op } from '../../src/schedule/schedule.js';
import { configuration, HUGINN, lla, smallGeometry } from '../contract/geometries.js';
import { expectKnown, H2O, rowsOf, runsOf, STREAMING, total, type Run } from './listed.js';

const runs = (c: Configuration, tokens: number): Run[] => runsOf(c, prefillSchedule(c, tokens));

describe('prefill', () => {
  const tokens = 5000; // two whole chunks and a rest
  it('projects every prompt token once a layer run and pass', () => {
    expect(total(runs(configuration(), tokens), 'qkv', rowsOf)).toBe(96 * tokens);
    const latent = runs(configuration({ codec: lla(96, 160), path: 'block-absorbed' }), tokens);
    for (const label of ['qkv', 'gate-up', 'down', 'attention-out'])
      expect(total(latent, label, rowsOf)).toBe(2 * 96 * tokens);
    expect(total(latent, 'lm-head', rowsOf)).toBe(1);
  });

  it('attends to each token and those before it: L(L + 1)/2 scores a head', () => {
    fc.assert(
      fc.property(fc.integer({ min: 1, max: 5 * PREFILL_CHUNK_TOKENS }), (length) => {
        const flops = total(runs(configuration(), length), 'attend', (o) => workOf(o).flops);
        expect(flops).toBe((96 * 16 * length * (length + 1) * 2 * (128 + 128)) / 2);
      }),
      { numRuns: 40 },
    );
  });

  it('encodes in pass 1, in every loop, reconstructs in pass 2 and writes each latent once', () => {
    const list = runs(configuration({ codec: lla(27, 45), path: 'reconstruct' }), tokens);
    expect(total(list, 'encode-k', rowsOf)).toBe(96 * tokens);
    expect(total(list, 'reconstruct-v', rowsOf)).toBe(96 * tokens);
    expect(
      total(list, 'append-k', (o) => rowsOf(o) * (o.shape['heads'] as number) * (o.shape['width'] as number)),
    ).toBe(24 * tokens * 16 * 27);
    expect(
      total(
        runs(configuration({ codec: lla(27, 45), path: 'fast' }), tokens),
        'append-k',
        (o) => rowsOf(o) * (o.shape['heads'] as number),
      ),
    ).toBe(96 * tokens * 16);
    expect(total(runs(configuration({ codec: { kind: 'cla', shareLayers: 6 } }), tokens), 'kv', rowsOf)).toBe(
      16 * tokens,
    );
  });

  it('encodes every token under StreamingLLM, since pass 2 attends to all, and keeps what stays', () => {
    const eviction = STREAMING;
    const list = runs(configuration({ codec: lla(96, 160), path: 'block-absorbed', eviction }), tokens);
    expect(total(list, 'encode-k', rowsOf)).toBe(96 * tokens);
    expect(total(list, 'append-v', rowsOf)).toBe(24 * tokens);
    expect(total(list, 'append-v-staying', rowsOf)).toBe(24 * 260);
    expect(total(list, 'qkv', rowsOf)).toBe(2 * 96 * tokens);
  });

  it('weighs every token under H2O by those after it, in the last pass alone, and keeps the budget of each row', () => {
    const eviction = H2O;
    // What a query gives itself does not count; a score is 2 · width operations and four of its weight.
    const weights = ((96 * 16 * tokens * (tokens - 1)) / 2) * (2 * 128 + 4);
    const choice = { storage: 'f16', groupSize: 64 } as const;
    for (const [c, evictions] of [
      [configuration({ eviction }), 96],
      [configuration({ codec: lla(96, 160), path: 'block-absorbed', eviction }), 24],
      [configuration({ codec: lla(96, 160), path: 'fast', eviction }), 96],
      [configuration({ codec: { kind: 'final-loop' }, eviction }), 24],
      [configuration({ codec: { kind: 'cla', shareLayers: 6 }, eviction }), 16],
    ] as const) {
      const list = runs({ ...c, choice }, tokens);
      expect(total(list, 'prompt-mass', (o) => workOf(o).flops)).toBe(weights);
      expect(total(list, 'prompt-evict')).toBe(evictions);
      expect(total(list, 'prompt-evict', (o) => (o.shape['rows'] as number) * (o.shape['kept'] as number))).toBe(
        evictions * 16 * 260,
      );
    }
    const shared = runs(
      configuration({ codec: { kind: 'lla-2d', rankK: 96, rankV: 160 }, path: 'reconstruct', eviction }),
      tokens,
    );
    expect(total(shared, 'prompt-mass', (o) => workOf(o).flops)).toBe(weights);
    expect(total(shared, 'prompt-evict', (o) => o.shape['rows'] as number)).toBe(24);
  });

  it('in chunks attends to as many tokens, those before the chunk through the cache', () => {
    const [length, chunk] = [5 * 7 + 3, 7];
    const list = (c: Configuration): Run[] => runsOf(c, prefillSchedule(c, length, chunk, 'chunked'));
    const pairs = (o: Op): number => {
      const { queries, context } = o.shape as { queries: number; context: number };
      return queries * context + (o.label === 'attend' ? (queries * (queries + 1)) / 2 : 0);
    };
    const all = (length * (length + 1)) / 2;
    const of = (l: readonly Run[], label: string): number => total(l, label, pairs);
    expect(of(list(configuration()), 'attend')).toBe(96 * all);
    const latent = list(configuration({ codec: lla(96, 160), path: 'block-absorbed' }));
    expect(of(latent, 'attend') + of(latent, 'attend-earlier')).toBe(2 * 96 * all);
    const quantised = list(configuration({ codec: { kind: 'kv-quant', bits: 4 } }));
    expect(of(quantised, 'attend') + of(quantised, 'attend-cached')).toBe(96 * all);
    expect(total(latent, 'lm-head', rowsOf)).toBe(1);
    const kept = 4 + 6;
    const evicting = list(
      configuration({
        codec: { kind: 'kv-quant', bits: 4 },
        eviction: { policy: 'streaming', sinkTokens: 4, windowTokens: 6, budgetTokens: kept },
      }),
    );
    expect(of(evicting, 'attend-sinks')).toBe(96 * (length - 2 * chunk) * 4);
    expect(of(evicting, 'attend-sinks') + of(evicting, 'attend-cached')).toBe(
      96 * (chunk * chunk + (length - 2 * chunk) * kept),
    );
  });

  it('exchanges activations of the whole prompt and pass, logits of its end', () => {
    const c = configuration({ geometry: HUGINN, gpus: 5, codec: lla(128, 256), path: 'reconstruct' });
    const of = (label: string) => prefillSchedule(c, 200).collectives.find((x) => x.label === label);
    expect(of('adapter')).toMatchObject({ calls: 2 * 32, bytesEach: 200 * 5280 * 4 });
    expect(of('logits')).toMatchObject({ calls: 1, bytesEach: 65_536 * 4 });
  });

  it('every operation has its dimensions, a known variant and finite work', () => {
    fc.assert(
      fc.property(
        smallGeometry,
        fc.constantFrom('full', 'lla', 'lla-2d', 'mla-head'),
        fc.integer({ min: 1, max: 3 * PREFILL_CHUNK_TOKENS }),
        (geometry, kind, length) => {
          const codec = kind === 'full' ? ({ kind } as const) : { kind: kind as 'lla', rankK: 3, rankV: 5 };
          for (const path of kind === 'full'
            ? (['full'] as const)
            : (['fast', 'absorbed', 'block-absorbed'] as const)) {
            runs(configuration({ geometry, codec, path }), length).forEach(expectKnown);
          }
        },
      ),
      { numRuns: 25 },
    );
  });
});
