/**
 * Checkers of the kernels of prefill: causal attention of a chunk, what H2O makes of it, and the reading back of cached
 * rows.
 */
import { cacheRow, capacityOf, type Words } from '../gpu/cache-layout.js';
import { GROUP_SIZE, storageOfVariant } from '../kernels/spec.js';
import type { Shape } from '../kernels/spec.js';
import { runOf } from '../kernels/shared/evict.launch.js';
import { attendsToItself } from '../kernels/attend_carried/launch.js';
import type { PrefillOptions } from '../kernels/shared/prefill.launch.js';
import { dim, type Checker, type Subject } from './checker.js';
import { staysBehind, staysOf } from './reference/eviction.js';
import { attendCarriedRow, attendChunkRow, givenMass, type TokenVectors } from './reference/prefill.js';

const queryRows = (shape: Shape): number =>
  dim(shape, 'sequences') * dim(shape, 'queries') * dim(shape, 'kvHeads') * dim(shape, 'group');

/** What the scores of a call are made of, and its rows of a width. @param reach tokens of a row */
function operandsOf(
  { call, input, inputWords }: Subject,
  { branch, firstSequence = 0, first = 0, capacity, queries }: PrefillOptions,
  reach: number,
) {
  const { shape } = call;
  const kvHeads = dim(shape, 'kvHeads');
  const keyWidth = dim(shape, 'keyWidth') - (branch?.width ?? 0);
  const slots = capacityOf(capacity ?? first + reach);
  const rowsOf = (name: string, width: number) => {
    const cached = cacheRow(
      inputWords(name),
      storageOfVariant(call.variant),
      width,
      shape.groupSize || GROUP_SIZE,
      slots,
    );
    return (r: number, slot: number, i: number): number => cached(firstSequence * kvHeads + r, first + slot, i);
  };
  const vectors: TokenVectors = (t, h, i) =>
    input('queries')(
      (queries?.offset ?? 0) + t * (queries?.stride ?? kvHeads * dim(shape, 'group') * keyWidth) + h * keyWidth + i,
    );
  const branchTokens = branch?.tokens ?? reach;
  const rotary = branch && {
    width: branch.width,
    queries: (t: number, h: number, i: number) =>
      input('branchQueries')(branch.queries.offset + t * branch.queries.stride + h * branch.queries.head + i),
    keys: (of: number, t: number, kvHead: number, i: number) =>
      input('branchKeys')(
        ((of * branchTokens + t) * branch.heads + (branch.heads === 1 ? 0 : kvHead)) * branch.width + i,
      ),
  };
  return {
    scores: { queries: vectors, keys: rowsOf('keys', keyWidth), ...(rotary ? { branch: rotary } : {}) },
    rowsOf,
  };
}

/**
 * One query head of one token: what it attends with, and where its output lies. @param own rows of the chunk are among
 * those attended to
 */
function chunkRow(subject: Subject, row: number, own: boolean) {
  const { shape } = subject.call;
  const o = subject.options.prefill ?? {};
  const [tokens, context, valueWidth] = [dim(shape, 'queries'), dim(shape, 'context'), dim(shape, 'valueWidth')];
  const heads = dim(shape, 'kvHeads') * dim(shape, 'group');
  const [sequence, token, head] = [Math.floor(row / (tokens * heads)), Math.floor(row / heads) % tokens, row % heads];
  const { scores, rowsOf } = operandsOf(subject, o, context + (own ? tokens : 0));
  return {
    at: { sequence, token, head },
    span: o.spans?.[sequence] ?? { before: context, tokens },
    output:
      (o.output?.offset ?? 0) +
      (sequence * tokens + token) * (o.output?.stride ?? heads * valueWidth) +
      head * valueWidth,
    operands: { ...scores, values: rowsOf('values', valueWidth) },
  };
}

/** None of what lies beyond the tokens of a shorter sequence, which nothing writes. */
const attend_prefill: Checker = {
  outputs: ['output'],
  rows: queryRows,
  row: (s, row) => {
    const { at, span, output, operands } = chunkRow(s, row, true);
    return {
      expected: at.token < span.tokens ? attendChunkRow(s.call.shape, operands, span, at) : [],
      actual: (i) => s.output('output')(output + i),
    };
  },
};

/**
 * Output, then the largest score, as a weight against what it should be, and the mass over what it should be: neither
 * outweighs the output.
 */
const attend_carried: Checker = {
  outputs: ['output', 'statistics'],
  rows: queryRows,
  row: (s, row) => {
    const own = attendsToItself(s.call);
    const { at, span, output, operands } = chunkRow(s, row, own);
    if (at.token >= span.tokens) return { expected: [], actual: () => NaN };
    const width = dim(s.call.shape, 'valueWidth');
    const statistics = s.input('statistics');
    const before = !(s.options.prefill?.carried ?? !own)
      ? undefined
      : {
          output: Array.from({ length: width }, (_, i) => s.input('output')(output + i)),
          top: statistics(2 * row) * Math.LN2,
          mass: statistics(2 * row + 1),
        };
    const after = attendCarriedRow(s.call.shape, operands, span, at, own, before);
    return {
      expected: [...after.output, 1, 1],
      actual: (i) =>
        i < width
          ? s.output('output')(output + i)
          : i === width
            ? 2 ** (s.output('statistics')(2 * row) - after.top * Math.LOG2E)
            : s.output('statistics')(2 * row + 1) / after.mass,
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
    const stored = cacheRow(
      s.inputWords('cache'),
      storageOfVariant(s.call.variant),
      width,
      dim(shape, 'groupSize') || GROUP_SIZE,
      capacityOf(o.capacity ?? first + chunk),
    );
    const [token, head] = [Math.floor(row / heads), row % heads];
    const cached = (firstSequence + Math.floor(token / chunk)) * heads + head;
    return {
      expected: Array.from({ length: width }, (_, i) => stored(cached, first + (token % chunk), i)),
      actual: (i) =>
        s.output('rows')((output?.offset ?? 0) + token * (output?.stride ?? heads * width) + head * width + i),
    };
  },
};

/** The mass of each token of each evicting row. */
const mass_prefill: Checker = {
  outputs: ['mass'],
  rows: (shape) => dim(shape, 'sequences') * dim(shape, 'rows') * (dim(shape, 'context') + dim(shape, 'queries')),
  row: (s, row) => {
    const { shape } = s.call;
    const [context, queries, rows] = [dim(shape, 'context'), dim(shape, 'queries'), dim(shape, 'rows')];
    const { room = context + queries, begins = true, ...o } = s.options.massPrefill ?? {};
    const heads = dim(shape, 'kvHeads') * dim(shape, 'group');
    const [evicting, token] = [Math.floor(row / (context + queries)), row % (context + queries)];
    const at = evicting * room + token;
    const given = givenMass(
      shape,
      operandsOf(s, o, context + queries).scores,
      { sequence: Math.floor(evicting / rows), row: evicting % rows, token },
      (query) => {
        const of = 2 * ((query.sequence * queries + query.token) * heads + query.head);
        return { top: s.input('statistics')(of) * Math.LN2, mass: s.input('statistics')(of + 1) };
      },
    );
    return {
      expected: [given + (begins && token >= context ? 0 : s.input('mass')(at))],
      actual: () => s.output('mass')(at),
    };
  },
};

/** Mass, position and rows of the slots that are filled. */
const evict_prefill: Checker = {
  outputs: ['mass', 'positions', 'keys', 'values'],
  rows: (shape) => dim(shape, 'rows'),
  row: (s, row) => {
    const { context, kept, width, groupSize } = s.call.shape as Readonly<
      Record<'context' | 'kept' | 'width' | 'groupSize', number>
    >;
    if (s.options.evictPrefill) throw new Error('evict_prefill is verified with its own options only');
    const pinned = Math.floor(kept / 2);
    const [capacity, runCapacity] = [capacityOf(kept), capacityOf(context)];
    const mass = (token: number): number => s.input('runMass')(row * context + token);
    const stays = staysOf(
      Array.from({ length: context }, (_, token) => mass(token)),
      pinned,
      kept - pinned,
    );
    const storage = storageOfVariant(s.call.variant);
    const caches = [
      { name: 'keys', width: Math.ceil(width / 2) },
      { name: 'values', width: Math.floor(width / 2) },
    ].map((c) => ({
      ...c,
      run: cacheRow(s.inputWords(runOf(c.name)), storage, c.width, groupSize || GROUP_SIZE, runCapacity),
      now: cacheRow(s.outputWords(c.name), storage, c.width, groupSize || GROUP_SIZE, capacity),
    }));
    const filled = stays.map(({ token, slot }) => ({ token, slot, at: row * capacity + slot }));
    const components = (
      value: (c: (typeof caches)[number], token: number, slot: number, i: number) => number,
    ): number[] =>
      stays.flatMap(({ token, slot }) =>
        caches.flatMap((c) => Array.from({ length: c.width }, (_, i) => value(c, token, slot, i))),
      );
    const actual = [
      ...filled.flatMap(({ at }) => [s.output('mass')(at), s.output('positions')(at) / context]),
      ...components((c, _, slot, i) => c.now(row, slot, i)),
    ];
    return {
      expected: [
        ...filled.flatMap(({ token }) => [mass(token), token / context]),
        ...components((c, token, _, i) => c.run(row, token, i)),
      ],
      actual: (i) => actual[i] as number,
    };
  },
};

/** The same; rows and positions of pinned tokens that stay so are those that were there. */
const evict_chunk: Checker = {
  outputs: ['mass', 'positions', 'keys', 'values'],
  rows: (shape) => dim(shape, 'rows'),
  row: (s, row) => {
    const { held, context, kept, width, groupSize } = s.call.shape as Readonly<
      Record<'held' | 'context' | 'kept' | 'width' | 'groupSize', number>
    >;
    if (s.options.evictChunk) throw new Error('evict_chunk is verified with its own options only');
    const pinned = Math.floor(kept / 2);
    const [capacity, runCapacity] = [capacityOf(kept), capacityOf(context)];
    const mass = (token: number): number => s.input('runMass')(row * context + token);
    const stays = staysBehind(
      Array.from({ length: context }, (_, token) => mass(token)),
      { held, position: held },
      pinned,
      kept - pinned,
    );
    const rows = (words: Words, c: { width: number }, slots: number) =>
      cacheRow(words, storageOfVariant(s.call.variant), c.width, groupSize || GROUP_SIZE, slots);
    const caches = [
      { name: 'keys', width: Math.ceil(width / 2) },
      { name: 'values', width: Math.floor(width / 2) },
    ].map((c) => ({
      width: c.width,
      run: rows(s.inputWords(runOf(c.name)), c, runCapacity),
      before: rows(s.inputWords(c.name), c, capacity),
      now: rows(s.outputWords(c.name), c, capacity),
    }));
    const components = (
      value: (c: (typeof caches)[number], stay: (typeof stays)[number], i: number) => number,
    ): number[] =>
      stays.flatMap((stay) => caches.flatMap((c) => Array.from({ length: c.width }, (_, i) => value(c, stay, i))));
    const position = ({ token, slot, moves }: (typeof stays)[number]): number =>
      moves || slot >= pinned ? token : s.input('positions')(row * capacity + slot);
    const actual = [
      ...stays.flatMap(({ slot }) => [
        s.output('mass')(row * capacity + slot),
        s.output('positions')(row * capacity + slot) / context,
      ]),
      ...components((c, { slot }, i) => c.now(row, slot, i)),
    ];
    return {
      expected: [
        ...stays.flatMap((stay) => [mass(stay.token), position(stay) / context]),
        ...components((c, { token, slot, moves }, i) => (moves ? c.run(row, token, i) : c.before(row, slot, i))),
      ],
      actual: (i) => actual[i] as number,
    };
  },
};

export const PREFILL_CHECKERS = {
  attend_prefill,
  attend_carried,
  mass_prefill,
  evict_prefill,
  evict_chunk,
  load,
} as const satisfies Record<string, Checker>;
