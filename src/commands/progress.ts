/** Parts that progress lines on a terminal share. */

/** `3 min 20 s`, `45 s`: time left, whole seconds. */
export function formatDuration(seconds: number): string {
  const whole = Math.max(0, Math.round(seconds));
  return whole < 60 ? `${whole} s` : `${Math.floor(whole / 60)} min ${whole % 60} s`;
}

/** A bar, percent of the time and what is left of it, then what is being done; one line, rewritten in place. */
export function progressLine(elapsed: number, left: number, doing: string): string {
  const share = elapsed + left > 0 ? elapsed / (elapsed + left) : 1;
  const bar = '#'.repeat(Math.round(share * 20)).padEnd(20, '.');
  return `\r[${bar}] ${Math.floor(100 * share)} %, ${formatDuration(left)} left  ${doing}\u001b[K`;
}
