/** Which calls a calibration measures: what they weigh, and that steps off their grid lie inside them. */
import { describe, expect, test } from 'vitest';
import { ANCHOR_RANGES, anchorCalls, firstCalls, type Anchor } from '../../src/bench/calibrate/anchors.js';
import { randomFrom } from '../../src/numbers/random.js';
import { findPreset } from '../../src/geometry/presets.js';
import { KERNELS } from '../../kernels/registry.js';
import { forEachOp } from '../../src/schedule/expand.js';
import { schedule } from '../../src/schedule/schedule.js';
import { validationModel } from '../../src/bench/calibrate/lists.js';
import { stepGrid } from '../../src/validate/grid.js';
import { SEED as seed } from '../gpu/random.js';

const random = randomFrom(seed);
const geometry = validationModel(true, null);
const common = { targetWorkgroups: 528, bindingBytes: 2 ** 27 };
const software = { ...common, ...ANCHOR_RANGES.software };
const anchors = anchorCalls(geometry, software);
const idOf = (c: Pick<Anchor, 'kernel' | 'variant'>): string => `${c.kernel} ${c.variant}`;

describe(`calls of real steps (LLA_SIM_SEED=${seed})`, () => {
  const keyOf = (c: Anchor): string => `${idOf(c)} ${JSON.stringify(c.shape)}`;

  test('each shape is there once, of every storage and eviction that the planner lists', () => {
    const keys = anchors.map(keyOf);
    expect(new Set(keys).size).toBe(keys.length);
    const kinds = new Set(anchors.map(idOf));
    for (const kind of [
      ...['matmul f16', 'attend f16', 'attend q4', 'attend f16+scores', 'attend_rebuild f16+scores'],
      ...['attend_block_absorbed f16', 'rebuild f16+plain', 'evict f16', 'attend_prefill f16'],
      ...['attend_carried f16+own', 'attend_carried q4', 'load f16'],
    ])
      expect(kinds).toContain(kind);
  });

  test('what validate runs has calls of its own only where the first few calls have them', () => {
    const some = { ...software, steps: software.steps.filter((_, i) => i % 5 === 0) };
    const keysOf = (calls: readonly Anchor[]): Set<string> => new Set(calls.map(keyOf));
    const [own, whole] = [keysOf(firstCalls(geometry, some)), keysOf(anchorCalls(findPreset('ouro-1.4b'), some))];
    // The whole model's embedding is divided by a binding, this one's is not: so it has shapes of its own, for prompts
    // too.
    const others = [...keysOf(anchorCalls(geometry, some))].filter(
      (key) => !whole.has(key) && !key.startsWith('embed '),
    );
    expect(others.length).toBeGreaterThan(0);
    for (const key of others) expect(own).toContain(key);
  });

  test('shares of one step are squares of fractions of its time', () => {
    const step = { context: 32 * Math.ceil(64 * random()), batch: Math.ceil(8 * random()), weight: 1 };
    const at = (weight: number): Anchor[] =>
      anchorCalls(findPreset('ouro-1.4b'), { ...software, prompts: [], steps: [{ ...step, weight }] });
    const once = at(1);
    for (const { share } of once) expect(share).toBeGreaterThan(0);
    const shareOf = (kernel: string): number =>
      once.filter((c) => c.kernel === kernel).reduce((sum, c) => sum + c.share, 0);
    expect(shareOf('matmul')).toBeGreaterThan(10 * shareOf('rmsnorm'));
    at(3).forEach((c, i) => expect(c.share).toBeCloseTo(3 * (once[i] as Anchor).share, 12));
  });

  test('prompts are measured beside steps, with a fifth of their weight and shapes that such an adapter takes', () => {
    const { steps, prompts } = software;
    const sum = (list: readonly { weight: number }[]): number => list.reduce((all, { weight }) => all + weight, 0);
    expect(sum(prompts) / (sum(prompts) + sum(steps))).toBeCloseTo(0.2, 12);
    const alone = anchorCalls(geometry, { ...software, steps: [] });
    for (const call of alone.filter((c) => c.kernel === 'matmul')) expect(call.shape['m']).toBeLessThanOrEqual(512);
    const contexts = alone.filter((c) => c.kernel === 'attend_prefill').map((c) => c.shape['context'] as number);
    expect(Math.max(...contexts)).toBe(2048 - 128);
    const known = new Set(anchors.map(keyOf));
    for (const call of alone) expect(known).toContain(keyOf(call));
  });

  test('steps that validate draws lie inside the shapes, kernel by kernel', () => {
    const boxes = new Map<string, Record<string, [number, number]>>();
    for (const { shape, ...c } of anchors) {
      const box = boxes.get(idOf(c)) ?? {};
      for (const dim of KERNELS[c.kernel].dims) {
        const [low, high] = box[dim] ?? [Infinity, -Infinity];
        box[dim] = [Math.min(low, shape[dim] as number), Math.max(high, shape[dim] as number)];
      }
      boxes.set(idOf(c), box);
    }
    const outside = new Set<string>();
    let [known, all] = [0, 0];
    const keys = new Set(anchors.map(keyOf));
    const asked = { geometry, software: true, quick: false, seed, bindingBytes: common.bindingBytes };
    for (const { c, batch, contextTokens } of stepGrid(asked)) {
      forEachOp(c, schedule(c, batch, contextTokens), ({ kernel, variant, shape }) => {
        const id = idOf({ kernel, variant });
        const box = boxes.get(id);
        for (const dim of KERNELS[kernel].dims)
          if (!box?.[dim] || (shape[dim] as number) < box[dim][0] || (shape[dim] as number) > box[dim][1])
            outside.add(`${id} ${dim} ${shape[dim]}`);
        all++;
        if (keys.has(`${id} ${JSON.stringify(shape)}`)) known++;
      });
    }
    expect([...outside]).toEqual([]);
    expect(known).toBeLessThan(all);
  });
});
