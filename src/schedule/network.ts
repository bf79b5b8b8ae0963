/** Operations around layers: embedding, adapter, what is between loops and stacks, output head, choice of a token. */
import { stackPlace, tableWidth, type LayerBlock } from '../geometry/geometry.js';
import { placed, type BufferRef, type Ref } from './bind/refs.js';
import { inParts, type Configuration, type When } from './configuration.js';
import { alone, norm, normBinds, normedRows, product, projectedRows, SAME_ROW } from './dense.js';
import { streamNormOf, streamRows, type Rows } from './dense.js';
import { inEachPart, op, PRICED_ONLY, project, projectByTable, type Bind, type Op } from './op.js';

/** The embedding; tables beyond a binding in pairs of columns. Rows of a lower rank go where norms write. */
export function embeddingOps(c: Configuration, rows: number): Op[] {
  const { hidden, vocab, embeddingRank, tiedEmbeddings } = c.geometry;
  const width = tableWidth(c.geometry);
  /** Tied tables are the output head's matrix where one binding holds it, [table's width][vocabulary]. */
  const binds: Bind = (f, visit) => {
    const columns = visit.op.shape.width as number;
    if (visit.part === 0) f.beginPass();
    const tied = tiedEmbeddings && columns === width;
    const head = { of: 'head', stored: 0, layer: 0, branch: 0, part: 0, first: 0, columns: vocab } as const;
    const placement = { output: { offset: visit.before, stride: hidden } };
    return {
      options: { vocabulary: vocab, placement, ...(tied ? { embeddingColumns: true } : {}) },
      binds: {
        tokens: f.buffer('tokens'),
        embedding: tied ? { weights: 'projection', ...head } : { weights: 'embedding', first: visit.before, columns },
        output: embeddingRank === undefined ? f.residual : f.normed,
      },
    };
  };
  const part = (columns: number): Op[] => [op('embedding', 'embed', 'f16', { rows, width: columns }, binds)];
  const table =
    2 * width * vocab <= c.bindingBytes
      ? part(width)
      : inEachPart(inParts(Math.floor(width / 2), 4 * vocab, c.bindingBytes), (size) => part(2 * size));
  const up = product('embedding-up', normedRows, streamRows);
  return [
    ...table,
    ...(embeddingRank === undefined ? [] : projectByTable(c, 'embedding-up', rows, embeddingRank, hidden, up)),
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
  const stateInputs = { from: 0, count: hidden };
  const rowsOf =
    (what: 'preludeOutput' | 'state'): Rows =>
    (f, visit) => ({ rows: f[what] as BufferRef, at: f.rowsOf(visit) });
  const outputInputs = { from: hidden, count: hidden };
  const ofOutput = product('adapter', rowsOf('preludeOutput'), streamRows, { inputs: outputInputs });
  const ofState = product('adapter', rowsOf('state'), streamRows, { inputs: stateInputs, accumulate: true });
  const begins: Bind = (f, visit) => {
    if (visit.part === 0 && f.firstRow(visit) === 0) f.beginLoop(placed(visit).loop === 0);
    const bound = ofOutput(f, visit);
    if (block.loops > 1) return bound;
    // With one loop no state is multiplied, but its weights are the model's.
    const { x, y, weights } = bound.binds as Record<'x' | 'y' | 'weights', Ref>;
    return { ...bound, binds: { ofState: { ...weights, inputs: stateInputs } as Ref, x: x, weights, y } };
  };
  return [
    ...project(c, 'adapter', rows, hidden, columns, begins),
    ...(adapter === 'input'
      ? [op('adapter-state', 'rmsnorm', 'add', { rows, width: hidden }, PRICED_ONLY, 'later-loops')]
      : project(c, 'adapter-state', rows, hidden, columns, ofState, 'later-loops')),
  ];
}

/** The norm that feeds the next loop, or the coda; where a pass runs stacks in turn, the last run's is that. */
export function loopNorm(c: Configuration, block: LayerBlock, rows: number): Op[] {
  if (block.name !== 'core') return [];
  const { normAfterEachLoop, normAfterCore, stacks } = c.geometry;
  return [
    ...(normAfterEachLoop && !stacks ? [norm(c, 'loop-norm', rows, streamNormOf('final'))] : []),
    ...(normAfterCore ? [{ ...norm(c, 'core-norm', rows, streamNormOf('core')), when: 'last-loop' as const }] : []),
  ];
}

/** Stacks in turn: each run begins with the sum of its state and the other's, and ends with a norm. */
export const stackOps = (c: Configuration, { name }: LayerBlock, rows: number): { runStart?: Op[]; runEnd?: Op[] } => {
  if (name !== 'core' || !c.geometry.stacks) return {};
  const sum: Bind = (f, visit) => {
    f.enterStack(stackPlace(c.geometry, placed(visit).layer).stack);
    return { binds: { input: f.otherState as Ref, target: f.residual } };
  };
  return {
    runStart: [op('stack-sum', 'rmsnorm', 'add', { rows, width: c.geometry.hidden }, sum)],
    runEnd: [norm(c, 'stack-norm', rows, streamNormOf('final'))],
  };
};

/** Copies a row, or adds it. */
const carried = (
  c: Configuration,
  label: string,
  variant: 'begin' | 'add',
  rows: number,
  binds: Bind,
  when?: When,
): Op => op(label, 'accumulate', variant, { rows, width: c.geometry.hidden }, binds, when);

/** The first state of the stack that the embedding is not the state of: one row for all tokens, or zeros. */
export const firstState = (c: Configuration, { name }: LayerBlock, rows: number): Op[] => {
  const binds: Bind = (f) => ({
    options: { factor: 1, placement: { input: SAME_ROW } },
    binds: { input: { weights: 'low-state' }, target: f.otherState as Ref },
  });
  return name === 'core' && c.geometry.stacks ? [carried(c, 'low-state', 'begin', rows, binds, 'first-loop')] : [];
};

/** Loops that begin with the embedding, and the state of the token before: the embedding is kept for them. */
export const shiftOps = (c: Configuration, { name }: LayerBlock, rows: number): Op[] => {
  const { shiftsLoops, loops, hidden } = c.geometry;
  if (name !== 'core' || !shiftsLoops || loops === 1) return [];
  const embedding: Bind = (f) => ({
    options: { factor: shiftsLoops.embedding },
    binds: { input: f.residual, target: f.buffer('token embedding') },
  });
  const shift: Bind = (f, visit) => ({
    options: { factor: shiftsLoops.state },
    binds: {
      positions: f.buffer('positions'),
      embedding: f.buffer('token embedding'),
      states: f.buffer('loop states', placed(visit).loop - 1),
      target: f.residual,
    },
  });
  return [
    carried(c, 'token-embedding', 'begin', rows, embedding, 'first-loop'),
    op('loop-shift', 'shift', 'f32', { rows, width: hidden }, shift, 'later-loops'),
  ];
};

/** The state with which a loop begins is kept, where its end mixes it with that of the loop. */
export const loopState = (c: Configuration, { name }: LayerBlock, rows: number): Op[] => {
  const binds: Bind = (f) => ({ options: { factor: 1 }, binds: { input: f.residual, target: f.otherState as Ref } });
  return name === 'core' && c.geometry.changeRank !== undefined ? [carried(c, 'loop-state', 'begin', rows, binds)] : [];
};

/** The end of such a loop: its change, two products that say how much of it is kept, and the mixture. */
export function loopChange(c: Configuration, { name }: LayerBlock, rows: number): Op[] {
  const { hidden, changeRank } = c.geometry;
  if (name !== 'core' || changeRank === undefined) return [];
  // In place of the loop's state.
  const change: Bind = (f, visit) => {
    const at = f.rowsOf(visit);
    return {
      options: { factor: -1, placement: { input: at, output: at } },
      binds: { input: f.otherState as Ref, target: f.residual },
    };
  };
  const mix: Bind = (f, visit) => ({
    options: { placement: { output: f.rowsOf(visit) } },
    binds: {
      gates: f.buffer('projected'),
      rates: { weights: 'change-rates' },
      before: f.otherState as Ref,
      target: f.residual,
    },
  });
  // Where the MLP's rows are between layers.
  const low = alone('activated', changeRank);
  return [
    carried(c, 'loop-change', 'add', rows, change),
    ...project(c, 'change-down', rows, hidden, changeRank, product('change-down', streamRows, low)),
    ...project(c, 'change-up', rows, changeRank, hidden, product('change-up', low, projectedRows)),
    op('change-mix', 'gate', 'change', { rows, width: hidden }, mix),
  ];
}

export const exitGate = (c: Configuration, block: LayerBlock, rows: number): Op[] =>
  block.name === 'core' && c.geometry.exitGate
    ? project(c, 'exit-gate', rows, c.geometry.hidden, 1, product('exit-gate', streamRows, alone('exit', 1)))
    : [];

/** How a token is chosen from the logits. */
export type Choice = 'greedy' | 'top-p';

/** Logits and choice of `rows` sequences' next tokens. */
export function headOps(c: Configuration, rows: number, choice: Choice): Op[] {
  const { hidden, vocab, normAfterEachLoop, embeddingRank } = c.geometry;
  const final: Bind = (f, visit) => normBinds(f, visit, 'final', f.residual, f.normed, f.lastRows);
  /** Rows that a norm has seen: of all at the end of the last loop, or of the last ones alone. */
  const last: Rows = (f, visit) => (normAfterEachLoop ? { rows: f.residual, at: f.lastRows } : normedRows(f, visit));
  /** These in the width of the head's table: in the stream that they do not come from. */
  const lowered: Rows = (f) => ({
    rows: normAfterEachLoop ? f.normed : f.residual,
    at: { offset: 0, stride: hidden },
  });
  const sample: Bind = (f) => ({
    options: f.setting.sampling.temperature === 0 ? {} : { sample: f.setting.sampling },
    binds: { logits: f.buffer('logits'), tokens: f.buffer('next tokens'), draws: f.buffer('draws') },
  });
  const [down, head] = [
    product('head-down', last, lowered),
    product('head', embeddingRank === undefined ? last : lowered, alone('logits', vocab)),
  ];
  return [
    ...(normAfterEachLoop ? [] : [norm(c, 'final-norm', rows, final)]),
    ...(embeddingRank === undefined ? [] : projectByTable(c, 'head-down', rows, hidden, embeddingRank, down)),
    ...projectByTable(c, 'lm-head', rows, tableWidth(c.geometry), Math.ceil(vocab / c.gpus), head),
    op('sample', 'sample', choice, { rows, vocab }, sample),
  ];
}
