import { defineConfig } from 'vitest/config';

export default defineConfig({
  test: {
    include: ['test/**/*.test.ts'],
    testTimeout: 60_000,
    hookTimeout: 60_000,
    // One GPU device at a time: a software adapter uses every core already.
    fileParallelism: true,
    maxWorkers: 2,
  },
});
