/** An answer in a few characters, with which a link tells whether a later version answers otherwise. */
import type { Fleet } from '../plan/decide/fleet.js';
import type { PlanReport } from '../plan/types.js';
import { shownDecode } from '../plan/words/words.js';
import { VERSION } from '../version.js';
import { chosenId } from './text/answer-text.js';
import type { Link } from './link.js';

/** `full:26:26.9ms`: the plan, the batch at which it is run and the time of a token; `none` where nothing answers. */
export function gistOf(report: PlanReport): string {
  const plan = report.plans.find((p) => p.id === chosenId(report));
  if (!plan || plan.maxBatch.exact < 1) return 'none';
  const { batch, secondsPerStep } = shownDecode(plan);
  const time = secondsPerStep === null ? [] : [`${Number((secondsPerStep.estimate * 1e3).toPrecision(3))}ms`];
  return [named(plan.id), batch, ...time].join(':');
}

/** `full:8gpus`. */
export function fleetGist({ deploy, upside, cheapest }: Fleet): string {
  const row = deploy ?? upside ?? cheapest;
  return row === null ? 'none' : `${named(row.planId)}:${row.gpus}gpus`;
}

/** `lla-10.67x@block-absorbed`: slashes, colons and commas divide a link. `full/full` has one way to be read. */
const named = (planId: string): string =>
  [...new Set(planId.split('/'))]
    .join('@')
    .replace(/[^\w.@+-]+/g, '-')
    .replace(/-(?=@|$)/g, '');

/** `full at batch 26, 26.9ms`. */
const shown = (gists: string): string =>
  gists
    .split(',')
    .map((gist) => gist.replace(/:(\d+)gpus$/, ' on $1 GPUs').replace(/:(\d+)(?::(.+))?$/, ' at batch $1, $2'))
    .map((words) => words.replace(/, $/, ''))
    .join('; ');

/** What a reader of another version's link has to know; null where there is nothing to say. */
export function changedWords(link: Pick<Link, 'was' | 'version'>, now: string): string | null {
  const { was, version: made } = link;
  const other = made !== VERSION;
  if (was === null) return other ? `the link was made by lla-sim ${made}` : null;
  if (was === now)
    return other ? `the link was made by lla-sim ${made}; lla-sim ${VERSION} gives the same answer` : null;
  return `the answer has changed: lla-sim ${made} gave ${shown(was)}; lla-sim ${VERSION} gives ${shown(now)}`;
}
