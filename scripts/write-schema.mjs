/**
 * Writes schemas/ and docs/api.md: scenario.schema.json from the settings table, the other schemas from the types of
 * what commands print (src/commands/outputs.ts), the page from the library's docstrings. Run: npm run schema, which
 * builds it first. `--check` writes nothing and fails where a file would change.
 */
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { scenarioJsonSchema } from '../dist/src/schema/scenario.js';
import { apiPage } from './api-page.mjs';
import { schemasOf } from './json-schema.mjs';

const json = (value) => `${JSON.stringify(value, null, 2)}\n`;
const files = new Map([
  ['schemas/scenario.schema.json', json(scenarioJsonSchema())],
  ['docs/api.md', await apiPage()],
]);
for (const [name, schema] of schemasOf('commands/outputs.d.ts', 'Outputs')) {
  const head = { $schema: 'http://json-schema.org/draft-07/schema#', $id: `lla-sim/${name}`, title: `lla-sim ${name}` };
  files.set(`schemas/${name}.schema.json`, json({ ...head, ...schema }));
}

for (const [name, text] of files) {
  const file = new URL(`../${name}`, import.meta.url);
  if (!process.argv.includes('--check')) writeFileSync(file, text);
  else if (!existsSync(file) || readFileSync(file, 'utf8') !== text) {
    console.error(`${name} is not what the types say: npm run schema`);
    process.exitCode = 1;
  }
}
