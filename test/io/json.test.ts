/** What a schema found wrong is said in the program's words. */
import { describe, expect, it } from 'vitest';
import { z } from 'zod';
import { issueWords } from '../../src/io/issues.js';

const schema = z.object({ schemaVersion: z.literal(2), rates: z.object({ memory: z.number() }) }).strict();
const said = (value: unknown): string => issueWords(schema.safeParse(value).error?.issues[0]);
/** With the value that stands there. */
const valued = (type: z.ZodType, value: unknown): string => issueWords(type.safeParse(value).error?.issues[0], value);

describe('what a schema found wrong', () => {
  it('names the place, and what must be there', () => {
    expect(said({ schemaVersion: 1, rates: { memory: 1 } })).toBe('schemaVersion must be 2');
    expect(said({ schemaVersion: 2, rates: { memory: 'x' } })).toBe('rates.memory must be a number');
    expect(said({ schemaVersion: 2 })).toBe('rates is missing');
    expect(said(7)).toBe('file must be a map of fields');
  });

  it('says the value, a length where that is wrong', () => {
    const lengths = z.union([z.number(), z.null(), z.strictObject({ mean: z.number() })]);
    for (const [type, value, words] of [
      [z.object({ name: z.string() }), { name: 5 }, 'name must be text, not 5'],
      [z.object({ name: z.string() }), { name: ['x'] }, 'name must be text, not a list'],
      [z.object({ schema: z.literal('a') }), { schema: 'b' }, 'schema must be "a", not "b"'],
      [z.object({ schema: z.literal('a') }), {}, 'schema is missing'],
      [z.enum(['a', 'b']), 'c', 'file must be one of a, b, not "c"'],
      [z.object({ rows: z.array(z.int()).min(1) }), { rows: [] }, 'rows must have at least 1 entry, not 0'],
      [z.object({ rows: z.array(z.int()).max(2) }), { rows: [1, 2, 3] }, 'rows must have at most 2 entries, not 3'],
      [z.string().min(2), 'a', 'file must have at least 2 characters, not 1'],
      [z.int().min(1), 0, 'file must be at least 1, not 0'],
      [z.number().positive(), 0, 'file must be more than 0, not 0'],
      [z.int(), 1.5, 'file must be a whole number, not 1.5'],
      [
        z.record(z.string().max(2), z.number()),
        { abc: 1 },
        'abc is no name for a field: it must have at most 2 characters',
      ],
      [z.strictObject({}), { a: 1 }, 'file has an unknown field "a"'],
      [z.strictObject({}), { a: 1, b: 2 }, 'file has unknown fields "a", "b"'],
      [z.object({ tokens: lengths }), {}, 'tokens is missing'],
      [z.object({ tokens: lengths }), { tokens: 'x' }, 'tokens must be a number or null or a map of fields, not "x"'],
      [z.object({ tokens: lengths }), { tokens: { mean: 'x' } }, 'tokens.mean must be a number, not "x"'],
      [z.string().refine((x) => x === '', 'must be nothing'), 'a', 'file must be nothing, not "a"'],
    ] as const)
      expect(valued(type, value)).toBe(words);
  });
});
