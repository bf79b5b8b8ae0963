/**
 * What the operations bind that every layer has, whatever its cache: embedding, norms, projections, MLP, output head
 * and choice of a token. They are the same for a step and for a prompt.
 */
import { layerExtras, stackPlace, tableWidth } from '../../geometry/geometry.js';
import type { Placement } from '../../../kernels/placement.js';
import { branchWidth } from '../eviction-ops.js';
import type { Visit } from '../expand.js';
import type { Frame } from './frame.js';
import { placed, type Bound, type NormName, type Placed, type Projection, type Ref } from './refs.js';

/** Bindings and options of an operation, where it runs. */
export type Bind<F extends Frame = Frame> = (f: F, visit: Visit) => Bound;
/** By label of the operation. */
export type Binds<F extends Frame = Frame> = Readonly<Record<string, Bind<F>>>;

/** One row that every row of an operation takes. */
export const SAME_ROW: Placement = { offset: 0, stride: 0 };

/** y = n(x). @param rows of x, all of them side by side unless given */
const norm = (f: Frame, { place }: Visit, of: NormName, input: Ref, target: Ref, rows?: Placement): Bound => ({
  options: { eps: f.setting.normEpsilon, ...(rows ? { placement: { input: rows } } : {}) },
  binds: { input, target, weight: { weights: 'norm', of, stored: place?.stored ?? 0 } },
});

const layerNorm =
  (of: NormName): Bind =>
  (f, visit) =>
    norm(f, visit, of, f.residual, f.normed);

/** x += n(y), or x += y. */
const residual =
  (of: NormName): Bind =>
  (f, visit) => {
    const [input, target] = [f.buffer('projected'), f.residual];
    return visit.op.variant === 'add' ? { binds: { input, target } } : norm(f, visit, of, input, target);
  };

/** x = n(x): the streams are exchanged. */
const streamNorm =
  (of: NormName): Bind =>
  (f, visit) => {
    const bound = norm(f, visit, of, f.residual, f.normed);
    f.exchangeStreams();
    return bound;
  };

/** A product with a model's matrix: columns [visit.before, …) of it. */
function project(
  f: Frame,
  { op, place, part, before }: Visit,
  of: Projection,
  x: Placed,
  y: Placed,
  more: { readonly inputs?: { readonly from: number; readonly count: number }; readonly accumulate?: boolean } = {},
): Bound {
  const { inputs, accumulate = false } = more;
  const rowsOf = ({ at }: Placed, first = 0) => ({ offset: at.offset + first, row: at.stride });
  return {
    options: { matmul: { x: rowsOf(x), y: rowsOf(y, before), accumulate } },
    binds: {
      x: x.rows,
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
      y: y.rows,
    },
  };
}

/** Rows of the last norm's output. */
const normedRows = (f: Frame, visit: Visit): Placed => ({ rows: f.normed, at: f.rowsOf(visit) });
const streamRows = (f: Frame, visit: Visit): Placed => ({ rows: f.residual, at: f.rowsOf(visit) });

/** What a layer's projections read: its normed input, or the stream itself where norms are of the branches. */
export const layerInput = (f: Frame, visit: Visit): Placed =>
  f.c.geometry.normsOfBranches ? streamRows(f, visit) : normedRows(f, visit);

/** x = n(x) of the heads of packed queries or keys. */
const headNorm =
  (what: 'queries' | 'keys', of: NormName): Bind =>
  (f, visit) => {
    const { rows, at } = f.inPacked(what);
    return {
      options: { eps: f.setting.normEpsilon, placement: { output: at } },
      binds: { weight: { weights: 'norm', of, stored: placed(visit).stored }, target: rows },
    };
  };

type Letters = 'qkv' | 'q' | 'kv';

/** Queries, keys and values of packed rows: the label says which of them an operation makes. */
const packedProjection =
  (letters: Letters): Bind =>
  (f, visit) => {
    const { rows, at } = f.inPacked(letters === 'kv' ? 'keys' : 'queries');
    const to = letters === 'kv' ? at : { ...at, offset: 0 };
    return project(f, visit, letters, layerInput(f, visit), { rows, at: to });
  };

/** Adds the biases of a projection to its rows. The known layouts have biases of the first projections of a row. */
const packedBias =
  (letters: Letters): Bind =>
  (f, visit) => {
    const biases = layerExtras(f.c.geometry)?.biases ?? [];
    const own = [...letters].filter((letter) => biases.includes(letter)).join('');
    const { rows, at } = f.inPacked(letters === 'kv' ? 'keys' : 'queries');
    return {
      options: { placement: { input: SAME_ROW, output: at } },
      binds: { input: { weights: 'biases', letters: own, stored: placed(visit).stored }, target: rows },
    };
  };

/** A projection back into the stream, of rows that an operation has to itself. */
const back =
  (of: 'attention-out' | 'down', from: 'attention' | 'activated'): Bind =>
  (f, visit) => {
    const x = { rows: f.buffer(from), at: { offset: 0, stride: visit.op.shape.k as number } };
    return project(f, visit, of, x, { rows: f.buffer('projected'), at: f.rowsOf(visit) });
  };

/** One of the adapter's products; the state's is added to the other. */
function adapterProduct(f: Frame, visit: Visit, ofState: boolean): Bound {
  const { hidden } = f.c.geometry;
  const rows = (ofState ? f.state : f.preludeOutput) as Placed['rows'];
  return project(f, visit, 'adapter', { rows, at: f.rowsOf(visit) }, streamRows(f, visit), {
    inputs: { from: ofState ? 0 : hidden, count: hidden },
    accumulate: ofState,
  });
}

const adapter: Bind = (f, visit) => {
  const { block, loop } = placed(visit);
  if (visit.part === 0 && f.firstRow(visit) === 0) f.beginLoop(loop === 0);
  const bound = adapterProduct(f, visit, false);
  if (block.loops > 1) return bound;
  // With one loop no state is multiplied, but its weights are the model's.
  const { x, y, weights } = bound.binds as Record<'x' | 'y', Ref> & { weights: { inputs: { count: number } } & Ref };
  const ofState = { ...weights, inputs: { from: 0, count: weights.inputs.count } };
  return { ...bound, binds: { ofState, x, weights, y } };
};

/**
 * Tied tables are the output head's matrix where one binding holds it, [table's width][vocabulary]. Rows of a lower
 * rank go where norms write, from where they are projected.
 */
const embedding: Bind = (f, visit) => {
  const g = f.c.geometry;
  const width = visit.op.shape.width as number;
  if (visit.part === 0) f.beginPass();
  const tied = g.tiedEmbeddings && width === tableWidth(g);
  const head = { of: 'head', stored: 0, layer: 0, branch: 0, part: 0, first: 0, columns: g.vocab } as const;
  const placement = { output: { offset: visit.before, stride: g.hidden } };
  return {
    options: { vocabulary: g.vocab, placement, ...(tied ? { embeddingColumns: true } : {}) },
    binds: {
      tokens: f.buffer('tokens'),
      embedding: tied
        ? { weights: 'projection', ...head }
        : { weights: 'embedding', first: visit.before, columns: width },
      output: g.embeddingRank === undefined ? f.residual : f.normed,
    },
  };
};

/** A row for all tokens; zeros where the model has none. */
const lowState: Bind = (f) => ({
  options: { factor: 1, placement: { input: SAME_ROW } },
  binds: { input: { weights: 'low-state' }, target: f.otherState as Ref },
});

const loopShift: Bind = (f, visit) => ({
  options: { factor: f.c.geometry.shiftsLoops?.state ?? 1 },
  binds: {
    positions: f.buffer('positions'),
    embedding: f.buffer('token embedding'),
    states: f.buffer('loop states', placed(visit).loop - 1),
    target: f.residual,
  },
});

/** The state of the stack that begins, plus that of the other. */
const stackSum: Bind = (f, visit) => {
  f.enterStack(stackPlace(f.c.geometry, placed(visit).layer).stack);
  return { binds: { input: f.otherState as Ref, target: f.residual } };
};

/** Gates of the heads, of the layer's normed input. */
export const loopGateOfInput: Bind = (f, visit) =>
  project(f, visit, 'loop-gate', normedRows(f, visit), alone(f, 'loop gates', f.c.geometry.heads));

/** A loop's change, in place of its state. */
const loopChange: Bind = (f, visit) => {
  const at = f.rowsOf(visit);
  return {
    options: { factor: -1, placement: { input: at, output: at } },
    binds: { input: f.otherState as Ref, target: f.residual },
  };
};

const changeMix: Bind = (f, visit) => ({
  options: { placement: { output: f.rowsOf(visit) } },
  binds: {
    gates: f.buffer('projected'),
    rates: { weights: 'change-rates' },
    before: f.otherState as Ref,
    target: f.residual,
  },
});

/** Rows of a change's rank, where the MLP's are between layers. */
const changeRows = (f: Frame): Placed => alone(f, 'activated', f.c.geometry.changeRank as number);

const attentionGate: Bind = (f, visit) => {
  const { rows, at } = f.inPacked('gate');
  const output = { offset: 0, stride: visit.op.shape.width as number };
  return { options: { placement: { input: at, output } }, binds: { input: rows, target: f.buffer('attention') } };
};

/** Rows that a norm has seen: of all at the end of the last loop, or of the last ones alone. */
const lastNormed = (f: Frame, visit: Visit): Placed =>
  f.c.geometry.normAfterEachLoop ? { rows: f.residual, at: f.lastRows } : normedRows(f, visit);

/** These in the width of the head's table: in the stream that they do not come from. */
const lowered = (f: Frame): Placed => ({
  rows: f.c.geometry.normAfterEachLoop ? f.normed : f.residual,
  at: { offset: 0, stride: f.c.geometry.hidden },
});

/** Rows that have a buffer to themselves. */
const alone = (f: Frame, label: string, stride: number): Placed => ({
  rows: f.buffer(label),
  at: { offset: 0, stride },
});

const sample: Bind = (f) => ({
  options: f.setting.sampling.temperature === 0 ? {} : { sample: f.setting.sampling },
  binds: { logits: f.buffer('logits'), tokens: f.buffer('next tokens'), draws: f.buffer('draws') },
});

export const DENSE: Binds = {
  embedding,
  'embedding-up': (f, visit) => project(f, visit, 'embedding-up', normedRows(f, visit), streamRows(f, visit)),
  adapter,
  'adapter-state': (f, visit) => adapterProduct(f, visit, true),
  'attention-norm': layerNorm('input_layernorm'),
  'mlp-norm': layerNorm('post_attention_layernorm'),
  'attention-residual': residual('input_layernorm_2'),
  'mlp-residual': residual('post_attention_layernorm_2'),
  'attention-sum-norm': streamNorm('input_layernorm_2'),
  'mlp-sum-norm': streamNorm('post_attention_layernorm_2'),
  'loop-gate-norm': layerNorm('loop_gate_norm'),
  'loop-norm': streamNorm('final'),
  'token-embedding': (f) => ({
    options: { factor: f.c.geometry.shiftsLoops?.embedding ?? 1 },
    binds: { input: f.residual, target: f.buffer('token embedding') },
  }),
  'loop-shift': loopShift,
  'low-state': lowState,
  'loop-state': (f) => ({ options: { factor: 1 }, binds: { input: f.residual, target: f.otherState as Ref } }),
  'loop-change': loopChange,
  'change-down': (f, visit) => project(f, visit, 'change-down', streamRows(f, visit), changeRows(f)),
  'change-up': (f, visit) =>
    project(f, visit, 'change-up', changeRows(f), { rows: f.buffer('projected'), at: f.rowsOf(visit) }),
  'change-mix': changeMix,
  'stack-sum': stackSum,
  'stack-norm': streamNorm('final'),
  'attention-gate': attentionGate,
  'core-norm': streamNorm('core'),
  'final-norm': (f, visit) => norm(f, visit, 'final', f.residual, f.normed, f.lastRows),
  qkv: packedProjection('qkv'),
  q: packedProjection('q'),
  kv: packedProjection('kv'),
  'qkv-bias': packedBias('qkv'),
  'q-bias': packedBias('q'),
  'kv-bias': packedBias('kv'),
  'q-norm': headNorm('queries', 'self_attn.q_norm'),
  'k-norm': headNorm('keys', 'self_attn.k_norm'),
  'attention-out': back('attention-out', 'attention'),
  'gate-up': (f, visit) =>
    project(f, visit, 'gate-up', layerInput(f, visit), alone(f, 'gate up', 2 * f.c.geometry.mlpHidden)),
  swiglu: (f) => ({ binds: { input: f.buffer('gate up'), output: f.buffer('activated') } }),
  down: back('down', 'activated'),
  'exit-gate': (f, visit) => project(f, visit, 'exit-gate', streamRows(f, visit), alone(f, 'exit', 1)),
  'head-down': (f, visit) => project(f, visit, 'head-down', lastNormed(f, visit), lowered(f)),
  'lm-head': (f, visit) => {
    const { embeddingRank, vocab } = f.c.geometry;
    const x = embeddingRank === undefined ? lastNormed(f, visit) : lowered(f);
    return project(f, visit, 'head', x, alone(f, 'logits', vocab));
  },
  sample,
  'branch-key': (f, visit) => project(f, visit, 'branch-key', layerInput(f, visit), f.branchKeys(visit)),
};
