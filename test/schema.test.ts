/** The committed JSON Schema is the one that the settings table gives. */
import { readFileSync } from 'node:fs';
import { expect, it } from 'vitest';
import { scenarioJsonSchema } from '../src/schema/scenario.js';

it('schemas/scenario.schema.json is up to date (npm run schema)', () => {
  expect(JSON.parse(readFileSync('schemas/scenario.schema.json', 'utf8'))).toEqual(
    JSON.parse(JSON.stringify(scenarioJsonSchema())),
  );
});
