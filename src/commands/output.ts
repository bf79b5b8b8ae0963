/** The terminal: results to stdout or a file, messages and progress to stderr, and ending early. */
import { displayPath } from '../io/files.js';
import { jsonText } from '../io/json.js';
import { END_SIGNALS, cannotWrite, writeWhole } from '../io/write.js';
import type { Picture } from '../report/pictures/picture.js';
import type { Output } from './outputs.js';

/** A result as JSON: only what has a schema. */
export const asJson: (output: Output, indent?: number) => string = jsonText;

export interface OutputOptions {
  /** Null: stdout. */
  readonly file: string | null;
  readonly quiet: boolean;
}

/** Whether a result may have colours. */
export const hasColour = (file: string | null): boolean =>
  file === null && process.stdout.isTTY === true && !process.env['NO_COLOR'];

/**
 * Prints a result.
 * @throws UserError when it cannot be written
 */
export async function print(text: string, options: OutputOptions): Promise<void> {
  if (options.file === null) {
    await new Promise<void>((resolve, reject) =>
      process.stdout.write(text, (error) =>
        error ? reject(cannotWrite('the result', null, error) as Error) : resolve(),
      ),
    );
    return;
  }
  writeWhole(options.file, text, '--output');
  say(options.quiet, `written to ${displayPath(options.file)}`);
}

/** Says something beside the result. */
export function say(quiet: boolean, text: string): void {
  if (!quiet) process.stderr.write(`${text}\n`);
}

/** Writes a picture as a file. The canvas is loaded when one is drawn. */
export async function writePicture(file: string, picture: Picture): Promise<void> {
  const { png } = await import('../report/pictures/png.js');
  writeWhole(file, png(picture), '--picture');
}

/** Runs `work` with a signal that is aborted when the program is asked to end. Asked a second time, it ends at once. */
export async function interruptible<T>(work: (signal: AbortSignal) => Promise<T>): Promise<T> {
  const abort = new AbortController();
  const release = (): void => {
    for (const name of END_SIGNALS) process.removeListener(name, stopped);
  };
  const stopped = (): void => {
    release();
    abort.abort();
  };
  for (const name of END_SIGNALS) process.on(name, stopped);
  try {
    return await work(abort.signal);
  } finally {
    release();
  }
}

/** The line that says what a command does, rewritten in place: on a terminal alone, and not with --quiet. */
export class ProgressLine {
  readonly isShown: boolean;

  constructor(quiet: boolean) {
    this.isShown = !quiet && process.stderr.isTTY === true;
  }

  show(text: string): void {
    if (this.isShown) process.stderr.write(`\r${text}\u001b[K`);
  }

  /** How far it is, in seconds, and what is being done. */
  time(elapsed: number, left: number, doing: string): void {
    this.show(timeText(elapsed, left, doing));
  }

  clear(): void {
    this.show('');
  }
}

/**
 * Runs `work` with a progress line; what `work` calls with its share answers true once the program is asked to end.
 * @param starting said until the first share is done, which may take half a minute
 */
export function progressing<T>(
  quiet: boolean,
  starting: string | null,
  work: (progress: (share: number, doing: string) => boolean) => Promise<T>,
): Promise<T> {
  const begun = performance.now();
  const line = new ProgressLine(quiet);
  if (starting !== null) line.show(`${starting} …`);
  return interruptible((signal) =>
    work((share, doing) => {
      const elapsed = (performance.now() - begun) / 1e3;
      if (share > 0) line.time(elapsed, (elapsed * (1 - share)) / share, doing);
      else line.show(`${starting} ${doing}`);
      return signal.aborted;
    }),
  ).finally(() => line.clear());
}

/** `3 min 20 s`, `45 s`: time left, whole seconds. */
export function formatDuration(seconds: number): string {
  const whole = Math.max(0, Math.round(seconds));
  return whole < 60 ? `${whole} s` : `${Math.floor(whole / 60)} min ${whole % 60} s`;
}

/** A bar, percent of the time and what is left of it, then what is being done. */
function timeText(elapsed: number, left: number, doing: string): string {
  const share = elapsed + left > 0 ? elapsed / (elapsed + left) : 1;
  const bar = '#'.repeat(Math.round(share * 20)).padEnd(20, '.');
  return `[${bar}] ${Math.floor(100 * share)} %, ${formatDuration(left)} left  ${doing}`;
}
