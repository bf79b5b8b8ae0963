/** Kernels of flashloop against float64, at random shapes. */
import './narrow.js';
import { expect, test } from 'vitest';
import type { KernelCall } from '../../kernels/registry.js';
import { deviceOptions } from '../../kernels/launches.js';
import { mix } from '../../src/numbers/hash.js';
import { check, TOLERANCE } from './contract-run.js';
import { describeGpu } from './device.js';
import { randomOf, SEED } from './random.js';

describeGpu('kernels of flashloop', (device) => {
  for (let i = 0; i < 4; i++) {
    const random = randomOf(mix(SEED + i));
    const headDim = random.pick([16, 32, 64, 128]);
    const row = {
      headDim,
      anchorBits: random.pick([2, 4, 8]),
      packGroup: random.pick([8, 16, 32, 64].filter((group) => headDim % Math.min(group, headDim) === 0)),
    };
    const loops = random.whole(1, 4);
    const [sequences, heads, group] = [random.whole(1, 3), random.whole(1, 3), random.whole(1, 3)];
    const capacity = 192;
    const packed = (most: number): number => row.packGroup * random.whole(0, Math.floor(most / row.packGroup));

    for (const axis of ['keys', 'values']) {
      const spans = Array.from({ length: sequences }, () => ({
        pinned: packed(128),
        firstPosition: 0,
        // Of some sequences nothing is due.
        ring: random.pick([98, 99, 150]),
      }));
      const call: KernelCall = {
        kernel: 'append_streams',
        variant: axis,
        shape: { rows: sequences, heads, loops, ...row },
      };
      test(`packs ${axis} of ${JSON.stringify(call.shape)}, seed ${SEED}`, async () => {
        const own = { sequences, capacity, slots: 96, full: 100, loops: loops + (i % 2), firstSequence: i % 2, spans };
        const { error } = await check(device, call, [{ appendStreams: own }], mix(SEED + i));
        expect(error).toBeLessThan(TOLERANCE);
      });
    }

    const shape = {
      sequences,
      kvHeads: heads,
      group,
      loops,
      packedRows: 1,
      tail: 1,
      splits: random.whole(1, 3),
      ...row,
    };
    for (const variant of ['all', 'all+scores']) {
      const spans = Array.from({ length: sequences }, () => {
        const pinned = packed(100);
        return { pinned, firstPosition: pinned, ring: random.whole(1, 70) };
      });
      const context = Math.max(...spans.map(({ pinned, ring }) => pinned + ring));
      const call: KernelCall = { kernel: 'attend_streams', variant, shape: { ...shape, context } };
      test(`attends to ${variant} of ${JSON.stringify(call.shape)}, seed ${SEED}`, async () => {
        const options = { streams: { loops: loops + (i % 2), tailSlots: 96 }, run: { capacity, spans } };
        const { error } = await check(device, call, [{ ...options, ...deviceOptions(device) }], mix(SEED + i));
        expect(error).toBeLessThan(10 * TOLERANCE);
      });
    }
    const context = random.whole(1, 150);
    const chosen: KernelCall = { kernel: 'attend_streams', variant: 'chosen', shape: { ...shape, context } };
    test(`attends to chosen tokens of ${JSON.stringify(chosen.shape)}, seed ${SEED}`, async () => {
      const spans = Array.from({ length: sequences }, () => {
        const pinned = packed(context);
        return { pinned, firstPosition: pinned, ring: context - pinned };
      });
      const options = { streams: { loops, tailSlots: 160 }, run: { capacity, spans } };
      const { error } = await check(device, chosen, [{ ...options, ...deviceOptions(device) }], mix(SEED + i));
      expect(error).toBeLessThan(10 * TOLERANCE);
    });

    const rows = sequences * heads * group;
    const choice = { rows, context: random.whole(1, 700), kept: 1, width: headDim };
    choice.kept = random.pick([1, Math.ceil(choice.context / 10), choice.context + 1]);
    test(`chooses ${JSON.stringify(choice)}, seed ${SEED}`, async () => {
      const own = { heads: heads * group, group, listWords: choice.kept + 3, capacity: 704 };
      const call = { kernel: 'choose_keys', variant: 'f32', shape: choice } as const;
      expect((await check(device, call, [{ chooseKeys: own }], mix(SEED + i))).error).toBe(0);
    });

    for (const variant of ['begin', 'add'])
      test(`joins chosen tokens (${variant}) of ${rows} rows of ${headDim}, seed ${SEED}`, async () => {
        const call = { kernel: 'join_chosen', variant, shape: { rows, width: headDim } } as const;
        const current = { heads: heads * group, group, listWords: 5 };
        expect((await check(device, call, [{ current }], mix(SEED + i))).error).toBeLessThan(10 * TOLERANCE);
      });
  }
});
