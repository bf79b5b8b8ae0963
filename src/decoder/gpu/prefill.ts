/**
 * Prefill of whole prompts: the operations of schedule/prefill.ts, one prompt after the other. Pass 1 attends to exact keys and values and
 * writes the cache, latents once their loops have accumulated; pass 2 attends to what the cache then holds. What it computes is
 * `prefill(…, 'accumulated')` of reference/decoder.ts. Kinds that capture bring operations of their own (prefill-captured.ts).
 */
import { isLatent } from '../../codecs/registry.js';
import { GpuError, planOperation, type BoundStep, type Buffer } from '../../gpu/index.js';
import type { AppendOptions } from '../../gpu/operations/append.js';
import type { Rows } from '../../gpu/operations/matmul.js';
import { spansLoops } from '../../schedule/configuration.js';
import { readsLatents } from '../../schedule/eviction-ops.js';
import { keepsRows, prefillSchedule, type CapturingKind } from '../../schedule/prefill.js';
import type { Configuration, Schedule } from '../../schedule/schedule.js';
import { ADAPTER, branchTensor, FINAL_NORM, layerTensor, type CodecAxis } from '../tensors.js';
import type { Allocation } from './allocations.js';
import { rotary } from './attention.js';
import type { CacheRole } from './caches.js';
import { embed, matrixOf, packedProjection, placed, plan, project, projectHead } from './dense.js';
import { branchHeads, latentRows, rankOf, restore, restoredLoops, rotateRestored } from './latent.js';
import type { Dispatch, Machine, Vectors } from './machine.js';
import { Binder } from './program.js';
import { keptSlots, Prompt } from './prompt.js';
import { walk, type Place, type Visit } from './walk.js';

/** Steps of one submission: a whole prompt would keep a device busy for longer than its watchdog allows. */
const STEPS_OF_A_SUBMISSION = 256;

export type Executor = (p: Prompt, visit: Visit) => Promise<readonly Dispatch[]>;

export const fromOf = ({ op }: Visit): number => op.from ?? 0;
const loopOf = (visit: Visit): number => visit.op.loop ?? placed(visit).loop;
export const rowsOf = ({ op }: Visit): number => (op.shape.m ?? op.shape.rows ?? op.shape.queries) as number;
/** Rows of a chunk in a buffer that has those of the whole prompt. */
const chunkRows = (visit: Visit, width: number): Required<Pick<Rows, 'offset' | 'row'>> => ({ offset: fromOf(visit) * width, row: width });
const hiddenRows = (p: Prompt, visit: Visit) => chunkRows(visit, p.m.c.geometry.hidden);
const ownLayer = (p: Prompt, place: Place): number => (spansLoops(p.m.c) ? place.layer : 0);
/** The latents of a chunk: in an accumulator of the whole prompt, or made of all loops at once where attention's output will be. */
const latentsOf = (p: Prompt, visit: Visit, axis: CodecAxis): { rows: Buffer; at: Vectors } => {
  const stride = latentRows(p.m) * rankOf(p.m, axis);
  if (p.captures) return { rows: p.results, at: { offset: 0, stride } };
  return { rows: p.buffer(`latent ${axis} ${ownLayer(p, placed(visit))}`), at: { offset: fromOf(visit) * stride, stride } };
};
const branchKeyOf = (p: Prompt, place: Place): Buffer => p.buffer(`branch key ${ownLayer(p, place)}`);
const isCoreLatent = (p: Prompt, place: Place): boolean => place.block.name === 'core' && isLatent(p.m.c.codec);

const norm =
  (tensorOf: (visit: Visit) => string): Executor =>
  async (p, visit) => [{ plan: plan(p.m, visit.op, { eps: p.m.normEpsilon }), buffers: { input: p.residual, weight: await p.m.weights.norm(tensorOf(visit)), target: p.normed } }];

/** x += n(y), or x += y: y has taken the place of what it was made from. */
const residual =
  (part: string): Executor =>
  async (p, visit) => {
    const buffers = { input: p.normed, target: p.residual };
    const planned = plan(p.m, visit.op, { eps: p.m.normEpsilon });
    return [{ plan: planned, buffers: visit.op.variant === 'add' ? buffers : { ...buffers, weight: await p.m.weights.norm(layerTensor(placed(visit).stored, part)) } }];
  };

/** [state; prelude's output] W into the stream that is free: three of them take turns. */
const adapter: Executor = async (p, visit) => {
  const { hidden } = p.m.c.geometry;
  const first = placed(visit).loop === 0;
  if (visit.part === 0 && fromOf(visit) === 0) {
    if (first) p.preludeOutput = p.residual;
    p.state = first ? undefined : p.residual;
    [p.residual, p.normed] = [p.normed, p.state ?? p.buffer('stream 2')];
  }
  const rows = hiddenRows(p, visit);
  const of = { weights: 'adapter', pieces: [{ tensor: ADAPTER, outputs: hidden }], rows, y: p.residual, to: { offset: rows.offset, stride: hidden } };
  const kept = await project(p.m, visit, { ...of, x: p.preludeOutput as Buffer, inputs: { from: hidden, count: hidden } });
  return p.state ? [kept, await project(p.m, visit, { ...of, x: p.state, inputs: { from: 0, count: hidden }, accumulate: true })] : [kept];
};

const loopNorm: Executor = async (p, visit) => {
  const dispatches = await norm(() => FINAL_NORM)(p, visit);
  [p.residual, p.normed] = [p.normed, p.residual];
  return dispatches;
};

const packed =
  (label: 'qkv' | 'q' | 'kv'): Executor =>
  (p, visit) =>
    packedProjection(p.m, visit, label, { x: p.normed, rows: hiddenRows(p, visit), y: p.projections, count: rowsOf(visit) });

/** A projection of the chunk's rows back into the stream, in place of what they were made from. */
const back =
  (label: 'attention-out' | 'down'): Executor =>
  async (p, visit) => {
    const { hidden } = p.m.c.geometry;
    return [await project(p.m, visit, { ...matrixOf(p.m, label, placed(visit)), x: p.results, y: p.normed, to: { offset: fromOf(visit) * hidden, stride: hidden } })];
  };

const gateUp: Executor = async (p, visit) => [
  await project(p.m, visit, { ...matrixOf(p.m, 'gate-up', placed(visit)), x: p.normed, rows: hiddenRows(p, visit), y: p.projections, to: { offset: 0, stride: 2 * p.m.c.geometry.mlpHidden } }),
];

const branchKey: Executor = async (p, visit) => {
  const place = placed(visit);
  const outputs = branchHeads(p.m) * p.m.c.branch.width;
  const pieces = [{ tensor: branchTensor(place.layer, 'key'), outputs, kind: 'codec' as const }];
  return [await project(p.m, visit, { weights: `branch key ${place.layer}`, pieces, x: p.normed, rows: hiddenRows(p, visit), y: branchKeyOf(p, place), to: { offset: fromOf(visit) * outputs, stride: outputs } })];
};

/** c (+)= x_t W_down,t of the chunk, of keys before their rotation. */
const encode =
  (axis: CodecAxis): Executor =>
  async (p, visit) => {
    const { m } = p;
    const from = axis === 'key' ? m.packed.keys : m.packed.values;
    const x: Rows = { offset: from.offset, row: from.stride, group: m.c.geometry.headDim };
    const { rows, at } = latentsOf(p, visit, axis);
    const y: Rows = { offset: at.offset, row: at.stride, group: rankOf(m, axis) };
    const weights = await m.weights.down(placed(visit).layer, loopOf(visit), axis);
    return [{ plan: plan(p.m, visit.op, { matmul: { x, y, accumulate: spansLoops(m.c) && loopOf(visit) > 0 } }), buffers: { x: p.projections, weights, y: rows } }];
  };

/** Rotation in place, of rows at their positions. */
export const rotate =
  (turns: (p: Prompt) => Buffer, of: (p: Prompt, visit: Visit) => { data: Vectors; buffer: Buffer }): Executor =>
  (p, visit) => {
    const { data, buffer } = of(p, visit);
    const planned = plan(p.m, visit.op, { ...rotary(p.m), rope: { data, positionOffset: fromOf(visit) } });
    return Promise.resolve([{ plan: planned, buffers: { positions: p.buffer('positions'), turns: turns(p), data: buffer, target: p.m.buffer('unused output') } }]);
  };
const headTurns = (p: Prompt): Buffer => p.m.turns(p.m.c.geometry.headDim);
const branchTurns = (p: Prompt): Buffer => p.m.turns(p.m.c.branch.width);

/** Writes rows of the chunk behind those of the chunks before it. */
function append(p: Prompt, visit: Visit, to: { cache: Buffer; capacity: number; firstSequence: number }, from: { rows: Buffer; at: Vectors; bias?: Buffer; heads?: number }): Dispatch {
  const { op } = visit;
  const options: AppendOptions = {
    capacity: to.capacity, chunk: rowsOf(visit), first: fromOf(visit), firstSequence: to.firstSequence,
    rowOffset: from.at.offset, rowStride: from.at.stride, ...(from.bias ? { bias: true } : {}),
  };
  const planned = plan(p.m, { ...op, shape: { ...op.shape, heads: from.heads ?? (op.shape.heads as number) } }, { append: options });
  // The positions begin with 0.
  return { plan: planned, buffers: { tokens: p.buffer('positions'), rows: from.rows, ...(from.bias ? { bias: from.bias } : {}), cache: to.cache } };
}

function inCache(p: Prompt, role: CacheRole, place: Place, loop = place.loop): { cache: Buffer; capacity: number; firstSequence: number } {
  const { index, first } = p.m.caches.partOf(place.block.name, p.sequence);
  return { cache: p.m.caches.buffer(role, place, loop, index), capacity: p.m.caches.slots.capacity, firstSequence: p.sequence - first };
}

/** Rows as attention reads them, in memory of their own. */
export const keep =
  (side: 'keys' | 'values'): Executor =>
  (p, visit) =>
    Promise.resolve([append(p, visit, { cache: p.kept(side, visit), capacity: keptSlots(p.longest), firstSequence: 0 }, { rows: p.projections, at: p.m.packed[side] })]);

/** A token's rows join the cache: of full width as they were projected, or centred latents, or the rows of all loops that a latent stands for. */
const appendRows =
  (axis: CodecAxis): Executor =>
  async (p, visit) => {
    const place = placed(visit);
    const { m } = p;
    if (!isCoreLatent(p, place)) return [append(p, visit, inCache(p, axis, place), { rows: p.projections, at: m.packed[axis === 'key' ? 'keys' : 'values'] })];
    if (m.c.path === 'fast') {
      const loops = await restoredLoops(m, place, axis);
      return loops.map(({ loop, ...from }) => append(p, visit, inCache(p, axis, place, loop), { rows: p.projections, heads: m.c.geometry.kvHeads, ...from }));
    }
    const bias = await m.weights.centre(place.layer, place.loop, axis);
    return [append(p, visit, inCache(p, axis === 'key' ? 'key-latent' : 'value-latent', place), { ...latentsOf(p, visit, axis), bias })];
  };

const appendBranch: Executor = (p, visit) => {
  const place = placed(visit);
  const { offset, row } = chunkRows(visit, branchHeads(p.m) * p.m.c.branch.width);
  return Promise.resolve([append(p, visit, inCache(p, 'rotary-key', place), { rows: branchKeyOf(p, place), at: { offset, stride: row } })]);
};

const restoreRows =
  (axis: CodecAxis): Executor =>
  (p, visit) => {
    const { rows, at } = latentsOf(p, visit, axis);
    return restore(p.m, visit, axis, { x: rows, first: at.offset, y: p.projections });
  };

/** Stored rows of the chunk, as floats. */
export function load(p: Prompt, visit: Visit, from: ReturnType<typeof inCache>, to: { rows: Buffer; at: Vectors }): Dispatch {
  const { cache, capacity, firstSequence } = from;
  return { plan: plan(p.m, visit.op, { load: { capacity, chunk: rowsOf(visit), first: fromOf(visit), firstSequence, output: to.at } }), buffers: { cache, rows: to.rows } };
}

/** Latents go where attention's output will be; rows of full width take the place of the chunk's own. */
const loadRows =
  (axis: CodecAxis): Executor =>
  (p, visit) => {
    const side = axis === 'key' ? 'keys' : 'values';
    const latents = readsLatents(p.m.c, placed(visit).block);
    const from = inCache(p, latents ? (axis === 'key' ? 'key-latent' : 'value-latent') : axis, placed(visit), loopOf(visit));
    const to = latents ? { rows: p.results, at: { offset: 0, stride: latentRows(p.m) * rankOf(p.m, axis) } } : { rows: p.projections, at: p.m.packed[side] };
    return Promise.resolve([load(p, visit, from, to)]);
  };

const loadBranch: Executor = (p, visit) => {
  const { offset, row } = chunkRows(visit, branchHeads(p.m) * p.m.c.branch.width);
  return Promise.resolve([load(p, visit, inCache(p, 'rotary-key', placed(visit)), { rows: branchKeyOf(p, placed(visit)), at: { offset, stride: row } })]);
};

/** W_up,t c + mu_t of latents that were read back, in place of the chunk's own keys or values. */
const reconstruct =
  (axis: CodecAxis): Executor =>
  async (p, visit) => {
    const { m } = p;
    const [{ layer }, loop] = [placed(visit), loopOf(visit)];
    const { kvHeads, headDim } = m.c.geometry;
    const at = m.packed[axis === 'key' ? 'keys' : 'values'];
    const rank = rankOf(m, axis);
    const shared = latentRows(m) === 1;
    // The matrices that decoding has: by row for keys, which it rebuilds or absorbs, by column for values that follow the sum.
    const byRow = axis === 'key' || m.c.materialised;
    const weights = byRow ? await m.weights.upRows(layer, loop, axis) : await m.weights.upColumns(layer, loop, axis);
    const x: Rows = { row: latentRows(m) * rank, group: shared ? 0 : rank };
    const op = { ...visit.op, shape: { ...visit.op.shape, groups: kvHeads, n: headDim } };
    const product = plan(p.m, op, { matmul: { x, y: { offset: at.offset, row: at.stride, group: headDim }, transposed: byRow } });
    const mean = planOperation({ kernel: 'rmsnorm', variant: 'add', shape: { rows: rowsOf(visit), width: kvHeads * headDim } }, { placement: { input: { offset: 0, stride: 0 }, output: at } });
    return [
      { plan: product, buffers: { x: p.results, weights, y: p.projections } },
      { plan: mean, buffers: { input: await m.weights.mean(layer, loop, axis), target: p.projections } },
    ];
  };

const attend: Executor = async (p, visit) => {
  const { m } = p;
  const place = placed(visit);
  const { heads, headDim } = m.c.geometry;
  const [from, tokens] = [fromOf(visit), visit.op.shape.queries as number];
  const rows = (side: 'key' | 'value'): { cache: Buffer; capacity: number; firstSequence: number } =>
    keepsRows(m.c) ? { cache: p.kept(`${side}s`, visit), capacity: keptSlots(p.longest), firstSequence: 0 } : inCache(p, side, place);
  const { capacity, firstSequence } = rows('key');
  const branched = m.c.path === 'absorbed' && place.block.name === 'core';
  const branch = branched ? { branch: { width: m.c.branch.width, heads: branchHeads(m), queries: { ...m.packed.branch, head: m.c.branch.width } } } : {};
  const planned = plan(p.m, visit.op, { prefill: { capacity, firstSequence, queries: m.packed.queries, output: { offset: 0, stride: heads * headDim }, ...branch } });
  const spans = await p.allocations.make(`span ${from} ${tokens}`, 'control', 8);
  await m.device.write(spans, Uint32Array.of(from, tokens));
  return [
    {
      plan: planned,
      buffers: {
        queries: p.projections,
        keys: rows('key').cache,
        values: rows('value').cache,
        output: p.results,
        spans,
        ...(branched ? { branchQueries: p.projections, branchKeys: branchKeyOf(p, place) } : {}),
      },
    },
  ];
};

/** Of the last token alone. */
const lastRow = (p: Prompt): { offset: number; stride: number } => ({ offset: (p.tokens - 1) * p.m.c.geometry.hidden, stride: p.m.c.geometry.hidden });
const finalNorm: Executor = async (p, visit) => [
  { plan: plan(p.m, visit.op, { eps: p.m.normEpsilon, placement: { input: lastRow(p) } }), buffers: { input: p.residual, weight: await p.m.weights.norm(FINAL_NORM), target: p.normed } },
];
const head: Executor = (p, visit) => {
  const y = p.buffer('logits');
  if (!p.m.c.geometry.normAfterEachLoop) return projectHead(p.m, visit, { x: p.normed, y });
  const { offset, stride } = lastRow(p);
  return projectHead(p.m, visit, { x: p.residual, rows: { offset, row: stride }, y });
};

/** By label of the operation. The choice of a token is the decoder's, for all prompts at once. */
const EXECUTORS: Readonly<Record<string, Executor>> = {
  embedding: (p, visit) => {
    p.beginPass();
    return embed(p.m, visit, p.buffer('tokens'), p.residual);
  },
  adapter,
  'attention-norm': norm((v) => layerTensor(placed(v).stored, 'input_layernorm.weight')),
  'mlp-norm': norm((v) => layerTensor(placed(v).stored, 'post_attention_layernorm.weight')),
  'attention-residual': residual('input_layernorm_2.weight'),
  'mlp-residual': residual('post_attention_layernorm_2.weight'),
  'loop-norm': loopNorm,
  qkv: packed('qkv'),
  q: packed('q'),
  kv: packed('kv'),
  'branch-key': branchKey,
  'encode-k': encode('key'),
  'encode-v': encode('value'),
  rope: rotate(headTurns, (p) => ({ data: p.m.packed.queries, buffer: p.projections })),
  'rope-k': rotate(headTurns, (p) => ({ data: p.m.packed.keys, buffer: p.projections })),
  'rope-branch': rotate(branchTurns, (p) => ({ data: p.m.packed.branch, buffer: p.projections })),
  'rope-branch-key': rotate(branchTurns, (p, visit) => {
    const { offset, row } = chunkRows(visit, branchHeads(p.m) * p.m.c.branch.width);
    return { data: { offset, stride: row }, buffer: branchKeyOf(p, placed(visit)) };
  }),
  'keep-k': keep('keys'),
  'keep-v': keep('values'),
  'append-k': appendRows('key'),
  'append-v': appendRows('value'),
  'append-branch': appendBranch,
  'restore-k': restoreRows('key'),
  'restore-v': restoreRows('value'),
  'rope-write': (p, visit) => rotateRestored(p.m, visit, { rows: p.projections, positions: p.buffer('positions'), first: fromOf(visit) }),
  'load-k': loadRows('key'),
  'load-v': loadRows('value'),
  'load-branch': loadBranch,
  'reconstruct-k': reconstruct('key'),
  'reconstruct-v': reconstruct('value'),
  attend,
  'attention-out': back('attention-out'),
  'gate-up': gateUp,
  swiglu: (p, visit) => Promise.resolve([{ plan: plan(p.m, visit.op), buffers: { input: p.projections, output: p.results } }]),
  down: back('down'),
  'final-norm': finalNorm,
  'lm-head': head,
  sample: () => Promise.resolve([]),
};

/** A way to take prompts in. */
export interface PrefillKind {
  readonly captures: CapturingKind | undefined;
  schedule(c: Configuration, tokens: number, chunkTokens: number): Schedule;
  /** Of operations that only it has, by label. */
  readonly executors: Readonly<Record<string, Executor>>;
}

export const ACCUMULATED: PrefillKind = { captures: undefined, schedule: (c, tokens, chunkTokens) => prefillSchedule(c, tokens, 1, chunkTokens), executors: {} };

async function compile(p: Prompt, kind: PrefillKind, binder: Binder, chunkTokens: number): Promise<BoundStep[]> {
  const steps: BoundStep[] = [];
  const visits = [...walk(p.m.c, kind.schedule(p.m.c, p.tokens, chunkTokens))];
  await p.begin(visits);
  for (const visit of visits) {
    const executor = kind.executors[visit.op.label] ?? EXECUTORS[visit.op.label];
    if (!executor) throw new GpuError('unsupported', `prefill has no executor for ${visit.op.label} (${visit.op.kernel}, ${visit.op.variant})`);
    for (const dispatch of await executor(p, visit)) steps.push(...(await binder.bind(dispatch)));
  }
  return steps;
}

export interface PrefillRun {
  /** Seconds of the operations: by timestamps where the device has them, else from submissions to completions. */
  readonly seconds: number;
  /** The buffers that it took beside the decoder's own; they are freed. */
  readonly allocations: readonly Allocation[];
}

/**
 * Writes the caches of all sequences, which hold nothing yet, and the logits after each prompt.
 * @param onPrompt called before the first submission of each: what fails until then has changed nothing
 * @throws GpuError `out-of-memory` or `unsupported` for a prompt that does not fit beside the decoder
 */
export async function prefillPrompts(m: Machine, prompts: readonly (readonly number[])[], kind: PrefillKind, chunkTokens: number, onStart: () => void): Promise<PrefillRun> {
  const prompt = await Prompt.open(m, Math.max(...prompts.map((tokens) => tokens.length)), kind.captures, chunkTokens);
  const binder = new Binder(m.device, m.buffer('unused'));
  const { vocab } = m.c.geometry;
  let seconds = 0;
  try {
    for (const [sequence, tokens] of prompts.entries()) {
      prompt.sequence = sequence;
      prompt.tokens = tokens.length;
      const steps = await compile(prompt, kind, binder, chunkTokens);
      onStart();
      await m.device.write(prompt.buffer('tokens'), Uint32Array.from(tokens));
      for (let at = 0; at < steps.length; at += STEPS_OF_A_SUBMISSION) {
        const time = await m.device.run(steps.slice(at, at + STEPS_OF_A_SUBMISSION));
        seconds += time.gpuSeconds ?? time.wallSeconds;
      }
      await m.device.copy(prompt.buffer('logits'), m.buffer('logits'), 4 * vocab, 4 * sequence * vocab);
      binder.free();
    }
    return { seconds, allocations: prompt.allocations.table };
  } finally {
    binder.free();
    prompt.allocations.free();
  }
}
