/**
 * What a reader needs to know before believing a plan; every printer shows these, JSON carries them with their codes.
 */
import { group } from 'd3-array';
import { counted, formatBytes, formatNumber } from '../../numbers/units.js';
import { present } from '../../present.js';
import { representatives } from '../decide/representatives.js';
import type { Plan, PlanReport } from '../types.js';
import type { Warning } from '../answer-types.js';
import { shareLabel, shownDecode } from './words.js';

type Planned = Omit<PlanReport, 'warnings'>;

/** Every warning of a report, those of the input first. */
export function warningsOf(r: Planned): Warning[] {
  const shown = representatives(r.plans);
  return present([
    ...r.notes.map((message) => ({ code: 'input', message })),
    ...timeWarnings(r, shown),
    ...prefillWarning(r, shown),
    ...markWarnings(shown),
    ...removedWarnings(r),
    r.contradictions.length > 0 && {
      code: 'contradictions',
      message:
        `the published figures contradict each other in ${counted(r.contradictions.length, 'place')}: --format json ` +
        'lists them',
    },
  ]);
}

/** Evidence of the rows, of the chosen row's time, and how far outside the measured sizes they lie. */
function timeWarnings(r: Planned, shown: readonly Plan[]): Warning[] {
  const evidence = new Set(shown.map((p) => shownDecode(p).evidence).filter((e) => e !== null));
  if (evidence.size === 0) return [];
  const chosen = r.answer.upside ?? r.answer.deploy ?? r.answer.fallback;
  const plan = shown.find((p) => p.id === chosen?.planId);
  const share = plan
    ? ` (a row is named after the least sure kind of time needed to reach 90 % of its step; ${plan.id}: ` +
      `${shareLabel(shownDecode(plan))})`
    : '';
  const from = r.device.pricing === 'attainable' ? '' : `, from ${r.device.pricing}`;
  const octaves = Math.max(...shown.map((p) => shownDecode(p).octavesOutside ?? 0));
  return present([
    { code: 'evidence', message: `times: ${[...evidence].join(', ')}${from}${share}` },
    evidence.has('extrapolated') && {
      code: 'extrapolated',
      message:
        2 ** octaves >= 1.05
          ? `extrapolated times lie up to ${formatNumber(2 ** octaves)} times outside the sizes that were measured`
          : octaves > 0
            ? 'extrapolated times lie just outside the sizes that were measured'
            : 'extrapolated times were measured on another card with this chip',
    },
  ]);
}

function prefillWarning(r: Planned, shown: readonly Plan[]): Warning[] {
  const code = 'prefill-memory';
  const fitting = shown.filter((p) => p.maxBatch.exact >= 1);
  if (fitting.length === 0)
    return [{ code, message: `prefill (${r.settings.prefill}) is not considered: nothing fits` }];
  const peaks = fitting.map((p) => p.prefill.peakBytes);
  const [low, high] = [Math.min(...peaks), Math.max(...peaks)];
  const range = low === high ? formatBytes(low) : `${formatBytes(low)} to ${formatBytes(high)}`;
  const tightest = fitting.reduce((a, b) =>
    b.prefill.batchBesidePrefill / b.maxBatch.exact < a.prefill.batchBesidePrefill / a.maxBatch.exact ? b : a,
  );
  const needs = `prefilling one prompt (${r.settings.prefill}) needs ${range} while it runs`;
  const { batchBesidePrefill } = tightest.prefill;
  const room =
    batchBesidePrefill >= tightest.maxBatch.exact
      ? '; the largest batches leave room for it'
      : `; beside one, ${tightest.id} holds ${batchBesidePrefill} of ${tightest.maxBatch.exact}`;
  return [{ code, message: `${needs}${room}` }];
}

/** Marks of the rows shown, one warning a kind, with the rows that it holds for. */
function markWarnings(shown: readonly Plan[]): Warning[] {
  const marks = shown.flatMap(({ id, marks }) => marks.map((m) => ({ ...m, id })));
  const told = marks.filter(({ code }) => code !== 'contradicted-quality');
  return [...group(told, ({ code }) => code)].map(([code, [first, ...others]]) => {
    const also =
      others.length === 0
        ? ''
        : others.length <= 2
          ? ` (so marked: ${others.map(({ id }) => id).join(', ')})`
          : ` (and ${others.length} more)`;
    return { code, message: `${first!.id}: ${first!.message}${also}` };
  });
}

/** How many rows each target removed, with an example; how many combinations cannot be. */
function removedWarnings({ removed, refused }: Planned): Warning[] {
  const example = ([first]: readonly { id: string; reason: string }[]): string => `${first?.id}: ${first?.reason}`;
  return present([
    ...[...group(removed, ({ target }) => target)].map(([target, rows]) => ({
      code: 'removed',
      message: `${target} removed ${counted(rows.length, 'row')}, such as ${example(rows)}`,
    })),
    refused.length > 0 && {
      code: 'refused',
      message: `${counted(refused.length, 'combination')} cannot be, such as ${example(refused)}`,
    },
  ]);
}
