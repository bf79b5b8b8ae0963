/**
 * Prefill of whole prompts: the operations of schedule/prefill.ts, one prompt after the other. Pass 1 attends to exact
 * keys and values and writes the cache, latents once their loops have accumulated; pass 2 attends to what the cache
 * then holds. What it computes is `prefill(…)` of reference/decoder.ts, of each kind.
 */
import { weighsTokens } from '../../eviction/policy.js';
import { GpuError, type BoundStep, type Buffer } from '../../gpu/index.js';
import { OPERATIONS_OF_A_SUBMISSION } from '../../schedule/prefill-calls.js';
import {
  capturesOf,
  rowsOfRuns,
  runSchedule,
  runsOf,
  type Chunk,
  type RunOptions,
  type WholePrompt,
} from '../../schedule/prefill.js';
import { choiceOf, type Sampling } from '../sampler.js';
import { branchTensor, FINAL_NORM, layerTensor } from '../tensors.js';
import type { Allocation } from './allocations.js';
import {
  adapterProduct,
  chooseTokens,
  embed,
  matrixOf,
  NORM_TENSORS,
  normOf,
  packedBias,
  packedProjection,
  placed,
  plan,
  project,
  projectHead,
  residualOf,
} from './dense.js';
import type { Dispatch, Machine } from './machine.js';
import { branchKeyOf, branchRows, chunkRows, fromOf, ROW_EXECUTORS, type Executor } from './prefill-rows.js';
import { H2O_EXECUTORS } from './prefill-h2o.js';
import { HELD_EXECUTORS } from './prefill-held.js';
import { CAPTURE_EXECUTORS } from './prefill-captured.js';
import { Binder } from './program.js';
import { Prompt } from './prompt.js';
import { expand, type Visit } from '../../schedule/expand.js';

const hiddenRows = (p: Prompt, visit: Visit) => chunkRows(visit, p.m.c.geometry.hidden);

const norm =
  (label: 'attention-norm' | 'mlp-norm'): Executor =>
  (p, visit) =>
    normOf(p.m, visit, layerTensor(placed(visit).stored, NORM_TENSORS[label]), {
      input: p.residual,
      target: p.normed,
    });

/** The addend has overwritten its own input. */
const residual =
  (label: 'attention-residual' | 'mlp-residual'): Executor =>
  (p, visit) =>
    residualOf(p.m, visit, NORM_TENSORS[label], { input: p.normed, target: p.residual });

/** The adapter writes the stream that is free: three of them take turns. */
const adapter: Executor = (p, visit) => {
  const first = placed(visit).loop === 0;
  if (visit.part === 0 && fromOf(visit) === 0) {
    if (first) p.preludeOutput = p.residual;
    p.state = first ? undefined : p.residual;
    [p.residual, p.normed] = [p.normed, p.state ?? p.buffer('stream 2')];
  }
  return adapterRows(p, visit, 'adapter', p.preludeOutput as Buffer);
};
const adapterState: Executor = (p, visit) => adapterRows(p, visit, 'adapter-state', p.state as Buffer);

function adapterRows(p: Prompt, visit: Visit, label: 'adapter' | 'adapter-state', x: Buffer): Promise<Dispatch> {
  const rows = hiddenRows(p, visit);
  const to = { offset: rows.offset, stride: rows.row };
  return adapterProduct(p.m, visit, label, { x, rows, y: p.residual, to });
}

const loopNorm: Executor = async (p, visit) => {
  const dispatch = await normOf(p.m, visit, FINAL_NORM, { input: p.residual, target: p.normed });
  [p.residual, p.normed] = [p.normed, p.residual];
  return dispatch;
};

const packed =
  (label: 'qkv' | 'q' | 'kv'): Executor =>
  (p, visit) =>
    packedProjection(p.m, visit, label, {
      x: p.normed,
      rows: hiddenRows(p, visit),
      y: p.projections,
    });
const bias =
  (label: 'qkv' | 'q' | 'kv'): Executor =>
  (p, visit) =>
    packedBias(p.m, visit, label, p.projections);

/** A projection of the chunk's rows back into the stream; it overwrites their input. */
const back =
  (label: 'attention-out' | 'down'): Executor =>
  (p, visit) => {
    const { hidden } = p.m.c.geometry;
    return project(p.m, visit, {
      ...matrixOf(p.m, label, placed(visit)),
      x: p.results,
      y: p.normed,
      to: { offset: fromOf(visit) * hidden, stride: hidden },
    });
  };

const gateUp: Executor = (p, visit) =>
  project(p.m, visit, {
    ...matrixOf(p.m, 'gate-up', placed(visit)),
    x: p.normed,
    rows: hiddenRows(p, visit),
    y: p.projections,
    to: { offset: 0, stride: 2 * p.m.c.geometry.mlpHidden },
  });

const branchKey: Executor = (p, visit) => {
  const place = placed(visit);
  const at = branchRows(p, visit);
  const outputs = at.stride;
  const pieces = [{ tensor: branchTensor(place.layer, 'key'), outputs, kind: 'codec' as const }];
  return project(p.m, visit, {
    weights: `branch key ${place.layer}`,
    pieces,
    x: p.normed,
    rows: hiddenRows(p, visit),
    y: branchKeyOf(p, place),
    to: at,
  });
};

/** Of the last token alone. */
const lastRow = (p: Prompt): { offset: number; stride: number } => ({
  offset: (p.tokens - 1) * p.m.c.geometry.hidden,
  stride: p.m.c.geometry.hidden,
});
const finalNorm: Executor = (p, visit) =>
  normOf(p.m, visit, FINAL_NORM, { input: p.residual, target: p.normed, placement: { input: lastRow(p) } });
const head: Executor = (p, visit) => {
  const y = p.buffer('logits');
  if (!p.m.c.geometry.normAfterEachLoop) return projectHead(p.m, visit, { x: p.normed, y });
  const { offset, stride } = lastRow(p);
  return projectHead(p.m, visit, { x: p.residual, rows: { offset, row: stride }, y });
};

/** By label of the operation. */
const executorsOf = (sampling: Sampling): Readonly<Record<string, Executor>> => ({
  embedding: (p, visit) => {
    p.beginPass();
    return embed(p.m, visit, p.buffer('tokens'), p.residual);
  },
  adapter,
  'adapter-state': adapterState,
  'attention-norm': norm('attention-norm'),
  'mlp-norm': norm('mlp-norm'),
  'attention-residual': residual('attention-residual'),
  'mlp-residual': residual('mlp-residual'),
  'loop-norm': loopNorm,
  qkv: packed('qkv'),
  q: packed('q'),
  kv: packed('kv'),
  'qkv-bias': bias('qkv'),
  'q-bias': bias('q'),
  'kv-bias': bias('kv'),
  'branch-key': branchKey,
  ...ROW_EXECUTORS,
  ...CAPTURE_EXECUTORS,
  ...H2O_EXECUTORS,
  ...HELD_EXECUTORS,
  'attention-out': back('attention-out'),
  'gate-up': gateUp,
  swiglu: (p, visit) =>
    Promise.resolve({ plan: plan(p.m, visit), buffers: { input: p.projections, output: p.results } }),
  down: back('down'),
  'final-norm': finalNorm,
  'lm-head': head,
  sample: (p, visit) =>
    Promise.resolve(
      chooseTokens(p.m, visit, sampling, {
        logits: p.buffer('logits'),
        tokens: p.buffer('next token'),
        draws: p.buffer('draw'),
      }),
    ),
});

async function compile(
  p: Prompt,
  executors: Readonly<Record<string, Executor>>,
  binder: Binder,
  of: RunOptions,
): Promise<BoundStep[]> {
  const steps: BoundStep[] = [];
  const visits = [...expand(p.m.c, runSchedule(p.m.c, { from: p.before, tokens: p.tokens }, of))];
  p.begin(visits);
  for (const visit of visits) {
    const executor = executors[visit.op.label];
    if (!executor)
      throw new GpuError(
        'unsupported',
        `prefill has no executor for ${visit.op.label} (${visit.op.kernel}, ${visit.op.variant})`,
      );
    steps.push(...(await binder.bind(await executor(p, visit))));
  }
  return steps;
}

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
  { method, prompts, lengths, chunkTokens, sampling, draws, streams, ends }: WholePrompts,
  onStart: () => void,
): Promise<PrefillRun> {
  const runs = prompts.map((tokens, sequence) =>
    tokens.length === 0 ? [] : runsOf(method, lengths[sequence] as number, tokens.length, chunkTokens),
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
  const executors = executorsOf(sampling);
  const choice = choiceOf(sampling);
  let seconds = 0;
  try {
    for (const [sequence, own] of runs.entries()) {
      if (own.length === 0) continue;
      const tokens = prompts[sequence] as readonly number[];
      prompt.sequence = sequence;
      await m.device.write(
        prompt.buffer('draw'),
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
      await m.device.copy(prompt.buffer('next token'), m.buffer('next tokens'), 4, 4 * sequence);
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
  }: { executors: Readonly<Record<string, Executor>>; binder: Binder; onStart: () => void; as: RunOptions },
): Promise<number> {
  const { device } = p.m;
  p.before = run.from;
  p.tokens = run.tokens;
  const steps = await compile(p, executors, binder, as);
  onStart();
  await device.write(p.buffer('tokens'), Uint32Array.from(rest.slice(0, run.tokens)));
  let seconds = 0;
  for (let at = 0; at < steps.length; at += OPERATIONS_OF_A_SUBMISSION) {
    const time = await device.run(steps.slice(at, at + OPERATIONS_OF_A_SUBMISSION));
    seconds += time.gpuSeconds ?? time.wallSeconds;
  }
  binder.free();
  return seconds;
}
