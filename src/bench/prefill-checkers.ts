/** Checkers of the kernels of prefill: causal attention of a chunk, and the reading back of cached rows. */
import { cacheRow, capacityOf } from '../gpu/cache-layout.js';
import { GROUP_SIZE, storageOfVariant } from '../schedule/kernels.js';
import type { Shape } from '../schedule/kernels.js';
import { attendsToItself } from '../gpu/operations/prefill.js';
import { dim, type Checker, type Subject } from './checker.js';
import { attendCarriedRow, attendChunkRow, type TokenVectors } from './reference/prefill.js';

const queryRows = (shape: Shape): number => dim(shape, 'sequences') * dim(shape, 'queries') * dim(shape, 'kvHeads') * dim(shape, 'group');

/** One query head of one token: what it attends with, and where its output lies. @param own rows of the chunk are among those attended to */
function chunkRow({ call, options, input, inputWords }: Subject, row: number, own: boolean) {
  const { shape } = call;
  const { branch, firstSequence = 0, first = 0, ...o } = options.prefill ?? {};
  const [tokens, context, kvHeads, valueWidth] = [dim(shape, 'queries'), dim(shape, 'context'), dim(shape, 'kvHeads'), dim(shape, 'valueWidth')];
  const heads = kvHeads * dim(shape, 'group');
  const keyWidth = dim(shape, 'keyWidth') - (branch?.width ?? 0);
  const [sequence, token, head] = [Math.floor(row / (tokens * heads)), Math.floor(row / heads) % tokens, row % heads];
  const reach = context + (own ? tokens : 0);
  const capacity = capacityOf(o.capacity ?? first + reach);
  const rowsOf = (name: string, width: number) => {
    const cached = cacheRow(inputWords(name), storageOfVariant(call.variant), width, shape.groupSize || GROUP_SIZE, capacity);
    return (r: number, slot: number, i: number): number => cached(firstSequence * kvHeads + r, first + slot, i);
  };
  const queries: TokenVectors = (t, h, i) => input('queries')((o.queries?.offset ?? 0) + t * (o.queries?.stride ?? heads * keyWidth) + h * keyWidth + i);
  const branchTokens = branch?.tokens ?? reach;
  const rotary = branch && {
    width: branch.width,
    queries: (t: number, h: number, i: number) => input('branchQueries')(branch.queries.offset + t * branch.queries.stride + h * branch.queries.head + i),
    keys: (of: number, t: number, kvHead: number, i: number) => input('branchKeys')(((of * branchTokens + t) * branch.heads + (branch.heads === 1 ? 0 : kvHead)) * branch.width + i),
  };
  return {
    at: { sequence, token, head },
    span: o.spans?.[sequence] ?? { before: context, tokens },
    output: (o.output?.offset ?? 0) + (sequence * tokens + token) * (o.output?.stride ?? heads * valueWidth) + head * valueWidth,
    operands: { queries, keys: rowsOf('keys', keyWidth), values: rowsOf('values', valueWidth), ...(rotary ? { branch: rotary } : {}) },
  };
}

/** None of what lies beyond the tokens of a shorter sequence, which nothing writes. */
const attend_prefill: Checker = {
  outputs: ['output'],
  rows: queryRows,
  row: (s, row) => {
    const { at, span, output, operands } = chunkRow(s, row, true);
    return { expected: at.token < span.tokens ? attendChunkRow(s.call.shape, operands, span, at) : [], actual: (i) => s.output('output')(output + i) };
  },
};

/** Output, then the largest score, as a weight against what it should be, and the mass over what it should be: neither outweighs the output. */
const attend_carried: Checker = {
  outputs: ['output', 'statistics'],
  rows: queryRows,
  row: (s, row) => {
    const own = attendsToItself(s.call);
    const { at, span, output, operands } = chunkRow(s, row, own);
    if (at.token >= span.tokens) return { expected: [], actual: () => NaN };
    const width = dim(s.call.shape, 'valueWidth');
    const statistics = s.input('statistics');
    const before = !(s.options.prefill?.carried ?? !own) ? undefined : { output: Array.from({ length: width }, (_, i) => s.input('output')(output + i)), top: statistics(2 * row) * Math.LN2, mass: statistics(2 * row + 1) };
    const after = attendCarriedRow(s.call.shape, operands, span, at, own, before);
    return {
      expected: [...after.output, 1, 1],
      actual: (i) => (i < width ? s.output('output')(output + i) : i === width ? 2 ** (s.output('statistics')(2 * row) - after.top * Math.LOG2E) : s.output('statistics')(2 * row + 1) / after.mass),
    };
  },
};

const load: Checker = {
  outputs: ['rows'],
  rows: (shape) => dim(shape, 'rows') * dim(shape, 'heads'),
  row: (s, row) => {
    const { shape } = s.call;
    const [heads, width] = [dim(shape, 'heads'), dim(shape, 'width')];
    const { chunk = dim(shape, 'rows'), first = 0, firstSequence = 0, output, ...o } = s.options.load ?? {};
    const stored = cacheRow(s.inputWords('cache'), storageOfVariant(s.call.variant), width, dim(shape, 'groupSize') || GROUP_SIZE, capacityOf(o.capacity ?? first + chunk));
    const [token, head] = [Math.floor(row / heads), row % heads];
    const cached = (firstSequence + Math.floor(token / chunk)) * heads + head;
    return {
      expected: Array.from({ length: width }, (_, i) => stored(cached, first + (token % chunk), i)),
      actual: (i) => s.output('rows')((output?.offset ?? 0) + token * (output?.stride ?? heads * width) + head * width + i),
    };
  },
};

export const PREFILL_CHECKERS = { attend_prefill, attend_carried, load } as const satisfies Record<string, Checker>;
