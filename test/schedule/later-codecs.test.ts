/** Schedules of codecs that came after LLA: what a step reads of a cached token, and which operations it has. */
import { expect, it } from 'vitest';
import type { Codec, Path } from '../../src/codecs/codec.js';
import { forEachOp } from '../../src/schedule/expand.js';
import { schedule, type Configuration } from '../../src/schedule/schedule.js';
import { prefillSchedule } from '../../src/schedule/prefill/prefill.js';
import { promptShare } from '../../src/schedule/streams.js';
import { storedBytes } from '../../kernels/spec.js';
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
  expect(readBy(c, 'attend-window')).toBe(63 * 3 * 192 * KiB);
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

const FLASHLOOP = (tokens: 'prompt' | 'generated'): Configuration => of({ kind: 'flashloop', tokens });

it('FlashLoop reads 187 KiB of a token of a prompt, 200 of a generated one: later loops a tenth of the keys', () => {
  // The tail holds 64 to 127 tokens: 96 in the mean. A stream is 54 KiB a token.
  const [tail, chosen, stream] = [96, Math.ceil(0.1 * (CONTEXT + 1)), 54 * KiB];
  const streamsRead = (rows: readonly number[]): number =>
    ((CONTEXT - tail) * (rows[0]! + rows[1]!) + Math.round(chosen * rows[2]!) + Math.round(chosen * rows[3]!)) * stream;
  const packed = (c: Configuration): number => {
    let bytes = 0;
    forEachOp(c, schedule(c, 1, CONTEXT), ({ label, variant, shape }, calls) => {
      if (label !== 'attend') return;
      expect(variant).toMatch(/^q4(\+scores)?$/);
      bytes += calls * shape.context! * shape.kvHeads! * 2 * storedBytes('q4', shape.keyWidth!, shape.groupSize);
    });
    return bytes;
  };
  expect(packed(FLASHLOOP('prompt'))).toBe(streamsRead([1, 2, 2.25, 2.35]));
  expect(packed(FLASHLOOP('generated'))).toBe(streamsRead([1, 2, 3, 4]));
  expect(packed(FLASHLOOP('prompt')) / CONTEXT / KiB).toBeCloseTo(183, 0);
  for (const tokens of ['prompt', 'generated'] as const)
    expect(readBy(FLASHLOOP(tokens), 'attend-tail')).toBe(2 * tail * 192 * KiB);
});

it('FlashLoop chooses keys after its second loop, appends exact rows and packs them, and has no third loop of two', () => {
  const own = labels(FLASHLOOP('prompt'));
  for (const label of ['choose-keys second-loop 24', 'add-sparse third-loop 24', 'add-sparse fourth-loop 24'])
    expect(own).toContain(label);
  for (const axis of ['k', 'v'])
    for (const what of ['append', 'pack']) expect(own).toContain(`${what}-${axis} always ${4 * 24}`);
  const two = configuration({
    geometry: { ...OURO, loops: 2 },
    codec: { kind: 'flashloop', tokens: 'prompt' },
    path: 'full',
  });
  expect(labels(two).filter((l) => /choose|sparse|third|fourth/.test(l))).toEqual([]);
});

it('FlashLoop runs a quarter and a tenth of a prompt in loops 3 and 4, in one run', () => {
  const c = FLASHLOOP('prompt');
  const tokens = 5001;
  const rows = new Map<string, number>();
  const prompt = prefillSchedule(c, tokens, 1);
  forEachOp(c, prompt, ({ label, shape }, calls) =>
    rows.set(label, (rows.get(label) ?? 0) + calls * (shape.m ?? shape.queries ?? shape.rows ?? 0)),
  );
  const layers = 24 * (2 * tokens + 1251 + 501);
  expect(rows.get('qkv')).toBe(layers);
  expect(rows.get('attend')).toBe(layers);
  expect(rows.get('pack-k')).toBe(layers);
  expect(prefillSchedule(c, tokens, 1, 2048, 'chunked')).toEqual(prompt);
  expect(promptShare(c)).toBeCloseTo(2.35 / 4, 12);
  expect(promptShare(of({ kind: 'full' }))).toBe(1);
});
