/**
 * Long runs of the decoder on a tiny model: memory must not grow. 10,000 steps, then 200 decoders opened and closed.
 *   npm run build && node scripts/soak.mjs [steps] [cycles]
 * Prints resident memory and exits with 1 when it grew by more than the tolerance between the end of the warm-up and
 * the end.
 */
import process from 'node:process';
import { openDevice } from '../dist/gpu/index.js';
import { openDecoder } from '../dist/decoder/gpu/decoder.js';
import { SMALL_OURO } from '../dist/validate/geometries.js';

const [steps = 10_000, cycles = 200] = process.argv.slice(2).map(Number);
const MIB = 2 ** 20;
/**
 * The allocators' own slack; a leak of one uniform block of 256 bytes in every step would be 2.4 MiB, of one staging
 * buffer far more.
 */
const TOLERANCE_BYTES = 24 * MIB;
const WARM_UP = 0.2;
const WINDOW = 512;

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
const resident = () => {
  globalThis.gc?.();
  return process.memoryUsage().rss;
};
let failed = false;

async function soak(name, count, once) {
  let base = 0;
  for (let i = 0; i < count; i++) {
    await once(i);
    if (i === Math.floor(WARM_UP * count)) base = resident();
    if ((i + 1) % Math.ceil(count / 10) === 0)
      console.log(`${name} ${i + 1}: resident ${(resident() / MIB).toFixed(1)} MiB`);
  }
  const grown = resident() - base;
  console.log(`${name}: ${(grown / MIB).toFixed(1)} MiB more than after the first ${100 * WARM_UP} %`);
  if (grown > TOLERANCE_BYTES) failed = true;
}

const decoder = await open();
await soak('steps', steps, async () => {
  if (decoder.lengths[0] >= WINDOW) decoder.reset();
  await decoder.step([1, 2]);
});
decoder.close();
await soak('cycles', cycles, async () => {
  const one = await open();
  await one.step([1, 2]);
  one.close();
});
device.close();
process.exitCode = failed ? 1 : 0;
