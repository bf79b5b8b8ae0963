/** The stack files that come with the program. */
import { readdirSync, readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';
import { findDevice } from '../../src/devices/find.js';
import { ratesOf } from '../../src/stacks/fit/gpus.js';
import { StackPredictor } from '../../src/stacks/predict.js';
import { MAX_STACK_BYTES, stackFileSchema } from '../../src/stacks/stack-schema.js';

const FOLDER = fileURLToPath(new URL('../../calibrations/stacks/', import.meta.url));
const NAMES = readdirSync(FOLDER).filter((name) => name.endsWith('.json'));
const MOST_BYTES = 2_400_000;
const notice = readFileSync(`${FOLDER}NOTICE.md`, 'utf8');

describe('carried stack files', () => {
  it('are small together', () => {
    expect(NAMES.length).toBeGreaterThan(10);
    const bytes = NAMES.reduce((sum, name) => sum + readFileSync(FOLDER + name).length, 0);
    expect(bytes).toBeLessThanOrEqual(MOST_BYTES);
  });

  it.each(NAMES)('%s is sound, and says where it comes from', (name) => {
    const text = readFileSync(FOLDER + name, 'utf8');
    expect(text.length).toBeLessThanOrEqual(MAX_STACK_BYTES);
    expect(text).not.toMatch(/\/(home|root|Users|mnt|lustre)\//);
    const file = stackFileSchema.parse(JSON.parse(text));
    expect(name).toBe(`${findDevice(file.device).id}-${file.stack}.json`);
    // The law's shares refer to the catalogue's rates.
    expect(ratesOf(file.device)).toMatchObject(file.rates);
    for (const source of file.sources) {
      expect(notice).toContain(source.repository);
      expect(notice).toContain(source.commit);
    }
    const predictor = new StackPredictor(file);
    for (const table of file.tables) {
      const shape = Object.fromEntries(table.axes.map((axis) => [axis.name, axis.knots[axis.knots.length >> 1]!]));
      const price = predictor.predict(table.op, { ...shape, ...table.fixed })!;
      expect(price.low).toBeGreaterThan(0);
      expect(price.low).toBeLessThanOrEqual(price.estimate);
      expect(price.estimate).toBeLessThan(price.high);
      expect(price.high).toBeLessThan(100);
    }
  });
});
