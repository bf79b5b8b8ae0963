/**
 * Execution of the operations that every layer has, whatever its cache: embedding, norms, projections, MLP, output head
 * and choice of a token.
 */
import { deviceOptions, GpuError, planOperation } from '../../gpu/index.js';
import type { OperationOptions } from '../../gpu/index.js';
import { NO_TOKEN } from '../../kernels/sample/launch.js';
import type { PlacementOptions } from '../../kernels/shared/rows.launch.js';
import { branchWidth } from '../../schedule/eviction-ops.js';
import { ADAPTER, biasedProjections, branchTensor, EMBEDDING, FINAL_NORM, HEAD, layerTensor } from '../tensors.js';
import type { Sampling } from '../sampler.js';
import type { WeightStorage } from '../weights.js';
import type { Buffer } from '../../gpu/index.js';
import type { Rows } from '../../kernels/matmul/launch.js';
import type { Dispatch, Machine, Vectors } from './machine.js';
import type { Place, Visit } from '../../schedule/expand.js';
import type { Piece } from './weights.js';

/**
 * Binds an operation to its buffers: one call of the operation's kernel, at the operation's shape. `plan` takes both
 * from the visit, so that nothing runs that the schedule does not list.
 */
export type Executor = (m: Machine, visit: Visit) => Promise<Dispatch>;

export { NO_TOKEN };

/** The place of an operation that only stacks have. */
export function placed(visit: Visit): Place {
  if (!visit.place) throw new GpuError('unsupported', `${visit.op.label} belongs into a layer`);
  return visit.place;
}

/** Plans an operation's call. @param storage of a model's weights, which may be held in another type than listed */
export const plan = (m: Machine, { op }: Visit, options: OperationOptions = {}, storage?: WeightStorage) =>
  planOperation(
    { kernel: op.kernel, variant: storage ?? op.variant, shape: op.shape },
    { ...deviceOptions(m.device), ...options },
  );

/** y = n(x), of rows side by side unless placed. */
export async function normOf(
  m: Machine,
  visit: Visit,
  tensor: string,
  { input, target, placement }: { input: Buffer; target: Buffer; placement?: PlacementOptions },
): Promise<Dispatch> {
  return {
    plan: plan(m, visit, { eps: m.normEpsilon, ...(placement ? { placement } : {}) }),
    buffers: { input, weight: await m.weights.norm(tensor), target },
  };
}

/** x += n(y), or x += y. @param part the layer's norm */
export async function residualOf(
  m: Machine,
  visit: Visit,
  part: string,
  buffers: { input: Buffer; target: Buffer },
): Promise<Dispatch> {
  if (visit.op.variant === 'add') return { plan: plan(m, visit), buffers };
  return normOf(m, visit, layerTensor(placed(visit).stored, part), buffers);
}

/** Tensors of the norms and residuals of a layer, by label of the operation. */
export const NORM_TENSORS = {
  'attention-norm': 'input_layernorm.weight',
  'mlp-norm': 'post_attention_layernorm.weight',
  'attention-residual': 'input_layernorm_2.weight',
  'mlp-residual': 'post_attention_layernorm_2.weight',
} as const;

const norm =
  (label: 'attention-norm' | 'mlp-norm'): Executor =>
  (m, visit) =>
    normOf(m, visit, layerTensor(placed(visit).stored, NORM_TENSORS[label]), { input: m.residual, target: m.normed });

const residual =
  (label: 'attention-residual' | 'mlp-residual'): Executor =>
  (m, visit) =>
    residualOf(m, visit, NORM_TENSORS[label], { input: m.buffer('projected'), target: m.residual });

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
    visit,
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
export const packedProjection = (
  m: Machine,
  visit: Visit,
  label: 'qkv' | 'q' | 'kv',
  from: { x: Buffer; rows?: Rows; y: Buffer },
): Promise<Dispatch> =>
  project(m, visit, {
    ...matrixOf(m, label, placed(visit)),
    ...from,
    to: { offset: label === 'kv' ? m.packed.keys.offset : 0, stride: m.packed.row },
  });

const ownProjection =
  (label: 'qkv' | 'q' | 'kv'): Executor =>
  (m, visit) =>
    packedProjection(m, visit, label, { x: m.normed, y: m.buffer('query key value') });

/** Adds the biases of a projection to its rows. The known layouts have biases of the first projections of a row. */
export async function packedBias(m: Machine, visit: Visit, letters: 'qkv' | 'q' | 'kv', y: Buffer): Promise<Dispatch> {
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
  const output = { offset: letters === 'kv' ? m.packed.keys.offset : 0, stride: m.packed.row };
  return {
    plan: plan(m, visit, { placement: { input: { offset: 0, stride: 0 }, output } }),
    buffers: { input: bias, target: y },
  };
}

const ownBias =
  (letters: 'qkv' | 'q' | 'kv'): Executor =>
  (m, visit) =>
    packedBias(m, visit, letters, m.buffer('query key value'));

const simple =
  (label: 'attention-out' | 'gate-up' | 'down', from: 'normed' | 'attention' | 'activated', to: string): Executor =>
  (m, visit) => {
    const matrix = matrixOf(m, label, placed(visit));
    const stride = matrix.pieces.reduce((sum, piece) => sum + piece.outputs, 0);
    return project(m, visit, {
      ...matrix,
      x: from === 'normed' ? m.normed : m.buffer(from),
      y: m.buffer(to),
      to: { offset: 0, stride },
    });
  };

/** Which of the adapter's inputs a product takes: the state's, or those of the prelude's output. */
const ADAPTER_INPUTS = { 'adapter-state': 0, adapter: 1 } as const;

/** One of the adapter's products; the state's is added to the other. */
export function adapterProduct(
  m: Machine,
  visit: Visit,
  label: keyof typeof ADAPTER_INPUTS,
  of: { x: Buffer; y: Buffer; rows?: Rows; to: Vectors },
): Promise<Dispatch> {
  const { hidden } = m.c.geometry;
  return project(m, visit, {
    weights: 'adapter',
    pieces: [{ tensor: ADAPTER, outputs: hidden }],
    ...of,
    inputs: { from: ADAPTER_INPUTS[label] * hidden, count: hidden },
    accumulate: label === 'adapter-state',
  });
}

/** The streams are exchanged: the adapter's output becomes the residual. */
const adapter: Executor = async (m, visit) => {
  const { hidden } = m.c.geometry;
  const first = placed(visit).loop === 0;
  if (visit.part === 0) {
    if (first) m.preludeOutput = m.residual;
    const target = m.buffer(m.residual === m.buffer('residual 2') ? 'residual 3' : 'residual 2');
    m.state = first ? undefined : m.residual;
    m.residual = target;
  }
  // With one loop no state is multiplied, but its weights are the model's.
  const columns = visit.op.shape.n as number;
  if (placed(visit).block.loops === 1)
    await m.weights.projection(
      `adapter part ${visit.part} inputs 0`,
      [{ tensor: ADAPTER, outputs: hidden }],
      visit.before,
      columns,
      { from: 0, count: hidden },
    );
  return adapterProduct(m, visit, 'adapter', {
    x: m.preludeOutput as Buffer,
    y: m.residual,
    to: { offset: 0, stride: hidden },
  });
};

const adapterState: Executor = (m, visit) =>
  adapterProduct(m, visit, 'adapter-state', {
    x: m.state as Buffer,
    y: m.residual,
    to: { offset: 0, stride: m.c.geometry.hidden },
  });

/** Tied tables are the output head's matrix where one binding holds it, [hidden][vocabulary]. */
export async function embed(m: Machine, visit: Visit, tokens: Buffer, output: Buffer): Promise<Dispatch> {
  const g = m.c.geometry;
  const tied = g.tiedEmbeddings && 2 * g.hidden * g.vocab <= m.c.bindingBytes;
  const table = tied
    ? await m.weights.projection('head', [{ tensor: EMBEDDING, outputs: g.vocab }], 0, g.vocab)
    : await m.weights.embedding(EMBEDDING);
  return {
    plan: plan(m, visit, { vocabulary: g.vocab, ...(tied ? { embeddingColumns: true } : {}) }, m.weights.storage),
    buffers: { tokens, embedding: table, output },
  };
}

const loopNorm: Executor = async (m, visit) => {
  const dispatch = await normOf(m, visit, FINAL_NORM, { input: m.residual, target: m.normed });
  [m.residual, m.normed] = [m.normed, m.residual];
  return dispatch;
};

const exitGate: Executor = (m, visit) =>
  project(m, visit, {
    weights: 'exit gate',
    pieces: [{ tensor: 'model.early_exit_gate.weight', outputs: 1 }],
    x: m.residual,
    y: m.buffer('exit'),
    to: { offset: 0, stride: 1 },
  });

/** Logits of rows that the last norm has seen. */
export const projectHead = (
  m: Machine,
  visit: Visit,
  from: { x: Buffer; rows?: Rows; y: Buffer },
): Promise<Dispatch> => {
  const g = m.c.geometry;
  return project(m, visit, {
    weights: 'head',
    pieces: [{ tensor: g.tiedEmbeddings ? EMBEDDING : HEAD, outputs: g.vocab }],
    ...from,
    to: { offset: 0, stride: g.vocab },
  });
};

/** The choice of tokens from logits. `draws`: numbers of the draws, which a greedy choice does not read. */
export const chooseTokens = (
  m: Machine,
  visit: Visit,
  sampling: Sampling,
  buffers: { logits: Buffer; tokens: Buffer; draws: Buffer },
): Dispatch => ({ plan: plan(m, visit, sampling.temperature === 0 ? {} : { sample: sampling }), buffers });

/** By label of the operation. */
export const denseExecutors = (sampling: Sampling): Readonly<Record<string, Executor>> => ({
  embedding: (m, visit) => embed(m, visit, m.buffer('tokens'), m.residual),
  adapter,
  'adapter-state': adapterState,
  'attention-norm': norm('attention-norm'),
  'mlp-norm': norm('mlp-norm'),
  'final-norm': (m, visit) => normOf(m, visit, FINAL_NORM, { input: m.residual, target: m.normed }),
  'loop-norm': loopNorm,
  'attention-residual': residual('attention-residual'),
  'mlp-residual': residual('mlp-residual'),
  qkv: ownProjection('qkv'),
  q: ownProjection('q'),
  kv: ownProjection('kv'),
  'qkv-bias': ownBias('qkv'),
  'q-bias': ownBias('q'),
  'kv-bias': ownBias('kv'),
  'attention-out': simple('attention-out', 'attention', 'projected'),
  'gate-up': simple('gate-up', 'normed', 'gate up'),
  swiglu: (m, visit) =>
    Promise.resolve({ plan: plan(m, visit), buffers: { input: m.buffer('gate up'), output: m.buffer('activated') } }),
  down: simple('down', 'activated', 'projected'),
  'exit-gate': exitGate,
  'lm-head': (m, visit) =>
    projectHead(m, visit, { x: m.c.geometry.normAfterEachLoop ? m.residual : m.normed, y: m.buffer('logits') }),
  sample: (m, visit) =>
    Promise.resolve(
      chooseTokens(m, visit, sampling, {
        logits: m.buffer('logits'),
        tokens: m.buffer('next tokens'),
        draws: m.buffer('draws'),
      }),
    ),
});
