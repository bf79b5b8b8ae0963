/** What GPUs and tokens of a run cost. */
import type { Interval } from '../../numbers/statistics.js';
import type { RunFigures } from '../types.js';

/** Price of all GPUs of all replicas a second; null without one. @param usdPerHour of one GPU; gpus a replica */
export const usdPerSecond = (
  { usdPerHour, gpus }: { readonly usdPerHour: number | null; readonly gpus: number },
  { replicas, prefillReplicas }: { readonly replicas: number; readonly prefillReplicas: number },
): number | null => (usdPerHour === null ? null : (usdPerHour * gpus * (replicas + prefillReplicas)) / 3600);

/** Price of a million tokens. */
export const perMillion = (usdPerSecond: number, tokensPerSecond: number): number =>
  (1e6 * usdPerSecond) / tokensPerSecond;

/** Price of a million output tokens, prompts included; null where there is none, or no such token. */
export function usdPerMillion(usd: number | null, run: Readonly<Record<keyof Interval, RunFigures>>): Interval | null {
  const of = (end: keyof Interval): number => perMillion(usd!, run[end].output_throughput);
  if (usd === null || Math.min(run.low.output_throughput, run.high.output_throughput) === 0) return null;
  const [low, estimate, high] = [of('low'), of('estimate'), of('high')];
  return { low: Math.min(low, estimate), estimate, high: Math.max(high, estimate) };
}
