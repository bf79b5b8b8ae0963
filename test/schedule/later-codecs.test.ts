/** Schedules of codecs that came after LLA: what a step reads of a cached token, and which operations it has. */
import { expect, it } from 'vitest';
import type { Codec, Path } from '../../src/codecs/codec.js';
import { forEachOp } from '../../src/schedule/expand.js';
import { schedule, type Configuration } from '../../src/schedule/schedule.js';
import { prefillSchedule } from '../../src/schedule/prefill/prefill.js';
import { promptShare } from '../../src/schedule/streams.js';
import { asData, configuration, KiB, OURO } from '../contract/geometries.js';
import { rowsOf, runsOf, total } from './listed.js';

const HLA: Codec = { kind: 'hla', rankK: 512, rankV: 512, rankFirst: 256, windowTokens: 128 };
const WINDOW: Codec = { kind: 'loop-window', windowTokens: 64 };
const MELT: Codec = { kind: 'melt' };
const CONTEXT = 4096;

const of = (codec: Codec, path: Path = 'full'): Configuration => configuration({ codec, path });

/** Bytes in 16 bits that attention labelled so reads of all cached tokens in a step. */
function readBy(c: Configuration, label: string): number {
  return total(runsOf(c, schedule(c, 1, CONTEXT)), label, ({ shape }) => {
    const { kvHeads = 0, keyWidth = 0, valueWidth = 0, context = 0 } = shape;
    return context * kvHeads * (keyWidth + valueWidth) * 2;
  });
}

const labels = (c: Configuration): string[] =>
  runsOf(c, schedule(c, 1, CONTEXT)).map(({ op: { label, when }, calls }) => `${label} ${when} ${calls}`);

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
  const whole = prefillSchedule(c, 5000);
  for (const method of ['chunked', 'one-shot', 'by-layer'] as const)
    expect(asData(prefillSchedule(c, 5000, 2048, method))).toEqual(asData(whole));
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

it('FlashLoop reads 203 KiB of a token of prompts, 216 of a generated one: a tenth of the keys after two loops', () => {
  // The tail holds 64 to 127 tokens: 96 in the mean. A stream is 54 KiB a token, exact rows of a loop are 192.
  const [tail, chosen, stream] = [96, Math.ceil(0.1 * (CONTEXT + 1)), 54 * KiB];
  // The second loop reads chosen keys once more.
  const streamsRead = ([first, ...later]: readonly number[]): number =>
    ((CONTEXT - tail) * (first! + later[0]!) + later.reduce((sum, rows) => sum + Math.round(chosen * rows), 0)) *
    stream;
  const read = (c: Configuration): [packed: number, exact: number] => {
    let [packed, exact] = [0, 0];
    forEachOp(c, schedule(c, 1, CONTEXT), ({ kernel, shape: { packedRows = 0, tail: rows = 0 } }, calls) => {
      if (kernel !== 'attend_streams') return;
      packed += (calls * packedRows * stream) / 24;
      exact += (calls * rows * 192 * KiB) / 24;
    });
    return [packed, exact];
  };
  expect(read(FLASHLOOP('prompt'))).toEqual([streamsRead([1, 2, 2.25, 2.35]), 2 * tail * 192 * KiB]);
  expect(read(FLASHLOOP('generated'))).toEqual([streamsRead([1, 2, 3, 4]), 2 * tail * 192 * KiB]);
  const eachKiB = (c: Configuration): number => (read(c)[0] + read(c)[1]) / CONTEXT / KiB;
  expect(eachKiB(FLASHLOOP('prompt'))).toBeCloseTo(203, 0);
  expect(eachKiB(FLASHLOOP('generated'))).toBeCloseTo(216, 0);
});

it('FlashLoop chooses keys after its second loop, appends exact rows and packs them; of two loops has no third', () => {
  const own = labels(FLASHLOOP('prompt'));
  const loops = ['first', 'second', 'third', 'fourth'];
  expect(own).toContain('choose-keys second-loop 24');
  for (const loop of loops.slice(1))
    for (const label of ['attend-chosen', 'join-chosen']) expect(own).toContain(`${label} ${loop}-loop 24`);
  for (const axis of ['k', 'v']) {
    expect(own).toContain(`append-${axis} always ${4 * 24}`);
    for (const loop of loops) expect(own).toContain(`pack-${axis} ${loop}-loop 24`);
  }
  const two = configuration({
    geometry: { ...OURO, loops: 2 },
    codec: { kind: 'flashloop', tokens: 'prompt' },
    path: 'full',
  });
  expect(labels(two).filter((l) => /cho[os]|^(?!pack).*(third|fourth)/.test(l))).toEqual([]);
});

it('FlashLoop runs a quarter and a tenth of a prompt in loops 3 and 4, in one run', () => {
  const c = FLASHLOOP('prompt');
  const tokens = 5001;
  const prompt = prefillSchedule(c, tokens);
  const rows = (label: string): number => total(runsOf(c, prompt), label, rowsOf);
  const layers = 24 * (2 * tokens + 1251 + 501);
  expect([rows('qkv'), rows('attend')]).toEqual([layers, layers]);
  // All but an exact tail is packed, in whole groups.
  expect(rows('pack-k')).toBe(24 * (2 * 4928 + 1232 + 493));
  expect(asData(prefillSchedule(c, tokens, 2048, 'chunked'))).toEqual(asData(prompt));
  expect(promptShare(c)).toBeCloseTo(2.35 / 4, 12);
  expect(promptShare(of({ kind: 'full' }))).toBe(1);
});
