/** What terms count of attention is what its launch makes threads do: the planner's copy of the rule is the same. */
import { expect, test } from 'vitest';
import { planOperation } from '../../kernels/launches.js';
import { KERNELS, type KernelCall } from '../../kernels/registry.js';
import { STORAGES, isQuantised, padded, storageOfVariant, type Storage } from '../../kernels/spec.js';
import { SEED, randomOf } from '../gpu/random.js';

const UNITS: Readonly<Record<string, number>> = { f32: 4, f16: 8, q8: 16, q4: 32, q3: 32, q2: 64 };
const random = randomOf(SEED);
const CASES = 200;

/** Constants of the only step of a call, and its workgroups. */
function launched(call: KernelCall): { at: (name: string) => number; workgroups: number } {
  const [step] = planOperation(call, {}).steps;
  const [x, y, z] = step!.workgroups;
  return { at: (name) => Number(step!.constants![name]), workgroups: x * y * z };
}

/** A call of an attention kernel, of random length and storage. */
function drawn(kernel: 'attend' | 'attend_rebuild', fields: Record<string, number>): KernelCall {
  const variant = random.pick(STORAGES as readonly Storage[]);
  return {
    kernel,
    variant,
    shape: {
      sequences: random.whole(1, 8),
      context: random.whole(1, 20_000),
      groupSize: isQuantised(variant) ? random.pick([32, 64]) : 0,
      splits: random.whole(1, 8),
      ...fields,
    },
  };
}

test('rebuilding attention: whole rounds of a workgroup, whole units of a thread, weights once a round', () => {
  for (let i = 0; i < CASES; i++) {
    const [kvHeads, group] = random.pick([
      [16, 1],
      [4, 4],
      [2, 3],
    ] as const);
    const call = drawn('attend_rebuild', {
      kvHeads,
      group,
      latentHeads: random.pick([1, kvHeads]),
      rankK: random.whole(1, 400),
      rankV: random.whole(1, 600),
      headDim: random.even(16, 128),
    });
    const { at, workgroups } = launched(call);
    const { context, splits, rankK, headDim } = call.shape as Record<string, number>;
    const unit = UNITS[call.variant]!;
    const rows = at('WG') / at('WIDE');
    const split = padded(Math.ceil(context! / splits!), 32);
    const rounds = Math.ceil(split / (rows * at('TOKENS')));
    const atOnce = at('WIDE') * at('KEY_EACH') * unit;
    const products = workgroups * rounds * rows * 2 * headDim! * padded(rankK!, atOnce);
    const weights = at('ALIGNED') === 1 && unit >= 8 ? 6 : 11;
    const executed = KERNELS.attend_rebuild.executed!(call.shape, call.variant);
    expect(executed / ((at('TOKENS') + weights) * products), `${SEED}: ${JSON.stringify(call)}`).toBeCloseTo(1, 9);
  }
});

test('attention: rows of whole units of a thread', () => {
  for (let i = 0; i < CASES; i++) {
    const heads = random.pick([
      { kvHeads: 16, group: 1, branchHeads: 1 },
      { kvHeads: 4, group: 3, branchHeads: 4 },
      { kvHeads: 1, group: 16, branchHeads: 1 },
      { kvHeads: 1, group: 16, branchHeads: 16 },
    ]);
    const call = drawn('attend', {
      ...heads,
      keyWidth: random.whole(1, 600),
      valueWidth: random.whole(1, 960),
      branchWidth: random.pick([0, 64]),
    });
    const { at, workgroups } = launched(call);
    const { context, splits } = call.shape as Record<string, number>;
    const unit = UNITS[call.variant]!;
    const held = at('WIDE') * (at('KEY_EACH') + at('BRANCH_EACH') + at('VALUE_EACH')) * unit;
    const read = (workgroups / splits!) * context!;
    const unpacked = isQuantised(storageOfVariant(call.variant)) ? 6 : 0;
    const executed = KERNELS.attend.executed!(call.shape, call.variant);
    expect(executed / (read * held * (2 * at('LANES') + unpacked)), `${SEED}: ${JSON.stringify(call)}`).toBeCloseTo(
      1,
      9,
    );
  }
});
