/**
 * Scores a trained model and writes its card: `npm run score:tiny [-- --model FOLDER] [--questions 200] [--loss 0.5]`.
 * Questions are answered greedily by the training code; on some of them every logit is compared with the float64
 * decoder's.
 */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { openCheckpoint } from '../src/decoder/checkpoint.js';
import { forward as exactForward } from '../src/decoder/reference/forward.js';
import { loadModel } from '../src/decoder/reference/model.js';
import { parameterCount } from '../src/geometry/geometry.js';
import { TINY_FOLDER, untrainedTwin } from '../src/tiny/model.js';
import { startJax } from '../src/training/arrays.js';
import { questionOf, scores, TASK_KINDS, type Score } from '../src/training/scores.js';
import { TINY_PLAN } from '../src/training/tiny-plan.js';
import { totalSteps } from '../src/training/trainer.js';

const LENGTHS = [32, 64, 128, 256, 512];
/** Questions of each kind that the float64 decoder answers too, at the shortest two lengths. */
const EXACT = 8;

const { values: flags } = parseArgs({
  options: { model: { type: 'string' }, questions: { type: 'string' }, loss: { type: 'string' } },
});
const folder = flags.model ?? TINY_FOLDER;
const questions = Number(flags.questions ?? 200);
const { geometry: g, normEpsilon, tensors } = openCheckpoint(folder);
await startJax();
const made = await scores(g, normEpsilon, tensors, LENGTHS, questions);
const twins = await scores(g, normEpsilon, untrainedTwin(g, TINY_PLAN.seed), LENGTHS.slice(0, 2), questions);

const exact = loadModel(g, tensors, normEpsilon);
let [right, asked] = [0, 0];
for (const length of LENGTHS.slice(0, 2)) {
  for (const kind of TASK_KINDS) {
    for (let i = 0; i < EXACT; i++) {
      const { prompt, answer } = questionOf(kind, length, i);
      const logits = exactForward(exact, [...prompt, ...answer.slice(0, -1)]).slice(prompt.length - 1);
      asked++;
      if (
        answer.every(
          (token, n) => (logits[n] as Float64Array).indexOf(Math.max(...(logits[n] as Float64Array))) === token,
        )
      )
        right++;
    }
  }
}

const share = (kind: Score['kind'], length: number, of: readonly Score[]): string => {
  const score = of.find((s) => s.kind === kind && s.length === length);
  return score ? (score.right / score.asked).toFixed(3) : '';
};
const stages = TINY_PLAN.stages.map((s) => `${s.steps} of ${s.texts} × ${s.length}`).join(', ');
const rows = LENGTHS.map(
  (length) =>
    `| ${length} | ${TASK_KINDS.map((kind) => share(kind, length, made)).join(' | ')} | ${TASK_KINDS.map((kind) => share(kind, length, twins)).join(' | ')} |`,
);
writeFileSync(
  join(folder, 'README.md'),
  `# lla-tiny

A looped language model of ${parameterCount(g).toLocaleString('en')} parameters that is bundled with lla-sim: ${g.layers} layers × ${g.loops} loops, ${g.heads} heads × ${g.headDim},
width ${g.hidden}, ${g.vocab} words. Layers, tensor names and config.json are those of Ouro, and the code that opens an Ouro
checkpoint opens it. It exists to try codecs on; it knows nothing of the world. Licence: that of lla-sim (MIT).

**Texts.** Generated from a seed (\`src/tiny/tasks.ts\`): facts (a name and its thing), a pass code of five different
digits, sentences of filler, and at the end questions with their answers. Sums are of two numbers up to nine.

**Training.** \`npm run train:tiny\`: ${totalSteps(TINY_PLAN)} steps (texts × tokens: ${stages}; every fourth
step of a later length takes an earlier one). AdamW (β 0.9, 0.98, decay 0.01, clip 1), highest rate ${TINY_PLAN.rate}, a
cosine and a cool-down; loss of answers 1, of all other tokens ${TINY_PLAN.otherWeight}. In some stages a further loss guides attention
(the token before; what an answer repeats) and fades to nothing. Seed ${TINY_PLAN.seed}: the same weights again on the same
machine.${flags.loss ? ` Loss at the end: ${flags.loss} nats a weighted token (mean of the last steps).` : ''}

**Scores.** Share of ${questions} questions answered right, all tokens of the answer, greedily, from texts of seeds that
training does not use; beside them the untrained twin (the weights that training begins with). ${right} of ${asked} questions of 32
and 64 tokens are answered right by the float64 decoder too.

| tokens | recall of 6 facts | pass code | sum | twin: recall | twin: code | twin: sum |
|---|---|---|---|---|---|---|
${rows.join('\n')}

**Limits.** Names, things and digits that are not in its vocabulary are unknown to it. Contexts beyond ${LENGTHS.at(-1)} tokens were
not tried, and trained on were ${TINY_PLAN.stages.at(-1)?.length}.
`,
);
for (const s of made) console.log(`${s.length} ${s.kind} ${(s.right / s.asked).toFixed(3)}`);
process.exit(0);
