/**
 * Kernels that read cached rows, against float64: a seeded sample in which pairs of factors meet. LLA_SIM_CONTRACT=full
 * takes the whole product of the main factors instead.
 */
import type { RunOptions, Span } from '../../kernels/attention-options.js';
import { test } from 'vitest';
import { mix } from '../../src/numbers/hash.js';
import { capacityOf } from '../../kernels/host/cache-layout.js';
import type { Device, OperationOptions } from '../../src/gpu/index.js';
import { isQuantised, STORAGES, storedBytes, type Shape, type Storage } from '../../kernels/spec.js';
import type { KernelCall, KernelName } from '../../kernels/registry.js';
import { expectContract, HALF_TOLERANCE, scoreTolerance } from './contract-run.js';
import { pairwise, product, type Case } from './pairwise.js';
import { randomOf, SEED, type Random } from './random.js';
import { everyNth, FULL } from './sample.js';

/** Positions of the rotary tables where a sequence has gone far. */
const FAR = 2 ** 20;

/** What a contract varies; the first group is taken whole in the full run, the second is always sampled. */
const MAIN = {
  storage: STORAGES,
  headDim: [64, 96, 128],
  group: [1, 4, 6],
  ranks: ['18/30', '27/45', '16/32', '96/160', '192/320', '288/480'],
  context: [1, 31, 4095, 4097, 33_000],
  sequences: [1, 3, 64],
} as const;
const SIDE = {
  latent: ['head', 'shared'],
  pairing: ['half-split', 'adjacent'],
  cells: ['plain', 'ragged', 'ring', 'pinned'],
  scores: ['none', 'written'],
  size: ['ordinary', 'large'],
  from: [0, 12_345, 1_000_000],
} as const;
const FACTORS = { ...MAIN, ...SIDE };
type Setting = Case<typeof FACTORS>;

/** Bytes of cached rows, which a binding holds, and multiply-adds of a case's reference row. */
const MOST_BYTES = 64 * 2 ** 20;
const MOST_REFERENCE = FULL ? 3e9 : 3e7;
/** Tokens over all rows, each rebuilt for every head: half a second of a software adapter. */
const MOST_ROWS = FULL ? Infinity : 4e7;

interface Contract {
  readonly kernel: KernelName;
  readonly cases: number;
  readonly variant: (s: Setting) => string;
  readonly shape: (s: Setting, random: Random) => Shape;
  readonly tolerance: (largestScore: number) => number;
  /** Multiply-adds of a token and head, and scalars cached. */
  readonly work: (s: Setting) => number;
  readonly width: (s: Setting) => number;
}

const ranksOf = (s: Setting): { rankK: number; rankV: number } => {
  const [rankK = 0, rankV = 0] = s.ranks.split('/').map(Number);
  return { rankK, rankV };
};
const KV_HEADS = 2;
const sharedHeads = (s: Setting): number => (s.latent === 'shared' ? 1 : KV_HEADS);
const common = (s: Setting): { sequences: number; kvHeads: number; context: number } => ({
  sequences: s.sequences,
  kvHeads: KV_HEADS,
  context: s.context,
});
const groupSize = (s: Setting, random: Random): number => (isQuantised(s.storage) ? random.pick([32, 64, 96]) : 0);
const scoresOf = (s: Setting): string => (s.scores === 'written' ? '+scores' : '');

const CONTRACTS: readonly Contract[] = [
  {
    kernel: 'attend',
    cases: 2,
    variant: (s) => s.storage + scoresOf(s),
    // Rows of a head's width, or latents with an absorbed query and a rotary branch.
    shape: (s, random) => {
      const { rankK, rankV } = s.pairing === 'adjacent' ? ranksOf(s) : { rankK: s.headDim, rankV: s.headDim };
      const branch = s.pairing === 'adjacent' ? random.pick([0, 64]) : 0;
      return {
        ...common(s),
        group: s.group,
        keyWidth: rankK,
        valueWidth: rankV,
        branchWidth: branch,
        branchHeads: branch === 0 ? 0 : s.latent === 'shared' ? 1 : KV_HEADS,
        groupSize: groupSize(s, random),
        splits: random.whole(1, 5),
      };
    },
    tolerance: scoreTolerance,
    work: (s) => s.headDim + ranksOf(s).rankV,
    width: (s) => Math.max(s.headDim, ranksOf(s).rankV),
  },
  {
    kernel: 'attend_rebuild',
    cases: 2,
    variant: (s) => s.storage + scoresOf(s),
    shape: (s, random) => ({
      ...common(s),
      ...ranksOf(s),
      group: s.group,
      headDim: s.headDim,
      latentHeads: sharedHeads(s),
      groupSize: groupSize(s, random),
      splits: random.whole(1, 5),
    }),
    tolerance: scoreTolerance,
    work: (s) => s.headDim * ranksOf(s).rankK,
    width: (s) => ranksOf(s).rankV,
  },
  {
    kernel: 'rebuild',
    cases: 2,
    variant: (s) => `${s.storage}+${s.size === 'large' ? 'plain' : 'rope'}`,
    shape: (s, random) => ({
      ...common(s),
      rank: ranksOf(s).rankK,
      headDim: s.headDim,
      latentHeads: sharedHeads(s),
      groupSize: groupSize(s, random),
    }),
    tolerance: () => HALF_TOLERANCE,
    work: (s) => s.headDim * ranksOf(s).rankK,
    width: (s) => ranksOf(s).rankK + s.headDim,
  },
];

const allowed =
  (c: Contract) =>
  (s: Setting): boolean => {
    const rows = s.sequences * KV_HEADS * s.context;
    return (
      rows * storedBytes(s.storage, c.width(s), 64) <= MOST_BYTES &&
      s.context * c.work(s) <= MOST_REFERENCE &&
      rows * c.work(s) <= MOST_ROWS
    );
  };

/** Where a case's tokens are; every sequence has its own number of them unless the cache is plain. */
function runOf(s: Setting, random: Random): RunOptions {
  const last = Math.max(0, FAR - s.context - 64);
  const first = Math.min(s.from, last);
  if (s.cells === 'plain') return { firstPosition: first };
  const pinned = s.cells === 'pinned' ? random.pick([4, 37, 256]) : 0;
  // One sequence is as long as the shape says, the others are shorter.
  const ring = (i: number): number => (i === 0 ? s.context : random.whole(1, s.context));
  const spans = Array.from({ length: s.sequences }, (_, i): Span => ({
    pinned: pinned === 0 ? 0 : random.whole(0, pinned),
    firstPosition: s.cells === 'ragged' ? 0 : Math.min(last, first + random.whole(0, 5000)),
    ring: ring(i),
  }));
  return { pinned, capacity: capacityOf(pinned + s.context + random.whole(0, 40)), spans };
}

function optionsOf(c: Contract, s: Setting, shape: Shape, random: Random): OperationOptions {
  // A spread of scores of a few units, so that softmax is neither flat nor one token; or of hundreds.
  const spread = c.kernel === 'attend' ? shape.keyWidth! + shape.branchWidth! : s.headDim * ranksOf(s).rankK;
  const run = runOf(s, random);
  return {
    scale: (s.size === 'large' ? 100 : 3) * spread ** -0.5,
    ropeBase: random.pick([1e4, 1e6, 7e7]),
    pairing: s.pairing,
    positionsByHead: random.pick([true, false]),
    positions: s.from === 0 ? 2 ** 16 : FAR,
    run: c.kernel === 'attend' && run.pinned ? { ...run, pinnedQuery: random.pick([true, false]) } : run,
  };
}

async function expectSetting(device: Device, c: Contract, s: Setting, seed: number): Promise<void> {
  const random = randomOf(seed);
  const shape = c.shape(s, random);
  const call: KernelCall = { kernel: c.kernel, variant: c.variant(s), shape };
  const options = optionsOf(c, s, shape, random);
  await expectContract(device, call, options, seed, c.tolerance);
}

/** Cases of a contract: the sample, or the product of the main factors with the others at random. */
function casesOf(c: Contract, storage: Storage | null): Setting[] {
  const random = randomOf(mix(SEED ^ mix(c.kernel.length)));
  if (storage === null) return pairwise(FACTORS, random, allowed(c), c.cases);
  const drawn = () => Object.entries(SIDE).map(([name, values]) => [name, random.pick<string | number>(values)]);
  return product({ ...MAIN, storage: [storage] })
    .map((main) => ({ ...main, ...(Object.fromEntries(drawn()) as Case<typeof SIDE>) }))
    .filter(allowed(c));
}

/** Units of 2-bit codes whose halves lie in different groups: one kernel, another by each seed. */
const COMMON = { sequences: 2, kvHeads: 2, context: 37, groupSize: randomOf(mix(SEED + 3)).pick([96, 160]) };
const WIDTHS = { keyWidth: 192, valueWidth: 320, branchWidth: 0, branchHeads: 0 };
const RANKS = { latentHeads: 2, rankK: 192, rankV: 320, headDim: 64 };
const TWO_BITS = everyNth<KernelCall>(
  [
    { kernel: 'attend', variant: 'q2', shape: { ...COMMON, group: 1, ...WIDTHS, splits: 2 } },
    { kernel: 'attend_rebuild', variant: 'q2', shape: { ...COMMON, group: 1, ...RANKS, splits: 2 } },
    { kernel: 'rebuild', variant: 'q2+plain', shape: { ...COMMON, latentHeads: 2, rank: 320, headDim: 64 } },
  ],
  3,
);

/** Declares the contract of a kernel. */
export function contractTests(device: Device, kernel: KernelName): void {
  for (const c of CONTRACTS.filter((one) => one.kernel === kernel)) {
    for (const storage of FULL ? STORAGES : [null]) {
      const cases = casesOf(c, storage);
      test(
        `${c.kernel}: ${storage ?? 'sampled'}, ${cases.length} cases`,
        { timeout: FULL ? 24 * 3_600_000 : 600_000 },
        async () => {
          for (const [i, s] of cases.entries()) await expectSetting(device, c, s, mix(SEED + i));
        },
      );
    }
  }
  for (const call of TWO_BITS.filter((one) => one.kernel === kernel))
    test(`${kernel}: units of 2-bit codes whose halves lie in different groups`, () =>
      expectContract(device, call, { scale: 0.1 }, mix(SEED), HALF_TOLERANCE));
}
