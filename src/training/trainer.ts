/**
 * Trains a looped model on lessons (tiny/tasks.ts): AdamW, warm-up and cosine, lengths by a curriculum. A step depends
 * on the seed, its number and the state before it alone, so that a resumed training goes on as if it had not stopped.
 */
import { blockUntilReady, nn, numpy as np, tree } from '@jax-js/jax';
import type { TensorSource } from '../decoder/weights.js';
import type { Geometry } from '../geometry/geometry.js';
import { mix } from '../numbers/hash.js';
import { randomFrom } from '../numbers/random.js';
import { lesson, lessonOptions, type LessonOptions } from '../tiny/tasks.js';
import { stepSizes, update, type Moments } from './adamw.js';
import { trainedTensors, Training } from './arrays.js';
import { compiled, withGradients, type Arrays } from './jax.js';
import { crossEntropy, forward, positionsOf, rotations, type Parameters, type Positions } from './looped.js';

export interface Stage {
  /** Tokens of a text, without the one that only is an answer. */
  readonly length: number;
  readonly texts: number;
  readonly steps: number;
  /**
   * Weight of a loss that guides attention: the first head of the first layer is drawn to the token before, in the
   * first loop, and that of the last layer to what an answer repeats, in the second loop. It fades to nothing over the
   * stage's last quarter. Without it the heads find their places several times later. 0 if absent.
   */
  readonly guide?: number;
  /**
   * Positions of a step's texts jump once, at a random token, by a random number so that they stay below `span`: short
   * texts train far distances too (PoSE, arXiv 2309.10400). No jump if absent.
   */
  readonly span?: number;
  /** Loops that the model makes, at least two with a guide: fewer at first cost less. All if absent. */
  readonly loops?: number;
  /** What differs from the plan's lessons. */
  readonly lessons?: Partial<LessonOptions>;
}

export interface TrainingPlan {
  readonly seed: number;
  /** Highest learning rate: reached after the warm-up, and falling by a cosine over `horizonSteps` from step 0. */
  readonly rate: number;
  readonly warmupSteps: number;
  readonly horizonSteps: number;
  /** Over so many steps at the end the rate also falls to 0 along a line. */
  readonly cooldownSteps: number;
  /** Weight in the loss of tokens that are no answer; answers have 1. */
  readonly otherWeight: number;
  /** What differs from `lessonOptions`. */
  readonly lessons?: Partial<LessonOptions>;
  readonly stages: readonly Stage[];
}

export const totalSteps = (plan: TrainingPlan): number => plan.stages.reduce((sum, stage) => sum + stage.steps, 0);

/** Every fourth step of a later stage has the texts of an earlier one, in turn: short texts are not forgotten. */
const REVIEW = 4;

/** The stage of step `step` (from 1), and how many steps were before it. */
function placeOf({ stages }: TrainingPlan, step: number): { stage: Stage; index: number; before: number } {
  let before = 0;
  for (const [index, stage] of stages.entries()) {
    if (step <= before + stage.steps) return { stage, index, before };
    before += stage.steps;
  }
  throw new RangeError(`step ${step} of ${before}`);
}

/** What step `step` (from 1) trains on: with the guide and the loops of its stage, also where it reviews texts. */
export function stageOf(plan: TrainingPlan, step: number): Stage {
  const { stage, index } = placeOf(plan, step);
  if (index === 0 || step % REVIEW !== 0) return stage;
  const { guide: _guide, loops: _loops, ...reviewed } = plan.stages[(step / REVIEW) % index] as Stage;
  const { guide, loops } = stage;
  return { ...reviewed, ...(guide && { guide }), ...(loops && { loops }) };
}

export function rateOf(plan: TrainingPlan, step: number): number {
  const cosine = 0.05 + 0.95 * 0.5 * (1 + Math.cos((Math.PI * step) / plan.horizonSteps));
  const cooldown = (totalSteps(plan) + 1 - step) / plan.cooldownSteps;
  return plan.rate * Math.min(1, step / plan.warmupSteps) * cosine * Math.min(1, cooldown);
}

/** Lessons as a step takes them: inputs, what follows each, and its weight; row-major by text. */
export interface Batch {
  readonly inputs: Int32Array;
  readonly targets: Int32Array;
  readonly weights: Float32Array;
  /** [texts, tokens, tokens]: 1 where the token that an answer follows should attend to what the answer repeats. */
  readonly repeats: Float32Array;
}

export function batchOf(plan: TrainingPlan, step: number, { length, texts, lessons }: Stage): Batch {
  const random = randomFrom(mix(mix(plan.seed) ^ step));
  const [inputs, targets] = [new Int32Array(texts * length), new Int32Array(texts * length)];
  const weights = new Float32Array(texts * length);
  const repeats = new Float32Array(texts * length * length);
  for (let text = 0; text < texts; text++) {
    const { tokens, isAnswer, sources } = lesson(random, length + 1, {
      ...lessonOptions(length + 1),
      ...plan.lessons,
      ...lessons,
    });
    inputs.set(tokens.slice(0, length), text * length);
    targets.set(tokens.slice(1), text * length);
    for (let i = 0; i < length; i++) {
      weights[text * length + i] = isAnswer[i + 1] === 1 ? 1 : plan.otherWeight;
      const source = sources[i + 1] as number;
      if (source >= 0) repeats[(text * length + i) * length + source] = 1;
    }
  }
  return { inputs, targets, weights, repeats };
}

/** Positions of the tokens of step `step`'s texts: 0, 1, 2 … with the jump of a stage that has one. */
export function placesOf(plan: TrainingPlan, step: number, { length, span = 0 }: Stage): number[] {
  const random = randomFrom(mix(mix(plan.seed ^ 0x6a756d70) ^ step));
  const first = Math.floor(random() * length);
  const jump = Math.floor(random() * (Math.max(0, span - length) + 1));
  return Array.from({ length }, (_, i) => i + (i > first ? jump : 0));
}

/** A batch in jax-js, tokens as one-hot rows, and the weight of the loss that guides attention. */
export type Inputs = Arrays & Readonly<Record<keyof Batch | 'guide', np.Array>>;
type Loss = (parameters: Parameters, at: Positions, batch: Inputs) => np.Array;
type Step = (
  parameters: Parameters,
  moments: Moments,
  at: Positions,
  batch: Inputs,
  sizes: np.Array,
) => [np.Array, Parameters, Moments];

/** Mean of −log of the attention of the first head over the (row, column) pairs that `wanted` marks with 1. */
function attentionLoss(scores: np.Array, wanted: np.Array): np.Array {
  const [first, ...others] = np.split(scores, scores.shape[1] as number, 1) as [np.Array, ...np.Array[]];
  for (const other of others) other.dispose();
  const [texts, , tokens] = first.shape as [number, number, number];
  const total = wanted.ref.sum().add(1e-6);
  return nn
    .logSoftmax(first.reshape([texts, tokens, tokens]), -1)
    .mul(wanted)
    .sum()
    .div(total)
    .mul(-1);
}

/** The token before, for every token but the first: [texts, tokens, tokens]. */
function previous(texts: number, tokens: number): np.Array {
  const before = new Float32Array(tokens * tokens);
  for (let i = 1; i < tokens; i++) before[i * tokens + i - 1] = 1;
  return np.broadcastTo(np.array(before).reshape([1, tokens, tokens]), [texts, tokens, tokens]);
}

/** The loss of texts of one length, as a function that jax-js differentiates. Its arguments are used up. */
export const lossOf =
  (g: Geometry, normEpsilon: number, length: number, guided = false): Loss =>
  (parameters, at, { inputs, targets, weights, repeats, guide }) => {
    const guides: np.Array[] = [];
    const texts = (inputs.shape[0] as number) / length;
    const watch = (loop: number, layer: number, scores: np.Array): void => {
      if (loop === 0 && layer === 0) guides.push(attentionLoss(scores, previous(texts, length)));
      else if (loop === 1 && layer === g.layers - 1) guides.push(attentionLoss(scores, repeats));
      else scores.dispose();
    };
    const logits = forward(g, normEpsilon, parameters, at, inputs, length, guided ? { watch } : {});
    const loss = crossEntropy(logits, targets, weights);
    if (guided)
      return guides
        .reduce((sum, part) => sum.add(part), np.array(0))
        .mul(guide)
        .add(loss);
    for (const array of [repeats, guide]) array.dispose();
    return loss;
  };

/** Weight of the guiding loss at step `step` (from 1). */
export function guideOf(plan: TrainingPlan, step: number): number {
  const { stage, before } = placeOf(plan, step);
  return (stage.guide ?? 0) * Math.min(1, 4 * (1 - (step - before) / stage.steps));
}

export class Trainer extends Training {
  /** Compiled steps, by length and number of texts. */
  private readonly programs = new Map<string, { at: Positions; step: Step }>();

  /** @param weights to begin with, or what `saved` gave, to go on from */
  constructor(
    private readonly g: Geometry,
    private readonly normEpsilon: number,
    private readonly plan: TrainingPlan,
    weights: TensorSource,
  ) {
    super(trainedTensors(g), weights);
  }

  private program({ length, texts, loops = this.g.loops, guide = 0 }: Stage): { at: Positions; step: Step } {
    const guided = guide > 0;
    const key = `${length} ${texts} ${loops} ${guided}`;
    const known = this.programs.get(key);
    if (known) return known;
    const g = { ...this.g, loops };
    const lossAndGradients = withGradients(lossOf(g, this.normEpsilon, length, guided));
    const step = compiled<Step>((parameters, moments, at, batch, sizes) => {
      const [loss, gradients] = lossAndGradients(tree.ref(parameters), at, {
        ...batch,
        inputs: nn.oneHot(batch.inputs, g.vocab),
        targets: nn.oneHot(batch.targets, g.vocab),
      });
      return [loss, ...update(parameters, gradients, moments, sizes)];
    });
    const made = { at: positionsOf(g, length), step };
    this.programs.set(key, made);
    return made;
  }

  /** Makes step `step` (from 1). @returns its loss, in nats a weighted token, with the guiding loss */
  async step(step: number): Promise<number> {
    const stage = stageOf(this.plan, step);
    const guide = guideOf(this.plan, step);
    const { at, step: run } = this.program(stage);
    const batch = batchOf(this.plan, step, stage);
    const { texts, length } = stage;
    const positions = stage.span
      ? { mask: at.mask.ref, ...rotations(this.g, placesOf(this.plan, step, stage), this.g.headDim) }
      : tree.ref(at);
    const [loss, parameters, moments] = run(
      this.state.parameters,
      this.state.moments,
      positions,
      {
        inputs: np.array(batch.inputs, { dtype: np.int32 }),
        targets: np.array(batch.targets, { dtype: np.int32 }),
        weights: np.array(batch.weights),
        repeats: np.array(batch.repeats).reshape([texts, length, length]),
        guide: np.array(guide),
      },
      stepSizes(step, rateOf(this.plan, step)),
    );
    this.state = { parameters, moments };
    const [value] = (await loss.data()) as Float32Array;
    await blockUntilReady(parameters);
    return value as number;
  }
}
