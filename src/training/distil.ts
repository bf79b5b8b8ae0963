/** A whole distillation: steps, the best by held-out KL, a state to go on from, an early end that keeps the best. */
import { existsSync, rmSync } from 'node:fs';
import { setImmediate as turn } from 'node:timers/promises';
import { SafetensorsFile } from '../decoder/safetensors.js';
import type { TensorSource } from '../decoder/weights.js';
import { safetensorsBytes, type NamedTensor } from '../decoder/write-safetensors.js';
import { UserError } from '../errors.js';
import { displayPath } from '../files.js';
import { sourceOf } from '../fit/fit.js';
import { bootstrapMean, type Interval } from '../statistics.js';
import { writeWhole } from '../write.js';
import { startJax } from './arrays.js';
import { Distiller, type DistilPlan } from './distiller.js';
import type { Setting, Swap } from './student.js';

export interface Distillation {
  readonly setting: Setting;
  readonly swap: Swap;
  readonly plan: DistilPlan;
  /** The model's tensors, rounded as the decoder stores them. */
  readonly model: TensorSource;
  /** The codec's tensors to begin with. */
  readonly start: TensorSource;
  /** Texts to train on, and others to judge on, of `setting.length` tokens each. */
  readonly texts: readonly (readonly number[])[];
  readonly heldOut: readonly (readonly number[])[];
}

export interface DistilOptions {
  readonly signal: AbortSignal;
  /** File of the state, and what it must be of; none is kept without. */
  readonly state: { readonly path: string; readonly question: string } | null;
  /** After each step. `kl`: held-out KL at first, and the best so far. */
  readonly onProgress?: (step: number, made: number, kl: readonly [first: number, best: number]) => void;
}

export interface Distilled {
  /** The best. */
  readonly tensors: TensorSource;
  /** The step after which it was, 0 where training never helped. */
  readonly bestStep: number;
  /** Steps made in all; fewer than planned after an interruption. */
  readonly steps: number;
  /** KL(teacher ‖ student) on the held-out texts, nats a token, with 95 % bootstrap intervals over texts. */
  readonly before: Interval;
  readonly after: Interval;
}

/** Steps between looks at the held-out texts, and between saved states. */
const LOOK_EVERY = 20;
const SEED = 1;

interface Progress {
  step: number;
  first: number[];
  best: number[];
  bestStep: number;
  tensors: TensorSource;
}

const named = (source: TensorSource, names: readonly string[], prefix: string): NamedTensor[] =>
  names.map((name) => ({ name: prefix + name, shape: source.shapes.get(name) ?? [], values: source.read(name) }));

const mean = (values: readonly number[]): number => values.reduce((sum, x) => sum + x, 0) / values.length;

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
    const look = async (): Promise<number[]> => {
      const kl: number[] = [];
      for (const text of heldOut) kl.push(await distiller.divergenceOn(text));
      return kl;
    };
    let at: Progress;
    if (saved) at = saved.progress;
    else {
      const first = await look();
      at = { step: 0, first, best: first, bestStep: 0, tensors: asked.start };
    }
    const save = async (): Promise<void> => {
      if (state) writeWhole(state.path, stateBytes(at, await distiller.state(), names, state.question), '--output');
    };
    const from = at.step;
    while (at.step < plan.steps && !signal.aborted) {
      await distiller.step(++at.step);
      if (at.step % LOOK_EVERY === 0 || at.step === plan.steps) {
        const kl = await look();
        if (mean(kl) < mean(at.best)) {
          const best = await distiller.tensors();
          at = { ...at, best: kl, bestStep: at.step, tensors: sourceOf(new Map(best.map((t) => [t.name, t]))) };
        }
        await save();
      }
      onProgress?.(at.step, at.step - from, [mean(at.first), mean(at.best)]);
      // A signal is heard between turns of the event loop.
      await turn();
    }
    if (at.step < plan.steps) await save();
    else if (state) rmSync(state.path, { force: true });
    return {
      tensors: at.tensors,
      bestStep: at.bestStep,
      steps: at.step,
      before: bootstrapMean(at.first, SEED),
      after: bootstrapMean(at.best, SEED),
    };
  } finally {
    distiller.close();
  }
}

const stateBytes = (
  at: Progress,
  now: readonly NamedTensor[],
  names: readonly string[],
  question: string,
): Uint8Array =>
  safetensorsBytes([...now, ...named(at.tensors, names, 'best.')], {
    question,
    step: String(at.step),
    bestStep: String(at.bestStep),
    first: JSON.stringify(at.first),
    best: JSON.stringify(at.best),
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
    const all = new Map([...file.shapes].map(([name, shape]) => [name, { shape, values: file.read(name) }]));
    const best = new Map(
      names.flatMap((name) => {
        const tensor = all.get(`best.${name}`);
        return tensor ? [[name, tensor] as const] : [];
      }),
    );
    const listOf = (name: string): number[] => JSON.parse(metadata[name] ?? '[]') as number[];
    return {
      tensors: sourceOf(all),
      progress: {
        step: Number(metadata['step']),
        bestStep: Number(metadata['bestStep']),
        first: listOf('first'),
        best: listOf('best'),
        tensors: sourceOf(best),
      },
    };
  } finally {
    file.close();
  }
}
