/**
 * Which clock times a device, and in how large a submission. Dawn in Node counts nanoseconds. A browser rounds its
 * clocks, so that pages cannot spy with them: by how much is measured here.
 */
import { clockNow } from '../io/clock.js';
import type { Device } from '../gpu/device.js';
import { write } from '../../kernels/host/plan.js';
import type { Clock } from '../gpu/platform.js';
import { plain, runStep } from './inputs.js';

export interface Resolution {
  readonly kind: Clock;
  /** Step of that clock, seconds. */
  readonly resolutionSeconds: number;
  /** A submission is filled until it takes this long. */
  readonly batchSeconds: number;
  /** Most calls in one submission. */
  readonly mostCalls: number;
}

/** A submission's length. What the host does beside a submission takes part of a software adapter's cores. */
export const BATCH_SECONDS = { software: 0.05, hardware: 0.005 };
/**
 * Most calls in one submission: drivers give up on passes that run for seconds. More of them where clocks are rounded.
 */
const MOST_CALLS = { exact: 4096, rounded: 16_384 };
/** A rounded clock's step is at most this share of what is timed. */
const STEP_SHARE = 0.01;
/** Longest submission that a rounded clock may ask for: the screen waits for it. */
const LONGEST_BATCH_SECONDS = 0.08;
const EXACT_SECONDS = 1e-9;
/** Runs between timestamps: how many, and from which length on they grow no more. */
const STAMPED = { runs: 24, rounds: 8, groups: 16, seconds: 0.002 };
const TICKS = 25;
/** A clock that does not move this long does not count. */
const STANDS_STILL_SECONDS = 0.2;

export async function resolutionOf(device: Device): Promise<Resolution> {
  const usual = BATCH_SECONDS[device.description.software ? 'software' : 'hardware'];
  if (!device.bounds.roundedClocks)
    return {
      kind: device.clock,
      resolutionSeconds: EXACT_SECONDS,
      batchSeconds: usual,
      mostCalls: MOST_CALLS.exact,
    };
  const stamps = device.hasTimestamps ? stepOf(await stampedSeconds(device)) : null;
  return chooseClock(stamps, wallStep(clockNow), usual);
}

/**
 * The GPU's own clock where a submission of a hundred of its steps is short enough, else the host's.
 * @param stamps step of the timestamps, null without any
 * @param usual length of a submission where no clock is rounded
 */
export function chooseClock(stamps: number | null, wall: number, usual: number): Resolution {
  const timed = (kind: Clock, step: number): Resolution => ({
    kind,
    resolutionSeconds: Math.max(EXACT_SECONDS, step),
    batchSeconds: Math.min(LONGEST_BATCH_SECONDS, Math.max(usual, step / STEP_SHARE)),
    mostCalls: MOST_CALLS.rounded,
  });
  return stamps !== null && stamps / STEP_SHARE <= LONGEST_BATCH_SECONDS
    ? timed('gpu-timestamp', stamps)
    : timed('wall', wall);
}

/**
 * The step of a clock, seconds: the largest one of which all differences are whole multiples, to the nanosecond. Null
 * where every difference is 0.
 */
export function stepOf(differences: readonly number[]): number | null {
  const step = differences.reduce((a, seconds) => {
    let [x, y] = [a, Math.round(Math.abs(seconds) * 1e9)];
    while (y > 0) [x, y] = [y, x % y];
    return x;
  }, 0);
  return step === 0 ? null : step * 1e-9;
}

/** Smallest step that the host's clock makes. */
export function wallStep(now: () => number): number {
  let least = STANDS_STILL_SECONDS;
  const ends = now() + STANDS_STILL_SECONDS;
  for (let i = 0; i < TICKS && now() < ends; i++) {
    const from = now();
    let to = from;
    while (to === from && to < ends) to = now();
    if (to > from) least = Math.min(least, to - from);
  }
  return least;
}

/** Times by timestamps of runs of several lengths, about as long as the steps of a rounded clock. */
async function stampedSeconds(device: Device): Promise<number[]> {
  const target = await device.buffer('resolution', 256 * STAMPED.groups * 4);
  const seconds: number[] = [];
  let rounds: number = STAMPED.rounds;
  try {
    for (let i = 0; i < STAMPED.runs; i++) {
      const step = { source: 'ceiling_fma', uniforms: { rounds }, buffers: write('sums') };
      const { deviceSeconds, wallSeconds } = await runStep(
        device,
        plain({ ...step, workgroups: [STAMPED.groups, 1, 1] }),
        new Map([['sums', target]]),
      );
      seconds.push(deviceSeconds ?? 0);
      rounds = wallSeconds < STAMPED.seconds ? 2 * rounds : rounds + STAMPED.rounds;
    }
  } finally {
    device.free(target);
  }
  return seconds;
}
