/** Parsing and printing of quantities. Inside the program there are only bytes, seconds, tokens and plain ratios. */
import { UserError, show } from '../errors.js';

const BYTE_UNITS: Record<string, number> = {
  '': 1,
  b: 1,
  kb: 1e3,
  mb: 1e6,
  gb: 1e9,
  tb: 1e12,
  kib: 2 ** 10,
  mib: 2 ** 20,
  gib: 2 ** 30,
  tib: 2 ** 40,
};
const TOKEN_UNITS: Record<string, number> = { '': 1, k: 1024, m: 1024 ** 2 };
const SECOND_UNITS: Record<string, number> = { us: 1e-6, µs: 1e-6, ms: 1e-3, s: 1 };
/** For budgets only: in a latency `80m` is a typing error of `80ms`. */
const LONG_SECOND_UNITS: Record<string, number> = { ...SECOND_UNITS, m: 60, h: 3600 };

const QUANTITY = /^([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE]\+?([0-9]{1,3}))?\s*([A-Za-zµ]*)$/;

function quantity(text: string, units: Record<string, number>): number | undefined {
  const match = QUANTITY.exec(text.trim());
  if (!match) return undefined;
  const factor = units[match[3] as string] ?? units[(match[3] as string).toLowerCase()];
  if (factor === undefined) return undefined;
  const value = Number(match[1]) * 10 ** Number(match[2] ?? 0) * factor;
  return Number.isFinite(value) ? value : undefined;
}

/** Largest amounts that any input may name: beyond them a typing error is likelier than a machine. */
export const MAX_BYTES = 2 ** 50;
export const MAX_TOKENS = 2 ** 30;

/**
 * Bytes from text such as `141GB`, `80 GiB` or `1.5TB` (B kB MB GB TB: powers of 1000, KiB MiB GiB TiB: of 1024).
 * @throws UserError when the text is no such quantity, is not positive (zero is allowed with `zero`) or exceeds 1 PiB
 */
export function parseBytes(text: string, subject: string, zero = false): number {
  const value = quantity(text, BYTE_UNITS);
  const hint = `write a number with B, kB, MB, GB, TB, KiB, MiB, GiB or TiB, such as ${zero ? '512MiB' : '141GB'}`;
  if (value === undefined) throw new UserError(`${subject} must be an amount of memory, not ${show(text)}`, hint);
  const bytes = Math.round(value);
  if (bytes < (zero ? 0 : 1))
    throw new UserError(`${subject} must be at least ${zero ? 0 : 1} byte${zero ? 's' : ''}, not ${show(text)}`, hint);
  if (bytes > MAX_BYTES)
    throw new UserError(`${subject} must be at most 1024 TiB, not ${show(text)}`, 'check the unit');
  return bytes;
}

/**
 * Bytes a second from `20GB/s`.
 * @throws UserError as of bytes, and without the second
 */
export function parseRate(text: string, subject: string): number {
  const bytes = /^(.*)\/s$/.exec(text.trim())?.[1];
  if (bytes === undefined)
    throw new UserError(`${subject} must be bytes a second, not ${show(text)}`, 'write for example 20GB/s');
  return parseBytes(bytes, subject);
}

/**
 * Tokens from `4096`, `4k` (4096) or `1M` (1,048,576).
 * @throws UserError unless it comes to a whole number from 1 to 2^30
 */
export function parseTokens(text: string, subject: string): number {
  const value = quantity(text, TOKEN_UNITS);
  const hint = 'write a whole number such as 4096, or 4k (4096) or 1M (1048576)';
  if (value === undefined) throw new UserError(`${subject} must be a number of tokens, not ${show(text)}`, hint);
  if (!Number.isInteger(value) || value < 1)
    throw new UserError(`${subject} must be a whole number of tokens of at least 1, not ${show(text)}`, hint);
  if (value > MAX_TOKENS)
    throw new UserError(`${subject} must be at most ${MAX_TOKENS} tokens, not ${show(text)}`, 'give a shorter context');
  return value;
}

/**
 * Seconds from `80ms`, `2s` or `500us`; a unit is required. `long` allows `5m` (minutes) and `1h` too.
 * @throws UserError unless it is positive and at most a day
 */
export function parseSeconds(text: string, subject: string, long = false): number {
  const value = quantity(text, long ? LONG_SECOND_UNITS : SECOND_UNITS);
  const hint = long
    ? 'write a number with ms, s, m or h, such as 500ms or 5m'
    : 'write a number with us, ms or s, such as 80ms';
  if (value === undefined) throw new UserError(`${subject} must be a time with its unit, not ${show(text)}`, hint);
  if (!(value > 0) || value > 86_400)
    throw new UserError(`${subject} must be more than 0 and at most a day, not ${show(text)}`, hint);
  return value;
}

const DECIMAL = /^\s*[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?\s*$/i;

/** A finite number in [min, max], whole if asked. */
export function parseNumber(
  text: string | number,
  subject: string,
  rule: { min: number; max: number; whole?: boolean; or?: string },
  received: unknown = text,
): number {
  const value = typeof text === 'number' ? text : DECIMAL.test(text) ? Number(text) : NaN;
  const kind = rule.whole ? 'a whole number' : 'a number';
  if (!Number.isFinite(value) || (rule.whole && !Number.isInteger(value)) || value < rule.min || value > rule.max) {
    const percent = Number(/^([\d.]+)\s*%$/.exec(String(text))?.[1] ?? NaN) / 100;
    throw new UserError(
      `${subject} must be ${kind} from ${rule.min} to ${rule.max}, not ${show(received)}`,
      !rule.whole && percent >= rule.min && percent <= rule.max
        ? `write ${Number(percent.toPrecision(12))}`
        : `give ${kind} in that range${rule.or === undefined ? '' : `, or ${rule.or}`}`,
    );
  }
  return value;
}

/** Three significant digits, no exponent for the sizes that occur, no trailing zeros after a point. */
export function formatNumber(value: number): string {
  if (!Number.isFinite(value)) return '–';
  const size = Math.abs(value);
  if (size >= 100) return Math.round(value).toString();
  if (size === 0) return '0';
  const digits = Math.min(12, Math.max(0, 2 - Math.floor(Math.log10(size))));
  return String(Number(value.toFixed(digits)));
}

/** Scales a value to the largest unit that leaves at least 1. `1023.6 KiB` is never shown as `1024 KiB`. */
function scaled(value: number, base: number, units: readonly string[]): string {
  let index = 0;
  let v = value;
  while (index < units.length - 1 && Number(v.toPrecision(4)) >= base) {
    v /= base;
    index++;
  }
  return `${formatNumber(v)} ${units[index]}`;
}

/** Bytes in powers of 1024: `768 KiB`. Used for caches, whose sizes are powers of two by nature. */
export const formatBytes = (bytes: number): string => scaled(bytes, 1024, ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB']);

/** Bytes in powers of 1000: `141 GB`. Used for device memory and weights, as datasheets do. */
export const formatDecimalBytes = (bytes: number): string => scaled(bytes, 1000, ['B', 'kB', 'MB', 'GB', 'TB', 'PB']);

/** Tokens: `4096`, `64k`, `1M` where that is exact. */
export function formatTokens(tokens: number): string {
  if (tokens >= 2 ** 20 && tokens % 2 ** 20 === 0) return `${tokens / 2 ** 20}M`;
  if (tokens >= 8192 && tokens % 1024 === 0) return `${tokens / 1024}k`;
  return String(tokens);
}

/** A count with SI prefixes: `12.4k`. */
export function formatCount(value: number): string {
  return value < 10_000 ? formatNumber(value) : scaled(value, 1000, ['', 'k', 'M', 'G', 'T']).replace(' ', '');
}

/** A share in percent, without the sign: `5.8`, `14`. */
export const percent = (share: number): string => {
  const p = 100 * share;
  return Math.abs(p) < 9.95 ? p.toFixed(1) : p.toFixed(0);
};

/** A share: `5.8 %`, `14.0 %`. */
export const formatShare = (share: number): string => `${(100 * share).toFixed(1)} %`;

/** An error, a share: `+5.8 %`. */
export const formatError = (share: number): string => `${share > 0 ? '+' : ''}${percent(share)} %`;

/** A half-width in log units as a factor: 1.127 for 0.12. */
export const formatFactor = (logUnits: number): string => {
  const by = Math.exp(logUnits);
  return by < 2 ? by.toFixed(3) : formatNumber(by);
};

/** Milliseconds with three significant digits; from ten seconds on, seconds with their unit. */
export const formatMilliseconds = (seconds: number): string =>
  seconds >= 10 ? `${formatNumber(seconds)}s` : formatNumber(seconds * 1e3);

/** `1 user`, `3 users`. */
export const counted = (n: number, what: string): string => `${n} ${what}${n === 1 ? '' : 's'}`;
