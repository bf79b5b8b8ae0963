/** From listed operations to bound ones: each with its launch options, its dispatches and what it binds. */
import { KERNELS } from '../../../kernels/registry.js';
import type { CacheMap } from '../cache-map.js';
import type { Visit } from '../configuration.js';
import { expand } from '../expand.js';
import type { Op } from '../op.js';
import { runSchedule, type Chunk, type RunOptions } from '../prefill/prefill.js';
import type { Frame, Setting } from './frame.js';
import { PromptFrame, type PromptSetting } from './prompt.js';
import type { BoundVisit } from './refs.js';
import { StepFrame } from './step.js';

/** In order: a frame follows which stream is which, and serves one pass. */
function* bind(f: Frame, visits: Iterable<Visit<Op>>): Generator<BoundVisit> {
  for (const visit of visits) {
    const { label, kernel, variant, binds } = visit.op;
    if (!binds) throw new Error(`the decoder does not execute ${label} (${kernel}, ${variant})`);
    const { options = {}, binds: bound } = binds(f, visit);
    yield { ...visit, options, binds: bound, dispatches: KERNELS[kernel].dispatches?.(options) ?? 1 };
  }
}

/** The operations of a step. @param context tokens of the longest sequence that it is planned for */
export const boundStep = (
  setting: Setting,
  caches: CacheMap,
  context: number,
  visits: Iterable<Visit<Op>>,
): Generator<BoundVisit> => bind(new StepFrame(setting, caches, context), visits);

/** Those of a run of a prompt. @param sequence its number */
export function boundRun(
  setting: PromptSetting,
  caches: CacheMap,
  sequence: number,
  run: Chunk,
  of: RunOptions,
): Generator<BoundVisit> {
  const visits = [...expand(setting.c, runSchedule(setting.c, run, of))];
  return bind(new PromptFrame(setting, caches, sequence, run, visits), visits);
}
