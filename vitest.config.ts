import { readdirSync, readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { defineConfig } from 'vitest/config';

const root = fileURLToPath(new URL('.', import.meta.url));
const FILES = readdirSync(`${root}test`, { recursive: true, encoding: 'utf8' })
  .filter((name) => name.endsWith('.test.ts'))
  .map((name) => `test/${name}`);
/**
 * What a file must have a process of its own for: a device, whose driver reads its settings once; a browser; a module
 * that is exchanged; a folder that becomes the current one.
 */
const ALONE =
  /(gpu|\.)\/device\.js'|\bopenDevice\(|report\/browser\.js'|\.\/browser\.js'|\bvi\.mock\(|process\.chdir\(/;
const alone = FILES.filter((name) => ALONE.test(readFileSync(root + name, 'utf8')));

const common = {
  testTimeout: 60_000,
  hookTimeout: 180_000,
  // Mesa's software adapter leaves out its compiler's optimisation, which takes longer than the rest of most tests.
  // The driver reads this once, when it is loaded. The full contracts run long enough to be worth it.
  env: process.env['LLA_SIM_CONTRACT'] === 'full' ? {} : { GALLIVM_PERF: process.env['GALLIVM_PERF'] ?? 'nopt' },
};

export default defineConfig({
  test: {
    // A software adapter uses every core already.
    maxWorkers: 2,
    // In the order of their names: those of most work first.
    projects: [
      { test: { ...common, name: 'alone', include: alone } },
      // Files that share a process load the program once, not each.
      { test: { ...common, name: 'shared', include: ['test/**/*.test.ts'], exclude: alone, isolate: false } },
    ],
  },
});
