/** What messages show of values from outside: whatever they are, in bounded time, and nothing that nobody sees. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { printable, show, UNPRINTABLE, UserError } from '../src/errors.js';
import { jsonText } from '../src/io/json.js';
import { calibrationSchema } from '../src/schema/calibration.js';
import { SEED } from './gpu/random.js';

/**
 * Control, bidirectional, zero-width, soft hyphen, byte order mark, filler, variation selectors, tags, lone surrogate.
 */
const UNSEEN = [
  '\u0007',
  '\u001b',
  '\u009b',
  '\u00ad',
  '\u034f',
  '\u061c',
  '\u115f',
  '\u180e',
  '\u200b',
  '\u200d',
  '\u200f',
  '\u2028',
  '\u202e',
  '\u2060',
  '\u2066',
  '\u3164',
  '\ufe0f',
  '\ufeff',
  '\u{e0001}',
  '\u{e0041}',
  '\u{e0100}',
  '\ud800',
];

describe('printable', () => {
  it.each(UNSEEN)('escapes %j', (c) => {
    const hex = (c.codePointAt(0) as number).toString(16).padStart(4, '0');
    expect(printable(`a${c}b`)).toBe(hex.length > 4 ? `a\\u{${hex}}b` : `a\\u${hex}b`);
    expect(new UserError(`x ${c}`, 'y').message).toBe(`x ${printable(c)}`);
  });

  it('leaves letters, marks, spaces and pictures as they are', () => {
    for (const text of ['plain', 'Größe µs', '語 文', 'e\u0301', '🙂', 'a\u00a0b']) expect(printable(text)).toBe(text);
  });

  it('is what a label of a calibration must be already', () => {
    const label = calibrationSchema.shape.program.shape.name;
    fc.assert(
      fc.property(fc.oneof(fc.string({ unit: 'binary' }), fc.constantFrom(...UNSEEN)), (text) => {
        expect(label.safeParse(text).success).toBe(printable(text) === text);
        expect(label.safeParse(printable(text)).success).toBe(true);
      }),
      { seed: SEED },
    );
  });
});

describe('JSON of a result', () => {
  it('holds nothing that a terminal interprets or that nobody sees, and reads back as it was', () => {
    fc.assert(
      fc.property(fc.array(fc.oneof(fc.string({ unit: 'binary' }), fc.constantFrom(...UNSEEN))), (texts) => {
        const text = jsonText({ texts });
        expect(text.replace(/\n/g, '')).toBe(printable(text.replace(/\n/g, '')));
        expect(JSON.parse(text)).toEqual({ texts });
      }),
      { seed: SEED },
    );
  });
});

describe('show', () => {
  const deep = (levels: number): unknown => {
    let value: unknown = 1;
    for (let i = 0; i < levels; i++) value = i % 2 ? [value] : { a: value };
    return value;
  };
  const circular: unknown[] = [];
  circular.push({ circular });
  const throwing = Object.defineProperty({}, 'x', {
    enumerable: true,
    get: () => {
      throw new TypeError('no');
    },
  });
  const revoked = Proxy.revocable({}, {});
  revoked.revoke();

  it('writes values as JSON does, where they are short', () => {
    fc.assert(
      fc.property(fc.jsonValue({ maxDepth: 3 }), (value) => {
        const text = printable(JSON.stringify(value));
        if (text.length <= 80) expect(show(value)).toBe(text);
        else expect(show(value)).toMatch(/^.{76,77}\.\.\.$/su);
      }),
      { seed: SEED, numRuns: 500 },
    );
  });

  it.each<[string, unknown]>([
    ['20,000 levels', deep(20_000)],
    ['a circle', circular],
    ['something that throws when it is read', { a: throwing }],
    ['a revoked proxy', revoked.proxy],
    ['a big integer', { a: 12n }],
    ['a long text', 'x'.repeat(10_000_000)],
    ['a long list', Array.from({ length: 1_000_000 }, (_, i) => i)],
    ['binary data', new Float64Array(1_000_000)],
    ['a symbol', Symbol('s')],
    ['a function', () => 1],
    ['emoji', '🙂'.repeat(100)],
  ])('takes %s', (_, value) => {
    const text = show(value);
    expect(text.length).toBeLessThanOrEqual(80);
    expect(text).not.toMatch(new RegExp(`[${UNPRINTABLE}]`, 'u'));
    expect(text).not.toBe('');
  });
});
