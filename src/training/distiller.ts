/**
 * Trains a codec's tensors with the model frozen (paper, Sec. "Initialization and conversion" and "On-policy
 * refinement"): AdamW, warm-up and cosine. A step depends on the seed, its number and the state before it alone, so
 * that a resumed training goes on as if it had not stopped.
 */
import { nn, numpy as np, tree } from '@jax-js/jax';
import type { TensorSource } from '../decoder/weights.js';
import { UserError } from '../errors.js';
import { mix } from '../numbers/hash.js';
import { randomFrom } from '../numbers/random.js';
import { stepSizes, update, type Moments } from './adamw.js';
import { parametersFrom, trainedTensors, Training } from './arrays.js';
import { studentPositions, type Setting, type Swap } from './cached.js';
import { compiled, free, withGradients, type Arrays } from './jax.js';
import type { Parameters, Positions } from './looped.js';
import { Rollout, tokenArray } from './rollout.js';
import { distillationLoss, exactPass, studentDivergences, type Frozen } from './student.js';

export interface DistilPlan {
  readonly seed: number;
  readonly steps: number;
  /** The last of the steps, which train on texts that the student itself goes on with. */
  readonly onPolicySteps: number;
  /** Of the student's draws. */
  readonly temperature: number;
  /** Highest learning rate: reached after the warm-up, then falling to 0 by a cosine. */
  readonly rate: number;
  /** λ_attn: weight of attention-output matching; 0 is KL alone. */
  readonly lambdaAttn: number;
  readonly texts: number;
}

/** Whether a step (from 1) trains on the student's own texts. */
export const isOnPolicy = ({ steps, onPolicySteps }: DistilPlan, step: number): boolean => step > steps - onPolicySteps;

/** Share of the steps in which the rate rises. */
const WARM_UP = 0.1;
/**
 * Shares of a text that are prefilled, in a step drawn from between two. Rows of the student's own cost a pass a token,
 * and change little where tokens are forced (docs/fidelity.md), so that few do there.
 */
const FORCED_PROMPTS = [3 / 4, 1] as const;
const DRAWN_PROMPTS = [1 / 4, 3 / 4] as const;
const JUDGED_PROMPT = 3 / 4;
/** Of the draws when texts are judged: the same each time. */
const JUDGED_SEED = 0x6a756467;

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
  rows: Arrays,
  weights: np.Array,
  sizes: np.Array,
) => [np.Array, Parameters, Moments];
type Judge = (p: Parameters, base: Parameters, at: Positions, tokens: np.Array, rows: Arrays) => np.Array;

/** Weights of texts of `length` tokens, of which those from `first` on count. */
function weightsOf(texts: number, length: number, first: number): np.Array {
  const weights = new Float32Array(texts * length);
  for (let i = 0; i < texts; i++) weights.fill(1 / (texts * (length - first)), i * length + first, (i + 1) * length);
  return np.array(weights);
}

export class Distiller extends Training {
  private readonly base: Parameters;
  private readonly at: Positions;
  private readonly rollout: Rollout;
  private readonly run: Step;
  private readonly judge: Judge;

  /**
   * @param model tensors of the model, which stay as they are
   * @param start the codec's tensors to begin with, or what `saved` gave
   * @param names of the codec's tensors
   * @param texts of `setting.length` tokens each
   */
  constructor(
    private readonly setting: Setting,
    swap: Swap,
    private readonly plan: DistilPlan,
    model: TensorSource,
    start: TensorSource,
    names: readonly string[],
    private readonly texts: readonly (readonly number[])[],
  ) {
    super(
      names.map((name) => ({ name, shape: start.shapes.get(name) as readonly number[] })),
      start,
    );
    const g = setting.geometry;
    this.base = parametersFrom(trainedTensors(g), model);
    this.at = studentPositions(setting, swap);
    this.rollout = new Rollout(setting, swap);
    const lossAndGradients = withGradients(distillationLoss(setting, swap, plan.lambdaAttn));
    const frozen = (base: Parameters, at: Positions, tokens: np.Array, rows: Arrays): Omit<Frozen, 'weights'> => {
      const oneHot = nn.oneHot(tokens, g.vocab);
      const exact = exactPass(setting, tree.ref(base), tree.ref(at), oneHot.ref);
      return { base, at, exact, rows, oneHot };
    };
    this.run = compiled<Step>((p, moments, base, at, tokens, rows, weights, sizes) => {
      const [loss, gradients] = lossAndGradients(tree.ref(p), { ...frozen(base, at, tokens, rows), weights });
      return [loss, ...update(p, gradients, moments, sizes)];
    });
    this.judge = compiled<Judge>((p, base, at, tokens, rows) =>
      studentDivergences(setting, swap, p, frozen(base, at, tokens, rows)),
    );
  }

  /** Makes step `step` (from 1). @returns its loss @throws UserError where that is no number any more */
  async step(step: number): Promise<number> {
    const { plan, texts } = this;
    const { length } = this.setting;
    const seed = mix(mix(plan.seed) ^ step);
    const random = randomFrom(seed);
    const batch = Array.from({ length: plan.texts }, () => texts[Math.floor(random() * texts.length)] ?? []);
    const draws = isOnPolicy(plan, step) ? { temperature: plan.temperature, seed } : null;
    const [shortest, longest] = draws ? DRAWN_PROMPTS : FORCED_PROMPTS;
    const prompt = Math.max(1, Math.floor(length * (shortest + (longest - shortest) * random())));
    const rolled = await this.rollout.run(this.state.parameters, this.base, this.at, batch, prompt, draws);
    const [loss, parameters, moments] = this.run(
      this.state.parameters,
      this.state.moments,
      tree.ref(this.base),
      tree.ref(this.at),
      tokenArray(rolled.texts.flat()),
      rolled.rows,
      weightsOf(plan.texts, length, draws ? prompt : 0),
      stepSizes(step, distilRate(plan, step)),
    );
    this.state = { parameters, moments };
    const [value] = (await loss.data()) as Float32Array;
    if (!Number.isFinite(value))
      throw new UserError(`the loss of step ${step} is ${String(value)}`, 'choose a lower --rate');
    return value as number;
  }

  /**
   * KL(teacher ‖ student) of each text's last quarter, nats a token.
   * @param drawn behind that, the student goes on with its own draws
   * @param tensors of the codec; the present ones unless given
   */
  async divergences(
    texts: readonly (readonly number[])[],
    drawn: boolean,
    tensors?: TensorSource,
  ): Promise<readonly number[]> {
    const { length } = this.setting;
    const parameters = tensors ? parametersFrom(this.trained, tensors) : tree.ref(this.state.parameters);
    const prompt = Math.max(1, Math.floor(JUDGED_PROMPT * length));
    const out: number[] = [];
    for (let from = 0; from < texts.length; from += this.plan.texts) {
      // As many as in a step, so that the same programs run; the last are asked again to fill up.
      const batch = Array.from({ length: this.plan.texts }, (_, i) => texts[(from + i) % texts.length] ?? []);
      const draws = drawn ? { temperature: this.plan.temperature, seed: mix(JUDGED_SEED + from) } : null;
      const rolled = await this.rollout.run(parameters, this.base, this.at, batch, prompt, draws);
      const kl = (await this.judge(
        tree.ref(parameters),
        tree.ref(this.base),
        tree.ref(this.at),
        tokenArray(rolled.texts.flat()),
        rolled.rows,
      ).data()) as Float32Array;
      for (let i = 0; i < batch.length && from + i < texts.length; i++) {
        const own = kl.subarray(i * length + prompt, (i + 1) * length);
        out.push(own.reduce((sum, x) => sum + x, 0) / own.length);
      }
    }
    free(parameters);
    return out;
  }

  close(): void {
    const { parameters, moments } = this.state;
    free(parameters, moments.first, moments.second, this.base, this.at);
  }
}
