/** The network as jax-js trains it against the float64 decoder: logits, gradients and one step. */
import { nn, numpy as np } from '@jax-js/jax';
import { beforeAll, describe, expect, it } from 'vitest';
import { forward as exactForward } from '../../src/decoder/reference/forward.js';
import { loadModel } from '../../src/decoder/reference/model.js';
import type { Site } from '../../src/decoder/reference/network.js';
import { modelTensors } from '../../src/decoder/tensors.js';
import { inMemory, type TensorSource } from '../../src/decoder/weights.js';
import { tinyGeometry, untrainedTwin } from '../../src/tiny/model.js';
import { parametersFrom, tensorsOf, trainedTensors } from '../../src/training/arrays.js';
import { startJax } from '../../src/training/jax.js';
import { forward, positionsOf } from '../../src/training/looped.js';
import {
  batchOf,
  guideOf,
  lossOf,
  placesOf,
  rateOf,
  stageOf,
  Trainer,
  type Inputs,
  type Stage,
  type TrainingPlan,
} from '../../src/training/trainer.js';
import { SEED } from '../gpu/random.js';
import { randomFrom } from '../../src/numbers/random.js';
import { expectGradients, withGradients } from './gradients.js';

/** Grouped heads, two layers, two loops. */
const g = tinyGeometry({
  ...{ hidden_size: 24, intermediate_size: 20, total_ut_steps: 2 },
  ...{ num_attention_heads: 4, num_key_value_heads: 2, head_dim: 6 },
});
const EPSILON = 1e-5;
const LENGTH = 28;
const twin = untrainedTwin(g, SEED);
const plan: TrainingPlan = {
  seed: SEED,
  rate: 1e-3,
  warmupSteps: 2,
  horizonSteps: 20,
  cooldownSteps: 4,
  otherWeight: 0.1,
  stages: [
    { length: LENGTH, texts: 2, steps: 10 },
    { length: 40, texts: 2, steps: 10 },
  ],
};
const batch = batchOf(plan, 1, stageOf(plan, 1));
const logSoftmax = (row: Float64Array, token: number): number => {
  const top = Math.max(...row);
  return (row[token] as number) - top - Math.log(row.reduce((sum, x) => sum + Math.exp(x - top), 0));
};

/** The weighted loss of the batch, by the float64 decoder. */
function exactLoss(source: TensorSource): number {
  const model = loadModel(g, source, EPSILON);
  let [sum, weights] = [0, 0];
  for (let text = 0; text < 2; text++) {
    const at = text * LENGTH;
    exactForward(model, [...batch.inputs.subarray(at, at + LENGTH)]).forEach((row, i) => {
      const weight = batch.weights[at + i] as number;
      sum -= weight * logSoftmax(row, batch.targets[at + i] as number);
      weights += weight;
    });
  }
  return sum / weights;
}

describe(`training (LLA_SIM_SEED=${SEED})`, () => {
  beforeAll(startJax);
  const oneHot = (values: Int32Array): np.Array => nn.oneHot(np.array(values, { dtype: np.int32 }), g.vocab);
  const inputs = (guide: number): Inputs => ({
    inputs: oneHot(batch.inputs),
    targets: oneHot(batch.targets),
    weights: np.array(batch.weights),
    repeats: np.array(batch.repeats).reshape([2, LENGTH, LENGTH]),
    guide: np.array(guide),
  });
  const lossAndGradients = (guided: boolean, guide: number): [np.Array, Record<string, np.Array>] => {
    const parameters = parametersFrom(trainedTensors(g), twin);
    return withGradients(lossOf(g, EPSILON, LENGTH, guided))(parameters, positionsOf(g, LENGTH), inputs(guide));
  };

  it('computes the logits of the float64 decoder, to f32', async () => {
    const parameters = parametersFrom(trainedTensors(g), twin);
    const first = batch.inputs.slice(0, LENGTH);
    const computed = forward(g, EPSILON, parameters, positionsOf(g, LENGTH), oneHot(first), LENGTH);
    const logits = (await computed.data()) as Float32Array;
    const exact = exactForward(loadModel(g, twin, EPSILON), [...first]);
    const size = Math.max(...exact.flatMap((row) => [...row].map(Math.abs)));
    exact.forEach((row, i) =>
      row.forEach((x, j) => expect(Math.abs(x - (logits[i * g.vocab + j] as number))).toBeLessThan(2e-5 * size)),
    );
  });

  it('has the gradients of the float64 loss, by differences in a direction of every tensor', async () => {
    const [loss, gradients] = lossAndGradients(false, 0);
    expect(((await loss.data()) as Float32Array)[0]).toBeCloseTo(exactLoss(twin), 4);
    const random = randomFrom(SEED);
    expectGradients(await tensorsOf(trainedTensors(g), gradients), twin, exactLoss, random);
  });

  it('draws attention to the token before and to what is repeated, by the guiding loss', async () => {
    const valueOf = async (guide: number): Promise<number> =>
      ((await lossAndGradients(true, guide)[0].data()) as Float32Array)[0] as number;
    const [plain, guided] = [await valueOf(0), await valueOf(1)];
    expect(plain).toBeCloseTo(exactLoss(twin), 4);
    // The mean of −log of the attention: about uniform in a model that is not trained.
    const model = loadModel(g, twin, EPSILON);
    const sums = { before: [0, 0], repeated: [0, 0] } as Record<string, [number, number]>;
    for (let text = 0; text < 2; text++) {
      const all = (position: number): number[] => Array.from({ length: position }, (_, i) => i);
      const observe = (weights: readonly number[], position: number, site: Site, head: number): void => {
        const add = (to: [number, number], source: number): void => {
          to[0] -= Math.log(weights[source] as number);
          to[1]++;
        };
        if (head !== 0) return;
        if (site.loop === 0 && site.layer === 0 && position > 0) add(sums['before'] as [number, number], position - 1);
        const from = (text * LENGTH + position) * LENGTH;
        const source = batch.repeats.subarray(from, from + LENGTH).indexOf(1);
        if (site.loop === 1 && site.layer === 1 && source >= 0) add(sums['repeated'] as [number, number], source);
      };
      const tokens = [...batch.inputs.subarray(text * LENGTH, (text + 1) * LENGTH)];
      exactForward(model, tokens, { visible: all, reindexed: false, observe });
    }
    const means = Object.values(sums).map(([sum, count]) => sum / count);
    expect(guided - plain).toBeCloseTo((means[0] as number) + (means[1] as number), 3);
    const guiding = { ...plan, stages: [{ length: 28, texts: 2, steps: 10, guide: 0.5 }] };
    expect([guideOf(plan, 1), guideOf(guiding, 8)]).toEqual([0, 0.5 * 4 * (1 - 8 / 10)]);
  });

  it('goes on from a state as if it had not stopped', async () => {
    const trainer = new Trainer(g, EPSILON, plan, twin);
    expect(await trainer.step(1)).toBeCloseTo(exactLoss(twin), 4);
    const between = await trainer.saved();
    const loss = await trainer.step(2);
    const resumed = new Trainer(g, EPSILON, plan, inMemory(between));
    expect(await resumed.step(2)).toBe(loss);
    expect(await resumed.saved()).toEqual(await trainer.saved());
    expect(between.length).toBe(3 * trainedTensors(g).length);
    expect(modelTensors(g).length).toBe(trainedTensors(g).length + 2);
  });

  it('lets positions jump once, and reviews texts with the guide and loops of the stage', () => {
    const jumping: TrainingPlan = {
      ...plan,
      stages: [
        { length: LENGTH, texts: 2, steps: 10, guide: 1, loops: 1, span: 64 },
        { length: 40, texts: 2, steps: 10 },
      ],
    };
    const [first, second] = jumping.stages as [Stage, Stage];
    const all = Array.from({ length: 50 }, (_, i) => placesOf(jumping, i + 1, first));
    for (const places of all) {
      const steps = places.slice(1).map((place, i) => place - (places[i] as number));
      expect([places[0], steps.filter((step) => step !== 1).length <= 1]).toEqual([0, true]);
      expect(Math.min(...steps)).toBe(1);
      expect(places.at(-1)).toBeLessThan(64);
    }
    expect(Math.max(...all.map((places) => places.at(-1) as number))).toBeGreaterThan(LENGTH + 9);
    expect(placesOf(jumping, 1, second)).toEqual(Array.from({ length: 40 }, (_, i) => i));
    expect(stageOf(jumping, 12)).toEqual({ length: LENGTH, texts: 2, steps: 10, span: 64 });
  });

  it('reviews earlier lengths, and lowers its rate', () => {
    const lengths = Array.from({ length: 20 }, (_, i) => stageOf(plan, i + 1).length);
    expect(lengths.slice(0, 10).every((length) => length === LENGTH)).toBe(true);
    expect(lengths.slice(10)).toEqual([40, LENGTH, 40, 40, 40, LENGTH, 40, 40, 40, LENGTH]);
    expect(rateOf(plan, 1)).toBeLessThan(rateOf(plan, 2));
    expect(rateOf(plan, 20)).toBeCloseTo((1e-3 * 0.05) / 4, 10);
  });
});

it('the target of a token is the one that follows it', () => {
  for (let text = 0; text < 2; text++) {
    const [from, to] = [text * LENGTH, (text + 1) * LENGTH];
    expect(batch.targets.slice(from, to - 1)).toEqual(batch.inputs.slice(from + 1, to));
  }
});
