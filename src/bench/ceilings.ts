/** What the device can do at best, and what a submission and a dispatch cost: the yardsticks of every other measurement. */
import type { Buffer, Device } from '../gpu/device.js';
import { read, u32, write, type OperationPlan, type Step } from '../gpu/plan.js';
import type { Calibration } from '../schema/calibration.js';
import { fill } from './inputs.js';
import { median } from './timing.js';

const MIB = 2 ** 20;
/** Larger than any last-level cache, small enough for the memory of a shared machine. */
const STREAM_BYTES = { software: 128 * MIB, hardware: 1024 * MIB };
const REPEATS = 7;
const WORKGROUP = 256;
/** 8 chains of vec4 multiply-adds. */
const FLOPS_PER_ROUND = 64;
const DISPATCHES = 256;

type Overheads = Calibration['overheads'];
type Ceilings = Calibration['ceilings'];

const single = (step: Omit<Step, 'element' | 'constants'>): OperationPlan => ({ buffers: [], steps: [{ element: 'f32', constants: {}, ...step }], tuning: {} });

/** Median seconds of one submission of `calls` times a step, over the repeats, after one to warm up. */
async function medianRun(device: Device, plan: OperationPlan, buffers: ReadonlyMap<string, Buffer>, calls: number, repeats: number): Promise<number> {
  const steps = await device.bindAll(plan, buffers);
  const all = Array.from({ length: calls }, () => steps).flat();
  await device.run(all);
  const seconds: number[] = [];
  for (let i = 0; i < repeats; i++) {
    const time = await device.run(all);
    seconds.push(device.description.software || time.gpuSeconds === null ? time.wallSeconds : time.gpuSeconds);
  }
  device.free(...steps.map((s) => s.uniforms));
  return median(seconds);
}

export async function measureOverheads(device: Device): Promise<Overheads> {
  const submits: number[] = [];
  for (let i = 0; i < 40; i++) submits.push(await device.submitEmpty());
  const target = await device.buffer('noop', 16);
  const plan = single({ source: 'noop', uniforms: [u32(0)], buffers: write('target'), workgroups: [1, 1, 1] });
  const buffers = new Map([['target', target]]);
  const [one, many] = [await medianRun(device, plan, buffers, 1, REPEATS), await medianRun(device, plan, buffers, DISPATCHES, REPEATS)];
  device.free(target);
  // Noise can make one dispatch as slow as many on a busy machine; the cost is never nothing.
  return { submitSeconds: median(submits), dispatchSeconds: Math.max(1e-9, (many - one) / (DISPATCHES - 1)) };
}

export async function measureCeilings(device: Device, submitSeconds: number): Promise<Ceilings> {
  const bytes = Math.min(STREAM_BYTES[device.description.software ? 'software' : 'hardware'], Math.floor(device.limits.maxStorageBufferBindingSize / 16) * 16);
  const source = await device.buffer('stream', bytes);
  const other = await device.buffer('stream copy', bytes);
  const rate = (work: number, seconds: number): number => work / Math.max(1e-9, seconds - (device.description.software ? submitSeconds : 0));
  try {
    // Pages that were never written share one page of zeros, which fits any cache.
    await fill(device, source, 1);
    await fill(device, other, 2);
    const copies: number[] = [];
    for (let i = 0; i <= REPEATS; i++) copies.push(await device.copy(source, other, bytes));
    const groups = 4096;
    const readPlan = single({ source: 'ceiling_read', uniforms: [u32(bytes / 16)], buffers: [...read('source'), ...write('sums')], workgroups: [groups, 1, 1] });
    const reading = await medianRun(device, readPlan, new Map([['source', source], ['sums', other]]), 1, REPEATS);
    const rounds = device.description.software ? 256 : 16384;
    const fmaPlan = single({ source: 'ceiling_fma', uniforms: [u32(rounds)], buffers: write('sums'), workgroups: [groups, 1, 1] });
    const fma = await medianRun(device, fmaPlan, new Map([['sums', other]]), 1, 3);
    return {
      // Read and written: a copy moves each byte twice.
      copyBytesPerSecond: (2 * bytes) / Math.max(1e-9, median(copies.slice(1)) - submitSeconds),
      readBytesPerSecond: rate(bytes, reading),
      f32FlopsPerSecond: rate(groups * WORKGROUP * rounds * FLOPS_PER_ROUND, fma),
      f16FlopsPerSecond: null,
      matrixFlopsPerSecond: null,
    };
  } finally {
    device.free(source, other);
  }
}
