/** Schedules of codecs that came after LLA: what a step reads of a cached token, and which operations it has. */
import { expect, it } from 'vitest';
import type { Codec, Path } from '../../src/codecs/codec.js';
import { forEachOp, schedule, type Configuration } from '../../src/schedule/schedule.js';
import { prefillSchedule } from '../../src/schedule/prefill.js';
import { configuration, KiB, OURO } from '../contract/geometries.js';

const HLA: Codec = { kind: 'hla', rankK: 512, rankV: 512, rankFirst: 256, windowTokens: 128 };
const WINDOW: Codec = { kind: 'loop-window', windowTokens: 64 };
const MELT: Codec = { kind: 'melt' };
const CONTEXT = 4096;

const of = (codec: Codec, path: Path = 'full'): Configuration => configuration({ codec, path });

/** Bytes in 16 bits that attention labelled so reads of all cached tokens in a step. */
function readBy(c: Configuration, label: string): number {
  let bytes = 0;
  forEachOp(c, schedule(c, 1, CONTEXT), ({ label: own, shape }, calls) => {
    const { kvHeads = 0, keyWidth = 0, valueWidth = 0, context = 0 } = shape;
    if (own === label) bytes += calls * context * kvHeads * (keyWidth + valueWidth) * 2;
  });
  return bytes;
}

const labels = (c: Configuration): string[] => {
  const seen: string[] = [];
  forEachOp(c, schedule(c, 1, CONTEXT), ({ label, when }, calls) => seen.push(`${label} ${when} ${calls}`));
  return seen;
};

it('HLA reads 168 KiB of a token before its window, and 768 KiB of one inside', () => {
  const c = of(HLA, 'rotated');
  expect(readBy(c, 'attend')).toBe((CONTEXT - 128) * 168 * KiB);
  expect(readBy(c, 'attend-recent')).toBe(128 * 768 * KiB);
  const alone = of({ ...HLA, windowTokens: 0 }, 'rotated');
  expect(readBy(alone, 'attend')).toBe(CONTEXT * 168 * KiB);
  expect(readBy(alone, 'attend-recent')).toBe(0);
});

it('HLA takes a prompt in one pass and one run, whatever the method', () => {
  const c = of(HLA, 'rotated');
  const whole = prefillSchedule(c, 5000, 1);
  for (const method of ['chunked', 'one-shot', 'by-layer'] as const)
    expect(prefillSchedule(c, 5000, 1, 2048, method)).toEqual(whole);
  const embeddings = whole.stages.filter((s) => s.kind === 'once' && s.ops.some((o) => o.label === 'embedding'));
  expect(embeddings).toHaveLength(1);
});

it('windows of later loops read all rows of the first loop in every loop, as a model with such loops does', () => {
  const c = of(WINDOW);
  expect(readBy(c, 'attend')).toBe(CONTEXT * 768 * KiB);
  expect(readBy(c, 'attend-window')).toBe(64 * 3 * 192 * KiB);
  const geometry = { ...OURO, laterLoopsWindow: 64 };
  expect(labels(c)).toEqual(labels(configuration({ geometry, codec: { kind: 'full' }, path: 'full' })));
});

it('MELT gates its state in later loops, and projects keys and values from it in all', () => {
  const own = labels(of(MELT));
  for (const label of ['state-gate', 'state-gate-before', 'state-gate-bias', 'state-mix'])
    expect(own).toContain(`${label} later-loops ${3 * 24}`);
  for (const label of ['q', 'kv']) expect(own).toContain(`${label} always ${4 * 24}`);
  expect(own).toContain('append-k last-loop 24');
  expect(readBy(of(MELT), 'attend')).toBe(CONTEXT * 768 * KiB);
});
