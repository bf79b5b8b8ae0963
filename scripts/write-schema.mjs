/** Writes schemas/scenario.schema.json from the settings table. Run: npm run schema (after npm run build). */
import { mkdirSync, writeFileSync } from 'node:fs';
import { scenarioJsonSchema } from '../dist/src/schema/scenario.js';

mkdirSync(new URL('../schemas/', import.meta.url), { recursive: true });
writeFileSync(
  new URL('../schemas/scenario.schema.json', import.meta.url),
  `${JSON.stringify(scenarioJsonSchema(), null, 2)}\n`,
);
