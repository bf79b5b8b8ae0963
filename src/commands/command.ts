/** What a command is: its options, declared once for parsing, help and shell completion, and what it does. */
import { parseArgs, type ParseArgsConfig } from 'node:util';
import { UserError, show, type ExitCode } from '../errors.js';
import { nearestName } from '../nearest.js';

export interface OptionSpec {
  readonly type: 'string' | 'boolean';
  readonly help: string;
  /** May be given several times. */
  readonly multiple?: boolean;
  readonly short?: string;
  /** A second name. */
  readonly alias?: string;
  /** Heading in the help. */
  readonly group?: string;
}

export type OptionTable = Readonly<Record<string, OptionSpec>>;

export interface Command {
  readonly options: OptionTable;
  /** Name of the positional argument, where the command takes one. */
  readonly positional?: { readonly name: string; readonly help: string };
  /** Name of a second one. */
  readonly secondPositional?: { readonly name: string; readonly help: string };
  readonly examples: readonly (readonly [command: string, meaning: string])[];
  run(args: Args): Promise<ExitCode>;
}

/** Parsed flags: text, or a list for those that may repeat, by their first name. */
export interface Args {
  readonly flags: Readonly<Record<string, string | boolean | readonly string[] | undefined>>;
  readonly positional: string | null;
  readonly secondPositional: string | null;
}

/** Options that every command has. */
export const COMMON: OptionTable = {
  help: { type: 'boolean', short: 'h', help: 'show this help' },
  quiet: { type: 'boolean', help: 'no progress and no warnings', group: 'Output' },
};

export const OUTPUT: OptionTable = {
  output: { type: 'string', short: 'o', help: 'write to this file instead of the terminal', group: 'Output' },
};

/**
 * Reads a command's arguments.
 * @throws UserError for unknown flags, missing values, flags given twice and surplus words
 */
export function parseCommand(name: string, command: Command, argv: readonly string[]): Args {
  const table: OptionTable = { ...command.options, ...COMMON };
  const known: NonNullable<ParseArgsConfig['options']> = {};
  for (const [flag, spec] of Object.entries(table)) {
    const entry = { type: spec.type, multiple: true as const };
    known[flag] = spec.short ? { ...entry, short: spec.short } : entry;
    if (spec.alias) known[spec.alias] = entry;
  }
  const help = `see lla-sim ${name} --help`;
  const { tokens } = parseArgs({
    args: [...argv],
    options: known,
    allowPositionals: true,
    strict: false,
    tokens: true,
  });
  const flags: Record<string, string | boolean | string[]> = {};
  const words: string[] = [];
  for (const token of tokens) {
    if (token.kind === 'positional') words.push(token.value);
    if (token.kind !== 'option') continue;
    const flag = nameOf(table, token.name);
    const spec = flag === undefined ? undefined : table[flag];
    if (flag === undefined || !spec) {
      const guess = nearestName(token.name, Object.keys(known));
      throw new UserError(
        `unknown option ${show(token.rawName === '-=' ? argv.find((a) => /^-[^-]*=/.test(a)) : token.rawName)}`,
        guess === undefined ? help : `did you mean --${guess}? ${help}`,
      );
    }
    if (spec.type === 'boolean') {
      if (token.value !== undefined)
        throw new UserError(`--${flag} takes no value, not ${show(token.value)}`, `write --${flag} alone`);
      flags[flag] = true;
      continue;
    }
    if (token.value === undefined || token.value.trim() === '')
      throw new UserError(`--${flag} needs a value`, `write one after it; ${help}`);
    const before = flags[flag];
    if (before !== undefined && !spec.multiple)
      throw new UserError(`--${flag} is given more than once`, 'give it once');
    flags[flag] = spec.multiple ? [...((before as string[] | undefined) ?? []), token.value] : token.value;
  }
  if (words.length > (command.positional ? 1 : 0) + (command.secondPositional ? 1 : 0))
    throw new UserError(
      `${show(words.at(-1))} is one word too many`,
      `lla-sim ${name} takes ${command.positional ? `one ${command.positional.name}` : 'options only'}; ${help}`,
    );
  return { flags, positional: words[0] ?? null, secondPositional: words[1] ?? null };
}

const nameOf = (table: OptionTable, given: string): string | undefined =>
  Object.hasOwn(table, given) ? given : Object.entries(table).find(([, spec]) => spec.alias === given)?.[0];

/** A flag's text, or null. */
export const textFlag = (args: Args, name: string): string | null =>
  typeof args.flags[name] === 'string' ? args.flags[name] : null;

/** One of a few words. */
export function choiceFlag<T extends string>(args: Args, name: string, choices: readonly T[]): T {
  const value = textFlag(args, name) ?? (choices[0] as T);
  if (!(choices as readonly string[]).includes(value))
    throw new UserError(
      `--${name} must be one of ${choices.join(', ')}, not ${show(value)}`,
      `write for example --${name} ${choices[1] ?? choices[0]}`,
    );
  return value as T;
}
