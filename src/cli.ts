#!/usr/bin/env node
/** The command line. The only place that ends the process. */
import { setFlagsFromString } from 'node:v8';
import { runCommandLine } from './commands/parser.js';
import { EXIT, UserError, type ExitCode } from './errors.js';
import { cannotWrite } from './io/write.js';

// A cold plan is over before compiled code pays for its compilation: functions are optimised after 1 MB of bytecode
// instead of some 100 kB, which takes a third off its time and nothing from what computes for long.
setFlagsFromString('--interrupt-budget=1000000');

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
// Progress that cannot be written, as when a terminal closes, must not lose a result.
process.stderr.on('error', () => undefined);
// A program with a channel was started by another program, and ends with it.
if (process.connected) process.once('disconnect', () => process.exit(EXIT.interrupted));

runCommandLine(process.argv.slice(2)).then(
  (code) => process.exit(code),
  (error: unknown) => process.exit(report(error)),
);
