/** JSON from outside: bounded before it is parsed, since a parser takes memory and time for whatever it is given. */
import { UNPRINTABLE, UserError } from '../errors.js';

const unprintable = new RegExp(`[${UNPRINTABLE}]`, 'gu');

/**
 * A result as JSON and a line end. What a terminal would interpret, or what nobody sees, is escaped inside its texts:
 * they are the same when they are read.
 */
export const jsonText = (value: unknown, indent = 2): string =>
  `${JSON.stringify(value, null, indent).replace(unprintable, (c) => (c === '\n' ? c : escaped(c)))}\n`;

/** Each of a character's UTF-16 units as JSON writes it. */
const escaped = (character: string): string =>
  character
    .split('')
    .map((unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`)
    .join('');

/** Lists and objects inside each other; published files have a handful. */
const MAX_DEPTH = 64;

export interface JsonRules {
  /** Most values (scalars, lists, objects) that the text may hold. */
  readonly maxValues: number;
  /** Remedy for a file with wrong contents. */
  readonly hint: string;
  /** A byte order mark is taken off where other programs write the file; otherwise it is refused. */
  readonly byteOrderMark?: 'allowed';
}

/**
 * Parses a JSON text.
 * @param subject what it is, as a message begins
 * @throws UserError, one line, for anything that is not JSON, or holds more values or levels than such a file has
 */
export function parseJson(text: string, subject: string, { maxValues, hint, byteOrderMark }: JsonRules): unknown {
  const marked = text.startsWith('\ufeff');
  if (marked && byteOrderMark !== 'allowed')
    throw new UserError(`${subject} begins with a byte order mark`, 'save it as UTF-8 without one');
  const { values, depth } = extent(text, maxValues);
  if (values > maxValues) throw new UserError(`${subject} holds more than ${maxValues} values`, hint);
  if (depth > MAX_DEPTH) throw new UserError(`${subject} is nested deeper than ${MAX_DEPTH} levels`, hint);
  try {
    return JSON.parse(marked ? text.slice(1) : text);
  } catch {
    throw new UserError(`${subject} is not valid JSON`, hint);
  }
}

/** True for what JSON writes in braces. */
export const isObject = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' && value !== null && !Array.isArray(value);

/** Values of a JSON text (at least; counting ends beyond `enough`) and levels of nesting, without parsing it. */
function extent(text: string, enough: number): { values: number; depth: number } {
  let values = 1;
  let open = 0;
  let depth = 0;
  for (let i = 0; i < text.length && values <= enough; i++) {
    switch (text[i]) {
      case '"':
        for (i++; i < text.length && text[i] !== '"'; i++) if (text[i] === '\\') i++;
        break;
      case '[':
      case '{':
        values++;
        depth = Math.max(depth, ++open);
        break;
      case ']':
      case '}':
        open--;
        break;
      case ',':
        values++;
    }
  }
  return { values, depth };
}
