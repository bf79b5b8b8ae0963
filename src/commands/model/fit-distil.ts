/** `fit --distil`: its options, and the training of a fitted codec against the model. */
import type { Branch, Codec, Path } from '../../codecs/codec.js';
import { pathOf, pathSpec } from '../../codecs/paths.js';
import { UserError } from '../../errors.js';
import type { Need } from '../../fidelity/claims/claim.js';
import { branchTensors } from '../../fit/branch.js';
import { exactConfiguration, tensorsOf, type Teacher } from '../../fit/capture.js';
import { LAMBDA_ATTN, refuseDistil } from '../../fit/distillable.js';
import { combined, inMemory, type TensorSource } from '../../decoder/index.js';
import type { Geometry } from '../../geometry/geometry.js';
import { randomFrom } from '../../numbers/random.js';
import { sha256 } from '../../numbers/sha256.js';
import type { Swap } from '../../training/cached.js';
import type { Distillation, Distilled } from '../../training/distil.js';
import type { DistilPlan } from '../../training/distiller.js';
import { option, toggle, type Args, type OptionTable } from '../command.js';
import type { ProgressLine } from '../output.js';

const PATHS = ['reconstruct', 'block-absorbed', 'absorbed'] as const;
const DEFAULT_STEPS = '200';
const DEFAULT_RATE = '0.002';
const DEFAULT_TEMPERATURE = '1';
/** Latents that were trained to serve all tokens are as good beside a window (docs/later-codecs.md). */
const DEFAULT_EXACT = '0';
/** Tokens of a step. */
const STEP_TOKENS = 512;
/** Share of the windows that are held out, to choose the best weights by. */
const HELD_OUT = 1 / 8;
const BRANCH_SEED = 1;
/** Share of the steps that --on-policy is about: the last ones. */
const ON_POLICY = 1 / 2;

export const DISTIL_OPTIONS: OptionTable = {
  distil: toggle(
    'train the fitted weights until the model with them predicts as without; small models, on the CPU',
    'Training',
  ),
  path: option('decode path that the weights are for; absorbed has a rotary branch [reconstruct]', 'Training', {
    choices: PATHS,
  }),
  steps: option(`steps of the training [${DEFAULT_STEPS}]`, 'Training'),
  rate: option(`highest learning rate [${DEFAULT_RATE}]`, 'Training'),
  'lambda-attn': option(
    `λ_attn, weight of attention-output matching in the loss; 0 is KL alone [${LAMBDA_ATTN}]`,
    'Training',
  ),
  'on-policy': toggle(
    'the last half of the steps trains on texts that the model with the codec goes on with itself',
    'Training',
  ),
  'exact-tokens': option(`last tokens that hla attends to exactly in the training [${DEFAULT_EXACT}]`, 'Training'),
  temperature: option(`at which --on-policy draws them [${DEFAULT_TEMPERATURE}]`, 'Training'),
};

/** Options that say how a training is made. */
const OF_TRAINING = ['steps', 'rate', 'lambda-attn', 'on-policy', 'temperature', 'exact-tokens'] as const;

export interface DistilQuestion extends Omit<DistilPlan, 'seed' | 'texts'> {
  /** Of codecs with an exact window: its tokens in the training. */
  readonly windowTokens?: number;
}

/** What is asked of the training; null where none is. @throws UserError for a model or codec that it is not for */
export function readDistil(args: Args, geometry: Geometry, codec: Codec, path: Path): DistilQuestion | null {
  if (!args.isSet('distil')) {
    const given = OF_TRAINING.find((name) => args.flags[name] !== undefined && args.flags[name] !== false);
    if (given) throw new UserError(`--${given} is of a training, and there is none`, 'add --distil');
    return null;
  }
  const reason = refuseDistil(geometry, codec, path);
  if (reason !== undefined) throw new UserError(`--distil: ${reason}`, 'leave --distil out');
  const onPolicy = args.isSet('on-policy');
  if (!onPolicy && args.text('temperature') !== null)
    throw new UserError('--temperature is of drawn texts, and none are drawn', 'add --on-policy');
  const windowed = codec.windowTokens !== undefined;
  if (!windowed && args.text('exact-tokens') !== null)
    throw new UserError(`--exact-tokens lie beside the latents of hla, and not of ${codec.kind}`, 'leave it out');
  const steps = args.number('steps', DEFAULT_STEPS, { min: 1, max: 1e6, whole: true });
  return {
    steps,
    onPolicySteps: onPolicy ? Math.ceil(ON_POLICY * steps) : 0,
    temperature: args.number('temperature', DEFAULT_TEMPERATURE, { min: 0.01, max: 100 }),
    rate: args.number('rate', DEFAULT_RATE, { min: 1e-9, max: 1 }),
    lambdaAttn: args.number('lambda-attn', String(LAMBDA_ATTN), { min: 0, max: 1e6 }),
    ...(windowed
      ? { windowTokens: args.number('exact-tokens', DEFAULT_EXACT, { min: 0, max: 1e6, whole: true }) }
      : {}),
  };
}

/** Windows to fit and train on, and those to choose the best weights by; all of one length. */
export function heldOutOf(windows: DistilRun['texts']): Pick<DistilRun, 'texts' | 'heldOut'> {
  const length = windows[0]?.length ?? 0;
  const whole = windows.filter((window) => window.length === length);
  const count = Math.ceil(whole.length * HELD_OUT);
  if (whole.length < 2 || length < 2)
    throw new UserError(
      `a text of ${whole.length} ${whole.length === 1 ? 'window' : 'windows'} of ${length} tokens leaves none to ` +
        'judge on',
      'give a longer text, or a smaller --window',
    );
  return { texts: whole.slice(0, whole.length - count), heldOut: whole.slice(whole.length - count) };
}

/** The tensors of a codec on a path: those that were fitted, and an untrained rotary branch where the path has one. */
export const onPath = (teacher: Teacher, path: Path, branch: Branch, fitted: TensorSource): TensorSource =>
  pathSpec(path).branch
    ? combined(fitted, inMemory(branchTensors(teacher.geometry, branch, tensorsOf(teacher), randomFrom(BRANCH_SEED))))
    : fitted;

/** `start`: the codec's tensors on that path. */
export interface DistilRun extends Swap, Pick<Distillation, 'start' | 'texts' | 'heldOut'> {
  readonly teacher: Teacher;
  readonly seed: number;
}

/** @param stepTokens of a step, about: its texts are whole */
function distillationOf(run: DistilRun, { windowTokens, ...asked }: DistilQuestion, stepTokens: number): Distillation {
  const { teacher, path, branch, start, texts, heldOut, seed } = run;
  const codec = windowTokens === undefined ? run.codec : { ...run.codec, windowTokens };
  const length = (texts[0] as readonly number[]).length;
  return {
    setting: { geometry: teacher.geometry, normEpsilon: teacher.normEpsilon, length },
    swap: { codec, path, branch },
    plan: { ...asked, seed, texts: Math.max(1, Math.round(stepTokens / length)) },
    model: tensorsOf(teacher),
    ...{ start, texts, heldOut },
  };
}

/**
 * Trains. What trains is loaded here, so that other commands do not wait for it.
 * @param model fingerprint of the model
 * @param state its file
 */
export async function distilCodec(
  run: DistilRun,
  asked: DistilQuestion,
  model: string,
  state: string,
  signal: AbortSignal,
  line: ProgressLine,
): Promise<Distilled> {
  const { distil } = await import('../../training/distil.js');
  const distillation = distillationOf(run, asked, STEP_TOKENS);
  const { swap, plan, texts, heldOut } = distillation;
  const question = sha256(JSON.stringify([model, swap, plan, texts, heldOut]));
  const began = Date.now();
  return distil(distillation, {
    signal,
    state: { path: state, question },
    onProgress: (step, made, [first, best]) => {
      const elapsed = (Date.now() - began) / 1e3;
      const left = (elapsed / made) * (asked.steps - step);
      const stage = step > asked.steps - asked.onPolicySteps ? 'KL of its own texts' : 'held-out KL';
      const doing = `step ${step} of ${asked.steps}, ${stage} ${first.toPrecision(3)} -> ${best.toPrecision(3)}`;
      line.time(elapsed, left, doing);
    },
  });
}

/** A training for the claims: the first steps bring most of what training brings. */
export const CLAIM_TRAINING = { steps: 40, textTokens: 96, stepTokens: 288 } as const;
/** Held-out texts that choose its best weights. */
const CLAIM_HELD_OUT = 12;

/** A short training of fitted weights. */
export function claimDistillation(
  teacher: Teacher,
  { row, training }: Need,
  fitted: TensorSource,
  windows: readonly (readonly number[])[],
): Distillation {
  const { path } = pathOf(row.path);
  const branch = row.branch ?? exactConfiguration(teacher).branch;
  const { texts, heldOut } = heldOutOf(windows);
  const { steps, stepTokens } = CLAIM_TRAINING;
  return distillationOf(
    {
      ...{ teacher, codec: row.codec, path, branch, texts },
      heldOut: heldOut.slice(0, CLAIM_HELD_OUT),
      start: onPath(teacher, path, branch, fitted),
      seed: 1,
    },
    {
      steps,
      onPolicySteps: training?.onPolicy ? ON_POLICY * steps : 0,
      temperature: Number(DEFAULT_TEMPERATURE),
      rate: Number(DEFAULT_RATE),
      lambdaAttn: training?.lambdaAttn ?? LAMBDA_ATTN,
    },
    stepTokens,
  );
}
