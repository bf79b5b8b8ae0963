/**
 * Prefill of whole prompts: the operations of schedule/prefill.ts, one prompt after the other. Pass 1 attends to exact
 * keys and values and writes the cache, latents once their loops have accumulated; pass 2 attends to what the cache
 * then holds. What it computes is `prefill(…)` of reference/decoder.ts, of each kind.
 */
import { weighsTokens } from '../../eviction/policy.js';
import { expand } from '../../schedule/expand.js';
import { OPERATIONS_OF_A_SUBMISSION } from '../../schedule/prefill-calls.js';
import {
  capturesOf,
  rowsOfRuns,
  runSchedule,
  runsOf,
  takenAs,
  type Chunk,
  type RunOptions,
  type WholePrompt,
} from '../../schedule/prefill.js';
import { choiceOf, type Sampling } from '../sampler.js';
import type { Allocation } from './allocations.js';
import { denseExecutors, type Executors } from './dense.js';
import type { Machine } from './machine.js';
import { PREFILL_ATTEND_EXECUTORS } from './prefill-attend.js';
import { CAPTURE_EXECUTORS } from './prefill-captured.js';
import { H2O_EXECUTORS } from './prefill-h2o.js';
import { HELD_EXECUTORS } from './prefill-held.js';
import { PREFILL_ROW_EXECUTORS } from './prefill-rows.js';
import { Binder, compile } from './program.js';
import { Prompt } from './prompt.js';
import { ROW_EXECUTORS } from './rows.js';

/** By label of the operation. */
const promptExecutors = (sampling: Sampling): Executors<Prompt> => ({
  ...denseExecutors(sampling),
  ...ROW_EXECUTORS,
  ...PREFILL_ROW_EXECUTORS,
  ...PREFILL_ATTEND_EXECUTORS,
  ...CAPTURE_EXECUTORS,
  ...H2O_EXECUTORS,
  ...HELD_EXECUTORS,
});

export interface PrefillRun {
  /** Seconds of the operations: by timestamps where the device has them, else from submissions to completions. */
  readonly seconds: number;
  /** The buffers that it had beside the decoder's own; they are freed. */
  readonly allocations: readonly Allocation[];
}

export interface WholePrompts {
  readonly method: WholePrompt;
  /** One a sequence, and the tokens that it has already. */
  readonly prompts: readonly (readonly number[])[];
  readonly lengths: readonly number[];
  readonly chunkTokens: number;
  /** How the first tokens are chosen, and the number of each sequence's draw. */
  readonly sampling: Sampling;
  readonly draws: readonly number[];
  /** Stream of random draws of each sequence. */
  readonly streams: readonly number[];
  /** False where more of the prompts follows: neither logits nor tokens are made. */
  readonly ends: boolean;
}

const longest = (tokens: readonly number[]): number => tokens.reduce((a, b) => Math.max(a, b), 0);

/**
 * Writes the caches of all sequences, behind what they hold, and the logits and the token after each prompt. An empty
 * prompt leaves its sequence alone.
 * @param onStart called before the first submission of each run: a failure before then has changed nothing
 * @throws GpuError `out-of-memory` or `unsupported` for a prompt that does not fit beside the decoder
 */
export async function prefillPrompts(
  m: Machine,
  { prompts, lengths, sampling, draws, streams, ends, ...asked }: WholePrompts,
  onStart: () => void,
): Promise<PrefillRun> {
  const taken = takenAs(m.c, asked.method, asked.chunkTokens);
  const { method, chunkTokens } = taken;
  const runs = prompts.map((tokens, sequence) =>
    tokens.length === 0 ? [] : runsOf(taken, lengths[sequence] as number, tokens.length),
  );
  // Pieces of what is before a run are as long as a chunk, however short the run.
  const room =
    method === 'chunked'
      ? Math.min(chunkTokens, longest(runs.flat().map(({ from, tokens }) => from + tokens)))
      : longest(runs.flat().map(({ tokens }) => tokens));
  const rows = Math.max(room, rowsOfRuns(m.c, runs.flat()));
  const prompt = await Prompt.open(m, {
    room,
    rows,
    chunkTokens,
    captures: capturesOf(m.c, method),
    carries: !weighsTokens(m.c.eviction) && runs.flat().some(({ from }) => from > 0),
  });
  const binder = new Binder(m.device, m.buffer('unused'));
  const { vocab } = m.c.geometry;
  const executors = promptExecutors(sampling);
  const choice = choiceOf(sampling);
  let seconds = 0;
  try {
    for (const [sequence, own] of runs.entries()) {
      if (own.length === 0) continue;
      const tokens = prompts[sequence] as readonly number[];
      prompt.sequence = sequence;
      await m.device.write(
        prompt.buffer('draws'),
        Uint32Array.of(streams[sequence] as number, draws[sequence] as number),
      );
      for (const run of own) {
        const rest = tokens.slice(run.from - (lengths[sequence] as number));
        seconds += await takeIn(prompt, run, rest, {
          executors,
          binder,
          onStart,
          as: {
            batch: 1,
            chunkTokens,
            method,
            ends: ends && run.tokens === rest.length,
            slots: m.caches.slots.capacity,
            choice,
          },
        });
      }
      if (!ends) continue;
      await m.device.copy(prompt.buffer('logits'), m.buffer('logits'), 4 * vocab, 4 * sequence * vocab);
      await m.device.copy(prompt.buffer('next tokens'), m.buffer('next tokens'), 4, 4 * sequence);
    }
    return { seconds, allocations: prompt.allocations.table };
  } finally {
    binder.free();
    prompt.allocations.free();
  }
}

/** One run of a prompt. @param rest of the prompt from the run on @returns seconds of its operations */
async function takeIn(
  p: Prompt,
  run: Chunk,
  rest: readonly number[],
  {
    executors,
    binder,
    onStart,
    as,
  }: { executors: Executors<Prompt>; binder: Binder; onStart: () => void; as: RunOptions },
): Promise<number> {
  const { device } = p;
  p.before = run.from;
  p.tokens = run.tokens;
  const visits = [...expand(p.c, runSchedule(p.c, run, as))];
  p.begin(visits);
  const steps = (await compile(p, executors, binder, visits)).flatMap((operation) => operation.steps);
  onStart();
  await device.write(p.buffer('tokens'), Uint32Array.from(rest.slice(0, run.tokens)));
  let seconds = 0;
  for (let at = 0; at < steps.length; at += OPERATIONS_OF_A_SUBMISSION) {
    const time = await device.run(steps.slice(at, at + OPERATIONS_OF_A_SUBMISSION));
    seconds += time.deviceSeconds ?? time.wallSeconds;
  }
  binder.free();
  return seconds;
}
