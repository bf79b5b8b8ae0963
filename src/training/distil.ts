/** A whole distillation: steps, the best by held-out KL, a state to go on from, an early end that keeps the best. */
import { existsSync, rmSync } from 'node:fs';
import { setImmediate as turn } from 'node:timers/promises';
import { SafetensorsFile } from '../decoder/safetensors.js';
import { inMemory, listed, type NamedTensor, type TensorSource } from '../decoder/weights.js';
import { safetensorsBytes } from '../decoder/write-safetensors.js';
import { UserError } from '../errors.js';
import { displayPath } from '../io/files.js';
import { bootstrapMean, mean, type Interval } from '../numbers/statistics.js';
import { writeWhole } from '../io/write.js';
import { startJax } from './jax.js';
import type { Setting, Swap } from './cached.js';
import { Distiller, isOnPolicy, type DistilPlan } from './distiller.js';

export interface Distillation {
  readonly setting: Setting;
  readonly swap: Swap;
  readonly plan: DistilPlan;
  /** The model's tensors, rounded as the decoder stores them. */
  readonly model: TensorSource;
  readonly start: TensorSource;
  /** Texts to train on, and others to judge on, of `setting.length` tokens each. */
  readonly texts: readonly (readonly number[])[];
  readonly heldOut: readonly (readonly number[])[];
}

export interface DistilOptions {
  readonly signal: AbortSignal;
  /** File of the state, and what it must be of; none is kept without. */
  readonly state: { readonly path: string; readonly question: string } | null;
  /** After each step. `kl`: held-out KL at first, and the best so far, of the stage. */
  readonly onProgress?: (step: number, made: number, kl: readonly [first: number, best: number]) => void;
}

export interface Distilled {
  readonly tensors: TensorSource;
  /** The step after which it was, 0 where training never helped. */
  readonly bestStep: number;
  /** Steps made in all; fewer than planned after an interruption. */
  readonly steps: number;
  /** KL(teacher ‖ student) on the held-out texts, nats a token, with 95 % bootstrap intervals over texts. */
  readonly before: Interval;
  readonly after: Interval;
  /** The same on what the student draws behind their beginnings, around the on-policy steps; null without any. */
  readonly drawn: { readonly before: Interval; readonly after: Interval } | null;
}

/** Steps between looks at the held-out texts, and between saved states. */
const LOOK_EVERY = 20;
const SEED = 1;
/** Before the names of the best weights in a state. */
const BEST = 'best.';

/** KL of the held-out texts: at first, and with the best weights. */
interface Looks {
  readonly first: readonly number[];
  readonly best: readonly number[];
}

interface Progress {
  step: number;
  readonly forced: Looks;
  /** Over the student's draws, once the steps are on-policy. */
  readonly drawn: Looks | null;
  /** The best weights by the last of the two. */
  readonly bestStep: number;
  readonly tensors: TensorSource;
}

/**
 * Trains. The state is removed once all steps are made.
 * @throws UserError for the state of another distillation, and for a loss that is no number any more
 */
export async function distil(asked: Distillation, { signal, state, onProgress }: DistilOptions): Promise<Distilled> {
  const { setting, swap, plan, model, texts, heldOut } = asked;
  const names = [...asked.start.shapes.keys()];
  await startJax();
  const saved = state ? earlier(state.path, state.question, names) : null;
  const distiller = new Distiller(setting, swap, plan, model, saved?.tensors ?? asked.start, names, texts);
  try {
    const now = async (): Promise<TensorSource> => inMemory(await distiller.weights());
    let at: Progress;
    if (saved) at = saved.progress;
    else {
      const first = await distiller.divergences(heldOut, false);
      at = { step: 0, forced: { first, best: first }, drawn: null, bestStep: 0, tensors: asked.start };
    }
    const save = async (): Promise<void> => {
      if (state) writeWhole(state.path, stateBytes(at, await distiller.saved(), state.question), '--output');
    };
    const from = at.step;
    while (at.step < plan.steps && !signal.aborted) {
      if (at.drawn === null && isOnPolicy(plan, at.step + 1)) {
        // From here on other texts judge: the present weights are the first of them.
        const first = await distiller.divergences(heldOut, true);
        at = { ...at, drawn: { first, best: first }, bestStep: at.step, tensors: await now() };
      }
      await distiller.step(++at.step);
      const stage = at.drawn ? 'drawn' : 'forced';
      if (at.step % LOOK_EVERY === 0 || at.step === plan.steps || (!at.drawn && isOnPolicy(plan, at.step + 1))) {
        const kl = await distiller.divergences(heldOut, at.drawn !== null);
        const { first, best } = at[stage] as Looks;
        if (mean(kl) < mean(best))
          at = { ...at, [stage]: { first, best: kl }, bestStep: at.step, tensors: await now() };
        await save();
      }
      const { first, best } = at[stage] as Looks;
      onProgress?.(at.step, at.step - from, [mean(first), mean(best)]);
      // A signal is heard between turns of the event loop.
      await turn();
    }
    if (at.step < plan.steps) await save();
    else if (state) rmSync(state.path, { force: true });
    const { forced, drawn } = at;
    const after = drawn ? await distiller.divergences(heldOut, false, at.tensors) : forced.best;
    return {
      tensors: at.tensors,
      bestStep: at.bestStep,
      steps: at.step,
      before: bootstrapMean(forced.first, SEED),
      after: bootstrapMean(after, SEED),
      drawn: drawn && { before: bootstrapMean(drawn.first, SEED), after: bootstrapMean(drawn.best, SEED) },
    };
  } finally {
    distiller.close();
  }
}

const stateBytes = (at: Progress, now: readonly NamedTensor[], question: string): Uint8Array =>
  safetensorsBytes([...now, ...listed(at.tensors, BEST)], {
    question,
    step: String(at.step),
    bestStep: String(at.bestStep),
    forced: JSON.stringify(at.forced),
    drawn: JSON.stringify(at.drawn),
  });

/** The state of an earlier run. @throws UserError for one of another distillation */
function earlier(
  path: string,
  question: string,
  names: readonly string[],
): { readonly tensors: TensorSource; readonly progress: Progress } | null {
  if (!existsSync(path)) return null;
  const file = new SafetensorsFile(path);
  try {
    const { metadata } = file;
    if (metadata['question'] !== question)
      throw new UserError(
        `${displayPath(path)} is of a distillation of another model, text or setting`,
        'remove it, or give another --output',
      );
    const all = listed(file);
    const best = names.flatMap((name) => {
      const tensor = all.find((own) => own.name === BEST + name);
      return tensor ? [{ ...tensor, name }] : [];
    });
    const looksOf = (name: string): Looks | null => JSON.parse(metadata[name] ?? 'null') as Looks | null;
    return {
      tensors: inMemory(all),
      progress: {
        step: Number(metadata['step']),
        bestStep: Number(metadata['bestStep']),
        forced: looksOf('forced') as Looks,
        drawn: looksOf('drawn'),
        tensors: inMemory(best),
      },
    };
  } finally {
    file.close();
  }
}
