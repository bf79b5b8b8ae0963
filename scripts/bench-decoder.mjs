/**
 * What a decode step costs beyond its operations: the step beside the sum of its operations, each alone in a
 * submission, in the same run, and the time that the host takes to encode and submit it. Build first.
 *
 *   node scripts/bench-decoder.mjs [--model ouro-1.4b | small] [--layers 1] [--vocab 8192] [--ctx 1024] [--batch 1]
 *     [--codec full] [--path full] [--rounds 5]
 *
 * A wall clock is taken where the device has no timestamps; then a submission's own cost is taken off every
 * measurement. One round of each at a time, so that a drifting machine touches both.
 */
import { parseArgs } from 'node:util';
import { median } from 'd3-array';
import { medianOf } from '../dist/src/bench/rounds.js';
import { openDecoder } from '../dist/src/decoder/gpu/decoder.js';
import { findPreset } from '../dist/src/geometry/presets.js';
import { openDevice } from '../dist/src/gpu/index.js';
import { listCandidates } from '../dist/src/plan/ask/candidates.js';
import { SMALL_OURO } from '../dist/src/validate/memory/geometries.js';

const { values: o } = parseArgs({
  options: Object.fromEntries(
    ['model', 'layers', 'vocab', 'ctx', 'batch', 'codec', 'path', 'ratio', 'rounds'].map((name) => [
      name,
      { type: 'string' },
    ]),
  ),
});
const number = (name, fallback) => Number(o[name] ?? fallback);
const now = () => Number(process.hrtime.bigint()) * 1e-9;

// `small`: so narrow that a step is made of launches.
const preset = o.model === 'small' ? { ...SMALL_OURO, loops: 4 } : findPreset(o.model ?? 'ouro-1.4b');
const geometry = {
  ...preset,
  layers: number('layers', 1),
  vocab: number('vocab', o.model === 'small' ? preset.vocab : 8192),
};
const [contextTokens, batch, rounds] = [number('ctx', 1024), number('batch', 1), number('rounds', 5)];
const { candidates } = listCandidates(geometry, {
  kinds: [o.codec ?? 'full'],
  ratios: o.ratio ? [Number(o.ratio)] : null,
  ranks: null,
  paths: o.path ? [o.path] : null,
  evictions: [null],
});
const candidate = candidates[0];
if (!candidate) throw new Error('no such codec and path');

const device = await openDevice();
const c = {
  geometry,
  ...candidate,
  choice: { storage: 'f16', groupSize: 64 },
  branch: { width: 64, perHead: false },
  gpus: 1,
  targetWorkgroups: 528,
  bindingBytes: device.limits.maxStorageBufferBindingSize,
};
const decoder = await openDecoder(device, c, { weights: { storage: 'f16', seed: 1 }, batch, contextTokens });
await decoder.fillCache(contextTokens - rounds - 2);
await decoder.step(new Array(batch).fill(0));

const own = device.hasTimestamps ? 0 : await medianOf(20, () => device.submitEmpty());
const seconds = (time) => Math.max(1e-9, (time.deviceSeconds ?? time.wallSeconds) - own);
const steps = decoder.operations.flatMap((operation) => operation.steps);
const [whole, apart, wall] = [[], [], []];
for (let round = 0; round < rounds; round++) {
  whole.push(seconds(await device.run(steps)));
  let sum = 0;
  for (const operation of decoder.operations) sum += seconds(await device.run(operation.steps));
  apart.push(sum);
  const began = now();
  await decoder.step(new Array(batch).fill(0));
  wall.push(now() - began);
}
const encode = [];
for (let round = 0; round < Math.max(5, rounds); round++) encode.push(device.encodeSeconds(steps));
const ms = (x) => `${(x * 1e3).toFixed(3)} ms`;
const ratios = whole.map((x, i) => x / apart[i]);
console.log(
  `${device.description.description}; ${candidate.codec.kind}/${candidate.path}, ${geometry.layers} × ` +
    `${geometry.loops} layers, batch ${batch}, ${contextTokens} tokens`,
);
console.log(`${decoder.operations.length} operations, ${steps.length} dispatches; ${rounds} rounds, medians`);
console.log(
  `operations' own times ${ms(median(apart))}, in one submission ${ms(median(whole))}: ` +
    `${median(ratios).toFixed(3)} of the sum (${Math.min(...ratios).toFixed(3)} to ` +
    `${Math.max(...ratios).toFixed(3)})`,
);
console.log(
  `a step with its inputs and its tokens read back ${ms(median(wall))}: ${ms(median(wall) - median(whole))} ` +
    `beyond; encoding ${ms(median(encode))}, ${((median(encode) / steps.length) * 1e6).toFixed(2)} µs a dispatch`,
);
decoder.close();
device.close();
