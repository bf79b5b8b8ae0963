/**
 * Plans per second of processor time: memory and batch alone, and with priced latency and interval. Seconds of the
 * processor, because other programs may use the machine.
 * Run: npm run bench:plan [-- CALIBRATION.json]   (after npm run build)
 *
 * Every plan differs from the one before it in ratio, path, context and batch, so that nothing is answered from a
 * memory of the same question; operations that plans share (projections, norms) are remembered, as they are within a
 * real plan.
 */
import { readFileSync } from 'node:fs';
import { Bench } from 'tinybench';
import {
  CODECS,
  DEVICES,
  calibrationPricer,
  datasheetPricer,
  findPreset,
  maxBatch,
  memoryModel,
  priceStep as checkedPriceStep,
} from '../dist/src/index.js';
// What a plan calls: the library's functions look at their arguments first, each time.
import { priceStep } from '../dist/src/cost/latency.js';
import { readSources } from '../dist/src/plan/ask/on-disk.js';
import { gpuPricer } from '../dist/src/stacks/gpu-pricer.js';

const SECONDS = 2;
const geometry = findPreset('ouro-1.4b');
const h200 = DEVICES.find((d) => d.id === 'h200');
const paths = ['reconstruct', 'block-absorbed', 'absorbed'];
const ratios = CODECS.lla.publishedRatios(geometry);
const configurations = ratios.flatMap((ratio) =>
  paths.map((path) => ({
    geometry,
    codec: CODECS.lla.fromRatio(geometry, ratio),
    path,
    materialised: false,
    choice: { storage: 'f16', groupSize: 64 },
    branch: { width: 64, perHead: false },
    eviction: null,
    gpus: 1,
    targetWorkgroups: 512,
    bindingBytes: Infinity,
  })),
);

const BATCH = 100;

/** Milliseconds of processor time that this process has used. */
function now() {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1e3;
}

/** Calls of `once(i)` a second of processor time; a checksum keeps the work from being optimised away. */
function rate(once) {
  let checksum = 0;
  let count = 0;
  const bench = new Bench({ now, time: SECONDS * 1000, iterations: 1, warmupTime: 300 });
  bench.add('plans', () => {
    for (let k = 0; k < BATCH; k++) checksum += once(count++);
  });
  const [task] = bench.runSync();
  if (!Number.isFinite(checksum)) throw new Error('a plan is not finite');
  return (1000 * BATCH) / task.result.latency.mean;
}

const context = (i) => 1024 + ((i * 7919) % 65536);
const memory = rate((i) => maxBatch(memoryModel(configurations[i % configurations.length], context(i), 32), 141e9));
console.log(`memory and maximum batch: ${Math.round(memory).toLocaleString('en')} plans/s`);

const rates = {
  bytesPerSecond: h200.memoryBytesPerSecond,
  f32FlopsPerSecond: h200.f32FlopsPerSecond,
  matrixFlopsPerSecond: h200.matrixFlopsPerSecond,
};
const priced = (pricer, price = priceStep) =>
  rate((i) => price(configurations[i % configurations.length], pricer, 1 + (i % 512), context(i)).high);
console.log(
  `priced by datasheet, with interval: ${Math.round(priced(datasheetPricer(rates, null))).toLocaleString('en')} ` +
    'plans/s',
);

const { gpu } = await readSources({ device: 'h200', stack: 'vllm' });
const stackPricer = gpuPricer(gpu, rates, h200.interconnect);
const stack = priced(stackPricer);
console.log(`priced by a serving stack, with interval: ${Math.round(stack).toLocaleString('en')} plans/s`);
const checked = priced(stackPricer, checkedPriceStep);
console.log(
  `the same through the library, which checks its arguments: ${Math.round(checked).toLocaleString('en')} plans/s`,
);

const file = process.argv[2] ?? new URL('../calibrations/mesa-llvmpipe.json', import.meta.url);
const calibration = JSON.parse(readFileSync(file, 'utf8'));
const measured = calibrationPricer(calibration, { stale: new Set(), link: null, source: 'bench' });
console.log(`priced by calibration, with interval: ${Math.round(priced(measured)).toLocaleString('en')} plans/s`);
