/** The thread that trains beside the program: what it makes, in which order, and how it fails. Needs dist/. */
import { afterEach, expect, it } from 'vitest';
import type { Branch, Codec } from '../../src/codecs/codec.js';
import { codecTensors } from '../../src/decoder/tensors.js';
import { fabricate } from '../../src/decoder/weights.js';
import { UserError } from '../../src/errors.js';
import { randomFrom } from '../../src/numbers/random.js';
import { tinyGeometry, untrainedTwin } from '../../src/tiny/model.js';
import { distil, type Distillation } from '../../src/training/distil.js';
import { TrainingThread } from '../../src/training/training-thread.js';
import { SEED } from '../gpu/random.js';

const g = tinyGeometry({
  ...{ hidden_size: 12, intermediate_size: 10, num_hidden_layers: 1, total_ut_steps: 2, vocab_size: 17 },
  ...{ num_attention_heads: 2, num_key_value_heads: 2, head_dim: 4 },
});
const codec: Codec = { kind: 'lla', rankK: 2, rankV: 3 };
const branch: Branch = { width: 4, perHead: false };
const random = randomFrom(SEED);
const texts = [0, 1].map(() => Array.from({ length: 6 }, () => Math.floor(random() * g.vocab)));

const tensors = codecTensors(g, codec, 'reconstruct', branch);
const distillation = (steps: number, rate = 0.02): Distillation => ({
  setting: { geometry: g, normEpsilon: 1e-5, length: 6 },
  swap: { codec, path: 'reconstruct', branch },
  plan: { seed: SEED, steps, onPolicySteps: 0, temperature: 1, rate, lambdaAttn: 0.5, texts: 1 },
  model: untrainedTwin(g, SEED),
  start: fabricate(tensors, { seed: SEED, tiedEmbeddings: false, codec: 'random' }),
  ...{ texts, heldOut: texts },
});

let thread: TrainingThread;
afterEach(() => thread.close());

it(`makes what training here makes, one after another (seed ${SEED})`, async () => {
  thread = new TrainingThread();
  const said: string[] = [];
  const both = [2, 3].map((steps) => thread.train(distillation(steps), (step) => said.push(`${step} of ${steps}`)));
  const made = await Promise.all(both);
  expect(said).toEqual(['1 of 2', '2 of 2', '1 of 3', '2 of 3', '3 of 3']);
  for (const [i, steps] of [2, 3].entries()) {
    const here = await distil(distillation(steps), { signal: new AbortController().signal, state: null });
    for (const name of here.tensors.shapes.keys()) expect(made[i]?.read(name)).toEqual(here.tensors.read(name));
  }
});

it(`hands errors over, and goes on after one (seed ${SEED})`, async () => {
  thread = new TrainingThread();
  const wrong = thread.train(distillation(4, 1e30), () => undefined);
  const right = thread.train(distillation(1), () => undefined);
  await expect(wrong).rejects.toThrow(UserError);
  await expect(wrong).rejects.toThrow(/^the loss of step \d is/);
  expect((await right).shapes.size).toBeGreaterThan(0);
});

it('is closed while it trains', async () => {
  thread = new TrainingThread();
  const late = thread.train(distillation(1e6), () => undefined);
  await thread.close();
  await expect(late).rejects.toThrow(/ended/);
});
