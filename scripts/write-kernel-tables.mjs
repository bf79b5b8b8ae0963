/**
 * Writes kernels/tables/ from the folders of kernels/: a line a kernel for its terms, its launch and its reference.
 *
 *   node scripts/write-kernel-tables.mjs [--check]   --check: fails where a table is stale, and writes nothing
 */
import { existsSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const KERNELS = join(dirname(fileURLToPath(import.meta.url)), '../kernels');
const WHAT = {
  terms: "Every kernel's part for the planner, by the name of its folder.",
  launch: 'How every kernel is run.',
  reference: 'What every kernel is checked against; one without cannot be measured.',
};

const names = readdirSync(KERNELS)
  .filter((name) => name !== 'tables' && existsSync(join(KERNELS, name, 'terms.ts')))
  .sort();
for (const [part, what] of Object.entries(WHAT)) {
  const lines = names.map((name) => `export * as ${name} from '../${name}/${part}.js';\n`);
  const text = `/** ${what} scripts/write-kernel-tables.mjs wrote it. */\n${lines.join('')}`;
  const file = join(KERNELS, 'tables', `${part}.ts`);
  if (!process.argv.includes('--check')) writeFileSync(file, text);
  else if (readFileSync(file, 'utf8') !== text) {
    console.error(`${file} is stale: run node scripts/write-kernel-tables.mjs`);
    process.exitCode = 1;
  }
}
