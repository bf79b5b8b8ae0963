/**
 * What the device can do at best, and what a submission and a dispatch cost: the yardsticks of every other measurement.
 */
import { clockNow } from '../io/clock.js';
import type { Device } from '../gpu/device.js';
import type { BoundStep } from '../gpu/passes.js';
import { read, write, type Step } from '../../kernels/host/plan.js';
import type { Calibration } from '../schema/calibration.js';
import { printable } from '../errors.js';
import { GpuError } from '../../kernels/host/errors.js';
import { unitsObstacle } from '../../kernels/shared/dense/matrix.launch.js';
import type { Clock } from '../gpu/platform.js';
import { fill, holding, plain } from './inputs.js';
import { medianOf, mediansOf } from './rounds.js';
import { secondsOf } from './timing.js';

const MIB = 2 ** 20;
/** Larger than any last-level cache, small enough for the memory of a shared machine. */
const STREAM_BYTES = { software: 128 * MIB, hardware: 1024 * MIB };
const EMPTY_SUBMISSIONS = 40;
/** Threads of a workgroup of the yardsticks. */
export const WORKGROUP = 256;
const GROUPS = 4096;
/**
 * How the threads of the streaming read share the buffer (ceiling_read.wgsl): the fastest way for each kind of adapter.
 */
export const READ = { software: { groups: 64, stream: 8 }, hardware: { groups: GROUPS, stream: 0 } };
/** 8 chains of vec4 multiply-adds. */
export const FLOPS_PER_ROUND = 64;
const DISPATCHES = 256;
/** Transfers: one small enough to show the fixed cost alone, and one large enough for the rate. */
const TRANSFER_BYTES = { small: 16, large: 32 * MIB };
/** Tile of ceiling_matrix.wgsl, of which it multiplies four a round and subgroup, and its workgroup. */
const MATRIX = { side: 16, chains: 4, workgroup: 128 };
/** Rounds of the arithmetic ceilings' loops. */
const ROUNDS = {
  f32: { software: 16, hardware: 16384 },
  f16: { software: 8, hardware: 16384 },
  matrix: { software: 8, hardware: 4096 },
};

/**
 * Where a dispatch is bounded, arithmetic begins with few rounds, of which there are more until a run takes the first
 * of these, seconds. Streams are short there, and made so often that they take as long: the second at most.
 */
const BOUNDED = { least: 0.01, most: 0.05, factor: 4, rounds: 8, streamBytes: 64 * MIB, times: 64 };

/** Share of a budget that overheads take at most, and ceilings, once each was measured. */
export const YARDSTICK_SHARE = 0.08;

type Overheads = Calibration['overheads'];
type Ceilings = Calibration['ceilings'];

const clockOf = ({ description, clock }: Device): Clock =>
  description.software && clock === 'gpu-timestamp' ? 'wall' : clock;

/** @param mostSeconds repeats that take longer are left out */
export async function measureOverheads(device: Device, mostSeconds = Infinity): Promise<Overheads> {
  const submitSeconds = await medianOf(EMPTY_SUBMISSIONS, () => device.submitEmpty());
  const target = await device.buffer('noop', 16);
  const noop = plain({ source: 'noop', uniforms: { value: 0 }, buffers: write('target'), workgroups: [1, 1, 1] });
  const step = await device.bind(noop, new Map([['target', target]]));
  const runOf = (times: number) => async (): Promise<number> => {
    const time = await device.run(new Array<BoundStep>(times).fill(step));
    return secondsOf(time, { clock: clockOf(device), submitSeconds: 0 });
  };
  const [one, many] = (await mediansOf([runOf(1), runOf(DISPATCHES)], mostSeconds)) as [number, number];
  device.free(target, step.uniforms);
  // Noise can make one dispatch as slow as many on a busy machine; the cost is never nothing.
  const dispatchSeconds = Math.max(1e-9, (many - one) / (DISPATCHES - 1));
  return { submitSeconds, dispatchSeconds, ...(await measureTransfers(device, mostSeconds / 2)) };
}

/**
 * Upload and read-back, each as a fixed cost and a rate, by the wall clock of the host; sizes and directions take
 * turns.
 */
async function measureTransfers(
  device: Device,
  mostSeconds: number,
): Promise<Required<Pick<Overheads, 'upload' | 'readback'>>> {
  const buffer = await device.buffer('transfer', TRANSFER_BYTES.large);
  const timed = (act: () => Promise<unknown>) => async (): Promise<number> => {
    // Work left over from the transfer before is not this one's cost.
    await device.submitEmpty();
    const started = clockNow();
    await act();
    return clockNow() - started;
  };
  const both = Object.values(TRANSFER_BYTES).flatMap((bytes) => {
    const data = new Uint32Array(bytes / 4).fill(1);
    // An upload is done when the queue is: the empty submission waits for it.
    const upload = (): Promise<unknown> => device.write(buffer, data).then(() => device.submitEmpty());
    return [timed(upload), timed(() => device.read(buffer, bytes))];
  });
  try {
    const times = (await mediansOf(both, mostSeconds)) as [number, number, number, number];
    return { upload: transferOf(times[0], times[2]), readback: transferOf(times[1], times[3]) };
  } finally {
    device.free(buffer);
  }
}

/** Fixed cost and rate from seconds of the small and the large transfer. */
export function transferOf(small: number, large: number): { seconds: number; bytesPerSecond: number } {
  return {
    seconds: Math.max(1e-9, small),
    // The large one was not the slower of the two: noise, and all that is known is that it took so long.
    bytesPerSecond:
      (TRANSFER_BYTES.large - TRANSFER_BYTES.small) / Math.max(1e-9, large > small ? large - small : large),
  };
}

/** Yardsticks bound to their buffers, so that they can be run again beside other measurements. */
export interface Yardsticks {
  /** Each kind that the device can run: its steps, and the work of one run in bytes or operations. */
  readonly kinds: ReadonlyMap<CeilingKind, { readonly run: () => Promise<number>; readonly work: number }>;
  /** Why a kind is not there. */
  readonly reasons: Readonly<Record<string, string>>;
  free(): void;
}

export type CeilingKind = 'copy' | 'read' | 'f32' | 'f16' | 'matrix';

/**
 * Makes the streams and kernels of all ceilings. A run returns seconds by the device's clock; by the wall clock where
 * that are timestamps of a software adapter, which leave out part of the work, and for copies there, which take one
 * core.
 * @param scale share of the usual work of a run: less for yardsticks that are run many times
 */
export async function openYardsticks(device: Device, submitSeconds: number, scale = 1): Promise<Yardsticks> {
  const { software } = device.description;
  const size = software ? 'software' : 'hardware';
  const clock = clockOf(device);
  const bounded = Number.isFinite(device.bounds.dispatchSeconds);
  const bytes = Math.min(
    Math.ceil((scale * STREAM_BYTES[size]) / MIB) * MIB,
    Math.floor(device.limits.maxStorageBufferBindingSize / 16) * 16,
    bounded ? BOUNDED.streamBytes : Infinity,
  );
  const kinds = new Map<CeilingKind, { run: () => Promise<number>; work: number }>();
  const reasons: Record<string, string> = {};
  return holding(device, async (owned) => {
    const [source, other] = [
      await device.buffer('stream', bytes),
      await device.buffer('stream copy', Math.max(bytes, GROUPS * WORKGROUP * 4)),
    ];
    owned.push(source, other);
    // Pages that were never written share one page of zeros, which fits any cache.
    await fill(device, source, 1);
    await fill(device, other, 2);
    // Read and written: a copy moves each byte twice.
    const copy = async (times: number): Promise<number> =>
      Math.max(1e-9, (await device.copy(source, other, bytes, 0, times)) - submitSeconds);
    const copies = bounded ? await timesFor(copy) : 1;
    kinds.set('copy', { work: 2 * bytes * copies, run: () => copy(copies) });
    const buffers = new Map([
      ['source', source],
      ['sums', other],
    ]);
    const runOf = async (step: Omit<Step, 'element' | 'constants'>): Promise<(times: number) => Promise<number>> => {
      const bound = await device.bind(plain(step), buffers);
      owned.push(bound.uniforms);
      return async (times) => {
        const time = await device.run(new Array<BoundStep>(times).fill(bound));
        return Math.max(1e-9, secondsOf(time, { clock, submitSeconds }));
      };
    };
    const reading = await runOf({
      source: 'ceiling_read',
      uniforms: { quads: bytes / 16, stream: READ[size].stream },
      buffers: [...read('source'), ...write('sums')],
      workgroups: [READ[size].groups, 1, 1],
    });
    const readings = bounded ? await timesFor(reading) : 1;
    kinds.set('read', { work: bytes * readings, run: () => reading(readings) });
    /** Arithmetic of a number of rounds: as many as are usual, or as a bounded dispatch takes. */
    const add = async (
      kind: keyof typeof ROUNDS,
      flopsARound: number,
      step: Omit<Step, 'element' | 'constants' | 'uniforms'>,
    ): Promise<void> => {
      const usual = Math.max(BOUNDED.rounds, Math.round(scale * ROUNDS[kind][size]));
      const runWith = (rounds: number): ReturnType<typeof runOf> => runOf({ ...step, uniforms: { rounds } });
      let rounds = bounded ? BOUNDED.rounds : usual;
      let run = await runWith(rounds);
      if (bounded) await run(1);
      while (bounded && rounds < usual && (await run(1)) < BOUNDED.least)
        run = await runWith((rounds = Math.min(usual, BOUNDED.factor * rounds)));
      kinds.set(kind, { work: rounds * flopsARound, run: () => run(1) });
    };
    const flops = GROUPS * WORKGROUP * FLOPS_PER_ROUND;
    await add('f32', flops, { source: 'ceiling_fma', buffers: write('sums'), workgroups: [GROUPS, 1, 1] });
    const optional = async (kind: CeilingKind, obstacle: string | null, make: () => Promise<void>): Promise<void> => {
      if (obstacle !== null) {
        reasons[kind] = obstacle;
        return;
      }
      try {
        await make();
      } catch (error) {
        // A feature that the driver announces and then refuses is also a reason; a lost device is not.
        if (!(error instanceof GpuError) || error.fault === 'lost') throw error;
        reasons[kind] = oneLine(error.message);
      }
    };
    await optional('f16', device.has('shader-f16') ? null : 'the adapter has no shader-f16', () =>
      add('f16', flops, { source: 'ceiling_fma_f16', buffers: write('sums'), workgroups: [GROUPS, 1, 1] }),
    );
    const matrixFlops = MATRIX.chains * 2 * MATRIX.side ** 3;
    const subgroups = MATRIX.workgroup / (device.units.subgroupSizes[0] || 1);
    const groups = Math.min(GROUPS, Math.floor(other.bytes / (subgroups * MATRIX.chains * MATRIX.side ** 2 * 4)));
    await optional('matrix', matrixObstacle(device), () =>
      add('matrix', groups * subgroups * matrixFlops, {
        source: 'ceiling_matrix',
        buffers: write('sums'),
        workgroups: [groups, 1, 1],
      }),
    );
    return { kinds, reasons };
  });
}

/** How often a short run is made in one submission, so that it is long beside a rounded clock's step. */
async function timesFor(run: (times: number) => Promise<number>): Promise<number> {
  await run(1);
  const each = await run(1);
  return Math.max(1, Math.min(BOUNDED.times, Math.floor(BOUNDED.most / each), Math.ceil(BOUNDED.least / each)));
}

/** Why ceiling_matrix.wgsl cannot run on a device, or null. */
export function matrixObstacle(device: Pick<Device, 'has' | 'units'>): string | null {
  const [least, most] = device.units.subgroupSizes;
  const none = unitsObstacle(device);
  if (none !== null) return none;
  if (least !== most || MATRIX.workgroup % most !== 0)
    return (
      `subgroups have ${least} to ${most} threads; the kernel wants one size of which ` +
      `${MATRIX.workgroup} is a multiple`
    );
  return null;
}

const oneLine = (text: string): string => printable(text.replace(/\s+/g, ' ')).slice(0, 300);

/**
 * @param mostSeconds repeats that take longer are left out
 * @param scale as of the yardsticks
 */
export async function measureCeilings(
  device: Device,
  submitSeconds: number,
  mostSeconds = Infinity,
  scale = 1,
): Promise<Ceilings> {
  const yardsticks = await openYardsticks(device, submitSeconds, scale);
  try {
    // In turn, so that a phase of noise does not fall on one of them alone.
    const kinds = [...yardsticks.kinds];
    const times = await mediansOf(
      kinds.map(([, { run }]) => run),
      mostSeconds,
    );
    const rates = new Map(kinds.map(([kind, { work }], i) => [kind, work / (times[i] as number)]));
    return ceilingsOf(rates, yardsticks.reasons);
  } finally {
    yardsticks.free();
  }
}

const NAMES = {
  copy: 'copyBytesPerSecond',
  read: 'readBytesPerSecond',
  f32: 'f32FlopsPerSecond',
  f16: 'f16FlopsPerSecond',
  matrix: 'matrixFlopsPerSecond',
} as const satisfies Record<CeilingKind, keyof Ceilings>;

/** @param reasons why a rate is not there */
function ceilingsOf(rates: ReadonlyMap<CeilingKind, number>, reasons: Yardsticks['reasons']): Ceilings {
  const named = Object.fromEntries(
    Object.entries(reasons).map(([kind, reason]) => [NAMES[kind as CeilingKind], reason]),
  );
  return {
    copyBytesPerSecond: rates.get('copy') as number,
    readBytesPerSecond: rates.get('read') as number,
    f32FlopsPerSecond: rates.get('f32') as number,
    f16FlopsPerSecond: rates.get('f16') ?? null,
    matrixFlopsPerSecond: rates.get('matrix') ?? null,
    ...(Object.keys(named).length > 0 ? { reasons: named } : {}),
  };
}
