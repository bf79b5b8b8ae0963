/**
 * An error caused by what came from outside: a flag, a file, a device. It is printed as one line with a hint and
 * ends the process with `exitCode`, without a stack. Anything else that is thrown is a defect (exit code 1).
 */
export class UserError extends Error {
  override readonly name = 'UserError';

  /**
   * @param message what was wrong: subject, rule and the value received
   * @param hint    what to do next, as an imperative
   * @param exitCode one of the documented codes; 2 (wrong input) unless said otherwise
   */
  constructor(
    message: string,
    readonly hint: string,
    readonly exitCode: ExitCode = EXIT.badInput,
  ) {
    // Only the multi-line list of what removed every plan keeps its line ends; nothing from outside reaches a terminal
    // raw.
    super(
      message
        .split('\n')
        .map(printable)
        .join(exitCode === EXIT.noSolution ? '\n' : ' '),
    );
  }
}

/** Replaces control and bidirectional characters by their escapes. */
export function printable(text: string): string {
  return text.replace(
    /[\u0000-\u001f\u007f-\u009f\u2028\u2029\u202a-\u202e\u2066-\u2069]/g,
    (c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, '0')}`,
  );
}

/** Exit codes of the command line, part of the public contract. */
export const EXIT = {
  ok: 0,
  defect: 1,
  badInput: 2,
  noSolution: 3,
  regressed: 4,
  outsideTolerance: 5,
  noGpu: 6,
  /** Ctrl-C before there was a result: what a shell expects of a process ended by SIGINT. */
  interrupted: 130,
} as const;

export type ExitCode = (typeof EXIT)[keyof typeof EXIT];

/** Shows a received value inside an error message: quoted, control characters escaped, at most 80 characters. */
export function show(value: unknown): string {
  const text =
    typeof value === 'string' || (typeof value === 'object' && value !== null)
      ? (JSON.stringify(value) ?? 'a value')
      : String(value);
  const line = printable(text);
  return line.length > 80 ? `${line.slice(0, 77)}...` : line;
}
