/**
 * An error caused by what came from outside: a flag, a file, a device. It is printed as one line with a hint and
 * ends the process with `exitCode`, without a stack. Anything else that is thrown is a defect (exit code 1).
 */
export class UserError extends Error {
  override readonly name = 'UserError';

  /**
   * @param message what was wrong: subject, rule and the value received; a list is printed one line each
   * @param hint    what to do next, as an imperative
   * @param exitCode one of the documented codes; 2 (wrong input) unless said otherwise
   */
  constructor(
    message: string | readonly string[],
    readonly hint: string,
    readonly exitCode: ExitCode = EXIT.badInput,
  ) {
    // Only lists, and the words of what removed every plan, keep their line ends; nothing from outside reaches a
    // terminal raw.
    const oneLine = (text: string): string =>
      text
        .split('\n')
        .map(printable)
        .join(exitCode === EXIT.noSolution ? '\n' : ' ');
    super(typeof message === 'string' ? oneLine(message) : message.map(oneLine).join('\n'));
  }
}

/**
 * Characters that a terminal interprets, that reorder text or that are invisible, as the inside of a character class
 * (flag u): controls, format characters, line separators, lone surrogates, and what Unicode calls
 * Default_Ignorable_Code_Point (soft hyphen, variation selectors, fillers, tags).
 */
export const UNPRINTABLE = '\\p{Cc}\\p{Cf}\\p{Cs}\\p{Zl}\\p{Zp}\\p{Default_Ignorable_Code_Point}';
const unprintable = new RegExp(`[${UNPRINTABLE}]`, 'gu');

/** Replaces characters that are not to be printed by their escapes: `\u200b`, `\u{e0041}`. */
export function printable(text: string): string {
  return text.replace(unprintable, (c) => {
    const hex = (c.codePointAt(0) as number).toString(16).padStart(4, '0');
    return hex.length > 4 ? `\\u{${hex}}` : `\\u${hex}`;
  });
}

/** Exit codes of the command line, part of the public contract. */
export const EXIT = {
  ok: 0,
  defect: 1,
  badInput: 2,
  noSolution: 3,
  regressed: 4,
  outsideTolerance: 5,
  noGpu: 6,
  /** Ctrl-C before there was a result: what a shell expects of a process ended by SIGINT. */
  interrupted: 130,
} as const;

export type ExitCode = (typeof EXIT)[keyof typeof EXIT];

/** Characters of a received value that a message shows, and levels of lists and objects. */
const SHOWN_LENGTH = 80;
const SHOWN_DEPTH = 8;

/**
 * Shows a received value inside an error message: quoted, unprintable characters escaped, at most 80 characters. Takes
 * any value in bounded time: one that is long, nested thousands deep, circular, or that throws when it is looked at.
 */
export function show(value: unknown): string {
  const line = printable(written(value, SHOWN_DEPTH, SHOWN_LENGTH + 1));
  // A pair of surrogates is not cut in two.
  return line.length > SHOWN_LENGTH ? `${line.slice(0, SHOWN_LENGTH - 3).replace(/[\ud800-\udbff]$/, '')}...` : line;
}

/** @throws UserError for a value that is not one of those known */
export function requireOneOf(subject: string, value: unknown, known: readonly string[], example = known[0]): void {
  if (!known.includes(String(value)))
    throw new UserError(
      `${subject} must be one of ${known.join(', ')}, not ${show(value)}`,
      `write for example ${subject} ${example}`,
    );
}

/** A value as JSON writes it, as far as `length` characters go: what comes after them is left out. */
function written(value: unknown, depth: number, length: number): string {
  try {
    if (typeof value === 'string') return JSON.stringify(value.slice(0, length));
    if (typeof value === 'function') return 'a function';
    if (typeof value !== 'object' || value === null) return String(value);
    if (depth === 0) return '...';
    if (ArrayBuffer.isView(value)) return 'binary data';
    let text = '';
    const add = (key: string, inner: unknown): boolean => {
      text += `${text === '' ? '' : ','}${key}`;
      if (text.length <= length) text += written(inner, depth - 1, length - text.length);
      return text.length <= length;
    };
    if (Array.isArray(value)) {
      for (let i = 0; i < value.length && add('', value[i]); i++);
      return `[${text}]`;
    }
    for (const key in value)
      if (Object.hasOwn(value, key) && !add(`${written(key, 0, length)}:`, (value as Record<string, unknown>)[key]))
        break;
    return `{${text}}`;
  } catch {
    return 'a value that cannot be read';
  }
}
