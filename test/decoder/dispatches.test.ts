/**
 * The schedule is what runs: every dispatch of a step or prefill has a price, and every price a dispatch. The list of
 * buffers is what is allocated. Decoders run on a device that only records.
 */
import { expect, test } from 'vitest';
import { isLatent, sharingOf, takesTwoPasses } from '../../src/codecs/registry.js';
import { TILE_TOKENS } from '../../src/codecs/layout.js';
import { bytesPerSequence, memoryModel, prefillPeaks } from '../../src/cost/memory.js';
import type { Allocation, GpuDecoder } from '../../src/decoder/gpu/index.js';
import { priceStep, pricePrompt, type Pricer, type SchedulePrice } from '../../src/cost/latency.js';
import { deviceOptions, planOperation, type OperationOptions } from '../../src/gpu/index.js';
import { expand } from '../../src/schedule/expand.js';
import type { KernelCall } from '../../kernels/registry.js';
import { forEachPrefillCall } from '../../src/schedule/prefill-calls.js';
import type { WholePrompt } from '../../src/schedule/prefill.js';
import { forEachOp, schedule, type Configuration } from '../../src/schedule/schedule.js';
import { sequenceBytes } from '../../src/schedule/cache-parts.js';
import { blocksOf } from '../../src/geometry/geometry.js';
import { mix } from '../../src/numbers/hash.js';
import { randomOf, SEED } from '../gpu/random.js';
import { everyNth, FULL } from '../gpu/sample.js';
import { configurationOf, open, type Case } from './gpu-cases.js';
import { ALL, label } from './gpu-list.js';
import { promptOf } from './models.js';
import { RecordingDevice, signatureOf } from './recording-device.js';
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

const recording = new RecordingDevice();

/** A priced call as its dispatch is recorded. @param ofPrompt its rows are tokens of one sequence */
function priced({ geometry }: Configuration, call: KernelCall, ofPrompt = false): string {
  const chunk = { capacity: 1024, chunk: call.shape.rows as number };
  const options: OperationOptions = {
    ...deviceOptions(recording.device),
    ropeBase: geometry.rope.theta,
    vocabulary: geometry.vocab,
    ...(ofPrompt ? { append: chunk, appendResidual: chunk } : {}),
    blockVectors: { group: geometry.heads / geometry.kvHeads },
  };
  return signatureOf(planOperation(call, options).steps[0] as Parameters<typeof signatureOf>[0]);
}

/** How often each call is there. */
function counted(calls: Iterable<readonly [call: string, times: number]>): Map<string, number> {
  const counts = new Map<string, number>();
  for (const [call, times] of calls) counts.set(call, (counts.get(call) ?? 0) + times);
  return new Map([...counts].sort(([a], [b]) => (a < b ? -1 : 1)));
}
const ran = (device: RecordingDevice): Map<string, number> =>
  counted(device.calls.map((call): [string, number] => [call, 1]));

const free: Pricer = {
  price: () => ({ estimate: 1, low: 1, high: 1, evidence: 'measured', by: 'lla-sim', octavesOutside: 0 }),
  stepOverhead: { estimate: 0, low: 0, high: 0, evidence: 'measured', by: 'lla-sim' },
  collective: () => null,
  source: 'a second a call',
};
/** Calls of all kernels that a price is made of. */
const callsOf = (price: SchedulePrice): number =>
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

async function checkStep(of: Case, batch: number): Promise<void> {
  const c = configurationOf(of);
  const device = new RecordingDevice();
  const decoder = await open(device.device, of, { batch, contextTokens: CONTEXT });
  device.calls = [];
  await decoder.step(new Array<number>(batch).fill(1));
  const listed: [string, number][] = [];
  forEachOp(c, schedule(c, batch, CONTEXT), (op, calls) => listed.push([priced(c, op), calls]));
  expect(ran(device), `a step of ${batch}`).toEqual(counted(listed));
  checkMemory(c, decoder, batch);
  expect(device.calls).toHaveLength(callsOf(priceStep(c, free, batch, CONTEXT)));
  expect(device.calls, 'in order').toEqual([...expand(c, schedule(c, batch, CONTEXT))].map(({ op }) => priced(c, op)));
  decoder.close();
}

async function checkPrompt(of: Case, method: WholePrompt, promptTokens: number): Promise<void> {
  const c = configurationOf(of);
  const device = new RecordingDevice();
  const decoder = await open(device.device, of, { contextTokens: CONTEXT, prefillChunkTokens: CHUNK_TOKENS });
  device.calls = [];
  await decoder.prefill([promptOf(of.geometry, promptTokens, SEED)], method);
  const plan = { method, promptTokens, chunkTokens: CHUNK_TOKENS };
  const listed: [string, number][] = [];
  forEachPrefillCall(c, plan, (call, times) => listed.push([priced(c, call, true), times]));
  expect(ran(device), `${method} prefill of ${promptTokens} tokens`).toEqual(counted(listed));
  expect(device.calls).toHaveLength(callsOf(pricePrompt(c, free, plan)));
  expect(bytesOf(decoder.prefillAllocations, ['prefill'])).toBe(prefillPeaks(c, promptTokens, CHUNK_TOKENS)[method]);
  decoder.close();
}

/** A geometry of every second kind by the seed; all of all with LLA_SIM_CONTRACT=full. */
for (const [i, { kind, cases }] of everyNth([...KINDS.entries()], 2, 5)) {
  test(`${kind}: dispatches are the priced calls (LLA_SIM_SEED=${SEED})`, { timeout: 60_000 }, async () => {
    const random = randomOf(mix(SEED + i));
    for (const of of FULL ? cases : [random.pick(cases)]) {
      try {
        for (const batch of [1, 3]) await checkStep(of, batch);
        for (const method of isLatent(of.codec) && takesTwoPasses(of.codec)
          ? METHODS
          : (['accumulated', 'chunked'] as const))
          await checkPrompt(of, method, random.whole(1, CONTEXT));
      } catch (error) {
        throw new Error(label(of), { cause: error });
      }
    }
  });
}

for (const g of UNLIKE)
  test(`${g.name}: dispatches are the priced calls (LLA_SIM_SEED=${SEED})`, { timeout: 60_000 }, async () => {
    const random = randomOf(mix(SEED));
    const cases = casesOf(g).map(evictingWholeTiles);
    for (const of of FULL ? cases : cases.filter((_, i) => i === 0 || random.whole(0, 2) === 0)) {
      try {
        for (const batch of [1, 3]) await checkStep(of, batch);
        for (const method of g.laterLoopsWindow !== undefined
          ? []
          : isLatent(of.codec) && takesTwoPasses(of.codec)
            ? METHODS
            : (['accumulated', 'chunked'] as const))
          await checkPrompt(of, method, random.whole(1, CONTEXT));
        const decoder = await open(new RecordingDevice().device, of, { contextTokens: CONTEXT });
        expect(bytesOf(decoder.allocations, ['weights'])).toBe(
          memoryModel(configurationOf(of), CONTEXT, TILE_TOKENS).weightsBytes,
        );
        decoder.close();
      } catch (error) {
        throw new Error(label(of), { cause: error });
      }
    }
  });

test('batches whose caches are bound in parts', async () => {
  for (const of of KINDS.map(({ cases }) => cases[0] as Case).filter(({ eviction }) => !eviction)) {
    const c = configurationOf(of);
    const bytes = Math.max(...blocksOf(of.geometry).map((block) => sequenceBytes(c, block, CONTEXT)));
    const batch = randomOf(SEED).whole(130, 200);
    await checkStep({ ...of, bindingBytes: 64 * bytes }, batch).catch((error: unknown) => {
      throw new Error(label(of), { cause: error });
    });
  }
});
