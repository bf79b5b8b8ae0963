/**
 * Writes schemas/: scenario.schema.json from the settings table, the others from the types of what commands print
 * (src/commands/outputs.ts). Run: npm run schema (after npm run build). `--check` writes nothing and fails where a file
 * would change.
 */
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { scenarioJsonSchema } from '../dist/src/schema/scenario.js';
import { schemasOf } from './json-schema.mjs';

const folder = new URL('../schemas/', import.meta.url);
const schemas = [['scenario', scenarioJsonSchema()]];
for (const [name, schema] of schemasOf('commands/outputs.d.ts', 'Outputs'))
  schemas.push([
    name,
    { $schema: 'http://json-schema.org/draft-07/schema#', $id: `lla-sim/${name}`, title: `lla-sim ${name}`, ...schema },
  ]);

mkdirSync(folder, { recursive: true });
for (const [name, schema] of schemas) {
  const file = new URL(`${name}.schema.json`, folder);
  const text = `${JSON.stringify(schema, null, 2)}\n`;
  if (!process.argv.includes('--check')) writeFileSync(file, text);
  else if (!existsSync(file) || readFileSync(file, 'utf8') !== text) {
    console.error(`schemas/${name}.schema.json is not what its types say: npm run build && npm run schema`);
    process.exitCode = 1;
  }
}
