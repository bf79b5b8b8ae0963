/**
 * Long runs of the decoder on a tiny model: memory must not grow. 10,000 steps, then 200 decoders opened and closed;
 * more of them, up to three times as many, while memory still grows (leak.mjs).
 *   npm run build && node scripts/soak.mjs [steps] [cycles]
 * Prints resident memory and exits with 1 when it never comes to rest. LLA_SIM_LEAK=BYTES keeps so many bytes of every
 * step, and 256 times as many of every cycle: to see that this is found.
 */
import process from 'node:process';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { openDevice } from '../dist/src/gpu/index.js';
import { openDecoder } from '../dist/src/decoder/gpu/decoder.js';
import { SMALL_OURO } from '../dist/src/validate/memory/geometries.js';
import { leaks } from './leak.mjs';

const [steps = 10_000, cycles = 200] = process.argv.slice(2).map(Number);
const planted = Number(process.env.LLA_SIM_LEAK ?? 0);
const MIB = 2 ** 20;
/** In a window of 1,250 steps: a leak of 420 bytes a step is found. Without a leak it varies by half as much. */
const TOLERANCE_BYTES = MIB / 2;
/** Of the runs asked for. */
const WINDOWS = 8;
const WINDOW = 512;

setFlagsFromString('--expose-gc');
const gc = runInNewContext('gc');

const c = {
  geometry: SMALL_OURO,
  codec: { kind: 'lla', rankK: 12, rankV: 20 },
  path: 'reconstruct',
  materialised: false,
  choice: { storage: 'f16', groupSize: 32 },
  branch: { width: 6, perHead: false },
  eviction: { policy: 'streaming', sinkTokens: 4, windowTokens: 60, budgetTokens: 64 },
  gpus: 1,
  targetWorkgroups: 8,
  bindingBytes: Infinity,
};
const device = await openDevice();
const open = () => openDecoder(device, c, { weights: { storage: 'f16', seed: 1 }, batch: 2, contextTokens: WINDOW });
const kept = [];

async function soak(name, count, leakBytes, once) {
  const grows = await leaks(
    async () => {
      await once();
      if (leakBytes > 0) kept.push(Buffer.alloc(leakBytes, 1));
    },
    {
      runs: Math.ceil(count / WINDOWS),
      toleranceBytes: TOLERANCE_BYTES,
      resident: () => {
        gc();
        return process.memoryUsage().rss;
      },
      onWindow: (bytes, runs) => console.log(`${name} ${runs}: resident ${(bytes / MIB).toFixed(1)} MiB`),
    },
  );
  console.log(`${name}: ${grows ? 'memory still grows: a leak' : 'memory has come to rest: no leak'}`);
  if (grows) process.exitCode = 1;
}

const decoder = await open();
await soak('steps', steps, planted, async () => {
  if (decoder.lengths[0] >= WINDOW) decoder.reset();
  await decoder.step([1, 2]);
});
decoder.close();
await soak('cycles', cycles, 256 * planted, async () => {
  const one = await open();
  await one.step([1, 2]);
  one.close();
});
device.close();
