/**
 * Operations that every layer has, whatever its cache: norms, projections with their biases, and MLP, of `rows` tokens.
 * A decode step has a row a sequence, a prompt's prefill one a token of a chunk. network.ts lists what is around layers.
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
/** Rows that have a buffer to themselves. */
export const alone =
  (label: string, stride: number): Rows =>
  (f) => ({ rows: f.buffer(label), at: { offset: 0, stride } });

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
export const norm = (c: Configuration, label: string, rows: number, of: NormName): Op =>
  op(label, 'rmsnorm', 'norm', { rows, width: c.geometry.hidden }, (f, visit) =>
    normBinds(f, visit, of, f.residual, f.normed),
  );

/** x = n(x): the streams are exchanged. */
export const streamNorm = (c: Configuration, label: string, rows: number, of: NormName): Op => ({
  ...norm(c, label, rows, of),
  binds: (f, visit) => {
    const bound = normBinds(f, visit, of, f.residual, f.normed);
    f.exchangeStreams();
    return bound;
  },
});

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

/** Norms of queries and keys: of their heads, or of their rows. */
function queryKeyNorms(c: Configuration, rows: number, owning: When): Op[] {
  const { headDim: d } = c.geometry;
  const norms = layerExtras(c.geometry)?.norms ?? null;
  if (norms === null) return [];
  const of = (letter: 'q' | 'k', what: 'queries' | 'keys', count: number, when: When = 'always'): Op => {
    const shape = norms === 'rows' ? { heads: 1, headDim: count * d } : { heads: count, headDim: d };
    const binds: Bind = (f, visit) => {
      const { rows: target, at } = f.inPacked(what);
      return {
        options: { eps: f.setting.normEpsilon, placement: { output: at } },
        binds: {
          weight: { weights: 'norm', of: `self_attn.${letter}_norm`, stored: placed(visit).stored },
          target,
        },
      };
    };
    return op(`${letter}-norm`, 'head_norm', 'f32', { rows, ...shape }, binds, when);
  };
  return [of('q', 'queries', headsOf(c)), ...(norms === 'query-heads' ? [] : [of('k', 'keys', kvHeadsOf(c), owning)])];
}

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
  const queries = (attentionGate ? 2 : 1) * heads * d;
  const columns = { q: queries, kv: (valuesAreKeys ? 1 : 2) * kvHeads * d };
  const widths = { ...columns, qkv: queries + columns.kv + branch * heads };
  /** One product of packed rows, and its biases; the known layouts have biases of the first projections of a row. */
  const projected = (letters: 'qkv' | 'q' | 'kv', when?: When): Op[] => {
    const rowsOf: Rows = (f) => {
      const { rows, at } = f.inPacked(letters === 'kv' ? 'keys' : 'queries');
      return { rows, at: letters === 'kv' ? at : { ...at, offset: 0 } };
    };
    const own = [...letters].filter((letter) => biases.includes(letter as 'q'));
    const bias: Bind = (f, visit) => {
      const { rows: target, at } = f.inPacked(letters === 'kv' ? 'keys' : 'queries');
      return {
        options: { placement: { input: SAME_ROW, output: at } },
        binds: { input: { weights: 'biases', letters: own.join(''), stored: placed(visit).stored }, target },
      };
    };
    const width = own.reduce((sum, letter) => sum + (letter === 'q' ? heads : kvHeads) * d, 0);
    return [
      ...projectInLayer(c, letters, rows, hidden, widths[letters], product(letters, layerInput, rowsOf), when),
      ...biasOp(`${letters}-bias`, rows, width, bias, when),
    ];
  };
  const owning = owningTime(c, block);
  const norms = queryKeyNorms(c, rows, owning);
  if (sharesLayers(c, block)) return [...projected('q'), ...projected('kv', owning), ...norms];
  if (block.name === 'core' && codecSpec(c.codec).gatesState)
    return [...projected('q'), ...stateGate(c, rows), ...projected('kv'), ...norms];
  const toBranch = product('branch-key', layerInput, (f, visit) => f.branchKeys(visit));
  return [
    ...projected('qkv'),
    ...norms,
    ...(branch > 0 && branchKeys
      ? projectInLayer(c, 'branch-key', rows, hidden, branch * branchHeadsOf(c), toBranch, branchKeyTime(c))
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
    ...projectInLayer(c, 'state-gate', rows, hidden, hidden, PRICED_ONLY, 'later-loops'),
    ...projectInLayer(c, 'state-gate-before', rows, hidden, hidden, PRICED_ONLY, 'later-loops'),
    ...biasOp('state-gate-bias', rows, hidden, PRICED_ONLY, 'later-loops'),
    op('state-mix', 'swiglu', 'f32', { rows, width: hidden }, PRICED_ONLY, 'later-loops'),
  ];
};

/** The gate of attention's output, and its projection. */
export function attentionOut(c: Configuration, rows: number): Op[] {
  const { headDim, hidden, attentionGate } = c.geometry;
  const width = headsOf(c) * headDim;
  const gate: Bind = (f) => {
    const { rows: input, at } = f.inPacked('gate');
    const placement = { input: at, output: { offset: 0, stride: width } };
    return { options: { placement }, binds: { input, target: f.buffer('attention') } };
  };
  const out = product('attention-out', alone('attention', width), projectedRows);
  return [
    ...(attentionGate ? [op('attention-gate', 'gate', 'f32', { rows, width }, gate)] : []),
    ...projectInLayer(c, 'attention-out', rows, width, hidden, out),
    ...biasOp('attention-out-bias', rows, layerExtras(c.geometry)?.biases.includes('o') ? hidden : 0, PRICED_ONLY),
  ];
}

/** x += y, or x += n(y) with sandwich norms, or x = n(x + y) where they are of the sum. */
function residual(c: Configuration, branch: 'attention' | 'mlp', rows: number): Op[] {
  const { normsPerLayer, outputNorm = 'branch', normsOfBranches, hidden } = c.geometry;
  const of = branch === 'attention' ? 'input_layernorm_2' : 'post_attention_layernorm_2';
  const add = (variant: 'add' | 'norm-add'): Op =>
    op(`${branch}-residual`, 'rmsnorm', variant, { rows, width: hidden }, (f, visit) => {
      const [input, target] = [f.buffer('projected'), f.residual];
      return variant === 'add' ? { binds: { input, target } } : normBinds(f, visit, of, input, target);
    });
  if (!normsOfBranches && normsPerLayer === 2) return [add('add')];
  if (normsOfBranches || outputNorm === 'branch') return [add('norm-add')];
  return [add('add'), streamNorm(c, `${branch}-sum-norm`, rows, of)];
}

/** A layer of `rows` tokens: its attention and its MLP, each between a norm and its addition to the stream. */
export function layerAround(c: Configuration, rows: number, attention: readonly Op[], mlp: readonly Op[]): Op[] {
  const before = (label: string, of: NormName): Op[] => (c.geometry.normsOfBranches ? [] : [norm(c, label, rows, of)]);
  return [
    ...before('attention-norm', 'input_layernorm'),
    ...attention,
    ...residual(c, 'attention', rows),
    ...before('mlp-norm', 'post_attention_layernorm'),
    ...mlp,
    ...residual(c, 'mlp', rows),
  ];
}

/** The MLP between its norm and its residual. */
export function mlpOps(c: Configuration, rows: number): Op[] {
  const { hidden, mlp } = c.geometry;
  const width = Math.ceil(c.geometry.mlpHidden / c.gpus);
  const gated = mlp === 'gated';
  const inner = gated ? 2 * width : width;
  const biased = layerExtras(c.geometry)?.biases.includes('mlp') ?? false;
  const up = gated ? product('gate-up', layerInput, alone('gate up', inner)) : PRICED_ONLY;
  const gate: Bind = (f) => ({ binds: { input: f.buffer('gate up'), output: f.buffer('activated') } });
  const down = product('down', alone('activated', width), projectedRows);
  return [
    ...projectInLayer(c, gated ? 'gate-up' : 'up', rows, hidden, inner, up),
    ...biasOp('gate-up-bias', rows, biased ? inner : 0, PRICED_ONLY),
    op('swiglu', 'swiglu', 'f32', { rows, width }, gate),
    ...projectInLayer(c, 'down', rows, width, hidden, down),
    ...biasOp('down-bias', rows, biased ? hidden : 0, PRICED_ONLY),
  ];
}
