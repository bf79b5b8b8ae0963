/**
 * Kernels of prefill against float64: causal attention of a chunk of ragged prompts, the mass that it gives, and cached
 * rows read back; append where a prompt puts it.
 */
import { expect, test } from 'vitest';
import { mix } from '../../src/hash.js';
import type { OperationOptions } from '../../src/gpu/index.js';
import type { PrefillOptions } from '../../src/kernels/shared/prefill.launch.js';
import type { KernelCall } from '../../src/kernels/registry.js';
import { isQuantised, STORAGES } from '../../src/kernels/spec.js';
import { check, TOLERANCE } from './contract-run.js';
import { describeGpu } from './device.js';
import { pairwise, type Case } from './pairwise.js';
import { randomOf, SEED, type Random } from './random.js';

const FULL = process.env.LLA_SIM_CONTRACT === 'full';
const FACTORS = {
  storage: ['f16', 'f32'],
  width: [4, 30, 64, 96, 128],
  group: [1, 3, 6],
  queries: [1, 7, 33, 130],
  context: [0, 1, 31, 257],
  sequences: [1, 3],
  branch: ['none', 'shared', 'per head'],
  spans: ['whole', 'ragged'],
  placed: ['packed', 'apart'],
} as const;
type Setting = Case<typeof FACTORS>;
const CARRIED_FACTORS = {
  ...FACTORS,
  storage: ['f16', 'f32', 'f16+own', 'f32+own', 'q8', 'q4', 'q3', 'q2'],
  context: [1, 31, 257],
  carried: ['as usual', 'yes', 'no'],
} as const;
const KV_HEADS = 2;

function settingCall(s: Setting, random: Random): { call: KernelCall; options: OperationOptions } {
  const heads = KV_HEADS * s.group;
  const branchWidth = s.branch === 'none' ? 0 : random.pick([6, 64]);
  const valueWidth = random.pick([s.width, s.width + 2]);
  const apart = (width: number): { offset: number; stride: number } => ({
    offset: random.whole(0, 9),
    stride: width + random.whole(0, 7),
  });
  const branch =
    s.branch === 'none'
      ? {}
      : {
          branch: {
            width: branchWidth,
            heads: s.branch === 'shared' ? 1 : KV_HEADS,
            queries: { ...apart(heads * (branchWidth + 3)), head: branchWidth + 3 },
          },
        };
  const prefill: PrefillOptions = {
    ...branch,
    ...(s.spans === 'ragged'
      ? {
          spans: Array.from({ length: s.sequences }, () => ({
            before: random.whole(0, s.context),
            tokens: random.whole(0, s.queries),
          })),
        }
      : {}),
    ...(s.placed === 'apart'
      ? {
          capacity: s.context + s.queries + random.whole(0, 70),
          firstSequence: random.whole(0, 2),
          queries: apart(heads * s.width),
          output: apart(heads * valueWidth),
        }
      : {}),
  };
  const shape = {
    sequences: s.sequences,
    kvHeads: KV_HEADS,
    group: s.group,
    queries: s.queries,
    context: s.context,
    keyWidth: s.width + branchWidth,
    valueWidth,
  };
  return { call: { kernel: 'attend_prefill', variant: s.storage, shape }, options: { prefill } };
}

/** Attention in several calls: rows from any slot on, where queries go on from what they have attended to. */
function carriedCall(s: Case<typeof CARRIED_FACTORS>, random: Random): { call: KernelCall; options: OperationOptions } {
  const own = s.storage.endsWith('+own');
  const { call, options } = settingCall({ ...s, storage: 'f32', context: s.context === 1 ? 0 : s.context }, random);
  const context = own ? (call.shape.context as number) : s.context;
  const first = own ? 0 : random.whole(0, 40);
  const spans = options.prefill?.spans?.map((span) => ({
    ...span,
    before: own ? span.before : Math.max(1, Math.min(span.before, context)),
  }));
  const { capacity, ...prefill } = options.prefill ?? {};
  return {
    call: {
      kernel: 'attend_carried',
      variant: s.storage,
      shape: { ...call.shape, context, groupSize: s.storage.startsWith('q') ? random.pick([32, 64]) : 0 },
    },
    options: {
      prefill: {
        ...prefill,
        ...(spans ? { spans } : {}),
        ...(capacity ? { capacity: capacity + first } : {}),
        ...(own ? {} : { first }),
        ...(s.carried === 'as usual' ? {} : { carried: s.carried === 'yes' }),
      },
    },
  };
}

const MASS_FACTORS = { ...FACTORS, pooled: [1, KV_HEADS], begins: ['yes', 'no'] } as const;

/** What queries give the rows that they have attended to; sequences are as long as each other. */
function massCall(s: Case<typeof MASS_FACTORS>, random: Random): { call: KernelCall; options: OperationOptions } {
  const { call, options } = settingCall({ ...s, spans: 'whole' }, random);
  const { sequences, kvHeads, group, queries, context, keyWidth } = call.shape as Readonly<
    Record<'sequences' | 'kvHeads' | 'group' | 'queries' | 'context' | 'keyWidth', number>
  >;
  const { capacity, firstSequence, queries: at, branch } = options.prefill ?? {};
  const placed = capacity === undefined ? {} : { capacity, room: capacity };
  const massPrefill = {
    begins: s.begins === 'yes',
    ...placed,
    ...(firstSequence === undefined ? {} : { firstSequence }),
    ...(at ? { queries: at } : {}),
    ...(branch ? { branch } : {}),
  };
  return {
    call: {
      kernel: 'mass_prefill',
      variant: s.storage,
      shape: { sequences, kvHeads, rows: kvHeads / s.pooled, group, queries, context, keyWidth },
    },
    options: { massPrefill },
  };
}

describeGpu(`kernels of prefill, against float64 (LLA_SIM_SEED=${SEED})`, (device) => {
  const random = randomOf(mix(SEED));
  const cases = pairwise(FACTORS, random, () => true, FULL ? 200 : 6);
  test(`attend_prefill, ${cases.length} cases`, { timeout: FULL ? 3_600_000 : 600_000 }, async () => {
    for (const [i, s] of cases.entries()) {
      const { call, options } = settingCall(s, random);
      const { error } = await check(device, call, [options], mix(SEED + i));
      expect(
        error <= TOLERANCE,
        `relative error ${error} at ${JSON.stringify({ ...call, options })}, LLA_SIM_SEED=${SEED}`,
      ).toBe(true);
    }
  });

  const carried = pairwise(CARRIED_FACTORS, random, () => true, FULL ? 200 : 8);
  test(`attend_carried, ${carried.length} cases`, { timeout: FULL ? 3_600_000 : 600_000 }, async () => {
    for (const [i, s] of carried.entries()) {
      const { call, options } = carriedCall(s, random);
      const { error } = await check(device, call, [options], mix(SEED + 100 + i));
      expect(
        error <= TOLERANCE,
        `relative error ${error} at ${JSON.stringify({ ...call, options })}, LLA_SIM_SEED=${SEED}`,
      ).toBe(true);
    }
  });

  const masses = pairwise(MASS_FACTORS, random, () => true, FULL ? 200 : 3);
  test(`mass_prefill, ${masses.length} cases`, { timeout: FULL ? 3_600_000 : 600_000 }, async () => {
    for (const [i, s] of masses.entries()) {
      const { call, options } = massCall(s, random);
      const { error } = await check(device, call, [options], mix(SEED + 200 + i));
      expect(
        error <= TOLERANCE,
        `relative error ${error} at ${JSON.stringify({ ...call, options })}, LLA_SIM_SEED=${SEED}`,
      ).toBe(true);
    }
  });

  test('load reads what is stored, in every storage', { timeout: 600_000 }, async () => {
    for (const [i, storage] of STORAGES.entries()) {
      const [chunk, sequences, heads, width, first] = [
        random.whole(1, 90),
        random.whole(1, 3),
        random.whole(1, 3),
        random.whole(1, 200),
        random.whole(0, 70),
      ];
      const shape = {
        rows: chunk * sequences,
        heads,
        width,
        groupSize: isQuantised(storage) ? random.pick([32, 64]) : 0,
      };
      const load = {
        chunk,
        first,
        capacity: first + chunk + random.whole(0, 40),
        firstSequence: random.whole(0, 2),
        output: { offset: random.whole(0, 5), stride: heads * width + random.whole(0, 5) },
      };
      const { error } = await check(device, { kernel: 'load', variant: storage, shape }, [{ load }], mix(SEED + i));
      expect(
        error <= 1e-6,
        `relative error ${error}, ${storage} ${JSON.stringify({ shape, load })}, LLA_SIM_SEED=${SEED}`,
      ).toBe(true);
    }
  });
});
