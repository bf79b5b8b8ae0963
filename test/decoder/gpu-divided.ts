/** Caches that one binding does not hold: the batch in parts decodes as the whole one does, in as many bytes. */
import { expect, test } from 'vitest';
import type { Device } from '../../src/gpu/index.js';
import { memoryModel } from '../../src/cost/memory.js';
import { blocksOf, type Geometry } from '../../src/geometry/geometry.js';
import { asData } from '../contract/geometries.js';
import { slotsOf } from '../../src/schedule/cache-map.js';
import type { GpuDecoder } from '../../src/decoder/gpu/decoder.js';
import type { PrefillMethod } from '../../src/decoder/gpu/prefill-methods.js';
import { expand } from '../../src/schedule/expand.js';
import type { Eviction } from '../../src/eviction/policy.js';
import { schedule } from '../../src/schedule/schedule.js';
import { cacheParts, sequenceBytes } from '../../src/schedule/cache-parts.js';
import { compareBytes, differing } from '../../src/validate/memory/memory.js';
import { randomOf, SEED } from '../gpu/random.js';
import { everyNth } from '../gpu/sample.js';
import { configurationOf, expectWithin, open, relative, type Case } from './gpu-cases.js';
import { label, learned, named, ofLla, plain } from './gpu-list.js';
import { BRANCH, learnedCodecs, promptOf, SINGLE } from './models.js';

/** An even vocabulary: the memory model does not count what an odd one is padded by. */
const even = (name: string): Geometry => ({ ...named(name), vocab: 24 });
export const GROUPED = even('grouped pre-norm');
const HUGINN = even('huginn-like');
const LLA = learnedCodecs(GROUPED, 0.5)[0]!;
const perHead = { choice: SINGLE, branch: { ...BRANCH, perHead: true } };
const single = { choice: SINGLE };
export const CASES: Case[] = [
  ...plain({ kind: 'full' }, [GROUPED], single),
  ...plain({ kind: 'kv-quant', bits: 8 }, [GROUPED]),
  ...ofLla([
    ...learned(GROUPED, ['reconstruct', 'block-absorbed', 'fast'], single),
    ...learned(GROUPED, ['reconstruct'], { materialised: true }),
    ...learned(HUGINN, ['reconstruct'], single),
  ]),
  ...learned(GROUPED, ['absorbed'], perHead).filter(({ codec }) => codec.kind === 'lla-2d'),
  { geometry: GROUPED, codec: { ...LLA, kind: 'lla-window', windowTokens: 7 }, path: 'reconstruct', ...single },
];
/**
 * Every layout that rows are evicted from: one row set a head, or one that heads, layers or loops share; several
 * blocks.
 */
const evicted = (eviction: Eviction): Case[] =>
  [
    ...plain({ kind: 'full' }, [GROUPED], single),
    ...plain({ kind: 'kv-quant', bits: 8 }, [GROUPED]),
    ...plain({ kind: 'cla', shareLayers: 2 }, [GROUPED], single),
    ...plain({ kind: 'final-loop' }, [GROUPED], single),
    ...learned(GROUPED, ['reconstruct', 'block-absorbed', 'fast'], single),
    ...learned(GROUPED, ['reconstruct'], { materialised: true }),
    ...ofLla(learned(GROUPED, ['absorbed'], perHead)),
    ...learned(GROUPED, ['absorbed'], { ...single, branch: BRANCH }).filter(({ codec }) => codec.kind !== 'lla'),
    ...ofLla(learned(HUGINN, ['reconstruct', 'absorbed'], single)),
  ].map((of) => ({ ...of, eviction }));
const EVICTIONS: Eviction[] = [
  { policy: 'streaming', sinkTokens: 4, windowTokens: 9, budgetTokens: 13 },
  { policy: 'h2o', heavyTokens: 5, recentTokens: 7, budgetTokens: 12 },
  { policy: 'budget', budgetTokens: 11 },
];

/** Neither is a multiple of what a part can have. */
export const BATCH = 19;
const EVICTED_BATCH = 37;
export const CONTEXT = 32;
const STEPS = 3;
/** Tokens of a prompt at most: decoders take them in one by one, too. */
const MOST_TOKENS = 18;
/** Sequences that evict for as many steps at most. */
const EVICTED_CONTEXT = CONTEXT - 10;

export const core = (of: Case) => blocksOf(of.geometry).find((b) => b.name === 'core')!;

/** Bytes of every kind as the memory model has them. */
function expectPredicted(decoder: GpuDecoder, of: Case, batch: number, contextTokens: number): void {
  const { kinds } = compareBytes(decoder, memoryModel(configurationOf(of), contextTokens, 32), batch);
  expect(differing({ kinds })).toEqual([]);
}

/** Holds the logits of both against each other: after prompts, and after steps that follow them. */
async function expectEqual(
  one: GpuDecoder,
  parts: GpuDecoder,
  whole: Case,
  prompts: number[][],
  method: PrefillMethod,
): Promise<void> {
  let [next] = await Promise.all([
    one.prefill(prompts, method).then((r) => [...r.tokens]),
    parts.prefill(prompts, method),
  ]);
  for (let step = 0; ; step++) {
    expectWithin(relative(await parts.logits(), await one.logits()), whole, prompts, `${method}, step ${step}`);
    if (step === STEPS) return;
    [next] = await Promise.all([one.step(next).then((r) => [...r.tokens]), parts.step(next)]);
  }
}

/** Opens a batch whole and in parts, and closes both. */
async function bothWays(
  device: Device,
  whole: Case,
  divided: Case,
  options: { batch: number; contextTokens: number },
  body: (one: GpuDecoder, parts: GpuDecoder) => Promise<void>,
): Promise<void> {
  const [one, parts] = [await open(device, whole, options), await open(device, divided, options)];
  try {
    await body(one, parts);
  } finally {
    one.close();
    parts.close();
  }
}
/** Token by token and in whole, each from nothing. */
async function expectAllEqual(one: GpuDecoder, parts: GpuDecoder, whole: Case, prompts: number[][]): Promise<void> {
  for (const method of ['by-token', 'accumulated'] as const) {
    await expectEqual(one, parts, whole, prompts, method);
    one.reset();
    parts.reset();
  }
}

const ALL_EVICTED = EVICTIONS.flatMap(evicted);
/** Cases of this run, others by another seed. */
export const DIVIDED_CASES = everyNth(CASES, CASES.length);
export const EVICTED_CASES = everyNth(ALL_EVICTED, ALL_EVICTED.length);

export function dividedTest(device: Device, whole: Case): void {
  test(`in parts: ${label(whole)}`, async () => {
    const c = configurationOf(whole);
    // Room for more than half of the batch, and for a part of it whose queries begin where a binding may.
    const bindingBytes = (whole.path === 'absorbed' ? 16 : 9) * sequenceBytes(c, core(whole), CONTEXT);
    const divided = { ...whole, bindingBytes };
    const division = cacheParts(configurationOf(divided), core(whole), BATCH, CONTEXT);
    expect(division.reduce((sum, { size, repeat }) => sum + size * repeat, 0)).toBe(BATCH);
    expect(division).toHaveLength(2);
    const random = randomOf(SEED);
    const prompts = Array.from({ length: BATCH }, (_, i) =>
      promptOf(whole.geometry, random.whole(1, MOST_TOKENS), SEED + i),
    );
    const options = { batch: BATCH, contextTokens: CONTEXT };
    await bothWays(device, whole, divided, options, async (one, parts) => {
      expectPredicted(parts, divided, BATCH, CONTEXT);
      await expectAllEqual(one, parts, whole, prompts);
      await parts.fillCache(CONTEXT - 1);
      await parts.step(new Array<number>(BATCH).fill(1));
    });
  });
}

export function evictedTest(device: Device, whole: Case): void {
  test(`in parts: ${label(whole)}`, async () => {
    const { capacity } = slotsOf(whole.eviction!, EVICTED_CONTEXT, 32);
    const blocks = blocksOf(whole.geometry);
    const random = randomOf(SEED);
    // The first is as long as can be: it has evicted for many steps.
    const length = (i: number): number =>
      i === 0 ? EVICTED_CONTEXT - STEPS : random.whole(1, EVICTED_CONTEXT - STEPS);
    const prompts = Array.from({ length: EVICTED_BATCH }, (_, i) => promptOf(whole.geometry, length(i), SEED + i));
    const options = { batch: EVICTED_BATCH, contextTokens: EVICTED_CONTEXT };
    const one = await open(device, whole, options);
    // Room for 16 sequences, and for the queries of all, which are not divided and more than such small caches.
    const queries = one.allocations.find((a) => a.label === 'queries')!.bytes!;
    const divided = {
      ...whole,
      bindingBytes: Math.max(
        queries,
        16 * Math.max(...blocks.map((block) => sequenceBytes(configurationOf(whole), block, capacity))),
      ),
    };
    expect(cacheParts(configurationOf(divided), core(whole), EVICTED_BATCH, capacity)).toEqual([
      { size: 16, repeat: 2 },
      { size: 5, repeat: 1 },
    ]);
    const parts = await open(device, divided, options);
    try {
      expectPredicted(parts, divided, EVICTED_BATCH, EVICTED_CONTEXT);
      const listed = [
        ...expand(
          configurationOf(divided),
          schedule(configurationOf(divided), EVICTED_BATCH, EVICTED_CONTEXT, { slots: capacity }),
        ),
      ].map(({ op }) => op);
      await expectEqual(one, parts, whole, prompts, 'by-token');
      expect(asData(parts.operations.map(({ op }) => op))).toEqual(asData(listed));
      if (whole.eviction?.policy === 'h2o') {
        one.reset();
        parts.reset();
        await expectEqual(one, parts, whole, prompts, 'accumulated');
      }
      await parts.fillCache(EVICTED_CONTEXT - 1);
      await parts.step(new Array<number>(EVICTED_BATCH).fill(1));
      expect((await parts.logits()).every(Number.isFinite)).toBe(true);
    } finally {
      one.close();
      parts.close();
    }
  });
}

export function splitTest(device: Device): void {
  test('a part that splits its rings, where the whole batch does not', async () => {
    // The sequences of a part alone leave workgroups over: splits of the ring come before those of the pinned tokens.
    const whole: Case = {
      geometry: GROUPED,
      codec: LLA,
      path: 'block-absorbed',
      choice: SINGLE,
      eviction: { policy: 'streaming', sinkTokens: 4, windowTokens: 300, budgetTokens: 304 },
      targetWorkgroups: 17,
    };
    const options = { batch: 11, contextTokens: 320 };
    const { capacity } = slotsOf(whole.eviction!, options.contextTokens, 32);
    const divided = { ...whole, bindingBytes: 8 * sequenceBytes(configurationOf(whole), core(whole), capacity) };
    expect(cacheParts(configurationOf(divided), core(whole), options.batch, capacity)).toEqual([
      { size: 8, repeat: 1 },
      { size: 3, repeat: 1 },
    ]);
    const prompts = Array.from({ length: options.batch }, (_, i) =>
      // One of each part is longer than the ring.
      promptOf(whole.geometry, i % 8 === 0 ? 310 : 7 * i, SEED + i),
    );
    await bothWays(device, whole, divided, options, async (one, parts) => {
      await expectEqual(one, parts, whole, prompts, 'accumulated');
      const splits = (decoder: GpuDecoder) =>
        new Set(
          decoder.operations.filter(({ op }) => op.kernel === 'attend_block_absorbed').map(({ op }) => op.shape.splits),
        );
      expect([splits(one), splits(parts)]).toEqual([new Set([1]), new Set([2])]);
    });
  });
}

export function vocabularyTest(device: Device): void {
  test('an embedding beyond a binding is divided by columns, as the output head is', async () => {
    const geometry = { ...GROUPED, vocab: 1000 };
    const whole: Case = { ...CASES[0]!, geometry };
    const divided = { ...whole, bindingBytes: 0.4 * 2 * geometry.hidden * geometry.vocab };
    const prompts = [1, 2].map((i) => promptOf(geometry, 5 * i, SEED + i));
    const options = { batch: prompts.length, contextTokens: CONTEXT };
    await bothWays(device, whole, divided, options, async (one, parts) => {
      expectPredicted(parts, divided, prompts.length, CONTEXT);
      await expectAllEqual(one, parts, whole, prompts);
      const embeddings = parts.operations.filter(({ op }) => op.label === 'embedding');
      expect(embeddings.length).toBe(3);
      expect(embeddings.reduce((sum, { op }) => sum + op.shape.width!, 0)).toBe(geometry.hidden);
    });
  });
}
