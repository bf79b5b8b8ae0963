/**
 * Trains a bundled model: `npm run train:model [-- lla-small] [--out FOLDER] [--state FILE] [--stop STEP]`, lla-tiny
 * unless named. The folder gets model.safetensors, config.json and tokenizer.json; scripts/score-model.ts writes the
 * model card. A state file is written every 25 steps, and a training that finds one goes on from it. The same seed
 * gives the same weights on the same machine.
 */
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { SafetensorsFile } from '../src/decoder/safetensors.js';
import { modelTensors } from '../src/decoder/tensors.js';
import type { NamedTensor } from '../src/decoder/weights.js';
import { safetensorsBytes } from '../src/decoder/write-safetensors.js';
import { bundledFolder } from '../src/geometry/model-file.js';
import {
  BUNDLED_CONFIGS,
  bundledGeometry,
  bundledName,
  isTrained,
  tinyTokenizer,
  untrainedTwin,
} from '../src/tiny/model.js';
import { startJax } from '../src/training/jax.js';
import { PLANS } from '../src/training/plans.js';
import { stageOf, totalSteps, Trainer } from '../src/training/trainer.js';

const STATE_STEPS = 25;

const { values: flags, positionals } = parseArgs({
  options: { out: { type: 'string' }, state: { type: 'string' }, stop: { type: 'string' } },
  allowPositionals: true,
});
const name = bundledName(positionals[0] ?? 'lla-tiny');
const config = BUNDLED_CONFIGS[name];
const out = flags.out ?? bundledFolder(name);
const stateFile = flags.state ?? join(out, 'training.state.safetensors');
mkdirSync(out, { recursive: true });

const g = bundledGeometry(name);
const plan = PLANS[name];
await startJax();
let [done, loss] = [0, Number.NaN];
let source = untrainedTwin(g, plan.seed);
const progressFile = `${stateFile}.json`;
if (existsSync(progressFile)) {
  ({ done, loss } = JSON.parse(readFileSync(progressFile, 'utf8')) as { done: number; loss: number });
  source = new SafetensorsFile(stateFile);
  console.log(`goes on after step ${done}`);
}
const trainer = new Trainer(g, config.rms_norm_eps, plan, source);
const began = process.cpuUsage();
const last = Math.min(totalSteps(plan), Number(flags.stop ?? Infinity));
for (let step = done + 1; step <= last; step++) {
  const value = await trainer.step(step);
  if (!Number.isFinite(value)) throw new Error(`step ${step}: the loss is ${value}`);
  loss = Number.isNaN(loss) ? value : 0.97 * loss + 0.03 * value;
  if (step % 10 === 0 || step === last) {
    const { user, system } = process.cpuUsage(began);
    const { length } = stageOf(plan, step);
    console.log(
      `step ${step}/${last}, ${length} tokens: loss ${loss.toFixed(4)}, ${((user + system) / 1e6).toFixed(0)} s ` +
        'of processor time',
    );
  }
  if (step % STATE_STEPS === 0 || step === last) {
    writeFileSync(stateFile, safetensorsBytes(await trainer.saved()));
    writeFileSync(progressFile, JSON.stringify({ done: step, loss }));
  }
}

const exitGate: NamedTensor[] = modelTensors(g)
  .filter((spec) => !isTrained(spec))
  .map(({ name, shape }) => ({ name, shape, values: new Float32Array(shape.reduce((n, size) => n * size, 1)) }));
const half = config.torch_dtype === 'float16';
const bytes = safetensorsBytes([...(await trainer.weights()), ...exitGate], { format: 'pt' }, half);
writeFileSync(join(out, 'model.safetensors'), bytes);
writeFileSync(join(out, 'config.json'), `${JSON.stringify(config, null, 2)}\n`);
writeFileSync(join(out, 'tokenizer.json'), `${JSON.stringify(tinyTokenizer(), null, 1)}\n`);
console.log(`${out}: ${bytes.length} bytes of weights, loss ${loss.toFixed(4)}`);
process.exit(0);
