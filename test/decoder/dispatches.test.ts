/**
 * The schedule is what runs: kernel, uniforms, grid and bindings of every dispatch of a step or prefill are those of an
 * operation, and every operation has a price. The list of buffers is what is allocated. Decoders run on a device that
 * only records.
 */
import { TILE_TOKENS } from '../../kernels/spec.js';
import { expect, test } from 'vitest';
import { isLatent, sharingOf, takesTwoPasses } from '../../src/codecs/registry.js';
import { bytesPerSequence, memoryModel, prefillPeaks } from '../../src/cost/memory.js';
import type { Allocation, GpuDecoder } from '../../src/decoder/gpu/index.js';
import { priceStep, pricePrompt, type Pricer, type SchedulePrice } from '../../src/cost/latency.js';
import { GREEDY } from '../../src/decoder/sampler.js';
import { boundRun, boundStep } from '../../src/schedule/bind/index.js';
import type { Setting } from '../../src/schedule/bind/frame.js';
import { planPrompts } from '../../src/schedule/bind/prompt.js';
import type { BoundVisit, BufferRef, CacheRef } from '../../src/schedule/bind/refs.js';
import { CacheMap } from '../../src/schedule/cache-map.js';
import type { KernelCall } from '../../kernels/registry.js';
import { forEachPrefillCall } from '../../src/schedule/prefill/calls.js';
import { setsRowsAside, type WholePrompt } from '../../src/schedule/prefill/prefill.js';
import { expand, forEachOp } from '../../src/schedule/expand.js';
import { schedule, type Configuration } from '../../src/schedule/schedule.js';
import { sequenceBytes } from '../../src/schedule/cache-parts.js';
import { blocksOf } from '../../src/geometry/geometry.js';
import { mix } from '../../src/numbers/hash.js';
import { randomOf, SEED, type Random } from '../gpu/random.js';
import { everyNth, FULL } from '../gpu/sample.js';
import { callsOf, counted } from '../schedule/listed.js';
import { configurationOf, open, type Case } from './gpu-cases.js';
import { ALL, label } from './gpu-list.js';
import { promptOf } from './models.js';
import { differenceOf, expectedOf, RecordingDevice } from './recording-device.js';
import { casesOf, UNLIKE } from './unlike-models.js';

/** Whole tiles, so that rows have room for what is kept alone, as prices take it. */
const CONTEXT = 96;
const BUDGET = 32;
const CHUNK_TOKENS = 16;
const METHODS: readonly WholePrompt[] = ['accumulated', 'chunked', 'by-layer', 'one-shot'];

function evictingWholeTiles({ eviction, ...of }: Case): Case {
  if (!eviction) return of;
  if (eviction.policy === 'streaming')
    return { ...of, eviction: { ...eviction, windowTokens: BUDGET - eviction.sinkTokens, budgetTokens: BUDGET } };
  return eviction.policy === 'budget'
    ? { ...of, eviction: { ...eviction, budgetTokens: BUDGET } }
    : { ...of, eviction };
}
const CASES = ALL.map(evictingWholeTiles);
const kindOf = ({ codec, path, materialised, branch, eviction }: Case): string =>
  [
    codec.kind,
    sharingOf(codec),
    path,
    materialised && 'materialised',
    branch?.perHead && 'branch per head',
    eviction?.policy,
  ]
    .filter(Boolean)
    .join(' ');
const KINDS = [...new Set(CASES.map(kindOf))].map((kind) => ({
  kind,
  cases: CASES.filter((of) => kindOf(of) === kind),
}));

const free: Pricer = {
  price: () => ({ estimate: 1, low: 1, high: 1, evidence: 'measured', by: 'lla-sim', octavesOutside: 0 }),
  stepOverhead: { estimate: 0, low: 0, high: 0, evidence: 'measured', by: 'lla-sim' },
  collective: () => null,
  source: 'a second a call',
};
/** Calls of all kernels that a price is made of. */
const pricedCalls = (price: SchedulePrice): number =>
  price.byKernel.reduce((sum, { kernel, calls }) => sum + (kernel === 'step-overhead' ? 0 : calls), 0);

const bytesOf = (allocations: readonly Allocation[], kinds: readonly string[]): number =>
  allocations.reduce((sum, { kind, bytes }) => sum + (kinds.includes(kind) ? bytes : 0), 0);

/** Buffers of a decoder against the memory model's sum of the list. */
function checkMemory(c: Configuration, { allocations }: GpuDecoder, batch: number): void {
  const m = memoryModel(c, CONTEXT, TILE_TOKENS);
  expect(bytesOf(allocations, ['workspace', 'in-flight', 'eviction', 'cache'])).toBe(
    m.workspaceFixedBytes + batch * bytesPerSequence(m),
  );
}

const settingOf = (c: Configuration, batch: number): Setting => ({
  c,
  batch,
  contextTokens: CONTEXT,
  normEpsilon: 1e-6,
  sampling: GREEDY,
});

/** The operations of a step, with all that they bind. */
function listedStep(c: Configuration, batch: number, context = CONTEXT): { visits: BoundVisit[]; caches: CacheMap } {
  const caches = new CacheMap(c, batch, CONTEXT, TILE_TOKENS);
  const visits = expand(c, schedule(c, batch, context, { slots: caches.slots.capacity }));
  return { visits: [...boundStep(settingOf(c, batch), caches, context, visits)], caches };
}

/** Priced operations of a list against those that are bound. */
function expectPriced(visits: readonly BoundVisit[], price: SchedulePrice, listed: [KernelCall, number][]): void {
  expect(visits).toHaveLength(pricedCalls(price));
  expect(counted(visits.map(({ op }) => [op, 1]))).toEqual(counted(listed));
}

/** Tokens of a sequence that an operation's launch reads are those that it is priced for. */
function expectContext({ op, options }: BoundVisit): void {
  const [span] = options.run?.spans ?? [];
  if (!span || op.shape.context === undefined) return;
  const ofBlocks = op.kernel === 'attend_block_absorbed' || op.kernel === 'block_basis';
  const [pinned, ring] = [ofBlocks ? 0 : span.pinned, options.run?.only === 'pinned' ? 0 : span.ring];
  expect(op.shape.context, op.label).toBe(pinned + ring);
}

async function recordedStep(of: Case, batch: number): Promise<{ device: RecordingDevice; decoder: GpuDecoder }> {
  const device = new RecordingDevice();
  const decoder = await open(device.device, of, { batch, contextTokens: CONTEXT });
  device.calls = [];
  await decoder.step(new Array<number>(batch).fill(1));
  return { device, decoder };
}

async function checkStep(of: Case, batch: number): Promise<void> {
  const c = configurationOf(of);
  const { device, decoder } = await recordedStep(of, batch);
  const { visits, caches } = listedStep(c, batch);
  expect(differenceOf(device.calls, expectedOf(device.device, visits, caches)), `a step of ${batch}`).toBeUndefined();
  visits.forEach(expectContext);
  const listed = callsOf((add) => forEachOp(c, schedule(c, batch, CONTEXT), add));
  expectPriced(visits, priceStep(c, free, batch, CONTEXT), listed);
  checkMemory(c, decoder, batch);
  decoder.close();
}

async function checkPrompt(of: Case, method: WholePrompt, promptTokens: number): Promise<void> {
  const c = configurationOf(of);
  const device = new RecordingDevice();
  const decoder = await open(device.device, of, { contextTokens: CONTEXT, prefillChunkTokens: CHUNK_TOKENS });
  device.calls = [];
  await decoder.prefill([promptOf(of.geometry, promptTokens, SEED)], method);
  const plan = { method, promptTokens, chunkTokens: CHUNK_TOKENS };
  const caches = new CacheMap(c, 1, CONTEXT, TILE_TOKENS);
  const { extent, runs, ...taken } = planPrompts(c, plan, [promptTokens], [0]);
  const { rows, captures } = extent;
  const aside = setsRowsAside(c) ? new CacheMap({ ...c, eviction: null }, 1, rows, TILE_TOKENS, 0, 'aside') : undefined;
  const setting = { ...settingOf(c, 1), rows, captures, chunkTokens: taken.chunkTokens, aside };
  const visits = (runs[0] ?? []).flatMap((run) => {
    const ends = run.from + run.tokens === promptTokens;
    return [...boundRun(setting, caches, 0, run, { ...taken, ends, slots: caches.slots.capacity })];
  });
  const expected = expectedOf(device.device, visits, caches, aside);
  expect(differenceOf(device.calls, expected), `${method} prefill of ${promptTokens} tokens`).toBeUndefined();
  const listed = callsOf((add) => forEachPrefillCall(c, plan, add));
  expectPriced(visits, pricePrompt(c, free, plan), listed);
  expect(bytesOf(decoder.prefillAllocations, ['prefill'])).toBe(prefillPeaks(c, promptTokens, CHUNK_TOKENS)[method]);
  decoder.close();
}

test('a wrong rank, context, buffer or dispatch is found', async () => {
  const of = CASES.find(({ codec, path, eviction }) => codec.kind === 'lla' && path === 'reconstruct' && !eviction);
  const c = configurationOf(of!);
  const { device, decoder } = await recordedStep(of!, 2);
  const { visits, caches } = listedStep(c, 2);
  const found = (own: readonly BoundVisit[]): string | undefined =>
    differenceOf(device.calls, expectedOf(device.device, own, caches));
  expect(found(visits)).toBeUndefined();
  const random = randomOf(SEED);
  const changed = (label: string, change: (visit: BoundVisit) => BoundVisit): BoundVisit[] => {
    const own = random.pick(visits.filter(({ op }) => op.label === label));
    return visits.map((visit) => (visit === own ? change(visit) : visit));
  };
  const rank = { ...c, codec: { ...c.codec, rankK: c.codec.rankK! + 2 } };
  expect(found(listedStep(rank, 2).visits), 'rank').toBeDefined();
  expect(found(listedStep(c, 2, CONTEXT - TILE_TOKENS).visits), 'context').toBeDefined();
  const elsewhere = changed('attend', (visit) => {
    const { keys } = visit.binds as { keys: CacheRef };
    const loop = (keys.loop + 1) % c.geometry.loops;
    const layer = (keys.place.layer + 1) % c.geometry.layers;
    return { ...visit, binds: { ...visit.binds, keys: { ...keys, loop, place: { ...keys.place, layer } } } };
  });
  expect(found(elsewhere), 'buffer').toBeDefined();
  const later = changed('encode-k', (visit) => ({
    ...visit,
    binds: { ...visit.binds, y: { ...(visit.binds.y as BufferRef), offset: 64 } },
  }));
  expect(found(later), 'offset').toBeDefined();
  const missing = random.whole(0, visits.length - 1);
  expect(found(visits.toSpliced(missing, 1)), 'dispatch').toBeDefined();
  decoder.close();
});

/** Steps and prompts of each case, which a failure names. */
async function checkAll(cases: readonly Case[], random: Random, more: (of: Case) => Promise<void>): Promise<void> {
  for (const of of cases) {
    const methods = isLatent(of.codec) && takesTwoPasses(of.codec) ? METHODS : METHODS.slice(0, 2);
    try {
      for (const batch of [1, 3]) await checkStep(of, batch);
      for (const method of of.geometry.laterLoopsWindow === undefined ? methods : [])
        await checkPrompt(of, method, random.whole(1, CONTEXT));
      await more(of);
    } catch (error) {
      throw new Error(label(of), { cause: error });
    }
  }
}

/** A geometry of every fifth kind by the seed; all of all with LLA_SIM_CONTRACT=full. */
for (const [i, { kind, cases }] of everyNth([...KINDS.entries()], 5, 5))
  test(`${kind}: dispatches are the priced calls (LLA_SIM_SEED=${SEED})`, async () => {
    const random = randomOf(mix(SEED + i));
    await checkAll(FULL ? cases : [random.pick(cases)], random, () => Promise.resolve());
  });

for (const g of UNLIKE)
  test(`${g.name}: dispatches are the priced calls (LLA_SIM_SEED=${SEED})`, async () => {
    const random = randomOf(mix(SEED));
    const cases = casesOf(g).map(evictingWholeTiles);
    const some = FULL ? cases : cases.filter((_, i) => i === 0 || random.whole(0, 7) === 0);
    await checkAll(some, random, async (of) => {
      const decoder = await open(new RecordingDevice().device, of, { contextTokens: CONTEXT });
      const { weightsBytes } = memoryModel(configurationOf(of), CONTEXT, TILE_TOKENS);
      expect(bytesOf(decoder.allocations, ['weights'])).toBe(weightsBytes);
      decoder.close();
    });
  });

test('batches whose caches are bound in parts', async () => {
  for (const of of KINDS.map(({ cases }) => cases[0]!).filter(({ eviction }) => !eviction)) {
    const c = configurationOf(of);
    const bytes = Math.max(...blocksOf(of.geometry).map((block) => sequenceBytes(c, block, CONTEXT)));
    const batch = randomOf(SEED).whole(130, 200);
    await checkStep({ ...of, bindingBytes: 64 * bytes }, batch).catch((error: unknown) => {
      throw new Error(label(of), { cause: error });
    });
  }
});
