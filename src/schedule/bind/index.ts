/** From listed operations to complete ones: each with its launch options, its dispatches and what it binds. */
import { KERNELS } from '../../../kernels/registry.js';
import type { CacheMap } from '../cache-map.js';
import { expand, type Visit } from '../expand.js';
import { runSchedule, type Chunk, type RunOptions } from '../prefill/prefill.js';
import { ATTENTION } from './attention.js';
import { DENSE, type Binds } from './dense.js';
import type { Frame, Setting } from './frame.js';
import { PREFILL } from './prefill.js';
import { PromptFrame, type PromptSetting } from './prompt.js';
import type { BoundVisit } from './refs.js';
import { ROWS } from './rows.js';
import { StepFrame } from './step.js';

const STEP: Binds<StepFrame> = { ...DENSE, ...ROWS, ...ATTENTION };
const PROMPT: Binds<PromptFrame> = { ...DENSE, ...ROWS, ...PREFILL };

/** In order: a frame follows which stream is which, and serves one pass. */
function* bind<F extends Frame>(f: F, binds: Binds<F>, visits: Iterable<Visit>): Generator<BoundVisit> {
  for (const visit of visits) {
    const { label, kernel, variant } = visit.op;
    const own = binds[label];
    // Some operations are priced for which no kernel was written.
    if (!own) throw new Error(`the decoder does not execute ${label} (${kernel}, ${variant})`);
    const { options = {}, binds: bound } = own(f, visit);
    yield { ...visit, options, binds: bound, dispatches: KERNELS[kernel].dispatches?.(options) ?? 1 };
  }
}

/** The operations of a step. @param context tokens of the longest sequence that it is planned for */
export const boundStep = (
  setting: Setting,
  caches: CacheMap,
  context: number,
  visits: Iterable<Visit>,
): Generator<BoundVisit> => bind(new StepFrame(setting, caches, context), STEP, visits);

/** Those of a run of a prompt. @param sequence its number */
export function boundRun(
  setting: PromptSetting,
  caches: CacheMap,
  sequence: number,
  run: Chunk,
  of: RunOptions,
): Generator<BoundVisit> {
  const visits = [...expand(setting.c, runSchedule(setting.c, run, of))];
  return bind(new PromptFrame(setting, caches, sequence, run, visits), PROMPT, visits);
}
