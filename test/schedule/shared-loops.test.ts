/** Schedules of codecs whose loops read one set of rows: what each way of sharing adds to a step and to a prompt. */
import { describe, expect, it } from 'vitest';
import type { Codec } from '../../src/codecs/codec.js';
import { inEverySharing } from '../../src/codecs/registry.js';
import { memoryModel, prefillPeaks } from '../../src/cost/memory.js';
import type { Eviction } from '../../src/eviction/policy.js';
import { forEachPrefillCall } from '../../src/schedule/prefill/calls.js';
import { prefillSchedule } from '../../src/schedule/prefill/prefill.js';
import { schedule } from '../../src/schedule/schedule.js';
import { configuration } from '../contract/geometries.js';
import { rowsOf, runsOf, total } from './listed.js';

const TOKENS = 40;
const WAYS: readonly Codec[] = (['final-loop', 'mean-loop'] as const).flatMap((kind) => inEverySharing({ kind }));
const [TWO_PASS, DECODE, ALL, MEAN, MEAN_ALL] = WAYS as [Codec, Codec, Codec, Codec, Codec];
const HEAVY: Eviction = { policy: 'h2o', heavyTokens: 8, recentTokens: 8, budgetTokens: 16 };

/** Rows that operations of a label work on. */
const inStep = (codec: Codec, label: string): number => {
  const c = configuration({ codec });
  return total(runsOf(c, schedule(c, 3, 100)), label, rowsOf);
};
const inPrompt = (codec: Codec, label: string, eviction: Eviction | null = null): number => {
  const c = configuration({ codec, eviction });
  return total(runsOf(c, prefillSchedule(c, TOKENS)), label, rowsOf);
};

describe('a step', () => {
  it('is the same in every way of sharing, but for the means', () => {
    const list = (codec: Codec): string[] => {
      const c = configuration({ codec });
      const own = runsOf(c, schedule(c, 3, 100)).filter(({ op }) => op.label !== 'mean-rows');
      return own.map(({ op, calls }) => JSON.stringify([op, calls]));
    };
    for (const codec of WAYS) expect(list(codec)).toEqual(list(TWO_PASS));
  });

  it('adds every loop to the means, keys and values together, and appends in the last', () => {
    expect(inStep(MEAN, 'mean-rows')).toBe(3 * 24 * 4);
    expect(inStep(DECODE, 'mean-rows')).toBe(0);
    for (const codec of WAYS) expect(inStep(codec, 'append-k')).toBe(3 * 24);
  });
});

describe('a prompt', () => {
  it('takes the passes that its way of sharing says', () => {
    expect(inPrompt(TWO_PASS, 'qkv')).toBe(2 * 96 * TOKENS);
    for (const codec of [DECODE, ALL, MEAN, MEAN_ALL]) expect(inPrompt(codec, 'qkv')).toBe(96 * TOKENS);
    // Pass 2 attends to what the cache has: the same rows in every loop.
    expect(inPrompt(TWO_PASS, 'load-k')).toBe(96 * TOKENS);
    expect(inPrompt(DECODE, 'load-k')).toBe(0);
  });

  it('goes position by position where it shares itself, whatever the method', () => {
    for (const codec of [ALL, MEAN_ALL]) {
      const c = configuration({ codec });
      expect(prefillSchedule(c, TOKENS).stages.filter(({ kind }) => kind === 'stack')).toHaveLength(TOKENS);
      // The first token has nothing before it.
      expect(inPrompt(codec, 'attend-cached')).toBe(96 * (TOKENS - 1));
      const { submissions } = forEachPrefillCall(c, { method: 'accumulated', promptTokens: TOKENS }, () => {});
      expect(submissions).toBeGreaterThanOrEqual(TOKENS);
      const { accumulated, chunked } = prefillPeaks(c, 4096);
      expect(accumulated).toBe(chunked);
      expect(accumulated).toBeLessThan(prefillPeaks(configuration({ codec: DECODE }), 4096).chunked / 100);
    }
  });

  it('writes shared rows once, and sets aside what attention does not read where tokens are evicted', () => {
    for (const codec of WAYS) expect(inPrompt(codec, 'append-v')).toBe(24 * TOKENS);
    // Beside the cache: rows that pass 2 reads, and means. Rows of the last loop are gathered from those it attends to.
    expect(inPrompt(TWO_PASS, 'append-v', HEAVY)).toBe(24 * TOKENS);
    expect(inPrompt(MEAN, 'append-v', HEAVY)).toBe(24 * TOKENS);
    expect(inPrompt(DECODE, 'append-v', HEAVY)).toBe(0);
    for (const codec of [TWO_PASS, DECODE, MEAN]) expect(inPrompt(codec, 'prompt-evict', HEAVY)).toBe(24 * 16);
  });
});

describe('memory', () => {
  it('is D slots a token in every way; means of one token are in flight', () => {
    for (const codec of WAYS) {
      const m = memoryModel(configuration({ codec }), 4096, 32);
      expect(m.kvBytesPerToken).toBe(196_608);
      expect(m.inFlightBytesPerSequence).toBe(codec.kind === 'mean-loop' ? 24 * 2 * 2048 * 4 : 0);
    }
  });

  it('of a prompt holds means of all its tokens', () => {
    const peak = (codec: Codec): number => prefillPeaks(configuration({ codec }), 4096).accumulated;
    expect(peak(MEAN) - peak(DECODE)).toBe(4096 * 24 * 2 * 2048 * 4);
    expect(peak(TWO_PASS)).toBe(peak(DECODE));
  });
});
