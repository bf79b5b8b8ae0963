/** Devices of this machine through Dawn: how the program opens one in Node. */
import { setImmediate as turn } from 'node:timers/promises';
import { clockNow } from '../io/clock.js';
import { openAdapter, type AdapterOptions } from './adapter.js';
import type { Device } from './device.js';
import { deviceOf } from './opening.js';
import type { Platform } from './platform.js';
import { processorClock } from './processor-time.js';

/**
 * Dawn waits by polling in every turn of the event loop, which takes a core from a software adapter and makes it up to
 * twice as slow. Between turns the thread therefore sleeps for a share of the time waited so far, which bounds the
 * error of a wall clock. It does not sleep at first, because a sleep is too coarse there, and never long, because
 * signals wait too. Where a software adapter measures the time itself the share is larger: at 3 % a hundred turns took
 * a fifth of a product of 10 ms.
 */
const SLEPT = { share: 0.03, shareOfTimed: 0.25, afterSeconds: 0.0007, mostSeconds: 0.01 };
const pauseCell = new Int32Array(new SharedArrayBuffer(4));
const pause = (seconds: number): void => void Atomics.wait(pauseCell, 0, 0, seconds * 1000);

const MIB = 2 ** 20;
/** Operands of one call with all their copies. A software adapter has the machine's memory, which is shared. */
const MOST_BYTES = { software: 1024 * MIB, hardware: 12_288 * MIB };

async function wait(finished: Promise<unknown>, since: number, timed: boolean): Promise<void> {
  let done = false;
  void finished.then(() => (done = true));
  const share = timed ? SLEPT.shareOfTimed : SLEPT.share;
  while (!done) {
    await turn();
    const waited = clockNow() - since;
    if (!done && waited > SLEPT.afterSeconds) pause(Math.min(SLEPT.mostSeconds, share * waited));
  }
}

/** @throws UserError (exit code 6) when Dawn finds no adapter */
export async function openDevice(options: AdapterOptions = {}): Promise<Device> {
  const { gpu, adapter, description, threads } = await openAdapter(options);
  const platform: Platform & { readonly gpu: GPU } = {
    // Held so that Dawn's instance outlives the device.
    gpu,
    bounds: {
      dispatchSeconds: Infinity,
      pointBytes: MOST_BYTES[description.software ? 'software' : 'hardware'],
      roundedClocks: false,
    },
    wait,
    processorClock: () => processorClock(threads),
  };
  return deviceOf(adapter, description, platform);
}
