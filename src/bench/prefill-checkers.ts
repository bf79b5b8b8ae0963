/** Checkers of the kernels of prefill: causal attention of a chunk, and the reading back of cached rows. */
import { cacheRow, capacityOf } from '../gpu/cache-layout.js';
import { GROUP_SIZE, storageOfVariant } from '../schedule/kernels.js';
import { dim, type Checker } from './checker.js';
import { attendChunkRow, type TokenVectors } from './reference/prefill.js';

/** One query head of one token; none of what lies beyond the tokens of a shorter sequence, which nothing writes. */
const attend_prefill: Checker = {
  outputs: ['output'],
  rows: (shape) => dim(shape, 'sequences') * dim(shape, 'queries') * dim(shape, 'kvHeads') * dim(shape, 'group'),
  row: (s, row) => {
    const { shape } = s.call;
    const { branch, firstSequence = 0, ...o } = s.options.prefill ?? {};
    const [tokens, context, kvHeads, valueWidth] = [dim(shape, 'queries'), dim(shape, 'context'), dim(shape, 'kvHeads'), dim(shape, 'valueWidth')];
    const heads = kvHeads * dim(shape, 'group');
    const keyWidth = dim(shape, 'keyWidth') - (branch?.width ?? 0);
    const [sequence, token, head] = [Math.floor(row / (tokens * heads)), Math.floor(row / heads) % tokens, row % heads];
    const span = o.spans?.[sequence] ?? { before: context, tokens };
    const at = (o.output?.offset ?? 0) + (sequence * tokens + token) * (o.output?.stride ?? heads * valueWidth) + head * valueWidth;
    const capacity = capacityOf(o.capacity ?? context + tokens);
    const rowsOf = (name: string, width: number) => {
      const cached = cacheRow(s.inputWords(name), storageOfVariant(s.call.variant), width, GROUP_SIZE, capacity);
      return (r: number, slot: number, i: number): number => cached(firstSequence * kvHeads + r, slot, i);
    };
    const queries: TokenVectors = (t, h, i) => s.input('queries')((o.queries?.offset ?? 0) + t * (o.queries?.stride ?? heads * keyWidth) + h * keyWidth + i);
    const branchTokens = branch?.tokens ?? context + tokens;
    const rotary = branch && {
      width: branch.width,
      queries: (t: number, h: number, i: number) => s.input('branchQueries')(branch.queries.offset + t * branch.queries.stride + h * branch.queries.head + i),
      keys: (of: number, t: number, kvHead: number, i: number) => s.input('branchKeys')(((of * branchTokens + t) * branch.heads + (branch.heads === 1 ? 0 : kvHead)) * branch.width + i),
    };
    const operands = { queries, keys: rowsOf('keys', keyWidth), values: rowsOf('values', valueWidth), ...(rotary ? { branch: rotary } : {}) };
    return { expected: token < span.tokens ? attendChunkRow(shape, operands, span, { sequence, token, head }) : [], actual: (i) => s.output('output')(at + i) };
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

export const PREFILL_CHECKERS = { attend_prefill, load } as const satisfies Record<string, Checker>;
