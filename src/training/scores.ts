/** How often a model answers right, by task and length of the prompt: greedy decoding, every token of the answer. */
import { nn, numpy as np, tree } from '@jax-js/jax';
import { greedy } from '../decoder/sampler.js';
import type { TensorSource } from '../decoder/weights.js';
import type { Geometry } from '../geometry/geometry.js';
import { mix } from '../numbers/hash.js';
import { randomFrom } from '../numbers/random.js';
import {
  CODE_DIGITS,
  copyTask,
  LIST_THINGS,
  passkeyTask,
  recallTask,
  sumTask,
  type Task,
  type TaskKind,
} from '../tiny/tasks.js';
import { parametersFrom, trainedTensors } from './arrays.js';
import { compiled, free } from './jax.js';
import { forward, positionsOf, type Parameters, type Positions } from './looped.js';

const TASKS: Readonly<Record<TaskKind, (random: () => number, length: number) => Task>> = {
  recall: recallTask,
  passkey: passkeyTask,
  sum: sumTask,
  copy: copyTask,
  sum3: (random, length) => sumTask(random, length, 3),
};
export const TASK_KINDS = Object.keys(TASKS) as TaskKind[];

/** Question `i` of a kind and length, of its own seed: training never sees that seed's texts. */
export const questionOf = (kind: TaskKind, length: number, i: number): Task =>
  TASKS[kind](randomFrom(mix(mix(0x5eed ^ length) + TASK_KINDS.indexOf(kind)) + i), length);

export interface Score {
  readonly kind: TaskKind;
  readonly length: number;
  readonly asked: number;
  readonly right: number;
}

const LONGEST_ANSWER = Math.max(CODE_DIGITS, LIST_THINGS);

const BATCH_TOKENS = 2048;
/** Scores of a head of attention that are computed together: jax-js keeps those of all layers and loops, in 4 GiB. */
const BATCH_SCORES = 2 ** 19;

/**
 * Asks questions of every length and of each kind named. The answer's tokens are given as far as the next one: a greedy
 * decoder that errs at one of them has not answered right, whatever it says after.
 */
export async function scores(
  g: Geometry,
  normEpsilon: number,
  source: TensorSource,
  lengths: readonly number[],
  questionsOf: (length: number) => number,
  kinds: readonly TaskKind[],
): Promise<Score[]> {
  const parameters = parametersFrom(trainedTensors(g), source);
  const out: Score[] = [];
  for (const length of lengths) {
    const questions = questionsOf(length);
    const tokens = length + LONGEST_ANSWER - 1;
    const most = Math.floor(Math.min(BATCH_TOKENS, BATCH_SCORES / tokens) / tokens);
    const texts = Math.max(1, Math.min(most, questions));
    const at = positionsOf(g, tokens);
    const run = compiled((p: Parameters, positions: Positions, inputs: np.Array) =>
      forward(g, normEpsilon, p, positions, nn.oneHot(inputs, g.vocab), tokens),
    );
    for (const kind of kinds) {
      let right = 0;
      for (let from = 0; from < questions; from += texts) {
        const tasks = Array.from({ length: Math.min(texts, questions - from) }, (_, i) =>
          questionOf(kind, length, from + i),
        );
        const inputs = new Int32Array(texts * tokens);
        tasks.forEach(({ prompt, answer }, i) => inputs.set([...prompt, ...answer.slice(0, -1)], i * tokens));
        const logits = (await run(
          tree.ref(parameters),
          tree.ref(at),
          np.array(inputs, { dtype: np.int32 }),
        ).data()) as Float32Array;
        const said = (text: number, token: number): number =>
          greedy(logits.subarray((text * tokens + token) * g.vocab, (text * tokens + token + 1) * g.vocab));
        right += tasks.filter(({ prompt, answer }, i) =>
          answer.every((token, n) => said(i, prompt.length - 1 + n) === token),
        ).length;
      }
      out.push({ kind, length, asked: questions, right });
    }
    free(at);
  }
  return out;
}
