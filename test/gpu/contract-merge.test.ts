/** The merge of split partials and the current token against float64, empty splits and empty caches among them. */
import './narrow.js';
import { expect, test } from 'vitest';
import { mix } from '../../src/numbers/hash.js';
import { LOWEST, mergeSplits, withToken, type Attended } from '../../kernels/shared/attention/merge.reference.js';
import { planOperation, type Device } from '../../src/gpu/index.js';
import { describeGpu } from './device.js';
import { randomOf, SEED } from './random.js';
import { EIGHT_THREADS, randomSingles, runPlan } from './run-plan.js';

const TOLERANCE = 1e-5;

/** Relative RMS error. */
function errorOf(actual: readonly number[], expected: readonly number[]): number {
  const square = (values: readonly number[]): number => values.reduce((sum, x) => sum + x * x, 0);
  const difference = square(expected.map((x, i) => x - actual[i]!));
  return difference === 0 ? 0 : Math.sqrt(difference / square(expected));
}

/** `empty`: share of splits without tokens; `spread`: of maxima and of the current score. */
type Case = Record<'sequences' | 'heads' | 'group' | 'splits' | 'keyWidth' | 'width' | 'empty' | 'spread', number>;

function caseOf(seed: number, fixed: Partial<Case>): Case {
  const r = randomOf(seed);
  const group = r.pick([1, 2, 4]);
  return {
    sequences: r.whole(1, 3),
    heads: group * r.whole(1, 4),
    group,
    splits: r.whole(1, 70),
    keyWidth: r.whole(1, 200),
    width: r.whole(1, 200),
    empty: r.pick([0, 0.3, 1]),
    spread: r.pick([1, 30, 300]),
    ...fixed,
  };
}

/** Partials of a row of splits as attention writes them; empty ones hold NaN where nothing may be read. */
function partialsOf(c: Case, seed: number): { words: Float32Array<ArrayBuffer>; rows: Attended[][] } {
  const count = c.sequences * c.heads;
  const words = new Float32Array(count * c.splits * (c.width + 2));
  const noise = randomSingles(mix(seed), words.length);
  const rows = Array.from({ length: count }, (_, row) =>
    Array.from({ length: c.splits }, (_, s) => {
      const at = (row * c.splits + s) * (c.width + 2);
      const there = c.empty < 1 && (mix(seed + row * 997 + s) % 1000) / 1000 >= c.empty;
      const m = there ? Math.fround(c.spread * noise[at]!) : LOWEST;
      const l = there ? Math.fround(1 + 50 * Math.abs(noise[at + 1]!)) : 0;
      const o = Array.from({ length: c.width }, (_, i) => (there ? noise[at + i]! : NaN));
      words.set([...o, m, l], at);
      return { o, m, l };
    }),
  );
  return { words, rows };
}

const dot = (a: Float32Array, from: number, b: (i: number) => number, n: number): number =>
  Array.from({ length: n }, (_, i) => a[from + i]! * b(i)).reduce((x, y) => x + y, 0);

const sizeOf = (values: readonly number[]): number => Math.max(...values.map(Math.abs));

/** Of the mean that a part holds as a sum. */
const meanSize = ({ o, l }: Attended): number => (l > 0 ? sizeOf(o) / l : 0);

/** @param sizes of what a row is a mean of: where its terms cancel, an error of a weight is one of their size */
function compare(
  rows: readonly Attended[],
  output: Float32Array,
  stats: Float32Array,
  c: Case,
  where: string,
  sizes: readonly number[],
): void {
  const { width } = c;
  // Scores of hundreds are known to 1e-5 in f32, and so are then the weights made of them.
  const tolerance = TOLERANCE * Math.max(1, c.spread / 30);
  rows.forEach((row, i) => {
    const actual = [...output.subarray(i * width, (i + 1) * width)];
    if (row.l === 0) expect(actual, where).toEqual(row.o.map(() => 0));
    else {
      const cancelled = Math.max(1, sizes[i]! / sizeOf(row.o));
      expect(errorOf(actual, row.o), `row ${i}: ${where}`).toBeLessThanOrEqual(tolerance * cancelled);
    }
    const scale = Math.max(c.spread, row.m === LOWEST ? 1 : Math.abs(row.m));
    const off = row.m === LOWEST ? stats[2 * i]! / LOWEST - 1 : (stats[2 * i]! - row.m) / scale;
    expect(Math.abs(off), `m of row ${i}: ${where}`).toBeLessThanOrEqual(TOLERANCE);
    // An error of m turns up in l as well, and cancels in what is made of both.
    const sum = stats[2 * i + 1]! * 2 ** (stats[2 * i]! - row.m);
    const [wrong, most] = row.l === 0 ? [stats[2 * i + 1]!, 0] : [sum / row.l - 1, 10 * TOLERANCE * scale];
    expect(Math.abs(wrong), `l of row ${i}: ${where}`).toBeLessThanOrEqual(most);
  });
}

/** Which rows have attended to something. */
const rowsThere = (c: Case, seed: number): boolean[] =>
  Array.from({ length: c.sequences * c.heads }, (_, i) => c.empty < 1 && (mix(seed + i) % 1000) / 1000 >= c.empty);

/** m and l of every row. @param there rows that have attended to something */
const statsOf = (c: Case, noise: Float32Array, there: readonly boolean[]): Float32Array<ArrayBuffer> =>
  Float32Array.from(
    there.flatMap((is, row) => {
      const [m, l] = [noise[2 * row]!, noise[2 * row + 1]!];
      return is ? [c.spread * m, 1 + 50 * Math.abs(l)] : [LOWEST, 0];
    }),
  );

/** Random numbers by salt. */
const drawing = (seed: number) => (salt: number, count: number) => randomSingles(mix(seed + salt), count);

const single = (words: Uint32Array<ArrayBuffer>): Float32Array => new Float32Array(words.buffer);

async function checkMerge(device: Device, variant: 'f32' | 'current', c: Case, seed: number): Promise<void> {
  const r = randomOf(seed);
  const { words, rows } = partialsOf(c, seed);
  const kvHeads = c.heads / c.group;
  // Query, key and value side by side, as one projection writes them.
  const stride = (c.heads + kvHeads) * c.keyWidth + kvHeads * c.width + r.whole(0, 3);
  const at = {
    queries: { offset: 0, stride },
    keys: { offset: c.heads * c.keyWidth, stride },
    values: { offset: (c.heads + kvHeads) * c.keyWidth, stride },
  };
  const scale = c.spread / Math.sqrt(c.keyWidth);
  const current = variant === 'current';
  const { splits, width, keyWidth } = c;
  const shape = { rows: c.sequences * c.heads, splits, width, keyWidth: current ? keyWidth : 0 };
  const plan = planOperation(
    { kernel: 'attend_merge', variant, shape },
    { current: { heads: c.heads, group: c.group, scale, ...at } },
  );
  const vectors = randomSingles(mix(seed + 9), c.sequences * stride);
  const part = (offset: number, width: number): Float32Array<ArrayBuffer> =>
    vectors.slice(0, offset + (c.sequences - 1) * stride + width);
  const contents = current
    ? {
        queries: part(0, c.heads * c.keyWidth),
        newKeys: part(at.keys.offset, kvHeads * c.keyWidth),
        newValues: part(at.values.offset, kvHeads * c.width),
      }
    : {};
  const result = await runPlan(device, plan, { partials: words, ...contents });
  const sizes: number[] = [];
  const expected = rows.map((splits, row) => {
    const merged = mergeSplits(splits, c.width);
    sizes.push(Math.max(...splits.map(meanSize)));
    if (!current) return merged;
    const [sequence, head] = [Math.floor(row / c.heads), row % c.heads];
    const key = sequence * stride + at.keys.offset + Math.floor(head / c.group) * c.keyWidth;
    const value = sequence * stride + at.values.offset + Math.floor(head / c.group) * c.width;
    const score =
      scale * Math.LOG2E * dot(vectors, sequence * stride + head * c.keyWidth, (i) => vectors[key + i]!, c.keyWidth);
    const own = [...vectors.subarray(value, value + c.width)];
    sizes[row] = Math.max(sizes[row]!, sizeOf(own));
    return withToken(merged, score, own);
  });
  const where = `attend_merge ${variant} ${JSON.stringify(c)}, LLA_SIM_SEED=${SEED}`;
  const [output, stats] = [single(result('output')), single(result('stats'))];
  compare(expected, output, stats, c, where, sizes);
  // Of the first token nothing may be rounded: its output is its value.
  if (current && c.empty === 1) expect([...output], where).toEqual(expected.flatMap((row) => row.o));
}

async function checkCurrent(device: Device, variant: 'f32' | 'absorbed', c: Case, seed: number): Promise<void> {
  const kvHeads = c.heads / c.group;
  const rows = c.sequences * c.heads;
  const r = randomOf(mix(seed + 20));
  const branchWidth = variant === 'absorbed' ? r.pick([0, 1, 6, 64, 100]) : 0;
  const scale = c.spread / Math.sqrt(c.keyWidth + branchWidth);
  // Branch queries lie between other vectors, keys are one a sequence or one a KV head.
  const queryHead = branchWidth + r.whole(0, 5);
  const branch = {
    width: branchWidth,
    heads: r.pick([1, kvHeads]),
    queries: { offset: r.whole(0, 7), stride: c.heads * queryHead + r.whole(0, 3), head: queryHead },
    keys: { offset: r.whole(0, 7), stride: 0 },
  };
  branch.keys.stride = branch.heads * branchWidth + r.whole(0, 3);
  const current = { heads: c.heads, group: c.group, scale, ...(branchWidth > 0 ? { branch } : {}) };
  const plan = planOperation(
    { kernel: 'attend_current', variant, shape: { rows, keyWidth: c.keyWidth + branchWidth, valueWidth: c.width } },
    { current },
  );
  const of = drawing(seed);
  const [o, valueMeans, keyMeans] = [of(1, rows * c.width), of(2, kvHeads * c.width), of(3, kvHeads * c.keyWidth)];
  const kvRows = c.sequences * kvHeads;
  const [queries, newKeys, newValues] = [of(4, rows * c.keyWidth), of(5, kvRows * c.keyWidth), of(6, kvRows * c.width)];
  const branchQueries = of(
    8,
    branch.queries.offset + (c.sequences - 1) * branch.queries.stride + (c.heads - 1) * queryHead + branchWidth,
  );
  const branchKeys = of(9, branch.keys.offset + (c.sequences - 1) * branch.keys.stride + branch.heads * branchWidth);
  const stats = statsOf(c, of(7, 2 * rows), rowsThere(c, seed));
  const result = await runPlan(device, plan, {
    output: o,
    stats,
    valueMeans,
    queries,
    newKeys,
    newValues,
    ...(variant === 'absorbed' ? { keyMeans } : {}),
    ...(branchWidth > 0 ? { branchQueries, branchKeys } : {}),
  });
  const sizes: number[] = [];
  const expected = Array.from({ length: rows }, (_, row) => {
    const [sequence, kvHead] = [Math.floor(row / c.heads), Math.floor((row % c.heads) / c.group)];
    const [key, value] = [(sequence * kvHeads + kvHead) * c.keyWidth, (sequence * kvHeads + kvHead) * c.width];
    const keyOf = (i: number): number =>
      newKeys[key + i]! - (variant === 'absorbed' ? keyMeans[kvHead * c.keyWidth + i]! : 0);
    const before = Array.from({ length: c.width }, (_, i) => o[row * c.width + i]! + valueMeans[kvHead * c.width + i]!);
    const branchKey =
      branch.keys.offset + sequence * branch.keys.stride + (branch.heads === 1 ? 0 : kvHead * branchWidth);
    const beside = dot(
      branchQueries,
      branch.queries.offset + sequence * branch.queries.stride + (row % c.heads) * queryHead,
      (i) => branchKeys[branchKey + i]!,
      branchWidth,
    );
    const score = scale * Math.LOG2E * (dot(queries, row * c.keyWidth, keyOf, c.keyWidth) + beside);
    const own = [...newValues.subarray(value, value + c.width)];
    sizes.push(Math.max(sizeOf(before), sizeOf(own)));
    return withToken({ o: before, m: stats[2 * row]!, l: stats[2 * row + 1]! }, score, own);
  });
  const where = `attend_current ${variant} ${JSON.stringify({ ...c, branch })}, LLA_SIM_SEED=${SEED}`;
  compare(expected, single(result('output')), single(result('stats')), c, where, sizes);
  if (c.empty === 1) expect([...single(result('output'))], where).toEqual(expected.flatMap((row) => row.o));
}

async function checkJoin(device: Device, c: Case, seed: number): Promise<void> {
  const kvHeads = c.heads / c.group;
  const rows = c.sequences * c.heads;
  const plan = planOperation(
    { kernel: 'attend_join', variant: 'f32', shape: { rows, width: c.width } },
    { current: { heads: c.heads, group: c.group } },
  );
  const of = drawing(seed);
  const [output, latent, valueMeans] = [of(1, rows * c.width), of(2, rows * c.width), of(3, kvHeads * c.width)];
  const stats = statsOf(c, of(4, 2 * rows), Array<boolean>(rows).fill(true));
  const latentStats = statsOf(c, of(5, 2 * rows), rowsThere(c, seed));
  const result = await runPlan(device, plan, { output, stats, latent, latentStats, valueMeans });
  const sizes: number[] = [];
  const expected = Array.from({ length: rows }, (_, row) => {
    const mean = Math.floor((row % c.heads) / c.group) * c.width;
    const part = (from: Float32Array, of: Float32Array, means: (i: number) => number) => {
      const [m, l] = [of[2 * row]!, of[2 * row + 1]!];
      return { m, l, o: Array.from({ length: c.width }, (_, i) => l * (from[row * c.width + i]! + means(i))) };
    };
    const parts = [part(output, stats, () => 0), part(latent, latentStats, (i) => valueMeans[mean + i]!)];
    sizes.push(Math.max(...parts.map(meanSize)));
    return mergeSplits(parts, c.width);
  });
  const where = `attend_join ${JSON.stringify(c)}, LLA_SIM_SEED=${SEED}`;
  compare(expected, single(result('output')), single(result('stats')), c, where, sizes);
  // Without latents nothing is added to the exact part.
  if (c.empty === 1) expect([...single(result('output'))], where).toEqual([...output]);
}

const EDGES: readonly Partial<Case>[] = [
  { splits: 1, width: 1, keyWidth: 1 },
  { splits: 200, width: 160 },
  { empty: 1 },
  { empty: 0.9, spread: 300 },
  { splits: 1, empty: 1, width: 45, keyWidth: 27 },
  ...[{}, {}, {}],
];

describeGpu('merges against float64', (device) => {
  for (const [name, check] of [
    ['attend_merge f32', (...of) => checkMerge(device, 'f32', ...of)],
    ['attend_merge current', (...of) => checkMerge(device, 'current', ...of)],
    ['attend_current f32', (...of) => checkCurrent(device, 'f32', ...of)],
    ['attend_current absorbed', (...of) => checkCurrent(device, 'absorbed', ...of)],
    ['attend_join', (...of) => checkJoin(device, ...of)],
  ] as [string, (c: Case, seed: number) => Promise<void>][])
    test(name, async () => {
      for (const [i, edge] of EDGES.entries()) await check(caseOf(mix(SEED + i), edge), mix(SEED + i));
    });

  test('a NaN among the partials is not hidden', async () => {
    const shape = { rows: 1, splits: 2, width: 2, keyWidth: 0 };
    const plan = planOperation({ kernel: 'attend_merge', variant: 'f32', shape });
    const result = await runPlan(device, plan, { partials: Float32Array.of(NaN, 1, 0, 1, 1, 1, 0, 1) });
    expect([...single(result('output'))]).toEqual([NaN, 1]);
  });

  test('kernels that add up across eight threads are refused where a subgroup has fewer', async () => {
    const [least] = device.units.subgroupSizes;
    const run = runPlan(device, planOperation(EIGHT_THREADS), {});
    if (least > 0 && least < 8) await expect(run).rejects.toThrow(/subgroups of this adapter have \d threads/);
    else await run;
  });
});

test('heads that do not divide are refused', () => {
  const shape = { rows: 6, splits: 1, width: 2, keyWidth: 2 };
  const call = { kernel: 'attend_merge', variant: 'current', shape } as const;
  expect(() => planOperation(call, { current: { heads: 4, group: 2 } })).toThrow(/do not divide/);
});
