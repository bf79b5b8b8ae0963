#!/usr/bin/env node
/**
 * The command line: a table of commands, each loaded when it is called. The only place that ends the process.
 *
 * Arguments are parsed by Node's own parser, which costs nothing at start; yargs formats help and writes the completion
 * script from the same option tables, and is loaded for those alone.
 */
import { COMMANDS } from './commands/commands.js';
import { parseCommand } from './commands/command.js';
import { EXIT, UserError, show, type ExitCode } from './errors.js';
import { nearestName } from './nearest.js';
import { VERSION } from './version.js';
import { cannotWrite } from './write.js';

async function main(argv: readonly string[]): Promise<ExitCode> {
  const [name, ...rest] = argv;
  if (name === '--version') {
    process.stdout.write(`${VERSION}\n`);
    return EXIT.ok;
  }
  if (name === undefined || name === '--help' || name === '-h' || name === 'help') {
    await (await import('./commands/help.js')).printHelp(null);
    if (name === undefined)
      throw new UserError('no command is given', 'start with: lla-sim plan --vram 141GB --ctx 4096');
    return EXIT.ok;
  }
  if (name === 'completion' || rest.includes('--get-yargs-completions') || name === '--get-yargs-completions') {
    await (await import('./commands/help.js')).completion(argv);
    return EXIT.ok;
  }
  const entry = Object.hasOwn(COMMANDS, name) ? COMMANDS[name] : undefined;
  if (!entry) {
    const guess = nearestName(name, Object.keys(COMMANDS));
    throw new UserError(
      `unknown command ${show(name)}`,
      `${guess === undefined ? '' : `did you mean ${guess}? `}commands: ${Object.keys(COMMANDS).join(', ')}; see lla-sim --help`,
    );
  }
  const end = rest.indexOf('--');
  const helpAt = rest.findIndex((word) => word === '--help' || word === '-h');
  if (helpAt >= 0 && (end < 0 || helpAt < end)) {
    await (await import('./commands/help.js')).printHelp(name);
    return EXIT.ok;
  }
  const command = await entry.load();
  return command.run(parseCommand(name, command, rest));
}

/** Prints an expected error as one line and its hint, a defect with its stack. */
function report(error: unknown): ExitCode {
  const red = (text: string): string =>
    process.stderr.isTTY === true && !process.env['NO_COLOR'] ? `\u001b[31m${text}\u001b[39m` : text;
  if (error instanceof UserError) {
    process.stderr.write(`${red('error')}: ${error.message}; ${error.hint}\n`);
    return error.exitCode;
  }
  process.stderr.write(
    `${red('defect in lla-sim')}, please report it: ${error instanceof Error ? error.stack : String(error)}\n`,
  );
  return EXIT.defect;
}

process.stdout.on('error', (error: NodeJS.ErrnoException) => {
  process.exit(error.code === 'EPIPE' ? EXIT.ok : report(cannotWrite('the result', null, error)));
});
// Progress that nobody can read any more, as when a terminal closes, is no reason to lose a result.
process.stderr.on('error', () => undefined);
// A program with a channel was started by another one for its own purposes, and ends with it.
if (process.connected) process.once('disconnect', () => process.exit(EXIT.interrupted));

main(process.argv.slice(2)).then(
  (code) => process.exit(code),
  (error: unknown) => process.exit(report(error)),
);
