/** Results to stdout or a file, messages to stderr. */
import { writeFile } from 'node:fs/promises';
import { UserError, show } from '../errors.js';

export interface OutputOptions {
  /** Null: stdout. */
  readonly file: string | null;
  readonly quiet: boolean;
}

/** Prints a result. */
export async function print(text: string, options: OutputOptions): Promise<void> {
  if (options.file === null) {
    await new Promise<void>((resolve, reject) =>
      process.stdout.write(text, (error) => (error ? reject(error) : resolve())),
    );
    return;
  }
  try {
    await writeFile(options.file, text);
  } catch (error) {
    throw new UserError(
      `--output ${show(options.file)} cannot be written (${String((error as NodeJS.ErrnoException).code)})`,
      'check the path and its permissions',
    );
  }
  if (!options.quiet) process.stderr.write(`written to ${options.file}\n`);
}
