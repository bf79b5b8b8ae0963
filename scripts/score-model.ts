/**
 * Scores a bundled model and writes its card: `npm run score:model [-- lla-small] [--model FOLDER] [--questions 100]
 * [--loss 0.5] [--exact 8]`. Questions are answered greedily by the training code; some of the float64 decoder's
 * answers are compared. Long contexts are asked fewer questions, at least 4 of a kind, and beyond 256 tokens no sums:
 * they do not depend on what stands before.
 */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { openCheckpoint } from '../src/decoder/checkpoint.js';
import { forward as exactForward } from '../src/decoder/reference/forward.js';
import { loadModel } from '../src/decoder/reference/model.js';
import { parameterCount } from '../src/geometry/geometry.js';
import { bundledFolder } from '../src/geometry/model-file.js';
import { bundledName, untrainedTwin } from '../src/tiny/model.js';
import type { TaskKind } from '../src/tiny/tasks.js';
import { startJax } from '../src/training/jax.js';
import { card } from '../src/training/card.js';
import { PLANS } from '../src/training/plans.js';
import { questionOf, scores, TASK_KINDS, type Score } from '../src/training/scores.js';

const LENGTHS = { 'lla-tiny': [32, 64, 128, 256, 512], 'lla-small': [32, 64, 128, 256, 512, 1024] } as const;
/** Tokens of the prompts from which loops are left out. */
const ABLATED = 64;
/** Tokens of the longest prompts that end with a sum. */
const WITH_SUMS = 256;

const { values: flags, positionals } = parseArgs({
  options: {
    model: { type: 'string' },
    questions: { type: 'string' },
    loss: { type: 'string' },
    exact: { type: 'string' },
  },
  allowPositionals: true,
});
const name = bundledName(positionals[0] ?? 'lla-tiny');
const plan = PLANS[name];
const folder = flags.model ?? bundledFolder(name);
const most = Number(flags.questions ?? 100);
const questions = (length: number): number => Math.min(most, Math.max(4, Math.round((most * 128) / length)));
const kinds: TaskKind[] = TASK_KINDS.filter((kind) => (kind !== 'copy' && kind !== 'sum3') || plan.lessons?.[kind]);
const { geometry: g, normEpsilon, tensors } = openCheckpoint(folder);
await startJax();
async function asked(lengths: readonly number[], of: readonly TaskKind[], loops = g.loops): Promise<Score[]> {
  const made = await scores({ ...g, loops }, normEpsilon, tensors, lengths, questions, of);
  for (const s of made) console.log(`${s.length} tokens, ${loops} loops, ${s.kind}: ${s.right} of ${s.asked} right`);
  return made;
}
const repeated = kinds.filter((kind) => kind !== 'sum' && kind !== 'sum3');
const isLong = (length: number): boolean => length > WITH_SUMS;
// The longest first: they take most of the memory, which is in one piece then.
const long = await asked(LENGTHS[name].filter(isLong).reverse(), repeated);
const made = await asked(
  LENGTHS[name].filter((length) => !isLong(length)),
  kinds,
);
made.push(...long.reverse());
const twins = await scores(g, normEpsilon, untrainedTwin(g, plan.seed), [32], questions, kinds);
const byLoops: Score[][] = [];
for (let loops = 1; loops < g.loops; loops++) byLoops.push(await asked([ABLATED], kinds, loops));
byLoops.push(made.filter(({ length }) => length === ABLATED));

const model = loadModel(g, tensors, normEpsilon);
const exact = { right: 0, asked: 0 };
for (const length of [32, 64]) {
  for (const kind of kinds) {
    for (let i = 0; i < Number(flags.exact ?? 8); i++) {
      const { prompt, answer } = questionOf(kind, length, i);
      const logits = exactForward(model, [...prompt, ...answer.slice(0, -1)]).slice(prompt.length - 1);
      const said = logits.map((row) => row.indexOf(Math.max(...row)));
      exact.asked++;
      if (answer.every((token, n) => said[n] === token)) exact.right++;
    }
  }
}
const facts = { name, g, parameters: parameterCount(g), plan, kinds, loss: flags.loss ?? null };
writeFileSync(join(folder, 'README.md'), card(facts, { made, twins, byLoops, exact }));
process.exit(0);
