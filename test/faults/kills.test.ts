/** A few of the kills of `npm run test:faults`. */
import '../gpu/timed.js';
import { dirname } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { faults } from '../../scripts/faults.mjs';
import { compile, type Program } from '../cli/program.js';
import { describeGpu } from '../gpu/device.js';
import { SEED } from '../gpu/random.js';

describeGpu(`kills (LLA_SIM_SEED=${SEED})`, () => {
  let program: Program;
  beforeAll(async () => {
    program = await compile();
  });
  afterAll(() => program.remove());

  it('lose nothing and leave nothing behind', async () => {
    const { cli } = program;
    const only = ['calibrate', 'plan'];
    // Kernels that compile at once: what is left behind does not depend on which are measured.
    const few = { kills: 1, maxSeconds: 5, budget: '30s', kernels: 'swiglu,rope,rmsnorm,append' };
    expect(await faults({ cli, dist: dirname(cli), seed: SEED, only, ...few })).toEqual([]);
  });
});
