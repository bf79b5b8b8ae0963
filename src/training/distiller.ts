/**
 * Trains a codec's tensors with the model frozen (paper, Sec. "Initialization and conversion"): AdamW, warm-up and
 * cosine. A step depends on the seed, its number and the state before it alone, so that a resumed training goes on as if
 * it had not stopped.
 */
import { jit, nn, numpy as np, tree, valueAndGrad } from '@jax-js/jax';
import type { TensorSource } from '../decoder/weights.js';
import type { NamedTensor } from '../decoder/write-safetensors.js';
import { UserError } from '../errors.js';
import { mix } from '../hash.js';
import { randomFrom } from '../random.js';
import { ADAMW, initialMoments, stepSizes, update, type Moments } from './adamw.js';
import { parametersFrom } from './arrays.js';
import type { Parameters, Positions } from './looped.js';
import {
  distillationLoss,
  divergence,
  exactPass,
  studentPass,
  studentPositions,
  type Frozen,
  type Setting,
  type Swap,
} from './student.js';

export interface DistilPlan {
  readonly seed: number;
  readonly steps: number;
  /** Highest learning rate: reached after the warm-up, then falling to 0 by a cosine. */
  readonly rate: number;
  /** λ: weight of the attention-output match. */
  readonly attentionWeight: number;
  /** Texts in a step. */
  readonly texts: number;
}

/** Share of the steps in which the rate rises. */
const WARM_UP = 0.1;

/** Learning rate of step `step` (from 1). */
export function distilRate({ rate, steps }: DistilPlan, step: number): number {
  const warmUp = Math.max(1, Math.round(WARM_UP * steps));
  if (step <= warmUp) return (rate * step) / warmUp;
  return rate * 0.5 * (1 + Math.cos((Math.PI * (step - warmUp)) / (steps + 1 - warmUp)));
}

type Step = (
  p: Parameters,
  moments: Moments,
  base: Parameters,
  at: Positions,
  tokens: np.Array,
  sizes: np.Array,
) => [np.Array, Parameters, Moments];
type Judge = (p: Parameters, base: Parameters, at: Positions, tokens: np.Array) => np.Array;

/** Tensors as jax-js takes them. @param prefix of the names in the source */
const arraysOf = (source: TensorSource, names: readonly string[], prefix = ''): Parameters =>
  Object.fromEntries(
    names.map((name) => [
      name,
      np.array(source.read(prefix + name)).reshape([...(source.shapes.get(prefix + name) as readonly number[])]),
    ]),
  );

async function tensorsOf(parameters: Parameters, prefix = ''): Promise<NamedTensor[]> {
  const out: NamedTensor[] = [];
  for (const [name, array] of Object.entries(parameters))
    out.push({
      name: prefix + name,
      shape: array.shape,
      values: Float32Array.from((await array.ref.data()) as Float32Array),
    });
  return out;
}

export class Distiller {
  private parameters: Parameters;
  private moments: Moments;
  private readonly base: Parameters;
  private readonly at: Positions;
  private readonly run: Step;
  private readonly judge: Judge;

  /**
   * @param model tensors of the model, which stay as they are
   * @param start the codec's tensors to begin with, or a state that `state` gave
   * @param names of the codec's tensors
   * @param texts of `setting.length` tokens each
   */
  constructor(
    setting: Setting,
    swap: Swap,
    private readonly plan: DistilPlan,
    model: TensorSource,
    start: TensorSource,
    names: readonly string[],
    private readonly texts: readonly (readonly number[])[],
  ) {
    const g = setting.geometry;
    this.base = parametersFrom(g, model);
    this.at = studentPositions(setting, swap);
    this.parameters = arraysOf(start, names);
    this.moments = start.shapes.has(`first.${names[0]}`)
      ? { first: arraysOf(start, names, 'first.'), second: arraysOf(start, names, 'second.') }
      : initialMoments(this.parameters);
    const lossAndGradients = valueAndGrad(
      distillationLoss(setting, swap, plan.attentionWeight) as never,
    ) as unknown as (p: Parameters, frozen: Frozen) => [np.Array, Parameters];
    this.run = jit(((p, moments, base, at, tokens, sizes) => {
      const oneHot = nn.oneHot(tokens, g.vocab);
      const exact = exactPass(setting, swap, tree.ref(base), oneHot.ref);
      const [loss, gradients] = lossAndGradients(tree.ref(p), { base, at, exact, oneHot });
      const next = update(p, gradients, moments, sizes, ADAMW);
      return [loss, next.parameters, next.moments];
    }) as Step as never) as unknown as Step;
    this.judge = jit(((p, base, at, tokens) => {
      const oneHot = nn.oneHot(tokens, g.vocab);
      const exact = exactPass(setting, swap, tree.ref(base), oneHot.ref);
      const student = studentPass(setting, swap, p, base, at, exact, oneHot);
      student.mismatch.dispose();
      const kl = divergence((exact['logProbabilities'] as np.Array).ref, student.logProbabilities);
      for (const array of Object.values(exact)) array.dispose();
      return kl;
    }) as Judge as never) as unknown as Judge;
  }

  /** Makes step `step` (from 1). @returns its loss @throws UserError where that is no number any more */
  async step(step: number): Promise<number> {
    const { plan, texts } = this;
    const random = randomFrom(mix(mix(plan.seed) ^ step));
    const batch = Array.from({ length: plan.texts }, () => texts[Math.floor(random() * texts.length)] ?? []);
    const [loss, parameters, moments] = this.run(
      this.parameters,
      this.moments,
      tree.ref(this.base),
      tree.ref(this.at),
      np.array(Int32Array.from(batch.flat()), { dtype: np.int32 }),
      stepSizes(step, distilRate(plan, step)),
    );
    this.parameters = parameters;
    this.moments = moments;
    const [value] = (await loss.data()) as Float32Array;
    if (!Number.isFinite(value))
      throw new UserError(`the loss of step ${step} is ${String(value)}`, 'choose a lower --rate');
    return value as number;
  }

  /** KL(teacher ‖ student) of a text, nats a token. */
  async divergenceOn(text: readonly number[]): Promise<number> {
    const kl = this.judge(
      tree.ref(this.parameters),
      tree.ref(this.base),
      tree.ref(this.at),
      np.array(Int32Array.from(text), { dtype: np.int32 }),
    );
    return ((await kl.data()) as Float32Array)[0] as number;
  }

  /** The codec's tensors as they are now. */
  tensors(): Promise<NamedTensor[]> {
    return tensorsOf(this.parameters);
  }

  /** Tensors and moments: what a training goes on from. */
  async state(): Promise<NamedTensor[]> {
    return [
      ...(await this.tensors()),
      ...(await tensorsOf(this.moments.first, 'first.')),
      ...(await tensorsOf(this.moments.second, 'second.')),
    ];
  }

  /** Frees the memory of jax-js. */
  close(): void {
    for (const arrays of [this.parameters, this.moments.first, this.moments.second, this.base, this.at])
      for (const array of Object.values(arrays)) array.dispose();
  }
}
