/** Results to stdout or a file, messages to stderr. */
import { displayPath } from '../io/files.js';
import { jsonText } from '../io/json.js';
import { cannotWrite, writeWhole } from '../io/write.js';
import type { Output } from './outputs.js';

/** A result as JSON: only what has a schema. */
export const asJson: (output: Output, indent?: number) => string = jsonText;

export interface OutputOptions {
  /** Null: stdout. */
  readonly file: string | null;
  readonly quiet: boolean;
}

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
  if (!options.quiet) process.stderr.write(`written to ${displayPath(options.file)}\n`);
}
