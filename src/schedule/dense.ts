/**
 * Operations that every layer has, whatever its cache: norms, projections with their biases, and MLP, of `rows` tokens.
 * A decode step has a row a sequence, a prompt's prefill one a token of a chunk. network.ts has what is around layers.
 */
import { codecSpec } from '../codecs/registry.js';
import { layerExtras, type LayerBlock } from '../geometry/geometry.js';
import type { Placement } from '../../kernels/placement.js';
import type { Frame } from './bind/frame.js';
import { placed, type Bound, type NormName, type Placed, type Projection, type Ref } from './bind/refs.js';
import { branchHeadsOf, headsOf, kvHeadsOf, type Configuration, type Visit, type When } from './configuration.js';
import { branchKeyTime, branchWidth, owningTime, sharesLayers } from './facts.js';
import { op, PRICED_ONLY, projectInLayer, type Bind, type Op } from './op.js';

/** One row that every row of an operation takes. */
export const SAME_ROW: Placement = { offset: 0, stride: 0 };

/** Where an operation's rows are. */
export type Rows = (f: Frame, visit: Visit) => Placed;
export const streamRows: Rows = (f, visit) => ({ rows: f.residual, at: f.rowsOf(visit) });
/** Those of the last norm's output. */
export const normedRows: Rows = (f, visit) => ({ rows: f.normed, at: f.rowsOf(visit) });
/** What a layer's projections read: its normed input, or the stream itself where norms are of the branches. */
export const layerInput: Rows = (f, visit) => (f.c.geometry.normsOfBranches ? streamRows : normedRows)(f, visit);
/** What is added to the stream. */
export const projectedRows: Rows = (f, visit) => ({ rows: f.buffer('projected'), at: f.rowsOf(visit) });
/** Rows that have a buffer to themselves; a projection of them reads all of each unless a stride is given. */
export const alone =
  (label: string, stride?: number): Rows =>
  (f, { op }) => ({ rows: f.buffer(label), at: { offset: 0, stride: stride ?? (op.shape.k as number) } });

/** y = n(x). @param rows of x, all of them side by side unless given */
export const normBinds = (
  f: Frame,
  { place }: Visit,
  of: NormName,
  input: Ref,
  target: Ref,
  rows?: Placement,
): Bound => ({
  options: { eps: f.setting.normEpsilon, ...(rows ? { placement: { input: rows } } : {}) },
  binds: { input, target, weight: { weights: 'norm', of, stored: place?.stored ?? 0 } },
});

/** RMSNorm of the stream, for what reads it next. */
export const norm = (c: Configuration, label: string, rows: number, binds: Bind): Op =>
  op(label, 'rmsnorm', 'norm', { rows, width: c.geometry.hidden }, binds);
export const normOf =
  (of: NormName): Bind =>
  (f, visit) =>
    normBinds(f, visit, of, f.residual, f.normed);

/** x = n(x): the streams are exchanged. */
export const streamNormOf =
  (of: NormName): Bind =>
  (f, visit) => {
    const bound = normBinds(f, visit, of, f.residual, f.normed);
    f.exchangeStreams();
    return bound;
  };

/** A product with a model's matrix: columns [visit.before, …) of it. @param more which inputs, and whether it adds */
export const product =
  (
    of: Projection,
    x: Rows,
    y: Rows,
    more: { readonly inputs?: { readonly from: number; readonly count: number }; readonly accumulate?: boolean } = {},
  ): Bind =>
  (f, visit) => {
    const { op, place, part, before } = visit;
    const { inputs, accumulate = false } = more;
    const [from, to] = [x(f, visit), y(f, visit)];
    const rowsOf = ({ at }: Placed, first = 0) => ({ offset: at.offset + first, row: at.stride });
    return {
      options: { matmul: { x: rowsOf(from), y: rowsOf(to, before), accumulate } },
      binds: {
        x: from.rows,
        weights: {
          weights: 'projection',
          of,
          stored: place?.stored ?? 0,
          layer: place?.layer ?? 0,
          branch: place ? branchWidth(f.c, place.block) : 0,
          part,
          first: before,
          columns: op.shape.n as number,
          ...(inputs ? { inputs } : {}),
        },
        y: to.rows,
      },
    };
  };

/** One bias row, added to every row of a projection. */
const biasOp = (label: string, rows: number, width: number, binds: Bind | undefined, when: When = 'always'): Op[] =>
  width > 0 ? [op(label, 'rmsnorm', 'add', { rows, width }, binds, when)] : [];

/** x = n(x) of packed queries or keys. */
const headNorm =
  (what: 'queries' | 'keys', of: NormName): Bind =>
  (f, visit) => {
    const { rows: target, at } = f.inPacked(what);
    return {
      options: { eps: f.setting.normEpsilon, placement: { output: at } },
      binds: { weight: { weights: 'norm', of, stored: placed(visit).stored }, target },
    };
  };
const NORM_QUERIES = headNorm('queries', 'self_attn.q_norm');
const NORM_KEYS = headNorm('keys', 'self_attn.k_norm');

/** Norms of queries and keys: of their heads, or of their rows. */
function queryKeyNorms(c: Configuration, rows: number, owning: When): Op[] {
  const { headDim: d } = c.geometry;
  const norms = layerExtras(c.geometry)?.norms ?? null;
  if (norms === null) return [];
  const of = (label: string, count: number, binds: Bind, when: When = 'always'): Op => {
    const shape = norms === 'rows' ? { heads: 1, headDim: count * d } : { heads: count, headDim: d };
    return op(label, 'head_norm', 'f32', { rows, ...shape }, binds, when);
  };
  return [
    of('q-norm', headsOf(c), NORM_QUERIES),
    ...(norms === 'query-heads' ? [] : [of('k-norm', kvHeadsOf(c), NORM_KEYS, owning)]),
  ];
}

type Letters = 'qkv' | 'q' | 'kv';

/** A product of packed rows. */
const packed = (letters: Letters): Bind =>
  product(letters, layerInput, (f) => {
    const { rows, at } = f.inPacked(letters === 'kv' ? 'keys' : 'queries');
    return { rows, at: letters === 'kv' ? at : { ...at, offset: 0 } };
  });
/** Adds the biases of such a product. The known layouts have biases of the first projections of a row. */
const packedBias =
  (letters: Letters): Bind =>
  (f, visit) => {
    const { rows: target, at } = f.inPacked(letters === 'kv' ? 'keys' : 'queries');
    const biases = layerExtras(f.c.geometry)?.biases ?? [];
    const own = [...letters].filter((letter) => biases.includes(letter as 'q')).join('');
    return {
      options: { placement: { input: SAME_ROW, output: at } },
      binds: { input: { weights: 'biases', letters: own, stored: placed(visit).stored }, target },
    };
  };
const PACKED = { qkv: packed('qkv'), q: packed('q'), kv: packed('kv') };
const PACKED_BIAS = { qkv: packedBias('qkv'), q: packedBias('q'), kv: packedBias('kv') };
const BRANCH_KEY = product('branch-key', layerInput, (f, visit) => f.branchKeys(visit));

/**
 * Queries, keys and values, with biases, and norms of their heads. Layers that share a cache have queries of their own,
 * and K and V only in the first of them. `qkv` holds the rotary branch's queries.
 * @param branchKeys the rotary branch's keys are projected as well
 */
export function queryKeyValue(c: Configuration, block: LayerBlock, rows: number, branchKeys = true): Op[] {
  const { hidden, headDim: d, attentionGate, valuesAreKeys } = c.geometry;
  const [heads, kvHeads] = [headsOf(c), kvHeadsOf(c)];
  const biases = layerExtras(c.geometry)?.biases ?? [];
  const branch = branchWidth(c, block);
  // Columns of each: queries with a gate beside them, keys, and values that are projected.
  const [q, kv] = [(attentionGate ? 2 : 1) * heads * d, (valuesAreKeys ? 1 : 2) * kvHeads * d];
  const projected = (letters: Letters, columns: number, when?: When): Op[] => {
    let width = 0;
    for (const bias of biases) if (letters.includes(bias)) width += (bias === 'q' ? heads : kvHeads) * d;
    return [
      ...projectInLayer(c, letters, rows, hidden, columns, PACKED[letters], when),
      ...biasOp(`${letters}-bias`, rows, width, PACKED_BIAS[letters], when),
    ];
  };
  const owning = owningTime(c, block);
  const norms = queryKeyNorms(c, rows, owning);
  if (sharesLayers(c, block)) return [...projected('q', q), ...projected('kv', kv, owning), ...norms];
  if (block.name === 'core' && codecSpec(c.codec).gatesState)
    return [...projected('q', q), ...stateGate(c, rows), ...projected('kv', kv), ...norms];
  return [
    ...projected('qkv', q + kv + branch * heads),
    ...norms,
    ...(branch > 0 && branchKeys
      ? projectInLayer(c, 'branch-key', rows, hidden, branch * branchHeadsOf(c), BRANCH_KEY, branchKeyTime(c))
      : []),
  ];
}

/** The state that K and V are projected from: gates of the input and the state before, and their mixture. */
const stateGate = (c: Configuration, rows: number): Op[] => {
  const { hidden } = c.geometry;
  return [
    ...projectInLayer(c, 'state-gate', rows, hidden, hidden, PRICED_ONLY, 'later-loops'),
    ...projectInLayer(c, 'state-gate-before', rows, hidden, hidden, PRICED_ONLY, 'later-loops'),
    ...biasOp('state-gate-bias', rows, hidden, PRICED_ONLY, 'later-loops'),
    op('state-mix', 'swiglu', 'f32', { rows, width: hidden }, PRICED_ONLY, 'later-loops'),
  ];
};

const gateAttention: Bind = (f, { op }) => {
  const { rows: input, at } = f.inPacked('gate');
  const placement = { input: at, output: { offset: 0, stride: op.shape.width as number } };
  return { options: { placement }, binds: { input, target: f.buffer('attention') } };
};
const ATTENTION_OUT = product('attention-out', alone('attention'), projectedRows);

/** The gate of attention's output, and its projection. */
export function attentionOut(c: Configuration, rows: number): Op[] {
  const { headDim, hidden, attentionGate } = c.geometry;
  const width = headsOf(c) * headDim;
  return [
    ...(attentionGate ? [op('attention-gate', 'gate', 'f32', { rows, width }, gateAttention)] : []),
    ...projectInLayer(c, 'attention-out', rows, width, hidden, ATTENTION_OUT),
    ...biasOp('attention-out-bias', rows, layerExtras(c.geometry)?.biases.includes('o') ? hidden : 0, PRICED_ONLY),
  ];
}

/** What norms of a layer bind: before a branch, with its addition to the stream, and after that. */
const branchNorms = (before: NormName, after: NormName) => ({
  before: normOf(before),
  add: ((f, visit) => {
    const [input, target] = [f.buffer('projected'), f.residual];
    return visit.op.variant === 'add' ? { binds: { input, target } } : normBinds(f, visit, after, input, target);
  }) satisfies Bind,
  sum: streamNormOf(after),
});
const NORMS = {
  attention: branchNorms('input_layernorm', 'input_layernorm_2'),
  mlp: branchNorms('post_attention_layernorm', 'post_attention_layernorm_2'),
};

/** x += y, or x += n(y) with sandwich norms, or x = n(x + y) where they are of the sum. */
function residual(c: Configuration, branch: 'attention' | 'mlp', rows: number): Op[] {
  const { normsPerLayer, outputNorm = 'branch', normsOfBranches, hidden } = c.geometry;
  const add = (variant: 'add' | 'norm-add'): Op =>
    op(`${branch}-residual`, 'rmsnorm', variant, { rows, width: hidden }, NORMS[branch].add);
  if (!normsOfBranches && normsPerLayer === 2) return [add('add')];
  if (normsOfBranches || outputNorm === 'branch') return [add('norm-add')];
  return [add('add'), norm(c, `${branch}-sum-norm`, rows, NORMS[branch].sum)];
}

/** A layer of `rows` tokens: its attention and its MLP, each between a norm and its addition to the stream. */
export function layerAround(c: Configuration, rows: number, attention: readonly Op[], mlp: readonly Op[]): Op[] {
  const before = (branch: 'attention' | 'mlp'): Op[] =>
    c.geometry.normsOfBranches ? [] : [norm(c, `${branch}-norm`, rows, NORMS[branch].before)];
  return [
    ...before('attention'),
    ...attention,
    ...residual(c, 'attention', rows),
    ...before('mlp'),
    ...mlp,
    ...residual(c, 'mlp', rows),
  ];
}

const GATE_UP = product('gate-up', layerInput, (f) => ({
  rows: f.buffer('gate up'),
  at: { offset: 0, stride: 2 * f.c.geometry.mlpHidden },
}));
const activate: Bind = (f) => ({ binds: { input: f.buffer('gate up'), output: f.buffer('activated') } });
const DOWN = product('down', alone('activated'), projectedRows);

/** The MLP between its norm and its residual. */
export function mlpOps(c: Configuration, rows: number): Op[] {
  const { hidden, mlp } = c.geometry;
  const width = Math.ceil(c.geometry.mlpHidden / c.gpus);
  const gated = mlp === 'gated';
  const inner = gated ? 2 * width : width;
  const biased = layerExtras(c.geometry)?.biases.includes('mlp') ?? false;
  return [
    ...projectInLayer(c, gated ? 'gate-up' : 'up', rows, hidden, inner, gated ? GATE_UP : PRICED_ONLY),
    ...biasOp('gate-up-bias', rows, biased ? inner : 0, PRICED_ONLY),
    op('swiglu', 'swiglu', 'f32', { rows, width }, activate),
    ...projectInLayer(c, 'down', rows, width, hidden, DOWN),
    ...biasOp('down-bias', rows, biased ? hidden : 0, PRICED_ONLY),
  ];
}
