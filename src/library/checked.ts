/** Checks of arguments: what is thrown for them is a UserError that names the argument. */
import { z } from 'zod';
import { UserError, show } from '../errors.js';
import { ruleWords } from '../io/issues.js';

/** An argument: its name and what it must be. */
export type Rule = readonly [name: string, type: z.ZodType];

/**
 * The function, with its arguments checked first. Where all of an argument is checked, what is thrown later is a defect
 * and stays one; where an argument is taken as the library made it (`made`), it becomes one line, with its cause.
 */
export function checked<A extends readonly unknown[], R>(call: (...args: A) => R, ...rules: Rule[]): (...args: A) => R {
  const { name } = call;
  const trusts = rules.some(([, type]) => TAKEN_AS_MADE.has(type));
  return (...args) => {
    for (const [i, [argument, type]] of rules.entries()) check(type, args[i], `${name}: ${argument}`);
    return trusts ? asUserError(name, () => numberOr(call(...args))) : call(...args);
  };
}

/** @throws Error for a number that is none */
function numberOr<R>(result: R): R {
  if (typeof result === 'number' && Number.isNaN(result)) throw new Error('the result is not a number');
  return result;
}

/** @throws UserError unless the value is of this type */
export function check(type: z.ZodType, value: unknown, subject: string): void {
  const issue = asUserError(subject, () => type.safeParse(value)).error?.issues[0];
  if (!issue) return;
  const where = issue.path.map((key) => `.${String(key).slice(0, 80)}`).join('');
  const received = issue.path.reduce<unknown>((at, key) => (at as Record<PropertyKey, unknown> | null)?.[key], value);
  throw new UserError(
    `${subject}${where} is wrong: it ${ruleWords(issue)}, not ${show(received)}`,
    'see the types of the library',
  );
}

/** Runs what reads an argument that is not checked: an error there is the argument's, such as a getter that throws. */
function asUserError<T>(name: string, call: () => T): T {
  try {
    return call();
  } catch (cause) {
    if (cause instanceof UserError) throw cause;
    const why = cause instanceof Error ? cause.message.slice(0, 200) : show(cause);
    const refused = new UserError(
      `${name}: the arguments do not fit together (${why})`,
      'pass what the library itself returned',
    );
    throw Object.assign(refused, { cause });
  }
}

const TAKEN_AS_MADE = new Set<z.ZodType>();
/** An object that only the library makes: no more of it is checked than this. */
export const asMade = (type: z.ZodObject): z.ZodObject => {
  TAKEN_AS_MADE.add(type);
  return type;
};
