/**
 * Execution of the operations that every layer has, whatever its cache: embedding, norms, projections, MLP, output head
 * and choice of a token. They are the same for a step and for a prompt.
 */
import { deviceOptions, planOperation } from '../../gpu/index.js';
import type { Buffer, OperationOptions } from '../../gpu/index.js';
import { NO_TOKEN } from '../../../kernels/sample/launch.js';
import { stackPlace, tableWidth } from '../../geometry/geometry.js';
import { branchWidth } from '../../schedule/eviction-ops.js';
import type { Place, Visit } from '../../schedule/expand.js';
import {
  ADAPTER,
  biasedProjections,
  branchTensor,
  CORE_NORM,
  EMBEDDING,
  EMBEDDING_UP,
  FINAL_NORM,
  HEAD,
  HEAD_DOWN,
  layerTensor,
  LOW_STATE,
} from '../tensors.js';
import type { Sampling } from '../sampler.js';
import type { WeightStorage } from '../weights.js';
import { placed, type Dispatch, type Machine, type Placed, type Vectors } from './machine.js';
import type { Piece } from './weights.js';

/**
 * Binds an operation to its buffers: one call of the operation's kernel, at the operation's shape. `plan` takes both
 * from the visit, so that nothing runs that the schedule does not list.
 */
export type Executor<M extends Machine = Machine> = (m: M, visit: Visit) => Dispatch | Promise<Dispatch>;
/** By label of the operation. */
export type Executors<M extends Machine = Machine> = Readonly<Record<string, Executor<M>>>;

export { NO_TOKEN };

/** Plans an operation's call. @param storage of a model's weights, which may be held in another type than listed */
export const plan = (m: Machine, { op }: Visit, options: OperationOptions = {}, storage?: WeightStorage) =>
  planOperation(
    { kernel: op.kernel, variant: storage ?? op.variant, shape: op.shape },
    { ...deviceOptions(m.device), ...options },
  );

/** y = n(x). @param rows of x, all of them side by side unless given */
async function norm(
  m: Machine,
  visit: Visit,
  tensor: string,
  buffers: { input: Buffer; target: Buffer },
  rows?: Vectors,
): Promise<Dispatch> {
  return {
    plan: plan(m, visit, { eps: m.normEpsilon, ...(rows ? { placement: { input: rows } } : {}) }),
    buffers: { ...buffers, weight: await m.weights.norm(tensor) },
  };
}

const layerNorm =
  (part: string): Executor =>
  (m, visit) =>
    norm(m, visit, layerTensor(placed(visit).stored, part), { input: m.residual, target: m.normed });

/** x += n(y), or x += y. */
const residual =
  (part: string): Executor =>
  async (m, visit) => {
    const buffers = { input: m.buffer('projected'), target: m.residual };
    if (visit.op.variant === 'add') return { plan: plan(m, visit), buffers };
    return norm(m, visit, layerTensor(placed(visit).stored, part), buffers);
  };

/** A product with a model's matrix: columns [visit.before, …) of it. */
export async function project(
  m: Machine,
  visit: Visit,
  of: {
    weights: string;
    pieces: readonly Piece[];
    x: Placed;
    y: Placed;
    inputs?: { from: number; count: number };
    accumulate?: boolean;
  },
): Promise<Dispatch> {
  const { op, part, before } = visit;
  const weights = await m.weights.projection(
    part === 0 && !of.inputs ? of.weights : `${of.weights} part ${part}${of.inputs ? ` inputs ${of.inputs.from}` : ''}`,
    of.pieces,
    before,
    op.shape.n as number,
    of.inputs,
  );
  const x = { offset: of.x.at.offset, row: of.x.at.stride };
  const y = { offset: of.y.at.offset + before, row: of.y.at.stride };
  const { accumulate = false } = of;
  return {
    plan: plan(m, visit, { matmul: { x, y, accumulate } }, m.weights.storage),
    buffers: { x: of.x.rows, weights, y: of.y.rows },
  };
}

/** Rows of the last norm's output. */
export const normedRows = (m: Machine, visit: Visit): Placed => ({ rows: m.normed, at: m.rowsOf(visit) });

const attentionPieces =
  (letters: string) =>
  (m: Machine, place: Place): Piece[] => {
    const { heads, kvHeads, headDim } = m.c.geometry;
    return [...letters].map((letter) => ({
      tensor: layerTensor(place.stored, `self_attn.${letter}_proj.weight`),
      outputs: (letter === 'q' ? heads : kvHeads) * headDim,
    }));
  };

/** The gate of attention's output comes before the queries. */
const gatePieces = (m: Machine, place: Place): Piece[] => {
  const { heads, headDim, attentionGate } = m.c.geometry;
  return attentionGate
    ? [{ tensor: layerTensor(place.stored, 'self_attn.gate_proj.weight'), outputs: heads * headDim }]
    : [];
};

/** The tensors of each projection of a layer, whose outputs lie side by side. */
const PIECES = {
  qkv: (m: Machine, place: Place): Piece[] => {
    const branch = branchWidth(m.c, place.block);
    return [
      ...gatePieces(m, place),
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
type Projection = keyof typeof PIECES;

/** A product with a layer's matrix. */
const layerProduct = (m: Machine, visit: Visit, label: Projection, x: Placed, y: Placed): Promise<Dispatch> => {
  const place = placed(visit);
  return project(m, visit, { weights: `${label} ${place.stored}`, pieces: PIECES[label](m, place), x, y });
};

type Letters = 'qkv' | 'q' | 'kv';

/** Queries, keys and values of packed rows: the label says which of them an operation makes. */
const packedRows = (m: Machine, letters: Letters): Placed => ({
  rows: m.buffer('query key value'),
  at: letters === 'kv' ? m.packed.keys : m.packed.queries,
});

const packedProjection =
  (letters: Letters): Executor =>
  (m, visit) =>
    layerProduct(m, visit, letters, normedRows(m, visit), {
      rows: m.buffer('query key value'),
      at: letters === 'kv' ? m.packed.keys : { ...m.packed.queries, offset: 0 },
    });

/** Adds the biases of a projection to its rows. The known layouts have biases of the first projections of a row. */
const packedBias =
  (letters: Letters): Executor =>
  async (m, visit) => {
    const place = placed(visit);
    const own = biasedProjections(m.c.geometry).filter((letter) => letters.includes(letter));
    const bias = await m.weights.vector(
      `${layerTensor(place.stored, 'self_attn')} biases ${own.join('')}`,
      'weights',
      () =>
        Float32Array.from(
          own.flatMap((letter) => [...m.weights.read(layerTensor(place.stored, `self_attn.${letter}_proj.bias`))]),
        ),
    );
    const { rows, at } = packedRows(m, letters);
    return {
      plan: plan(m, visit, { placement: { input: { offset: 0, stride: 0 }, output: at } }),
      buffers: { input: bias, target: rows },
    };
  };

/** A projection back into the stream, of rows that an operation has to itself. */
const back =
  (label: 'attention-out' | 'down', from: 'attention' | 'activated'): Executor =>
  (m, visit) =>
    layerProduct(
      m,
      visit,
      label,
      { rows: m.buffer(from), at: { offset: 0, stride: visit.op.shape.k as number } },
      { rows: m.buffer('projected'), at: m.rowsOf(visit) },
    );

const gateUp: Executor = (m, visit) =>
  layerProduct(m, visit, 'gate-up', normedRows(m, visit), {
    rows: m.buffer('gate up'),
    at: { offset: 0, stride: 2 * m.c.geometry.mlpHidden },
  });

/** Which of the adapter's inputs a product takes: the state's, or those of the prelude's output. */
const ADAPTER_INPUTS = { 'adapter-state': 0, adapter: 1 } as const;

/** One of the adapter's products; the state's is added to the other. */
function adapterProduct(m: Machine, visit: Visit, label: keyof typeof ADAPTER_INPUTS, x: Buffer): Promise<Dispatch> {
  const { hidden } = m.c.geometry;
  const at = m.rowsOf(visit);
  return project(m, visit, {
    weights: 'adapter',
    pieces: [{ tensor: ADAPTER, outputs: hidden }],
    x: { rows: x, at },
    y: { rows: m.residual, at },
    inputs: { from: ADAPTER_INPUTS[label] * hidden, count: hidden },
    accumulate: label === 'adapter-state',
  });
}

const adapter: Executor = async (m, visit) => {
  const { hidden } = m.c.geometry;
  const place = placed(visit);
  if (visit.part === 0 && m.firstRow(visit) === 0) m.beginLoop(place.loop === 0);
  // With one loop no state is multiplied, but its weights are the model's.
  const columns = visit.op.shape.n as number;
  if (place.block.loops === 1)
    await m.weights.projection(
      `adapter part ${visit.part} inputs 0`,
      [{ tensor: ADAPTER, outputs: hidden }],
      visit.before,
      columns,
      { from: 0, count: hidden },
    );
  return adapterProduct(m, visit, 'adapter', m.preludeOutput as Buffer);
};

/**
 * Tied tables are the output head's matrix where one binding holds it, [table's width][vocabulary]. Rows of a lower rank
 * go where norms write, from where they are projected.
 */
const embedding: Executor = async (m, visit) => {
  const g = m.c.geometry;
  const width = visit.op.shape.width as number;
  if (visit.part === 0) m.beginPass();
  const tied = g.tiedEmbeddings && width === tableWidth(g);
  const table = tied
    ? await m.weights.projection('head', [{ tensor: EMBEDDING, outputs: g.vocab }], 0, g.vocab)
    : await m.weights.embedding(EMBEDDING, visit.before, width);
  const placement = { output: { offset: visit.before, stride: g.hidden } };
  return {
    plan: plan(
      m,
      visit,
      { vocabulary: g.vocab, placement, ...(tied ? { embeddingColumns: true } : {}) },
      m.weights.storage,
    ),
    buffers: {
      tokens: m.buffer('tokens'),
      embedding: table,
      output: g.embeddingRank === undefined ? m.residual : m.normed,
    },
  };
};

const embeddingUp: Executor = (m, visit) =>
  project(m, visit, {
    weights: 'embedding up',
    pieces: [{ tensor: EMBEDDING_UP, outputs: m.c.geometry.hidden }],
    x: { rows: m.normed, at: m.rowsOf(visit) },
    y: { rows: m.residual, at: m.rowsOf(visit) },
  });

/** A row for all tokens; zeros where the model has none. */
const lowState: Executor = async (m, visit) => {
  const { hidden, extraParameters } = m.c.geometry;
  const input =
    extraParameters === undefined
      ? await m.weights.vector('zero state', 'control', () => new Float32Array(hidden))
      : await m.weights.vector(LOW_STATE, 'weights', () => m.weights.read(LOW_STATE));
  return {
    plan: plan(m, visit, { factor: 1, placement: { input: { offset: 0, stride: 0 } } }),
    buffers: { input, target: m.otherState as Buffer },
  };
};

const tokenEmbedding: Executor = (m, visit) => ({
  plan: plan(m, visit, { factor: 1 }),
  buffers: { input: m.residual, target: m.buffer('token embedding') },
});

const loopShift: Executor = (m, visit) => ({
  plan: plan(m, visit),
  buffers: {
    positions: m.buffer('positions'),
    embedding: m.buffer('token embedding'),
    states: m.buffer(`loop states ${placed(visit).loop - 1}`),
    target: m.residual,
  },
});

/** The state of the stack that begins, plus that of the other. */
const stackSum: Executor = (m, visit) => {
  m.enterStack(stackPlace(m.c.geometry, placed(visit).layer).stack);
  return { plan: plan(m, visit), buffers: { input: m.otherState as Buffer, target: m.residual } };
};

const attentionGate: Executor = (m, visit) => ({
  plan: plan(m, visit, {
    placement: { input: m.packed.gate, output: { offset: 0, stride: visit.op.shape.width as number } },
  }),
  buffers: { input: m.buffer('query key value'), target: m.buffer('attention') },
});

/** x = n(x): the streams are exchanged. */
const streamNorm =
  (tensorOf: (visit: Visit) => string): Executor =>
  async (m, visit) => {
    const dispatch = await norm(m, visit, tensorOf(visit), { input: m.residual, target: m.normed });
    [m.residual, m.normed] = [m.normed, m.residual];
    return dispatch;
  };
const sumNorm = (part: string): Executor => streamNorm((visit) => layerTensor(placed(visit).stored, part));

const exitGate: Executor = (m, visit) =>
  project(m, visit, {
    weights: 'exit gate',
    pieces: [{ tensor: 'model.early_exit_gate.weight', outputs: 1 }],
    x: { rows: m.residual, at: m.rowsOf(visit) },
    y: { rows: m.buffer('exit'), at: { offset: 0, stride: 1 } },
  });

/** Rows that a norm has seen: of all at the end of the last loop, or of the last ones alone. */
const lastNormed = (m: Machine, visit: Visit): Placed =>
  m.c.geometry.normAfterEachLoop ? { rows: m.residual, at: m.lastRows } : normedRows(m, visit);

/** These in the width of the head's table: in the stream that they do not come from. */
const lowered = (m: Machine): Placed => ({
  rows: m.c.geometry.normAfterEachLoop ? m.normed : m.residual,
  at: { offset: 0, stride: m.c.geometry.hidden },
});

const headDown: Executor = (m, visit) =>
  project(m, visit, {
    weights: 'head down',
    pieces: [{ tensor: HEAD_DOWN, outputs: tableWidth(m.c.geometry) }],
    x: lastNormed(m, visit),
    y: lowered(m),
  });

const head: Executor = (m, visit) => {
  const g = m.c.geometry;
  return project(m, visit, {
    weights: 'head',
    pieces: [{ tensor: g.tiedEmbeddings ? EMBEDDING : HEAD, outputs: g.vocab }],
    x: g.embeddingRank === undefined ? lastNormed(m, visit) : lowered(m),
    y: { rows: m.buffer('logits'), at: { offset: 0, stride: g.vocab } },
  });
};

export const denseExecutors = (sampling: Sampling): Executors => ({
  embedding,
  'embedding-up': embeddingUp,
  adapter,
  'adapter-state': (m, visit) => adapterProduct(m, visit, 'adapter-state', m.state as Buffer),
  'attention-norm': layerNorm('input_layernorm.weight'),
  'mlp-norm': layerNorm('post_attention_layernorm.weight'),
  'attention-residual': residual('input_layernorm_2.weight'),
  'mlp-residual': residual('post_attention_layernorm_2.weight'),
  'attention-sum-norm': sumNorm('input_layernorm_2.weight'),
  'mlp-sum-norm': sumNorm('post_attention_layernorm_2.weight'),
  'loop-norm': streamNorm(() => FINAL_NORM),
  'token-embedding': tokenEmbedding,
  'loop-shift': loopShift,
  'low-state': lowState,
  'stack-sum': stackSum,
  'stack-norm': streamNorm(() => FINAL_NORM),
  'attention-gate': attentionGate,
  'core-norm': streamNorm(() => CORE_NORM),
  'final-norm': (m, visit) => norm(m, visit, FINAL_NORM, { input: m.residual, target: m.normed }, m.lastRows),
  qkv: packedProjection('qkv'),
  q: packedProjection('q'),
  kv: packedProjection('kv'),
  'qkv-bias': packedBias('qkv'),
  'q-bias': packedBias('q'),
  'kv-bias': packedBias('kv'),
  'attention-out': back('attention-out', 'attention'),
  'gate-up': gateUp,
  swiglu: (m, visit) => ({
    plan: plan(m, visit),
    buffers: { input: m.buffer('gate up'), output: m.buffer('activated') },
  }),
  down: back('down', 'activated'),
  'exit-gate': exitGate,
  'head-down': headDown,
  'lm-head': head,
  sample: (m, visit) => ({
    plan: plan(m, visit, sampling.temperature === 0 ? {} : { sample: sampling }),
    buffers: { logits: m.buffer('logits'), tokens: m.buffer('next tokens'), draws: m.buffer('draws') },
  }),
});
