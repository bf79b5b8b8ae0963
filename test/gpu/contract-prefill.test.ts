/** Kernels of prefill against float64: causal attention of ragged prompts' chunks, its mass, cached rows read back. */
import type { PrefillOptions } from '../../kernels/attention-options.js';
import { test } from 'vitest';
import { mix } from '../../src/numbers/hash.js';
import type { OperationOptions } from '../../src/gpu/index.js';
import type { KernelCall } from '../../kernels/registry.js';
import { isQuantised, STORAGES } from '../../kernels/spec.js';
import { expectContract } from './contract-run.js';
import { describeGpu } from './device.js';
import { pairwise, type Case, type Factors } from './pairwise.js';
import { randomOf, SEED, type Random } from './random.js';
import { FULL } from './sample.js';

/** What a pipeline is compiled for, which takes most of the time: each is run at several places. */
const COMPILED = {
  storage: ['f16', 'f32'],
  width: [4, 30, 64, 96, 128],
  group: [1, 3, 6],
  branch: ['none', 'shared', 'per head'],
} as const;
const PLACES = {
  queries: [1, 7, 33, 130],
  context: [0, 1, 31, 257],
  sequences: [1, 3],
  spans: ['whole', 'ragged'],
  placed: ['packed', 'apart'],
} as const;
type Setting = Case<typeof COMPILED> & Case<typeof PLACES>;
const CARRIED_COMPILED = {
  ...COMPILED,
  storage: ['f16', 'f32', 'f16+own', 'f32+own', 'q8', 'q4', 'q3', 'q2'],
} as const;
const CARRIED_PLACES = { ...PLACES, context: [1, 31, 257], carried: ['as usual', 'yes', 'no'] } as const;
const KV_HEADS = 2;

interface Call {
  readonly call: KernelCall;
  readonly options: OperationOptions;
}

/** @param compiled draws what belongs to the pipeline */
function settingCall(s: Setting, random: Random, compiled: Random): Call {
  const heads = KV_HEADS * s.group;
  const branchWidth = s.branch === 'none' ? 0 : compiled.pick([6, 64]);
  const valueWidth = compiled.pick([s.width, s.width + 2]);
  const apart = (width: number) => ({ offset: random.whole(0, 9), stride: width + random.whole(0, 7) });
  const head = branchWidth + 3;
  const branch = (): PrefillOptions['branch'] & object => {
    const rows = { width: branchWidth, heads: s.branch === 'shared' ? 1 : KV_HEADS };
    return { ...rows, queries: { ...apart(heads * head), head } };
  };
  const span = () => ({ before: random.whole(0, s.context), tokens: random.whole(0, s.queries) });
  const prefill: PrefillOptions = {
    ...(s.branch === 'none' ? {} : { branch: branch() }),
    ...(s.spans === 'ragged' ? { spans: Array.from({ length: s.sequences }, span) } : {}),
    ...(s.placed === 'apart'
      ? {
          capacity: s.context + s.queries + random.whole(0, 70),
          firstSequence: random.whole(0, 2),
          queries: apart(heads * s.width),
          output: apart(heads * valueWidth),
        }
      : {}),
  };
  const { sequences, group, queries, context } = s;
  const widths = { keyWidth: s.width + branchWidth, valueWidth };
  const shape = { sequences, kvHeads: KV_HEADS, group, queries, context, ...widths };
  return { call: { kernel: 'attend_prefill', variant: s.storage, shape }, options: { prefill } };
}

/** Attention in several calls: rows from any slot on, where queries go on from what they have attended to. */
function carriedCall(
  s: Case<typeof CARRIED_COMPILED> & Case<typeof CARRIED_PLACES>,
  random: Random,
  compiled: Random,
): Call {
  const own = s.storage.endsWith('+own');
  const before = s.context === 1 ? 0 : s.context;
  const { call, options } = settingCall({ ...s, storage: 'f32', context: before }, random, compiled);
  const context = own ? call.shape.context! : s.context;
  const first = own ? 0 : random.whole(0, 40);
  const spans = options.prefill?.spans?.map((span) => ({
    ...span,
    before: own ? span.before : Math.max(1, Math.min(span.before, context)),
  }));
  const { capacity, ...prefill } = options.prefill ?? {};
  const groupSize = s.storage.startsWith('q') ? compiled.pick([32, 64]) : 0;
  return {
    call: { kernel: 'attend_carried', variant: s.storage, shape: { ...call.shape, context, groupSize } },
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

const MASS_PLACES = { ...PLACES, pooled: [1, KV_HEADS], begins: ['yes', 'no'] } as const;

/** What queries give the rows that they have attended to; sequences are as long as each other. */
function massCall(s: Case<typeof COMPILED> & Case<typeof MASS_PLACES>, random: Random, compiled: Random): Call {
  const { call, options } = settingCall({ ...s, spans: 'whole' }, random, compiled);
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
  const shape = { sequences, kvHeads, rows: kvHeads / s.pooled, group, queries, context, keyWidth };
  return { call: { kernel: 'mass_prefill', variant: s.storage, shape }, options: { massPrefill } };
}

describeGpu(`kernels of prefill, against float64 (LLA_SIM_SEED=${SEED})`, (device) => {
  /** Tests a kernel: so many pipelines, each at some places. */
  function contract<C extends Factors, P extends Factors>(
    kernel: string,
    [compiled, pipelines]: readonly [factors: C, count: number],
    [places, each]: readonly [factors: P, count: number],
    callOf: (s: Case<C> & Case<P>, random: Random, compiled: Random) => Call,
  ): void {
    const timeout = FULL ? 3_600_000 : 600_000;
    const random = randomOf(mix(SEED + kernel.length));
    test(`${kernel}, ${pipelines} pipelines at ${each} places`, { timeout }, async () => {
      for (const [i, c] of pairwise(compiled, random, () => true, pipelines).entries()) {
        for (const [j, p] of pairwise(places, random, () => true, each).entries()) {
          const seed = mix(SEED + 100 * kernel.length + 10 * i + j);
          const { call, options } = callOf({ ...c, ...p }, random, randomOf(mix(SEED + i)));
          await expectContract(device, call, options, seed);
        }
      }
    });
  }
  contract('attend_prefill', [COMPILED, FULL ? 60 : 1], [PLACES, FULL ? 6 : 3], settingCall);
  contract('attend_carried', [CARRIED_COMPILED, FULL ? 60 : 2], [CARRIED_PLACES, FULL ? 6 : 3], carriedCall);
  contract('mass_prefill', [COMPILED, FULL ? 60 : 1], [MASS_PLACES, FULL ? 6 : 3], massCall);

  test('load reads what is stored, in every storage', async () => {
    const random = randomOf(mix(SEED));
    for (const [i, storage] of STORAGES.entries()) {
      const [chunk, sequences, heads] = [random.whole(1, 90), random.whole(1, 3), random.whole(1, 3)];
      const [width, first] = [random.whole(1, 200), random.whole(0, 70)];
      const groupSize = isQuantised(storage) ? random.pick([32, 64]) : 0;
      const shape = { rows: chunk * sequences, heads, width, groupSize };
      const load = {
        chunk,
        first,
        capacity: first + chunk + random.whole(0, 40),
        firstSequence: random.whole(0, 2),
        output: { offset: random.whole(0, 5), stride: heads * width + random.whole(0, 5) },
      };
      await expectContract(device, { kernel: 'load', variant: storage, shape }, { load }, mix(SEED + i), 1e-6);
    }
  });
});
