/** Notes that a reader needs before believing a plan; all printers share these words. */
import { isUncompressed } from '../codecs/registry.js';
import type { Plan, PlanReport } from '../plan/types.js';
import { formatBytes, formatNumber, formatTokens } from '../units.js';
import { contradictionsAbout, shareLabel, shownDecode, shownMetric, timeWords } from './plan-rows.js';

/** Why nothing is recommended. */
export const noRecommendation = (r: PlanReport): string =>
  r.contextTokens > r.model.maxPositions
    ? `No recommendation: ${r.model.name} was trained for ${r.model.maxPositions} positions, and no published quality holds beyond them.`
    : r.plans.every((p) => p.maxBatch.exact < 1)
      ? 'Nothing fits: not one sequence of this length beside the weights.'
      : 'No recommendation: for no plan that fits is the published quality known to be kept. Set a target with --min, or choose from the table.';

/** Notes that the reader needs before believing the table. */
export function trust(r: PlanReport, shown: readonly Plan[]): string[] {
  const notes = [...r.notes];
  const evidence = new Set(shown.map((p) => shownDecode(p).evidence).filter((e) => e !== null));
  if (evidence.size > 0) notes.push(`times: ${[...evidence].join(', ')}${sourceWords(r)}${sharesNote(r, shown)}`);
  if (evidence.has('extrapolated'))
    notes.push(
      `extrapolated times lie up to ${formatNumber(2 ** Math.max(...shown.map((p) => shownDecode(p).octavesOutside ?? 0)))} times outside the sizes that were measured`,
    );
  const full = shown.find((p) => isUncompressed(p.codec)) ?? shown[0];
  if (full) notes.push(prefillNote(r, shown), ...firstTokenNote(r, shown));
  for (const [code, text] of markNotes(shown)) notes.push(`${text}${code}`);
  const metric = shownMetric(r);
  const about = shown.some((p) => p.marks.some((m) => m.code === 'contradicted-quality'))
    ? contradictionsAbout(r, metric)
    : [];
  for (const c of about)
    notes.push(`${c.subject}: ${c.figures.map((f) => `${f.value} (${f.source})`).join(', ')}. ${c.explanation}`);
  if (r.contradictions.length > about.length)
    notes.push(
      `the published figures contradict each other in ${r.contradictions.length} place${r.contradictions.length === 1 ? '' : 's'} in all: --format json lists them`,
    );
  return notes;
}

/** Whose measurements they are. */
const sourceWords = (r: PlanReport): string => (r.device.pricing === 'attainable' ? '' : `, from ${r.device.pricing}`);

/** Evidence of the recommended row's time (or the first's); a row's word is its weakest part. */
function sharesNote(r: PlanReport, shown: readonly Plan[]): string {
  const plan =
    shown.find((p) => p.id === r.recommendation?.planId && shownDecode(p).evidenceShare) ??
    shown.find((p) => shownDecode(p).evidenceShare);
  return plan
    ? ` (a row's word, and surer ones, cover at least 90 % of its time; ${plan.id}: ${shareLabel(shownDecode(plan))})`
    : '';
}

function prefillNote(r: PlanReport, shown: readonly Plan[]): string {
  const peaks = shown.filter((p) => p.maxBatch.exact >= 1).map((p) => p.prefill.peakBytes);
  if (peaks.length === 0) return `prefill (${r.settings.prefill}) is not considered: nothing fits`;
  const [low, high] = [Math.min(...peaks), Math.max(...peaks)];
  const range = low === high ? formatBytes(low) : `${formatBytes(low)} to ${formatBytes(high)}`;
  const tightest = shown
    .filter((p) => p.maxBatch.exact >= 1)
    .reduce((a, b) =>
      b.prefill.batchBesidePrefill / b.maxBatch.exact < a.prefill.batchBesidePrefill / a.maxBatch.exact ? b : a,
    );
  const needs = `prefilling one prompt (${r.settings.prefill}) needs ${range} while it runs`;
  const { batchBesidePrefill } = tightest.prefill;
  return batchBesidePrefill >= tightest.maxBatch.exact
    ? `${needs}; the batches above leave room for it`
    : `${needs}, and the batches above leave no room for it: beside one, ${tightest.id} holds ${batchBesidePrefill} of ${tightest.maxBatch.exact}`;
}

/** How long a prompt takes, by the recommended row or the first that fits. */
function firstTokenNote(r: PlanReport, shown: readonly Plan[]): string[] {
  const fitting = shown.filter((p) => p.maxBatch.exact >= 1 && p.prefill.fits);
  const plan = fitting.find((p) => p.id === r.recommendation?.planId) ?? fitting[0];
  if (!plan) return [];
  const { secondsPerPrompt, evidence, notPriced } = plan.prefill;
  const subject = `the first token of a prompt of ${formatTokens(r.contextTokens)} tokens`;
  if (secondsPerPrompt)
    return [
      `${subject} comes after ${timeWords(secondsPerPrompt)} by ${plan.id}, ${evidence} (a prompt at a time, nothing else running)`,
    ];
  return r.device.pricing === 'none' ? [] : [`${subject} has no predicted time by ${plan.id}: ${notPriced}`];
}

/** Marks of the rows shown, one line a kind, with the rows that it holds for. */
function markNotes(shown: readonly Plan[]): [rows: string, message: string][] {
  const byCode = new Map<string, { message: string; rows: string[] }>();
  for (const p of shown) {
    for (const m of p.marks) {
      if (m.code === 'contradicted-quality') continue;
      const entry = byCode.get(m.code) ?? { message: m.message, rows: [] };
      entry.rows.push(p.id);
      byCode.set(m.code, entry);
    }
  }
  return [...byCode.values()].map(({ message, rows }) => [
    rows.length <= 3
      ? rows.length === 1
        ? ''
        : ` (also ${rows.slice(1).join(', ')})`
      : ` (and ${rows.length - 1} more)`,
    `${rows[0]}: ${message}`,
  ]);
}
