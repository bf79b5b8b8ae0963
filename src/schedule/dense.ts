/**
 * Operations that every layer has, whatever its cache: norms, projections with their biases, MLP, adapter and output
 * head, of `rows` tokens. A decode step has a row a sequence, a prompt's prefill one a token of a chunk.
 */
import { codecSpec } from '../codecs/registry.js';
import { layerExtras, tableWidth, type LayerBlock } from '../geometry/geometry.js';
import {
  branchHeadsOf,
  headsOf,
  inParts,
  kvHeadsOf,
  op,
  project,
  projectByTable,
  projectInLayer,
  type Configuration,
  type Op,
  type When,
} from './configuration.js';
import { branchKeyTime, branchWidth, closingTime } from './eviction-ops.js';

/** RMSNorm, or the addition of a branch to the residual stream. */
const norm = (c: Configuration, label: string, variant: 'norm' | 'norm-add' | 'add', rows: number): Op =>
  op(label, 'rmsnorm', variant, { rows, width: c.geometry.hidden });

/**
 * The embedding of tokens. A table beyond a binding is divided by columns, in pairs as they are stored. Rows of a lower
 * rank are projected.
 */
export function embeddingOps(c: Configuration, rows: number): Op[] {
  const { hidden, vocab, embeddingRank } = c.geometry;
  const width = tableWidth(c.geometry);
  const part = (columns: number, repeat: number): Op =>
    op('embedding', 'embed', 'f16', { rows, width: columns }, 'always', repeat);
  const table =
    2 * width * vocab <= c.bindingBytes
      ? [part(width, 1)]
      : inParts(Math.floor(width / 2), 4 * vocab, c.bindingBytes).map(({ size, repeat }) => part(2 * size, repeat));
  return [
    ...table,
    ...(embeddingRank === undefined ? [] : projectByTable(c, 'embedding-up', rows, embeddingRank, hidden)),
  ];
}

/** One bias row, added to every row of a projection. */
const biasOp = (label: string, rows: number, width: number, when: When = 'always'): Op[] =>
  width > 0 ? [op(label, 'rmsnorm', 'add', { rows, width }, when)] : [];

const sharesLayers = (c: Configuration, block: LayerBlock): boolean => closingTime(c, block) === 'closing-layer';

/** When keys and values are projected: in the layer that owns them, where layers share a cache. */
export const owningTime = (c: Configuration, block: LayerBlock): When =>
  sharesLayers(c, block) ? 'owning-layer' : 'always';

/** Norms of queries and keys: of their heads, or of their rows. */
function queryKeyNorms(c: Configuration, rows: number, owning: When): Op[] {
  const { headDim: d } = c.geometry;
  const [heads, kvHeads] = [headsOf(c), kvHeadsOf(c)];
  const norms = layerExtras(c.geometry)?.norms ?? null;
  if (norms === null) return [];
  const of = (label: string, count: number, when: When = 'always'): Op => {
    const shape = norms === 'rows' ? { heads: 1, headDim: count * d } : { heads: count, headDim: d };
    return op(label, 'head_norm', 'f32', { rows, ...shape }, when);
  };
  return [of('q-norm', heads), ...(norms === 'query-heads' ? [] : [of('k-norm', kvHeads, owning)])];
}

/**
 * Columns that the projections of attention's input have: queries, a gate beside them, keys, and values that are
 * projected.
 */
function inputColumns(c: Configuration): { readonly queries: number; readonly keysAndValues: number } {
  const { headDim: d, attentionGate, valuesAreKeys } = c.geometry;
  return {
    queries: (attentionGate ? 2 : 1) * headsOf(c) * d,
    keysAndValues: (valuesAreKeys ? 1 : 2) * kvHeadsOf(c) * d,
  };
}

/**
 * Queries, keys and values, with biases, and norms of their heads. Layers that share a cache have queries of their own,
 * and K and V only in the first of them. `qkv` holds the rotary branch's queries.
 * @param branchKeys the rotary branch's keys are projected as well
 */
export function queryKeyValue(c: Configuration, block: LayerBlock, rows: number, branchKeys = true): Op[] {
  const { hidden, headDim: d } = c.geometry;
  const [heads, kvHeads] = [headsOf(c), kvHeadsOf(c)];
  const extras = layerExtras(c.geometry);
  const biased = (letters: string): number =>
    (extras?.biases ?? []).reduce(
      (sum, bias) => sum + (letters.includes(bias) ? (bias === 'q' ? heads : kvHeads) * d : 0),
      0,
    );
  const owning = owningTime(c, block);
  const norms = queryKeyNorms(c, rows, owning);
  const columns = inputColumns(c);
  if (sharesLayers(c, block))
    return [
      ...projectInLayer(c, 'q', rows, hidden, columns.queries),
      ...biasOp('q-bias', rows, biased('q')),
      ...projectInLayer(c, 'kv', rows, hidden, columns.keysAndValues, owning),
      ...biasOp('kv-bias', rows, biased('kv'), owning),
      ...norms,
    ];
  if (block.name === 'core' && codecSpec(c.codec).gatesState)
    return [
      ...projectInLayer(c, 'q', rows, hidden, columns.queries),
      ...biasOp('q-bias', rows, biased('q')),
      ...stateGate(c, rows),
      ...projectInLayer(c, 'kv', rows, hidden, columns.keysAndValues),
      ...biasOp('kv-bias', rows, biased('kv')),
      ...norms,
    ];
  const branch = branchWidth(c, block);
  return [
    ...projectInLayer(c, 'qkv', rows, hidden, columns.queries + columns.keysAndValues + branch * heads),
    ...biasOp('qkv-bias', rows, biased('qkv')),
    ...norms,
    ...(branch > 0 && branchKeys
      ? projectInLayer(c, 'branch-key', rows, hidden, branch * branchHeadsOf(c), branchKeyTime(c))
      : []),
  ];
}

/**
 * The state that keys and values are projected from: a gate of the input and of the state before, and their mixture, an
 * operation over two rows as the MLP's gate is. In the first loop the input is the state.
 */
const stateGate = (c: Configuration, rows: number): Op[] => {
  const { hidden } = c.geometry;
  return [
    ...projectInLayer(c, 'state-gate', rows, hidden, hidden, 'later-loops'),
    ...projectInLayer(c, 'state-gate-before', rows, hidden, hidden, 'later-loops'),
    ...biasOp('state-gate-bias', rows, hidden, 'later-loops'),
    op('state-mix', 'swiglu', 'f32', { rows, width: hidden }, 'later-loops'),
  ];
};

/** The gate of attention's output, and its projection. */
export function attentionOut(c: Configuration, rows: number): Op[] {
  const { headDim, hidden, attentionGate } = c.geometry;
  return [
    ...(attentionGate ? [op('attention-gate', 'gate', 'f32', { rows, width: headsOf(c) * headDim })] : []),
    ...projectInLayer(c, 'attention-out', rows, headsOf(c) * headDim, hidden),
    ...biasOp('attention-out-bias', rows, layerExtras(c.geometry)?.biases.includes('o') ? hidden : 0),
  ];
}

/** x += y, or x += n(y) with sandwich norms, or x = n(x + y) where they are of the sum. */
function residual(c: Configuration, branch: 'attention' | 'mlp', rows: number): Op[] {
  const { normsPerLayer, outputNorm = 'branch', normsOfBranches } = c.geometry;
  const label = `${branch}-residual`;
  if (normsOfBranches) return [norm(c, label, 'norm-add', rows)];
  if (normsPerLayer === 2) return [norm(c, label, 'add', rows)];
  if (outputNorm === 'branch') return [norm(c, label, 'norm-add', rows)];
  return [norm(c, label, 'add', rows), norm(c, `${branch}-sum-norm`, 'norm', rows)];
}

/** A layer of `rows` tokens: its attention and its MLP, each between a norm and its addition to the stream. */
export function layerAround(c: Configuration, rows: number, attention: readonly Op[], mlp: readonly Op[]): Op[] {
  const before = (label: string): Op[] => (c.geometry.normsOfBranches ? [] : [norm(c, label, 'norm', rows)]);
  return [
    ...before('attention-norm'),
    ...attention,
    ...residual(c, 'attention', rows),
    ...before('mlp-norm'),
    ...mlp,
    ...residual(c, 'mlp', rows),
  ];
}

/** The MLP between its norm and its residual. */
export function mlpOps(c: Configuration, rows: number): Op[] {
  const { hidden, mlp } = c.geometry;
  const width = Math.ceil(c.geometry.mlpHidden / c.gpus);
  const inner = mlp === 'gated' ? 2 * width : width;
  const biased = layerExtras(c.geometry)?.biases.includes('mlp') ?? false;
  return [
    ...projectInLayer(c, mlp === 'gated' ? 'gate-up' : 'up', rows, hidden, inner),
    ...biasOp('gate-up-bias', rows, biased ? inner : 0),
    op('swiglu', 'swiglu', 'f32', { rows, width }),
    ...projectInLayer(c, 'down', rows, width, hidden),
    ...biasOp('down-bias', rows, biased ? hidden : 0),
  ];
}

/**
 * [prelude's output; state] W as two products, since the state changes its buffer: a product cannot write what it
 * reads. The state is zero before the first loop. Where the prelude's output alone is multiplied, the decayed state is
 * added.
 */
export function adapterOps(c: Configuration, block: LayerBlock, rows: number): Op[] {
  const { adapter, hidden } = c.geometry;
  if (!adapter || block.name !== 'core') return [];
  const columns = Math.ceil(hidden / c.gpus);
  return [
    ...project(c, 'adapter', rows, hidden, columns),
    ...(adapter === 'input'
      ? [op('adapter-state', 'rmsnorm', 'add', { rows, width: hidden }, 'later-loops')]
      : project(c, 'adapter-state', rows, hidden, columns, 'later-loops')),
  ];
}

/** The norm that feeds the next loop, or the coda; where a pass runs stacks in turn, the last run's is that. */
export function loopNorm(c: Configuration, block: LayerBlock, rows: number): Op[] {
  if (block.name !== 'core') return [];
  const { normAfterEachLoop, normAfterCore, stacks } = c.geometry;
  return [
    ...(normAfterEachLoop && !stacks ? [norm(c, 'loop-norm', 'norm', rows)] : []),
    ...(normAfterCore ? [{ ...norm(c, 'core-norm', 'norm', rows), when: 'last-loop' as const }] : []),
  ];
}

/** Stacks in turn: each run begins with the sum of its state and the other's, and ends with a norm. */
export const stackOps = (c: Configuration, { name }: LayerBlock, rows: number): { runStart?: Op[]; runEnd?: Op[] } =>
  name === 'core' && c.geometry.stacks
    ? { runStart: [norm(c, 'stack-sum', 'add', rows)], runEnd: [norm(c, 'stack-norm', 'norm', rows)] }
    : {};

/** The first state of the stack that the embedding is not the state of: one row for all tokens. */
export const firstState = (c: Configuration, { name }: LayerBlock, rows: number): Op[] =>
  name === 'core' && c.geometry.stacks
    ? [op('low-state', 'accumulate', 'begin', { rows, width: c.geometry.hidden }, 'first-loop')]
    : [];

/** Loops that begin with the embedding, and the state of the token before: the embedding is kept for them. */
export const shiftOps = (c: Configuration, { name }: LayerBlock, rows: number): Op[] => {
  if (name !== 'core' || !c.geometry.shiftsLoops || c.geometry.loops === 1) return [];
  const shape = { rows, width: c.geometry.hidden };
  return [
    op('token-embedding', 'accumulate', 'begin', shape, 'first-loop'),
    op('loop-shift', 'shift', 'f32', shape, 'later-loops'),
  ];
};

/** The state with which a loop begins is kept, where its end mixes it with that of the loop. */
export const loopState = (c: Configuration, { name }: LayerBlock, rows: number): Op[] =>
  name === 'core' && c.geometry.changeRank !== undefined
    ? [op('loop-state', 'accumulate', 'begin', { rows, width: c.geometry.hidden })]
    : [];

/** The end of such a loop: its change, two products that say how much of it is kept, and the mixture. */
export function loopChange(c: Configuration, { name }: LayerBlock, rows: number): Op[] {
  const { hidden, changeRank } = c.geometry;
  if (name !== 'core' || changeRank === undefined) return [];
  const shape = { rows, width: hidden };
  return [
    op('loop-change', 'accumulate', 'add', shape),
    ...project(c, 'change-down', rows, hidden, changeRank),
    ...project(c, 'change-up', rows, changeRank, hidden),
    op('change-mix', 'gate', 'change', shape),
  ];
}

export const exitGate = (c: Configuration, block: LayerBlock, rows: number): Op[] =>
  block.name === 'core' && c.geometry.exitGate ? project(c, 'exit-gate', rows, c.geometry.hidden, 1) : [];

/** How a token is chosen from the logits. */
export type Choice = 'greedy' | 'top-p';

/** Logits and choice of `rows` sequences' next tokens. */
export function headOps(c: Configuration, rows: number, choice: Choice): Op[] {
  const { hidden, vocab, normAfterEachLoop, embeddingRank } = c.geometry;
  return [
    ...(normAfterEachLoop ? [] : [norm(c, 'final-norm', 'norm', rows)]),
    ...(embeddingRank === undefined ? [] : projectByTable(c, 'head-down', rows, hidden, embeddingRank)),
    ...projectByTable(c, 'lm-head', rows, tableWidth(c.geometry), Math.ceil(vocab / c.gpus)),
    op('sample', 'sample', choice, { rows, vocab }),
  ];
}
