/**
 * Checkers of the kernels that read cached rows: attention over rows as they lie, over latents, and the rebuilding of
 * rows from latents.
 */
import { cacheRow, capacityOf } from '../gpu/cache-layout.js';
import { bufferOf } from '../gpu/plan.js';
import { DEFAULTS } from '../kernels/launch.js';
import type { Span } from '../kernels/shared/fold.launch.js';
import { GROUP_SIZE, storageOfVariant, type Shape } from '../kernels/spec.js';
import { dim, type Checker, type Row, type Subject } from './checker.js';
import {
  attendLatentRow,
  attendRow,
  mergedRow,
  rebuiltRow,
  tokensOf,
  type CachedRows,
  type Rebuilding,
  type Run,
} from './reference/attention.js';

export const queryHeads = (shape: Shape): number =>
  dim(shape, 'sequences') * dim(shape, 'kvHeads') * dim(shape, 'group');
export const merged = (s: Subject, row: number, width: number): ((i: number) => number) => {
  const partials = s.output('partials');
  const splits = bufferOf(s.plan, 'partials').bytes / (4 * queryHeads(s.call.shape) * (width + 2));
  const values = mergedRow(partials, row, splits, width);
  return (i) => values[i] as number;
};
/** The tokens that an attention call reads, as foldOf lays them out. */
export function runOf(s: Subject): Run {
  const { pinned = 0, firstPosition = 0, spans, pinnedQuery } = s.options.run ?? {};
  const { shape } = s.call;
  const span = (sequence: number): Span =>
    spans?.[sequence] ?? { pinned: 0, firstPosition, ring: dim(shape, 'context') };
  const longest = Array.from({ length: dim(shape, 'sequences') }, (_, i) => span(i).ring).reduce(
    (a, b) => Math.max(a, b),
    1,
  );
  return {
    span,
    pinned,
    capacity: capacityOf(s.options.run?.capacity ?? pinned + longest),
    querySet: pinnedQuery ? queryHeads(shape) : 0,
  };
}

/** A cache of the call in its own storage. */
export const cachedRows = (s: Subject, name: string, width: number, run: Run): CachedRows =>
  cacheRow(
    s.inputWords(name),
    storageOfVariant(s.call.variant),
    width,
    dim(s.call.shape, 'groupSize') || GROUP_SIZE,
    run.capacity,
  );

/**
 * An output row, followed by the scores where the variant writes them: those to base 2 in the slots of their tokens.
 */
export function withScores(
  s: Subject,
  row: number,
  run: Run,
  { output, scores }: { output: number[]; scores: Map<number, number> },
): Row {
  const actual = merged(s, row, output.length);
  if (!s.call.variant.endsWith('+scores')) return { expected: output, actual };
  const written = [...scores];
  return {
    expected: [...output, ...written.map(([, score]) => score)],
    actual: (i) =>
      i < output.length
        ? actual(i)
        : s.output('scores')(row * run.capacity + (written[i - output.length] as [number, number])[0]) / Math.LOG2E,
  };
}

const attend: Checker = {
  outputs: ['partials', 'scores'],
  rows: queryHeads,
  row: (s, row) => {
    const { shape } = s.call;
    const [key, value, branch] = [dim(shape, 'keyWidth'), dim(shape, 'valueWidth'), dim(shape, 'branchWidth')];
    const run = runOf(s);
    const caches = {
      keys: cachedRows(s, 'keys', key, run),
      values: cachedRows(s, 'values', value, run),
      branch: branch > 0 ? cachedRows(s, 'branch', branch, run) : () => 0,
    };
    return withScores(
      s,
      row,
      run,
      attendRow(shape, s.options.scale ?? (key + branch) ** -0.5, s.input('queries'), caches, run, row),
    );
  },
};

/** One a check, as the reference keeps what it has read of it. */
const rebuildings = new WeakMap<Subject, Rebuilding>();
function rebuilding(s: Subject): Rebuilding {
  const known = rebuildings.get(s) ?? {
    ropeBase: s.options.ropeBase ?? DEFAULTS.ropeBase,
    pairing: s.options.pairing ?? 'half-split',
    weights: s.input('weights'),
    means: s.input('means'),
  };
  rebuildings.set(s, known);
  return known;
}

/** Positions of pinned slots, as the call's buffer has them. */
const pinnedPosition =
  (s: Subject, run: Run) =>
  (kvRow: number, slot: number): number => {
    const row = s.options.positionsByHead ? kvRow : Math.floor(kvRow / dim(s.call.shape, 'kvHeads'));
    return s.input('positions')(row * run.capacity + slot);
  };

const attend_rebuild: Checker = {
  outputs: ['partials', 'scores'],
  rows: queryHeads,
  row: (s, row) => {
    const { shape } = s.call;
    const run = runOf(s);
    const caches = {
      keys: cachedRows(s, 'keys', dim(shape, 'rankK'), run),
      values: cachedRows(s, 'values', dim(shape, 'rankV'), run),
    };
    const scale = s.options.scale ?? dim(shape, 'headDim') ** -0.5;
    return withScores(
      s,
      row,
      run,
      attendLatentRow(shape, scale, s.input('queries'), rebuilding(s), caches, run, row, pinnedPosition(s, run)),
    );
  },
};

/** One rebuilt row a token of the call's context; sequences that hold fewer repeat theirs. */
const rebuild: Checker = {
  outputs: ['rows'],
  rows: (shape) => dim(shape, 'sequences') * dim(shape, 'kvHeads') * dim(shape, 'context'),
  row: (s, index) => {
    const { shape, variant } = s.call;
    const [context, headDim, kvHeads] = [dim(shape, 'context'), dim(shape, 'headDim'), dim(shape, 'kvHeads')];
    const row = Math.floor(index / context);
    const run = runOf(s);
    const tokens = tokensOf(run.span(Math.floor(row / kvHeads)), run.pinned, run.capacity);
    const token = tokens[(index % context) % Math.max(1, tokens.length)];
    if (!token) return { expected: [], actual: () => 0 };
    const stored = cacheRow(s.outputWords('rows'), 'f16', headDim, GROUP_SIZE, run.capacity);
    const position = token.pinned ? pinnedPosition(s, run)(row, token.slot) : token.position;
    const expected = rebuiltRow(
      shape,
      rebuilding(s),
      cachedRows(s, 'keys', dim(shape, 'rank'), run),
      row,
      token.slot,
      variant.endsWith('+rope') ? position : null,
    );
    return { expected, actual: (i) => stored(row, token.slot, i) };
  },
};

export const ATTENTION_CHECKERS = { attend, attend_rebuild, rebuild } as const satisfies Record<string, Checker>;
