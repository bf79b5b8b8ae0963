/** What a schema found wrong is said in the program's words. */
import { describe, expect, it } from 'vitest';
import { z } from 'zod';
import { issueWords } from '../../src/io/json.js';

const schema = z.object({ schemaVersion: z.literal(2), rates: z.object({ memory: z.number() }) }).strict();
const said = (value: unknown): string => issueWords(schema.safeParse(value).error?.issues[0]);

describe('what a schema found wrong', () => {
  it('names the place, and what must be there', () => {
    expect(said({ schemaVersion: 1, rates: { memory: 1 } })).toBe('schemaVersion must be 2');
    expect(said({ schemaVersion: 2, rates: { memory: 'x' } })).toBe('rates.memory must be number, not string');
    expect(said({ schemaVersion: 2 })).toBe('rates is missing');
    expect(said(7)).toBe('file must be object, not number');
  });
});
