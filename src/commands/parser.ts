/** The command line by yargs: arguments, their validation, help and shell completion, from the commands' own tables. */
import yargs, { type Argv } from 'yargs';
import { EXIT, UserError, show, type ExitCode } from '../errors.js';
import { nearestName } from '../nearest.js';
import { meant } from '../schema/other-names.js';
import { VERSION } from '../version.js';
import { COMMON, Args, type Command, type OptionSpec, type OptionTable } from './command.js';
import { COMMANDS } from './commands.js';

const COMPLETIONS = '--get-yargs-completions';

interface Parsed {
  readonly command: Command;
  readonly args: Args;
}

/**
 * Runs a command line.
 * @throws UserError for what it asks wrongly
 */
export async function runCommandLine(argv: readonly string[]): Promise<ExitCode> {
  const parsed = await parse(argv);
  return parsed === null ? EXIT.ok : parsed.command.run(parsed.args);
}

/**
 * Parses a command line. Help, the version and completions are printed here.
 * @returns null where that was all that was asked
 * @throws UserError for unknown commands and options, values that are missing or not among an option's choices, options
 *   given twice and surplus words
 */
export async function parse(argv: readonly string[]): Promise<Parsed | null> {
  const [name = '', ...given] = argv;
  const entry = Object.hasOwn(COMMANDS, name) ? COMMANDS[name] : undefined;
  if (!entry) {
    await parseProgram(argv);
    return null;
  }
  const { command } = await entry.load();
  const { words, all } = helpWanted(given);
  let values: Readonly<Record<string, unknown>> = {};
  const parser = declare(common(yargs([]).scriptName(`lla-sim ${name}`)), name, { ...entry, command, all })
    .middleware((given) => void (values = given), true)
    .fail((message: string | null, error: Error | undefined) => {
      const text = message ?? error?.message ?? '';
      throw wrongOption(text, name, tableOf(command), words, values);
    });
  const printed = await output(parser, words);
  return printed === '' ? { command, args: argsOf(name, command, values) } : null;
}

/** Parses a command line that begins with no command: help of the program, its version, completions, or a mistake. */
async function parseProgram(argv: readonly string[]): Promise<void> {
  if (argv[0] === COMPLETION) {
    const shell = await completionShell(argv.slice(1));
    if (shell === null) return;
    // Where yargs reads it, when a parser is made.
    if (shell !== '') process.env['SHELL'] = shell;
  }
  const parser = common(yargs([]).scriptName('lla-sim'))
    .usage('Capacity planner for looped language models with latent KV caches.\n\n$0 <command>')
    .version(VERSION)
    .strict()
    .fail((message: string | null) => {
      throw unknownCommand(message ?? '', argv);
    });
  const commands = new Map<string, Command>();
  for (const [name, { help, load }] of Object.entries(COMMANDS)) {
    if (argv.includes(name)) commands.set(name, (await load()).command);
    const command = commands.get(name);
    parser.command(name, help, (y) => (command ? declare(y, name, { help, command, all: true }) : y));
  }
  parser.completion(COMPLETION, COMPLETION_HELP, completer(argv, commands));
  // With a callback for what is printed yargs prints the script, goes on, and finds no such command.
  if (argv[0] === COMPLETION) return void parser.showCompletionScript();
  await output(parser, argv.length === 0 ? ['--help'] : argv);
  if (argv.length === 0) throw new UserError('no command is given', 'start with: lla-sim plan --vram 141GB --ctx 4096');
}

const COMPLETION = 'completion';
const COMPLETION_HELP = 'completion script for bash or zsh [the one in $SHELL]';
const SHELLS = ['bash', 'zsh'];

/** Takes a shell and --help, which is printed here. @returns the shell, '' for that of the user, null after the help */
async function completionShell(given: readonly string[]): Promise<string | null> {
  const { words } = helpWanted(given);
  const others = words.filter((word) => word !== '--help' && word !== '-h');
  const option = others.find((word) => word.startsWith('-'));
  if (option !== undefined) throw new UserError(`unknown option ${show(option)}`, seeHelp(COMPLETION));
  const [shell = '', more] = others;
  if (more !== undefined) throw new UserError(`${show(more)} is one word too many`, seeHelp(COMPLETION));
  if (shell !== '' && !SHELLS.includes(shell))
    throw new UserError(`completion scripts are for bash and zsh, not ${show(shell)}`, seeHelp(COMPLETION));
  if (words.length === others.length) return shell;
  const help = common(yargs([]).scriptName(`lla-sim ${COMPLETION}`));
  help.usage(`lla-sim ${COMPLETION} [shell]\n\n${COMPLETION_HELP}: add it to the file that the shell reads first`);
  await output(help, ['--help']);
  return null;
}

/** Prints yargs's output for these words. @returns it */
async function output(parser: Argv, words: readonly string[]): Promise<string> {
  let printed = '';
  await parser.parseAsync([...words], {}, (_error, _values, text) => void (printed = text));
  if (printed !== '') process.stdout.write(`${printed}\n`);
  return printed;
}

/** What the parser of the program and of every command share: words are taken as they are written. */
const common = (y: Argv): Argv =>
  y
    .parserConfiguration({
      'parse-numbers': false,
      'parse-positional-numbers': false,
      'boolean-negation': false,
      'camel-case-expansion': false,
      'dot-notation': false,
      'greedy-arrays': false,
      'short-option-groups': false,
    })
    .detectLocale(false)
    .version(false)
    .help()
    .alias('help', 'h')
    .wrap(Math.min(110, Math.max(60, process.stdout.columns ?? 100)))
    .epilogue(
      'Exit codes: 0 done, 1 a defect of lla-sim, 2 wrong input, 3 nothing fits or meets the targets, 4 a kernel ' +
        'regressed, 5 a figure outside its tolerance, 6 no usable GPU, 130 interrupted.',
    );

const tableOf = (command: Command): OptionTable => ({ ...command.options, ...COMMON });

/** Options that the command takes. */
export const takenBy = (command: Command): string[] =>
  Object.entries(tableOf(command)).flatMap(([flag, spec]) => (spec.refused === undefined ? [flag] : []));

/** The words without the `all` of `--help all`, and whether it is there. */
function helpWanted(given: readonly string[]): { words: readonly string[]; all: boolean } {
  const at = given.findIndex((word, i) => (word === '--help' || word === '-h') && given[i + 1] === 'all');
  return at < 0 ? { words: given, all: false } : { words: given.filter((_, i) => i !== at + 1), all: true };
}

/**
 * Declares a command's options, as yargs parses, validates, explains and completes them. Unless `all` is wanted its
 * help leaves out those that the command does not show.
 */
function declare(
  y: Argv,
  name: string,
  { help, command, all }: { readonly help: string; readonly command: Command; readonly all: boolean },
): Argv {
  const { examples, shown } = command;
  const taken = takenBy(command);
  const seen = all || shown === undefined ? taken : shown;
  const words = positionalsOf(command);
  const explained = [help, words.map((word) => `${word.name}: ${word.help}`).join('\n')].filter((text) => text !== '');
  y.usage(
    [`lla-sim ${name}${words.map((word) => ` [${word.name}]`).join('')}`, ...explained].join('\n\n'),
  ).strictOptions();
  for (const [flag, spec] of Object.entries(tableOf(command)))
    y.option(flag, {
      type: spec.type,
      describe: spec.help,
      hidden: !seen.includes(flag),
      nargs: spec.type === 'string' ? 1 : 0,
      ...(spec.multiple ? { array: true, coerce: splitAtCommas } : {}),
      ...(spec.choices ? { choices: spec.choices } : {}),
      ...(spec.group ? { group: `${spec.group}:` } : {}),
      ...(spec.short ? { alias: spec.short } : spec.alias ? { alias: spec.alias } : {}),
    });
  const more = taken.filter((flag) => !seen.includes(flag)).length;
  if (more > 0) y.epilogue(`${more} more options: lla-sim ${name} --help all`);
  for (const [line, meaning] of examples) y.example(`lla-sim ${line}`, meaning);
  return y;
}

const splitAtCommas = (values: readonly string[]): string[] => values.flatMap((v) => v.split(',')).map((v) => v.trim());

/** Reads the words as yargs parsed them. */
function argsOf(name: string, command: Command, values: Readonly<Record<string, unknown>>): Args {
  const flags: Record<string, string | boolean | readonly string[]> = {};
  // yargs takes --help=1 for a help that is not wanted.
  if (values['help'] !== undefined) throw new UserError('--help takes no value', 'write --help, or --help all');
  for (const [flag, spec] of Object.entries(tableOf(command))) {
    const value = values[flag] as string | boolean | readonly string[] | undefined;
    if (value === undefined) continue;
    if (spec.refused !== undefined) throw new UserError(`--${flag} is not for ${name}`, spec.refused);
    if (Array.isArray(value) && !spec.multiple)
      throw new UserError(`--${flag} is given more than once`, 'give it once');
    if ([value].flat().every((v) => typeof v === 'string' && v.trim() === '')) throw noValue(name, flag);
    flags[flag] = value;
  }
  const words = values['_'] as readonly string[];
  const names = positionalsOf(command).map((word) => word.name);
  if (words.length > names.length)
    throw new UserError(
      `${show(words.at(-1))} is one word too many`,
      `lla-sim ${name} takes ${names.length > 0 ? `one ${names.join(' and one ')}` : 'options only'}; ${seeHelp(name)}`,
    );
  for (const [flag, { multiple, choices = [] }] of Object.entries(tableOf(command))) {
    const word = multiple && flags[flag] !== undefined ? words.find((own) => choices.includes(own)) : undefined;
    if (word !== undefined)
      throw new UserError(
        `${show(word)} is a value of --${flag} without a comma before it`,
        `write --${flag} ${[flags[flag], word].flat().join(',')}`,
      );
  }
  return new Args(flags, words[0], words[1]);
}

const positionalsOf = ({ positional, secondPositional }: Command): readonly { name: string; help: string }[] =>
  [positional, secondPositional].filter((word) => word !== undefined);

const seeHelp = (name: string): string => `see lla-sim ${name} --help`;
const takesNoValue = (flag: string): UserError => new UserError(`--${flag} takes no value`, `write --${flag} alone`);
const noValue = (name: string, flag: string): UserError =>
  new UserError(`--${flag} needs a value`, `write one after it; ${seeHelp(name)}`);

function unknownCommand(message: string, argv: readonly string[]): UserError {
  const known = `commands: ${Object.keys(COMMANDS).join(', ')}; see lla-sim --help`;
  const [first = ''] = argv;
  const name = first.startsWith('-') ? (/^Unknown arguments?: ([^,]*)/.exec(message)?.[1] ?? first) : first;
  if (first.startsWith('-') && argv.some((w) => w.startsWith('-') && w.includes(name)))
    return new UserError(`no command is given before ${show(`--${name}`)}`, known);
  const guess = nearestName(name, Object.keys(COMMANDS));
  return new UserError(
    `unknown command ${show(name)}`,
    `${guess === undefined ? '' : `did you mean ${guess}? `}${known}`,
  );
}

/** The error for words that yargs refuses, with the likeliest remedy. */
function wrongOption(
  message: string,
  name: string,
  table: OptionTable,
  words: readonly string[],
  values: Readonly<Record<string, unknown>>,
): UserError {
  const about = (pattern: RegExp): string | undefined => pattern.exec(message)?.[1];
  const unknown = about(/^Unknown arguments?: ([^,]*)/);
  if (unknown !== undefined) {
    const options = words.filter((w) => w.startsWith('-')).map((w) => w.split('=')[0]!);
    const word =
      options.find((w) => w.replace(/^-+/, '') === unknown) ??
      options.find((w) => w.includes(unknown)) ??
      `--${unknown}`;
    const known = Object.entries(table).flatMap(([flag, { alias }]) => (alias === undefined ? [flag] : [flag, alias]));
    return new UserError(`unknown option ${show(word)}`, `${meant(unknown, [...known, 'help'])}${seeHelp(name)}`);
  }
  const withoutValue = about(/^Not enough arguments following: (.*)$/);
  if (withoutValue !== undefined) return noValue(name, nameOf(table, withoutValue));
  const withValue = about(/^Argument unexpected for: (.*)$/);
  if (withValue !== undefined) return takesNoValue(nameOf(table, withValue));
  const flag = about(/^Invalid values:\n {2}Argument: ([^,]*),/);
  const choices = flag === undefined ? undefined : table[flag]?.choices;
  if (flag === undefined || choices === undefined) return new UserError(message, seeHelp(name));
  const wrong = [values[flag]].flat().find((v) => !choices.includes(v as string));
  return new UserError(
    `--${flag} must be one of ${choices.join(', ')}, not ${show(wrong)}`,
    `write for example --${flag} ${choices[1] ?? choices[0]}`,
  );
}

/** An option's first name by any of its names. */
const nameOf = (table: OptionTable, given: string): string =>
  Object.entries(table).find(([name, spec]) => [name, spec.short, spec.alias].includes(given))?.[0] ?? given;

type Complete = (onCompleted?: (error: Error | null, completions: string[] | undefined) => void) => unknown;

/** Completes the values of options; yargs completes commands and options. */
const completer =
  (argv: readonly string[], commands: ReadonlyMap<string, Command>) =>
  (current: string, _values: unknown, complete: Complete, done: (completions: string[]) => void): unknown => {
    const words = argv.slice(argv.indexOf(COMPLETIONS) + 1);
    const command = words.map((w) => commands.get(w)).find((c) => c !== undefined);
    const before = words.at(-2) ?? '';
    const spec: OptionSpec | undefined =
      command && before.startsWith('-')
        ? tableOf(command)[nameOf(tableOf(command), before.replace(/^-+/, ''))]
        : undefined;
    if (spec?.type !== 'string') return complete();
    // Of a list the last value; where nothing is proposed the shell completes files.
    const kept = spec.multiple ? current.slice(0, current.lastIndexOf(',') + 1) : '';
    const proposals = spec.choices ?? spec.proposals ?? [];
    return done(proposals.map((value) => kept + value).filter((value) => value.startsWith(current)));
  };
