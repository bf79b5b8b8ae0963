/** A run's figures, as answers have them. */
import { LIMITS, type Limit, type Metrics } from './metrics.js';
import { LEAST_FOR_P99, type Sketch } from './sketch.js';
import type { Metric, Run, RunFigures, WaitingShares } from './types.js';

export const PERCENT = Array.from({ length: 100 }, (_, i) => i).concat(99.5, 99.9);

/** Milliseconds; none of no values. */
export const percentilesOf = (sketch: Sketch): number[] =>
  PERCENT.flatMap((percent) => {
    const seconds = sketch.quantile(percent / 100);
    return seconds === null ? [] : [seconds * 1e3];
  });

/** Less waiting than this share of the time in the system does not count as a limit. */
const NEGLIGIBLE_WAITING = 0.01;

/** Waiting by what stood in its way; the rest is for the running iteration to end. */
export function waitingShares(m: Metrics): WaitingShares {
  const limited = m.limitSeconds.reduce((sum, seconds) => sum + seconds, 0);
  const all = Math.max(limited, m.queue.total);
  const shares = LIMITS.map((name, i) => [name, all === 0 ? 0 : m.limitSeconds[i]! / all] as const);
  return { ...(Object.fromEntries(shares) as Record<Limit, number>), iteration: all === 0 ? 0 : 1 - limited / all };
}

function limitOf({ limitSeconds, e2el }: Metrics): RunFigures['limitedBy'] {
  const limited = limitSeconds.reduce((sum, seconds) => sum + seconds, 0);
  const most = LIMITS[limitSeconds.indexOf(Math.max(...limitSeconds))]!;
  return limited < NEGLIGIBLE_WAITING * e2el.total || limited === 0 ? 'nothing' : most;
}

/**
 * An end of users who wait for their answers: what is slower asks for less at a time, so that a slower server may give
 * earlier first tokens. No time lies further in than that of a server which is slower, or faster, in everything alike.
 */
function atEnd(end: RunFigures, estimate: RunFigures, furthest: 'min' | 'max'): RunFigures {
  const ratio = estimate.duration === 0 ? 1 : Math[furthest](1, end.duration / estimate.duration);
  return withTimes(end, estimate, /_ms$/, (own, estimated) => Math[furthest](own, estimated * ratio));
}

/** Figures whose times of these names are made of their own and of others'. */
export const withTimes = (
  own: RunFigures,
  others: RunFigures,
  named: RegExp,
  of: (own: number, other: number) => number,
): RunFigures =>
  Object.fromEntries(
    Object.entries(own).map(([name, value]) => {
      const other = others[name as keyof RunFigures];
      const isTime = named.test(name) && typeof value === 'number' && typeof other === 'number';
      return [name, isTime ? of(value, other) : (value as unknown)];
    }),
  ) as unknown as RunFigures;

/** A run with ends on both sides of its estimate. */
export const between = <R extends Pick<Run, 'low' | 'estimate' | 'high'>>(run: R): R => ({
  ...run,
  low: atEnd(run.low, run.estimate, 'min'),
  high: atEnd(run.high, run.estimate, 'max'),
});

/** A run under the keys of vLLM's benchmark. */
export function figuresOf(m: Metrics): RunFigures {
  const duration = m.durationSeconds;
  const perSecond = (count: number): number => (duration === 0 ? 0 : count / duration);
  const distributions = { ttft: m.ttft, tpot: m.tpot, itl: m.itl, e2el: m.e2el, queue: m.queue };
  const times: Record<string, number | null> = {};
  for (const [name, sketch] of Object.entries(distributions))
    for (const [statistic, seconds] of Object.entries(sketch.distribution()) as [string, number | null][])
      times[`${statistic}_${name}_ms`] = seconds === null ? null : seconds * 1e3;
  return {
    duration,
    completed: m.completed,
    total_input_tokens: m.inputTokens,
    total_output_tokens: m.outputTokens,
    request_throughput: perSecond(m.completed),
    request_goodput: perSecond(m.good),
    output_throughput: perSecond(m.outputTokens),
    total_token_throughput: perSecond(m.inputTokens + m.outputTokens),
    preemptions: m.preemptions,
    limitedBy: limitOf(m),
    sketched: Object.entries(distributions).flatMap(([name, sketch]) => (sketch.isExact ? [] : [name as Metric])),
    few: Object.entries(distributions).flatMap(([name, { count }]) =>
      count > 0 && count < LEAST_FOR_P99 ? [name as Metric] : [],
    ),
    missedShare: m.misses.share,
    missedShareAtMost: m.misses.atMost,
    ...(times as Pick<RunFigures, keyof RunFigures & `${string}_ms`>),
  };
}
