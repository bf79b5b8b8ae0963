/** Kernels of residual-quant against float64, at random shapes. */
import './narrow.js';
import { expect, test } from 'vitest';
import { residualTile, type ResidualRow } from '../../kernels/shared/cache/residual.layout.js';
import type { KernelCall } from '../../kernels/registry.js';
import { deviceOptions } from '../../kernels/launches.js';
import { planOperation } from '../../src/gpu/index.js';
import { mix } from '../../src/numbers/hash.js';
import { codeLoops } from '../../src/codecs/residual.js';
import { rebuiltLoops, storedLoops } from '../../src/gpu/residual-layout.js';
import { expectContract, TOLERANCE } from './contract-run.js';
import { describeGpu } from './device.js';
import { randomOf, SEED, type Random } from './random.js';
import { runPlan } from './run-plan.js';

/** The published forms, at any width and number of loops. */
function rowOf(random: Random): ResidualRow {
  const headDim = random.pick([16, 32, 64, 96, 128]);
  const [anchorBits, group] = random.pick([
    [4, 32],
    [2, 32],
    [4, 16],
  ] as const);
  return { headDim, loops: random.whole(2, 5), anchorBits, residualGroup: Math.min(headDim, group) };
}

test('the parts of a row fill its tile', () => {
  const random = randomOf(mix(SEED));
  for (let i = 0; i < 20; i++) {
    const row = rowOf(random);
    const { words, anchorWords, residualWords, anchorPairsAt, residuals } = residualTile(row);
    const parts = [
      [0, 32 * anchorWords],
      [anchorPairsAt, (16 * row.headDim) / Math.min(32, row.headDim)],
      ...residuals.flatMap(({ codesAt, pairsAt, coefficientAt }) => [
        [codesAt, 32 * residualWords],
        [pairsAt, (16 * row.headDim) / row.residualGroup],
        [coefficientAt, 16],
      ]),
    ].toSorted((a, b) => a[0]! - b[0]!);
    const ends = parts.map(([at, size]) => at! + size!);
    expect([...parts.map(([at]) => at), words], JSON.stringify(row)).toEqual([0, ...ends]);
  }
});

describeGpu('kernels of residual-quant', (device) => {
  for (let i = 0; i < 4; i++) {
    const random = randomOf(mix(SEED + i));
    const row = rowOf(random);
    const [sequences, heads, chunk] = [random.whole(1, 3), random.whole(1, 3), random.whole(1, 40)];
    const rows = { rows: sequences * chunk, heads, ...row };
    const append: KernelCall = { kernel: 'append_residual', variant: 'f32', shape: rows };
    const apart = random.whole(0, 5);
    test(`codes ${JSON.stringify(append.shape)} in chunks of ${chunk}, seed ${SEED}`, async () => {
      const floats = row.loops * heads * row.headDim + apart;
      const options = { capacity: 96, chunk, rowOffset: apart, rowStride: floats, firstSequence: i % 2 };
      await expectContract(device, append, { appendResidual: options }, mix(SEED + i));
    });
    const group = random.whole(1, 3);
    for (const variant of ['anchor', 'residual']) {
      const loop = random.whole(0, row.loops - 2);
      const context = random.whole(1, 200);
      const shape = { sequences, kvHeads: heads, group, context, ...row, splits: random.whole(1, 3) };
      test(`attends to ${variant} ${loop} of ${JSON.stringify(shape)}, seed ${SEED}`, async () => {
        const call = { kernel: 'attend_residual', variant, shape } as const;
        const options = { residual: { loop }, ...deviceOptions(device) };
        await expectContract(device, call, options, mix(SEED + i), 10 * TOLERANCE);
      });
    }
  }

  test(`stores what the definition has to the bit where every number is exact: halves too, seed ${SEED}`, async () => {
    // Numbers of few bits: differences to FP8 offsets are exact, and halves between codes are common.
    const random = randomOf(mix(SEED + 99));
    const row: ResidualRow = { headDim: 64, loops: 2, anchorBits: 4, residualGroup: 32 };
    const [heads, capacity] = [2, 32];
    const values = Array.from({ length: row.loops * heads * row.headDim }, (_, i) =>
      i % 32 === 0 ? 0 : i % 32 === 1 ? 15 : random.whole(0, 60) / 4,
    );
    const shape = { rows: 1, heads, ...row };
    const plan = planOperation({ kernel: 'append_residual', variant: 'f32', shape }, { appendResidual: { capacity } });
    const out = await runPlan(device, plan, { tokens: Uint32Array.of(5), rows: Float32Array.from(values) });
    const cache = out('cache');
    const read = storedLoops((i) => cache[i]!, row, capacity);
    for (let head = 0; head < heads; head++) {
      const loops = [0, 1].map((loop) => values.slice((loop * heads + head) * 64, (loop * heads + head + 1) * 64));
      const { anchor, residuals } = codeLoops(loops, { anchorBits: 4, anchorGroup: 32, residualGroup: 32 });
      expect(anchor.map(({ scale, offset }) => `${scale} ${offset}`)).toEqual(['1 0', '1 0']);
      expect(read(head, 5)).toEqual({ anchor, residuals });
    }
  });

  test('NaN stays NaN in every loop that reads it', async () => {
    const row: ResidualRow = { headDim: 32, loops: 2, anchorBits: 2, residualGroup: 32 };
    const values = Float32Array.from({ length: 64 }, (_, i) => (i === 40 ? NaN : i / 8));
    const shape = { rows: 1, heads: 1, ...row };
    const call = { kernel: 'append_residual', variant: 'f32', shape } as const;
    const plan = planOperation(call, { appendResidual: { capacity: 32 } });
    const cache = (await runPlan(device, plan, { tokens: Uint32Array.of(0), rows: values }))('cache');
    const read = rebuiltLoops(storedLoops((i) => cache[i]!, row, 32)(0, 0));
    expect(read.every(Number.isNaN)).toBe(true);
  });

  test('what does not go together is refused', () => {
    const shape = { rows: 1, heads: 1, headDim: 48, loops: 4, anchorBits: 4, residualGroup: 32 };
    const planned = (other: object) => () =>
      planOperation({ kernel: 'append_residual', variant: 'f32', shape: { ...shape, ...other } });
    expect(planned({})).toThrow('do not go with 48 channels');
    expect(planned({ headDim: 32, residualGroup: 8 })).toThrow('groups of 8');
    expect(planned({ headDim: 32, loops: 1 })).toThrow('1 loops do not share an anchor');
  });
});
