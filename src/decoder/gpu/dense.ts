/**
 * Execution of what every layer has whatever its cache: embedding, norms, projections, MLP, output head and choice of a
 * token.
 */
import { deviceOptions, GpuError, planOperation } from '../../gpu/index.js';
import type { OperationOptions } from '../../gpu/index.js';
import { NO_TOKEN } from '../../kernels/sample/launch.js';
import type { Op } from '../../schedule/schedule.js';
import { branchWidth } from '../../schedule/eviction-ops.js';
import { ADAPTER, biasedProjections, branchTensor, EMBEDDING, FINAL_NORM, HEAD, layerTensor } from '../tensors.js';
import type { Sampling } from '../sampler.js';
import type { Buffer } from '../../gpu/index.js';
import type { Rows } from '../../kernels/matmul/launch.js';
import type { Dispatch, Machine, Vectors } from './machine.js';
import type { Place, Visit } from './walk.js';
import type { Piece } from './weights.js';

export type Executor = (m: Machine, visit: Visit) => Promise<readonly Dispatch[]>;

export { NO_TOKEN };

/** The place of an operation that only stacks have. */
export function placed(visit: Visit): Place {
  if (!visit.place) throw new GpuError('unsupported', `${visit.op.label} belongs into a layer`);
  return visit.place;
}

/** An operation as a kernel call, weights in the type in which they are held. */
const call = (op: Op, storage?: 'f16' | 'f32') => ({
  kernel: op.kernel,
  variant: storage ?? op.variant,
  shape: op.shape,
});
export const plan = (m: Machine, op: Op, options: OperationOptions = {}, storage?: 'f16' | 'f32') =>
  planOperation(call(op, storage), { ...deviceOptions(m.device), ...options });

const norm =
  (tensorOf: (visit: Visit) => string): Executor =>
  async (m, visit) => {
    const weight = await m.weights.norm(tensorOf(visit));
    return [
      { plan: plan(m, visit.op, { eps: m.normEpsilon }), buffers: { input: m.residual, weight, target: m.normed } },
    ];
  };

/** x += n(y), or x += y. */
const residual =
  (part: string): Executor =>
  async (m, visit) => {
    const added = {
      plan: plan(m, visit.op, { eps: m.normEpsilon }),
      buffers: { input: m.buffer('projected'), target: m.residual },
    };
    if (visit.op.variant === 'add') return [added];
    return [
      {
        ...added,
        buffers: { ...added.buffers, weight: await m.weights.norm(layerTensor(placed(visit).stored, part)) },
      },
    ];
  };

/**
 * A product with a model's matrix: columns [visit.before, …) of it, from one buffer's rows (side by side unless given)
 * to another's.
 */
export async function project(
  m: Machine,
  visit: Visit,
  of: {
    weights: string;
    pieces: readonly Piece[];
    x: Dispatch['buffers'][string];
    y: Dispatch['buffers'][string];
    to: Vectors;
    rows?: Rows;
    inputs?: { from: number; count: number };
    accumulate?: boolean;
  },
): Promise<Dispatch> {
  const { op, part, before } = visit;
  const k = of.inputs?.count ?? (op.shape.k as number);
  const weights = await m.weights.projection(
    part === 0 && !of.inputs ? of.weights : `${of.weights} part ${part}${of.inputs ? ` inputs ${of.inputs.from}` : ''}`,
    of.pieces,
    before,
    op.shape.n as number,
    of.inputs,
  );
  const y = { offset: of.to.offset + before, row: of.to.stride };
  const planned = plan(
    m,
    { ...op, shape: { ...op.shape, k } },
    { matmul: { ...(of.rows ? { x: of.rows } : {}), y, ...(of.accumulate ? { accumulate: true } : {}) } },
    m.weights.storage,
  );
  return { plan: planned, buffers: { x: of.x, weights, y: of.y } };
}

const attentionPieces =
  (letters: string) =>
  (m: Machine, place: Place): Piece[] => {
    const { heads, kvHeads, headDim } = m.c.geometry;
    return [...letters].map((letter) => ({
      tensor: layerTensor(place.stored, `self_attn.${letter}_proj.weight`),
      outputs: (letter === 'q' ? heads : kvHeads) * headDim,
    }));
  };

/** The tensors of each projection of a layer, whose outputs lie side by side. */
const PIECES = {
  qkv: (m: Machine, place: Place): Piece[] => {
    const branch = branchWidth(m.c, place.block);
    return [
      ...attentionPieces('qkv')(m, place),
      ...(branch > 0
        ? [{ tensor: branchTensor(place.layer, 'query'), outputs: branch * m.c.geometry.heads, kind: 'codec' as const }]
        : []),
    ];
  },
  q: attentionPieces('q'),
  kv: attentionPieces('kv'),
  'attention-out': (m: Machine, place: Place): Piece[] => [
    { tensor: layerTensor(place.stored, 'self_attn.o_proj.weight'), outputs: m.c.geometry.hidden },
  ],
  'gate-up': (m: Machine, place: Place): Piece[] =>
    ['gate', 'up'].map((part) => ({
      tensor: layerTensor(place.stored, `mlp.${part}_proj.weight`),
      outputs: m.c.geometry.mlpHidden,
    })),
  down: (m: Machine, place: Place): Piece[] => [
    { tensor: layerTensor(place.stored, 'mlp.down_proj.weight'), outputs: m.c.geometry.hidden },
  ],
} as const;
export type Projection = keyof typeof PIECES;

/** Label and tensors of a layer's matrix. */
export const matrixOf = (
  m: Machine,
  label: Projection,
  place: Place,
): { weights: string; pieces: readonly Piece[] } => ({
  weights: `${label} ${place.stored}`,
  pieces: PIECES[label](m, place),
});

/** Queries, keys and values of packed rows, from normed ones; the label says which of them the operation makes. */
export async function packedProjection(
  m: Machine,
  visit: Visit,
  label: 'qkv' | 'q' | 'kv',
  from: { x: Buffer; rows?: Rows; y: Buffer; count: number },
): Promise<Dispatch[]> {
  const matrix = matrixOf(m, label, placed(visit));
  const offset = label === 'kv' ? m.packed.keys.offset : 0;
  const product = await project(m, visit, {
    ...matrix,
    x: from.x,
    ...(from.rows ? { rows: from.rows } : {}),
    y: from.y,
    to: { offset, stride: m.packed.row },
  });
  const last =
    visit.before + (visit.op.shape.n as number) === matrix.pieces.reduce((sum, piece) => sum + piece.outputs, 0);
  return last ? [product, ...(await biases(m, visit, label, offset, from))] : [product];
}

const ownProjection =
  (label: 'qkv' | 'q' | 'kv'): Executor =>
  (m, visit) =>
    packedProjection(m, visit, label, { x: m.normed, y: m.buffer('query key value'), count: m.batch });

/** Biases of the projections have no operation in the schedule: one row is added to all `count`. */
async function biases(
  m: Machine,
  visit: Visit,
  letters: string,
  offset: number,
  { y, count }: { y: Buffer; count: number },
): Promise<Dispatch[]> {
  const place = placed(visit);
  const { heads, kvHeads, headDim } = m.c.geometry;
  const biased = biasedProjections(m.c.geometry);
  // The known layouts have biases of the first projections of a row.
  const own = [...letters].filter((letter) => biased.some((b) => b === letter));
  const width = own.reduce((sum, letter) => sum + (letter === 'q' ? heads : kvHeads) * headDim, 0);
  if (width === 0) return [];
  const bias = await m.weights.vector(
    `${layerTensor(place.stored, 'self_attn')} biases ${own.join('')}`,
    'weights',
    () =>
      Float32Array.from(
        own.flatMap((letter) => [...m.weights.read(layerTensor(place.stored, `self_attn.${letter}_proj.bias`))]),
      ),
  );
  const planned = planOperation(
    { kernel: 'rmsnorm', variant: 'add', shape: { rows: count, width } },
    { placement: { input: { offset: 0, stride: 0 }, output: { offset, stride: m.packed.row } } },
  );
  return [{ plan: planned, buffers: { input: bias, target: y } }];
}

const simple =
  (label: 'attention-out' | 'gate-up' | 'down', from: 'normed' | 'attention' | 'activated', to: string): Executor =>
  async (m, visit) => {
    const matrix = matrixOf(m, label, placed(visit));
    const stride = matrix.pieces.reduce((sum, piece) => sum + piece.outputs, 0);
    return [
      await project(m, visit, {
        ...matrix,
        x: from === 'normed' ? m.normed : m.buffer(from),
        y: m.buffer(to),
        to: { offset: 0, stride },
      }),
    ];
  };

/**
 * [state; prelude's output] W, as two products: the state changes its buffer, since a product cannot write what it
 * reads.
 */
const adapter: Executor = async (m, visit) => {
  const { hidden } = m.c.geometry;
  const first = placed(visit).loop === 0;
  if (visit.part === 0) {
    if (first) m.preludeOutput = m.residual;
    const target = m.buffer(m.residual === m.buffer('residual 2') ? 'residual 3' : 'residual 2');
    m.state = first ? undefined : m.residual;
    m.residual = target;
  }
  const of = {
    weights: 'adapter',
    pieces: [{ tensor: ADAPTER, outputs: hidden }],
    y: m.residual,
    to: { offset: 0, stride: hidden },
  };
  const kept = await project(m, visit, {
    ...of,
    x: m.preludeOutput as Dispatch['buffers'][string],
    inputs: { from: hidden, count: hidden },
  });
  // The state starts at zero: there is nothing to multiply in the first loop.
  const state = { from: 0, count: hidden };
  if (!m.state) {
    await m.weights.projection(
      `adapter part ${visit.part} inputs 0`,
      of.pieces,
      visit.before,
      visit.op.shape.n as number,
      state,
    );
    return [kept];
  }
  return [kept, await project(m, visit, { ...of, x: m.state, inputs: state, accumulate: true })];
};

/** Tied tables are the output head's matrix where one binding holds it, [hidden][vocabulary]. */
export async function embed(m: Machine, { op }: Visit, tokens: Buffer, output: Buffer): Promise<Dispatch[]> {
  const g = m.c.geometry;
  const tied = g.tiedEmbeddings && 2 * g.hidden * g.vocab <= m.c.bindingBytes;
  const table = tied
    ? await m.weights.projection('head', [{ tensor: EMBEDDING, outputs: g.vocab }], 0, g.vocab)
    : await m.weights.embedding(EMBEDDING);
  return [
    {
      plan: plan(m, op, { vocabulary: g.vocab, ...(tied ? { embeddingColumns: true } : {}) }, m.weights.storage),
      buffers: { tokens, embedding: table, output },
    },
  ];
}

const loopNorm: Executor = async (m, visit) => {
  const dispatch = {
    plan: plan(m, visit.op, { eps: m.normEpsilon }),
    buffers: { input: m.residual, weight: await m.weights.norm(FINAL_NORM), target: m.normed },
  };
  [m.residual, m.normed] = [m.normed, m.residual];
  return [dispatch];
};

const exitGate: Executor = async (m, visit) => [
  await project(m, visit, {
    weights: 'exit gate',
    pieces: [{ tensor: 'model.early_exit_gate.weight', outputs: 1 }],
    x: m.residual,
    y: m.buffer('exit'),
    to: { offset: 0, stride: 1 },
  }),
];

/** Logits of rows that the last norm has seen. */
export async function projectHead(
  m: Machine,
  visit: Visit,
  from: { x: Buffer; rows?: Rows; y: Buffer },
): Promise<Dispatch[]> {
  const g = m.c.geometry;
  return [
    await project(m, visit, {
      weights: 'head',
      pieces: [{ tensor: g.tiedEmbeddings ? EMBEDDING : HEAD, outputs: g.vocab }],
      ...from,
      to: { offset: 0, stride: g.vocab },
    }),
  ];
}

const sampleWith =
  (sampling: Sampling): Executor =>
  (m, visit) => {
    const buffers = { logits: m.buffer('logits'), tokens: m.buffer('next tokens') };
    if (sampling.temperature === 0) return Promise.resolve([{ plan: plan(m, visit.op), buffers }]);
    const drawn = planOperation({ kernel: 'sample', variant: 'top-p', shape: visit.op.shape }, { sample: sampling });
    return Promise.resolve([{ plan: drawn, buffers: { ...buffers, draws: m.buffer('draws') } }]);
  };

/** By label of the operation. */
export const denseExecutors = (sampling: Sampling): Readonly<Record<string, Executor>> => ({
  embedding: (m, visit) => embed(m, visit, m.buffer('tokens'), m.residual),
  adapter,
  'attention-norm': norm((v) => layerTensor(placed(v).stored, 'input_layernorm.weight')),
  'mlp-norm': norm((v) => layerTensor(placed(v).stored, 'post_attention_layernorm.weight')),
  'final-norm': norm(() => FINAL_NORM),
  'loop-norm': loopNorm,
  'attention-residual': residual('input_layernorm_2.weight'),
  'mlp-residual': residual('post_attention_layernorm_2.weight'),
  qkv: ownProjection('qkv'),
  q: ownProjection('q'),
  kv: ownProjection('kv'),
  'attention-out': simple('attention-out', 'attention', 'projected'),
  'gate-up': simple('gate-up', 'normed', 'gate up'),
  swiglu: (m, visit) =>
    Promise.resolve([
      { plan: plan(m, visit.op), buffers: { input: m.buffer('gate up'), output: m.buffer('activated') } },
    ]),
  down: simple('down', 'activated', 'projected'),
  'exit-gate': exitGate,
  'lm-head': (m, visit) =>
    projectHead(m, visit, { x: m.c.geometry.normAfterEachLoop ? m.residual : m.normed, y: m.buffer('logits') }),
  sample: sampleWith(sampling),
});
