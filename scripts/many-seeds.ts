/**
 * A plugin of the tests (vitest.config.ts): every test file runs once for each of many seeds, in one process. The
 * modules of test/ are loaded anew for each, but for the device; those of src/ and what the device compiled are shared.
 * `scripts/random-tests.sh` uses it.
 */
import { dirname, join, relative, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { Plugin } from 'vitest/config';

const TESTS = fileURLToPath(new URL('../test/', import.meta.url));
const DEVICE = join(TESTS, 'gpu/device.ts');
const QUERY = /^(.*\.ts)\?seed=(\d+)$/;

/** @param first the first of `count` seeds */
export function manySeeds(first: number, count: number): Plugin {
  // Far apart: tests add small numbers to a seed.
  const seeds = Array.from({ length: count }, (_, i) => (first + 1_000_003 * i) % 2 ** 31);
  return {
    name: 'many seeds',
    enforce: 'pre',
    resolveId(source, importer) {
      if (!source.startsWith('.')) return null;
      if (QUERY.test(source)) return resolve(dirname(importer as string), source);
      const [, from, seed] = QUERY.exec(importer ?? '') ?? [];
      if (from === undefined) return null;
      const file = resolve(dirname(from), source.replace(/\.js$/, '.ts'));
      return file.startsWith(TESTS) && file !== DEVICE && file.endsWith('.ts') ? `${file}?seed=${seed}` : file;
    },
    transform(code, id) {
      const seed = QUERY.exec(id)?.[2];
      if (seed !== undefined) return code.replaceAll('process.env.LLA_SIM_SEED', JSON.stringify(seed));
      if (!id.startsWith(TESTS) || !id.endsWith('.test.ts')) return null;
      const self = `./${relative(dirname(id), id)}`;
      const each = seeds.map(
        (seed) => `describe('seed ${seed}', async () => void (await import('${self}?seed=${seed}')));`,
      );
      return ["import { describe } from 'vitest';", ...each].join('\n');
    },
  };
}
