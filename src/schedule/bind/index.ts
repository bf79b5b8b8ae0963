/** From listed operations to complete ones: each with its launch options and what it binds. */
import type { Visit } from '../expand.js';
import { ATTENTION } from './attention.js';
import { DENSE, type Binds } from './dense.js';
import type { Frame } from './frame.js';
import { PREFILL } from './prefill.js';
import type { PromptFrame } from './prompt.js';
import type { BoundVisit } from './refs.js';
import { ROWS } from './rows.js';
import type { StepFrame } from './step.js';

const STEP: Binds<StepFrame> = { ...DENSE, ...ROWS, ...ATTENTION };
const PROMPT: Binds<PromptFrame> = { ...DENSE, ...ROWS, ...PREFILL };

function* bind<F extends Frame>(f: F, binds: Binds<F>, visits: Iterable<Visit>): Generator<BoundVisit> {
  for (const visit of visits) {
    const { label, kernel, variant } = visit.op;
    const own = binds[label];
    // Some operations are priced for which no kernel was written.
    if (!own) throw new Error(`the decoder does not execute ${label} (${kernel}, ${variant})`);
    yield { ...visit, ...own(f, visit) };
  }
}

/** The operations of a step, in order. The frame follows which stream is which, so that it serves one pass. */
export const bindStep = (f: StepFrame, visits: Iterable<Visit>): Generator<BoundVisit> => bind(f, STEP, visits);

/** Those of a run of a prompt. */
export const bindPrompt = (f: PromptFrame, visits: Iterable<Visit>): Generator<BoundVisit> => bind(f, PROMPT, visits);
