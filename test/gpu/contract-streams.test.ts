/** Kernels of flashloop against float64, at random shapes. */
import './narrow.js';
import { test } from 'vitest';
import type { Span } from '../../kernels/attention-options.js';
import type { KernelCall } from '../../kernels/registry.js';
import { deviceOptions } from '../../kernels/launches.js';
import type { OperationOptions } from '../../src/gpu/index.js';
import { mix } from '../../src/numbers/hash.js';
import { expectContract, TOLERANCE } from './contract-run.js';
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

    const contract = (name: string, call: KernelCall, options: OperationOptions, tolerance = 10 * TOLERANCE): void => {
      test(`${name} ${JSON.stringify(call.shape)}, seed ${SEED}`, () =>
        expectContract(device, call, { ...options, ...deviceOptions(device) }, mix(SEED + i), tolerance));
    };
    const spansOf = (span: () => Span): Span[] => Array.from({ length: sequences }, span);

    for (const variant of ['keys', 'values']) {
      // Of some sequences nothing is due.
      const spans = spansOf(() => ({ pinned: packed(128), firstPosition: 0, ring: random.pick([98, 99, 150]) }));
      const call: KernelCall = { kernel: 'append_streams', variant, shape: { rows: sequences, heads, loops, ...row } };
      const own = { sequences, capacity, slots: 96, full: 100, loops: loops + (i % 2), firstSequence: i % 2, spans };
      contract(`packs ${variant} of`, call, { appendStreams: own }, TOLERANCE);
    }

    const split = { packedRows: 1, tail: 1, splits: random.whole(1, 3), ...row };
    const shape = { sequences, kvHeads: heads, group, loops, ...split };
    const behind = (pinned: number, ring: number): Span => ({ pinned, firstPosition: pinned, ring });
    for (const variant of ['all', 'all+scores']) {
      const spans = spansOf(() => behind(packed(100), random.whole(1, 70)));
      const context = Math.max(...spans.map(({ pinned, ring }) => pinned + ring));
      contract(
        `attends to ${variant} of`,
        { kernel: 'attend_streams', variant, shape: { ...shape, context } },
        { streams: { loops: loops + (i % 2), tailSlots: 96 }, run: { capacity, spans } },
      );
    }
    const context = random.whole(1, 150);
    const spans = spansOf(() => {
      const pinned = packed(context);
      return behind(pinned, context - pinned);
    });
    contract(
      'attends to chosen tokens of',
      { kernel: 'attend_streams', variant: 'chosen', shape: { ...shape, context } },
      { streams: { loops, tailSlots: 160 }, run: { capacity, spans } },
    );

    const rows = sequences * heads * group;
    const among = random.whole(1, 700);
    const kept = random.pick([1, Math.ceil(among / 10), among + 1]);
    contract(
      'chooses',
      { kernel: 'choose_keys', variant: 'f32', shape: { rows, context: among, kept, width: headDim } },
      { chooseKeys: { heads: heads * group, group, listWords: kept + 3, capacity: 704 } },
      0,
    );
    for (const variant of ['begin', 'add'])
      contract(
        `joins chosen tokens (${variant}) of`,
        { kernel: 'join_chosen', variant, shape: { rows, width: headDim } },
        { current: { heads: heads * group, group, listWords: 5 } },
      );
  }
});
