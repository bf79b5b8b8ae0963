/** Progress on a terminal. */

/** The line that says what a command does, rewritten in place: on a terminal alone, and not with --quiet. */
export class ProgressLine {
  readonly isShown: boolean;

  constructor(quiet: boolean) {
    this.isShown = !quiet && process.stderr.isTTY === true;
  }

  show(text: string): void {
    if (this.isShown) process.stderr.write(`\r${text}\u001b[K`);
  }

  clear(): void {
    this.show('');
  }
}

/** `3 min 20 s`, `45 s`: time left, whole seconds. */
export function formatDuration(seconds: number): string {
  const whole = Math.max(0, Math.round(seconds));
  return whole < 60 ? `${whole} s` : `${Math.floor(whole / 60)} min ${whole % 60} s`;
}

/** A bar, percent of the time and what is left of it, then what is being done. */
export function timeText(elapsed: number, left: number, doing: string): string {
  const share = elapsed + left > 0 ? elapsed / (elapsed + left) : 1;
  const bar = '#'.repeat(Math.round(share * 20)).padEnd(20, '.');
  return `[${bar}] ${Math.floor(100 * share)} %, ${formatDuration(left)} left  ${doing}`;
}

/** The same as one line, rewritten in place. */
export const progressLine = (elapsed: number, left: number, doing: string): string =>
  `\r${timeText(elapsed, left, doing)}\u001b[K`;
