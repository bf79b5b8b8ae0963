/** What a schema (zod) found wrong, in this program's words: the place, the rule and the value. */
import type { z } from 'zod';
import { show, UserError } from '../errors.js';

/** The part of zod's issue that is read. */
export interface Issue {
  readonly path: readonly PropertyKey[];
  readonly message: string;
  readonly code?: string | undefined;
  readonly expected?: unknown;
  readonly values?: readonly unknown[];
  readonly options?: readonly unknown[];
  readonly keys?: readonly string[];
  readonly origin?: unknown;
  readonly minimum?: unknown;
  readonly maximum?: unknown;
  readonly inclusive?: boolean | undefined;
  readonly divisor?: unknown;
  readonly errors?: readonly (readonly Issue[])[];
  readonly issues?: readonly Issue[];
}

/** A message that a schema does not word itself begins so. */
const UNWORDED = /^(Invalid|Unrecognized|Too (small|big))\b/;

const TYPES: Readonly<Record<string, string>> = {
  string: 'text',
  number: 'a number',
  int: 'a whole number',
  boolean: 'true or false',
  array: 'a list',
  tuple: 'a list',
  object: 'a map of fields',
  record: 'a map of fields',
};

const typeWords = (expected: unknown): string => TYPES[String(expected)] ?? String(expected);
const listed = (values: readonly unknown[]): string => values.map(String).join(', ');
const fields = (keys: readonly string[]): string =>
  `has ${keys.length === 1 ? 'an unknown field' : 'unknown fields'} ${keys.map(show).join(', ')}`;

/** What must be there. */
export function ruleWords(issue: Issue): string {
  const { code, values = [], origin } = issue;
  if (!UNWORDED.test(issue.message)) return issue.message;
  if (code === 'custom') return 'must be of another type';
  if (code === 'invalid_type') return `must be ${typeWords(issue.expected)}`;
  if (code === 'invalid_value') return `must be ${values.length === 1 ? show(values[0]) : `one of ${listed(values)}`}`;
  if (code === 'unrecognized_keys') return fields(issue.keys ?? []);
  if (code === 'not_multiple_of') return `must be a multiple of ${String(issue.divisor)}`;
  if (code === 'invalid_key') return `is no name for a field: it ${ruleWords(issue.issues?.[0] ?? issue)}`;
  if (code === 'invalid_union' && issue.options) return `must be one of ${listed(issue.options)}`;
  if (code === 'invalid_union') {
    const rules = issue.errors?.map(([first]) => (first ? ruleWords(first).replace(/^must be /, '') : '')) ?? [];
    return `must be ${[...new Set(rules)].join(' or ')}`;
  }
  if (code !== 'too_small' && code !== 'too_big') return issue.message;
  const [limit, most] = code === 'too_small' ? [issue.minimum, false] : [issue.maximum, true];
  const bound =
    issue.inclusive === false
      ? `${most ? 'less than' : 'more than'} ${String(limit)}`
      : `at ${most ? 'most' : 'least'} ${String(limit)}`;
  const counted = origin === 'string' ? 'character' : origin === 'array' ? 'entr' : null;
  if (counted === null) return `must be ${bound}`;
  const one = limit === 1;
  return `must have ${bound} ${counted === 'entr' ? (one ? 'entry' : 'entries') : one ? counted : `${counted}s`}`;
}

/** Of a value that may be several things, the one that it comes nearest to: the one that is wrong deepest inside. */
function nearest(issue: Issue): Issue {
  const deep = issue.errors?.map(([first]) => first).find((first) => first && isInside(first));
  return deep ? nearest({ ...deep, path: [...issue.path, ...deep.path] }) : issue;
}

const isInside = ({ path, code }: Issue): boolean =>
  path.length > 0 || code === 'unrecognized_keys' || code === 'too_small' || code === 'too_big';

/**
 * @param whole where that is given, the value that stands there is said
 * @param subject what the whole is called
 */
export function issueWords(found: Issue | undefined, whole?: unknown, subject = 'file'): string {
  if (found === undefined) return `${subject} is wrong`;
  const issue = nearest(found);
  const { path, message, code } = issue;
  const place = path.map(String).join('.') || subject;
  const value = path.reduce<unknown>((at, key) => (at as Record<PropertyKey, unknown> | null)?.[key], whole);
  const isMissing = whole === undefined ? message.endsWith('received undefined') : value === undefined;
  if (isMissing && UNWORDED.test(message) && path.length > 0 && code !== 'invalid_key') return `${place} is missing`;
  const words = ruleWords(issue);
  const isShown = words.startsWith('must ') && !words.includes(', not ') && whole !== undefined;
  return `${place} ${words}${isShown ? `, not ${valueWords(issue, value)}` : ''}`;
}

/** What a schema makes of a value. @throws UserError with its first issue, behind `subject` */
export function checkedBy<T>(schema: z.ZodType<T>, value: unknown, subject: string, hint: string): T {
  const parsed = schema.safeParse(value);
  if (parsed.success) return parsed.data;
  throw new UserError(`${subject}: ${issueWords(parsed.error.issues[0], value)}`, hint);
}

/** A length where that is wrong, else the value; of lists and maps that they are one. */
function valueWords({ code, origin }: Issue, value: unknown): string {
  const length = (value as { length?: unknown } | null | undefined)?.length;
  if ((code === 'too_small' || code === 'too_big') && (origin === 'string' || origin === 'array'))
    return String(length);
  if (Array.isArray(value)) return 'a list';
  return typeof value === 'object' && value !== null ? 'a map of fields' : show(value);
}
