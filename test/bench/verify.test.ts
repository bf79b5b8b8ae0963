/** The check of a kernel's output sees a wrong element wherever it is, and draws rows where there are too many. */
import '../gpu/timed.js';
import { expect, test } from 'vitest';
import { makeOperands } from '../../src/bench/inputs.js';
import { relativeError } from '../../src/bench/verify.js';
import { planOperation } from '../../src/gpu/index.js';
import { describeGpu } from '../gpu/device.js';
import { randomOf, SEED } from '../gpu/random.js';

const CALL = { kernel: 'matmul', variant: 'f16', shape: { groups: 1, m: 6, k: 64, n: 40 } } as const;
const FLOPS_OF_A_ROW = 2 * CALL.shape.k * CALL.shape.n;

describeGpu(`relative errors (LLA_SIM_SEED=${SEED})`, (device) => {
  test('see one wrong row of all, and of a few that are drawn only some', async () => {
    const { m, n } = CALL.shape;
    const plan = planOperation(CALL, {});
    const operands = await makeOperands(device, plan, SEED);
    try {
      const steps = await device.bindAll(plan, operands.buffers);
      await device.run(steps);
      device.free(...steps.map((step) => step.uniforms));
      const y = operands.buffers.get('y')!;
      const right = new Float32Array(await device.read(y, 4 * m * n));
      const errorOf = (flops?: number): Promise<number> => relativeError(device, CALL, plan, operands, {}, SEED, flops);
      expect(await errorOf()).toBeLessThan(1e-5);
      const random = randomOf(SEED);
      let unseen = 0;
      for (let row = 0; row < m; row++) {
        const wrong = right.slice();
        wrong[row * n + random.whole(0, n - 1)]! += 1000;
        await device.write(y, wrong);
        expect(await errorOf(), `row ${row}`).toBeGreaterThan(0.1);
        if ((await errorOf(2 * FLOPS_OF_A_ROW)) < 1e-5) unseen++;
      }
      expect(unseen).toBeGreaterThanOrEqual(m - 2);
    } finally {
      device.free(...operands.buffers.values());
    }
  });
});
