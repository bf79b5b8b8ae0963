import { defineConfig } from 'vitest/config';

export default defineConfig({
  test: {
    include: ['test/**/*.test.ts'],
    testTimeout: 60_000,
    hookTimeout: 60_000,
    // One GPU device at a time: a software adapter uses every core already.
    fileParallelism: true,
    maxWorkers: 2,
    // Mesa's software adapter leaves out its compiler's optimisation, which takes longer than the rest of most tests.
    // The driver reads this once, when it is loaded. The full contracts run long enough to be worth it.
    env: process.env['LLA_SIM_CONTRACT'] === 'full' ? {} : { GALLIVM_PERF: process.env['GALLIVM_PERF'] ?? 'nopt' },
  },
});
