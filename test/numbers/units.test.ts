import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { show, UserError } from '../../src/errors.js';
import {
  formatBytes,
  formatCount,
  formatDecimalBytes,
  formatMilliseconds,
  formatNumber,
  formatTokens,
  MAX_BYTES,
  MAX_TOKENS,
  parseBytes,
  parseNumber,
  parseSeconds,
  parseTokens,
} from '../../src/numbers/units.js';

describe('bytes', () => {
  it.each([
    ['141GB', 141e9],
    ['80GiB', 80 * 2 ** 30],
    ['1.5TB', 1.5e12],
    ['512MiB', 2 ** 29],
    ['24 gb', 24e9],
    ['1e3', 1000],
    ['.5kB', 500],
    ['7KiB', 7168],
    ['1e+2MB', 1e8],
    ['4096', 4096],
    ['1TiB', 2 ** 40],
    ['12B', 12],
  ])('%s is %d', (text, bytes) => {
    expect(parseBytes(text, '--vram')).toBe(bytes);
  });

  it.each([
    '',
    ' ',
    'GB',
    '-5GB',
    '+5GB',
    '5 apples',
    '1e999',
    'NaN',
    'Infinity',
    '0x10',
    '1_000',
    '1,5GB',
    '0',
    '0.4',
    '2PB',
    '99999999TB',
    '5constructor',
    '5toString',
    '１２GB',
    '1e-3GB',
  ])('refuses %j', (text) => {
    expect(() => parseBytes(text, '--vram')).toThrow(UserError);
  });

  it('takes zero where it is allowed', () => {
    expect(parseBytes('0', '--reserve', true)).toBe(0);
  });

  it('names subject, rule, value and what to write', () => {
    try {
      parseBytes('lots', '--vram');
      expect.unreachable();
    } catch (error) {
      expect(error).toMatchObject({
        name: 'UserError',
        exitCode: 2,
        message: '--vram must be an amount of memory, not "lots"',
      });
      expect((error as UserError).hint).toContain('141GB');
    }
  });
});

describe('tokens', () => {
  it.each([
    ['4096', 4096],
    ['4k', 4096],
    ['64K', 65_536],
    ['1M', 2 ** 20],
    ['0.5k', 512],
    ['1024M', 2 ** 30],
  ])('%s is %d', (text, tokens) => {
    expect(parseTokens(text, '--ctx')).toBe(tokens);
  });

  it.each(['0', '-1', '1.5', '0.3k', '1G', '1025M', '4 thousand', '1e10', ''])('refuses %j', (text) => {
    expect(() => parseTokens(text, '--ctx')).toThrow(UserError);
  });
});

describe('seconds', () => {
  it.each([
    ['80ms', 0.08],
    ['2s', 2],
    ['500us', 5e-4],
    ['500µs', 5e-4],
  ])('%s is %d', (text, seconds) => {
    expect(parseSeconds(text, '--tpot')).toBeCloseTo(seconds, 12);
  });

  it.each(['0ms', '-1ms', '2 weeks', '1e9s', 'ms', 'soon'])('refuses %j', (text) => {
    expect(() => parseSeconds(text, '--tpot')).toThrow(UserError);
  });

  it('requires a unit, as its documentation says', () => {
    expect(() => parseSeconds('80', '--tpot')).toThrow(UserError);
  });
});

describe('numbers', () => {
  it.each([
    ['', 'empty'],
    [' ', 'blank'],
    ['1e400', 'infinite'],
    ['NaN', 'NaN'],
    ['1.5', 'fraction'],
    ['-1', 'below'],
    ['11', 'above'],
    ['one', 'word'],
  ])('refuses %j (%s)', (text) => {
    expect(() => parseNumber(text, '--batch', { min: 0, max: 10, whole: true })).toThrow(UserError);
  });
  it('takes numbers and their text', () => {
    expect(parseNumber(' 7 ', '--batch', { min: 1, max: 10 })).toBe(7);
    expect(parseNumber(7, '--batch', { min: 1, max: 10 })).toBe(7);
  });
});

describe('properties', () => {
  it('any text is a quantity in range or a UserError', () => {
    const unit = fc.constantFrom(
      '',
      'B',
      'kB',
      'MB',
      'GB',
      'TB',
      'KiB',
      'MiB',
      'GiB',
      'TiB',
      'k',
      'M',
      's',
      'ms',
      'us',
      '__proto__',
    );
    const number = fc.oneof(
      fc.double().map(String),
      fc.integer().map(String),
      fc.string({ maxLength: 6 }),
      fc.stringMatching(/^[0-9.eE+-]{1,12}$/),
    );
    fc.assert(
      fc.property(number, unit, (n, u) => {
        for (const [parse, max] of [
          [parseBytes, MAX_BYTES],
          [parseTokens, MAX_TOKENS],
          [parseSeconds, 86_400],
        ] as const) {
          try {
            const value = parse(n + u, '--x');
            expect(value).toBeGreaterThan(0);
            expect(value).toBeLessThanOrEqual(max);
          } catch (error) {
            expect(error).toBeInstanceOf(UserError);
          }
        }
      }),
      { numRuns: 3000 },
    );
  });

  it('printing keeps three significant digits and never overflows its unit', () => {
    fc.assert(
      fc.property(fc.double({ min: 1, max: 2 ** 55, noNaN: true }), (bytes) => {
        const [number, unit] = formatBytes(bytes).split(' ') as [string, string];
        const scale = { B: 1, KiB: 2 ** 10, MiB: 2 ** 20, GiB: 2 ** 30, TiB: 2 ** 40, PiB: 2 ** 50 }[unit] as number;
        expect(Math.abs(Number(number) * scale - bytes) / bytes).toBeLessThan(0.006);
        if (unit !== 'PiB') expect(Number(number)).toBeLessThan(1024);
      }),
      { numRuns: 2000 },
    );
  });
});

describe('printing', () => {
  it.each([
    [786_432, '768 KiB'],
    [(2 ** 20 * 1536) / 1024, '1.5 MiB'],
    [1023.999 * 1024, '1 MiB'],
    [2_787_840, '2.66 MiB'],
    [0, '0 B'],
    [824_633_720_832, '768 GiB'],
  ])('%d bytes as %s', (bytes, text) => {
    expect(formatBytes(bytes)).toBe(text);
  });
  it('prints the rest as people write it', () => {
    expect(formatDecimalBytes(141e9)).toBe('141 GB');
    expect(formatTokens(4096)).toBe('4096');
    expect(formatTokens(65_536)).toBe('64k');
    expect(formatTokens(2 ** 20)).toBe('1M');
    expect(formatTokens(100_000)).toBe('100000');
    expect(formatCount(12_400)).toBe('12.4k');
    expect(formatCount(9999)).toBe('9999');
    expect(formatMilliseconds(0.0475)).toBe('47.5');
    expect(formatNumber(Number.NaN)).toBe('–');
    expect(formatNumber(0.000123456)).toBe('0.000123');
    expect(formatNumber(99.96)).toBe('100');
  });
});

describe('values inside messages', () => {
  it('are quoted, on one line, without controls and short', () => {
    fc.assert(
      fc.property(
        fc.oneof(
          fc.string({ unit: 'binary' }),
          fc.constantFrom('a\nb', '\u001b[31m', '\u202egnp', 'x'.repeat(5000)),
          fc.dictionary(fc.string(), fc.string(), { maxKeys: 3 }),
          fc.double(),
        ),
        (value) => {
          const text = show(value);
          expect(text.length).toBeLessThanOrEqual(80);

          expect(text).not.toMatch(/[\u0000-\u001f\u007f-\u009f\u2028\u2029\u202a-\u202e\u2066-\u2069]/);
        },
      ),
    );
  });
});
