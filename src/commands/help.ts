/** Help and shell completion, by yargs, from the commands' own option tables. */
import yargs, { type Argv } from 'yargs';
import { VERSION } from '../version.js';
import { COMMON, type Command } from './command.js';
import { COMMANDS } from './commands.js';

function declare(y: Argv, command: Command): Argv {
  const positionals = [command.positional, command.secondPositional].filter((word) => word !== undefined);
  for (const { name, help } of positionals) y.positional(name, { type: 'string', describe: help });
  for (const [flag, spec] of Object.entries({ ...command.options, ...COMMON })) {
    if (flag === 'help') continue;
    y.option(flag, {
      type: spec.type,
      describe: spec.help,
      ...(spec.group ? { group: `${spec.group}:` } : {}),
      ...(spec.short ? { alias: spec.short } : spec.alias ? { alias: spec.alias } : {}),
    });
  }
  for (const [line, meaning] of command.examples) y.example(`$0 ${line}`, meaning);
  return y;
}

/** A parser that knows every command; `chosen` is declared with its options. */
async function build(argv: readonly string[], chosen: string | null): Promise<Argv> {
  const parser = yargs([...argv])
    .scriptName('lla-sim')
    .version(VERSION)
    .usage('Capacity planner for looped language models with latent KV caches.\n\n$0 <command>')
    .parserConfiguration({ 'parse-numbers': false, 'boolean-negation': false })
    .help()
    .alias('help', 'h')
    .exitProcess(false)
    .wrap(Math.min(110, Math.max(60, process.stdout.columns ?? 100)))
    .epilogue(
      'Exit codes: 0 done, 2 wrong input, 3 nothing fits or meets the targets, 4 a kernel regressed, 5 a figure outside its tolerance, 6 no usable GPU.',
    );
  for (const [name, { help, load }] of Object.entries(COMMANDS)) {
    const command = name === chosen || chosen === null ? await load() : undefined;
    const words = [command?.positional, command?.secondPositional].filter((word) => word !== undefined);
    const usage = [name, ...words.map((word) => `[${word.name}]`)].join(' ');
    parser.command(
      usage,
      help,
      (y) => (command ? declare(y, command) : y),
      () => undefined,
    );
  }
  return parser.completion('completion', 'shell completion script (bash, zsh)');
}

/** Prints the help of a command, or of the program. */
export async function printHelp(name: string | null): Promise<void> {
  const parser = await build(name === null ? ['--help'] : [name, '--help'], name);
  process.stdout.write(`${await parser.getHelp()}\n`);
}

/** Prints the completion script, or the completions that it asks for. */
export async function completion(argv: readonly string[]): Promise<void> {
  await (await build(argv, null)).parseAsync();
}
