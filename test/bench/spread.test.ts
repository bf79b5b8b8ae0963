import { expect, test } from 'vitest';
import { choose } from '../../src/bench/calibrate/choose.js';
import { mostTelling } from '../../src/bench/calibrate/spread.js';
import type { Track } from '../../src/bench/calibrate/visits.js';
import type { Sample } from '../../src/schema/calibration.js';

const line = (...shares: number[]) =>
  [1, 3, 7, 15, 1023].map((context, i) => ({ shape: { context }, share: shares[i] ?? 1 }));

test('the first point is the centre of the weights, in log space', () => {
  expect(mostTelling([], line())).toBe(2);
  expect(mostTelling([], line(0, 0, 0, 0, 1))).toBe(4);
});

test('the next is where the weighted distances from all measured fall most', () => {
  expect(mostTelling([{ context: 7 }], line())).toBe(4);
  expect(mostTelling([{ context: 7 }], line(1, 1, 1, 1, 0))).toBe(0);
  expect(mostTelling([{ context: 7 }, { context: 1023 }], line())).toBe(0);
});

test('the second point of a kernel is its lightest shape on which something depends', () => {
  const attend = (context: number) => ({
    ...{ sequences: 1, kvHeads: 16, group: 1, context, splits: 4 },
    ...{ keyWidth: 128, valueWidth: 128, branchWidth: 0, branchHeads: 0, groupSize: 0 },
  });
  const candidates = [8192, 1024, 16384, 2048, 4].map((context) => ({ shape: attend(context), share: context ** 2 }));
  const track = (measured: readonly number[]): Track => ({
    kernel: 'attend',
    variant: 'f16',
    entry: {
      kernel: 'attend',
      sourceHash: 'x',
      samples: measured.map((context) => ({ variant: 'f16', shape: attend(context) }) as unknown as Sample),
      gaps: [],
      predictors: {},
    },
    candidates,
    later: [],
    resumed: [],
    share: 1,
    inTable: true,
    visitSeconds: [],
  });
  expect(choose(track([]), 1)).not.toBe(1);
  expect(choose(track([4096]), 1)).toBe(1);
  expect(choose(track([4096, 256]), 1)).not.toBe(1);
});
