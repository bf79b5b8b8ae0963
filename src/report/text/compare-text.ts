/** Several plans side by side: what each device, context or cache type would be deployed with. */
import pc from 'picocolors';
import type { Interval } from '../../cost/evidence.js';
import type { Choice } from '../../plan/answer-types.js';
import type { Plan, PlanReport } from '../../plan/types.js';
import { present } from '../../present.js';
import { shownDecode } from '../../plan/words/words.js';
import { formatTokens } from '../../numbers/units.js';
import { brief, milliseconds, paragraph } from './answer-text.js';
import { isFullCache } from '../../plan/decide/representatives.js';
import { asPublishedLabel, deviceName } from '../plan-rows.js';
import { fitting, left, right, wrap, type Column } from './text.js';

/** What a report puts first: what runs today, else the best estimate, else the fastest that fits. */
const leadOf = ({ answer }: PlanReport): Choice | null => answer.deploy ?? answer.upside ?? answer.fallback;

const rowOf = (report: PlanReport, choice: Choice | null): Plan | null =>
  report.plans.find((p) => p.id === choice?.planId) ?? null;

const leadRow = (report: PlanReport): Plan | null => rowOf(report, leadOf(report));
const upsideRow = (report: PlanReport): Plan | null => rowOf(report, report.answer.upside);
const figuresOf = (row: Plan | null) => row && shownDecode(row);

/**
 * What runs today before what does not, by the slow end: the estimate of a wide interval says little.
 * @param priced all have a price: the cheapest comes first, else the fastest
 */
function order(a: PlanReport, b: PlanReport, priced: boolean): number {
  const rank = ({ answer }: PlanReport): number =>
    ['deploy', 'estimates-only', 'not-recommended', 'nothing'].indexOf(answer.verdict);
  const value = (r: PlanReport): number => {
    const d = figuresOf(leadRow(r));
    return priced ? (d?.usdPerMillionTokens?.high ?? Number.MAX_VALUE) : -(d?.tokensPerSecond?.low ?? 0);
  };
  return rank(a) - rank(b) || value(a) - value(b);
}

/** The runs of each context, shortest first: a context is what users ask for, not a choice. */
function byContext(reports: readonly PlanReport[]): PlanReport[][] {
  const contexts = [...new Set(reports.map((r) => r.contextTokens))].sort((a, b) => a - b);
  return contexts.map((context) => reports.filter((r) => r.contextTokens === context));
}

/**
 * One line a run, best of a context first, below the ones that win.
 * @param labels what tells reports apart beside model, device, GPUs, context and cache type
 */
export function compareText(
  reports: readonly PlanReport[],
  { width, colour }: { width: number; colour: boolean },
  labels: ReadonlyMap<PlanReport, string> = new Map(),
): string {
  const c = pc.createColors(colour);
  const isPriced = (r: PlanReport): boolean => r.settings.usdPerHour !== null;
  const priced = reports.every(isPriced);
  const contexts = byContext(reports).map((runs) => runs.sort((a, b) => order(a, b, priced)));
  const sorted = contexts.flat();
  const differ: Differ = (of) => new Set(reports.map(of)).size > 1;
  const labelOf = (r: PlanReport): string => labels.get(r) ?? '';
  const name = nameIn(differ, labelOf);
  /** @param leftOut 1 ends of intervals and the upside's figures, 2 kernels too, 3 the full cache too */
  const spec = (leftOut: 0 | 1 | 2 | 3): Column<PlanReport>[] =>
    present<Column<PlanReport>>([
      differ(labelOf) && left('scenario', labelOf),
      differ((r) => r.model.name) && left('model', (r) => r.model.name),
      left('device', deviceName),
      differ((r) => r.settings.gpus) && right('GPUs', (r) => String(r.settings.gpus)),
      differ((r) => r.contextTokens) && right('ctx', (r) => formatTokens(r.contextTokens)),
      differ((r) => r.settings.cacheType) && left('cache', (r) => r.settings.cacheType),
      left('plan', (r) => leadRow(r)?.codec.label ?? '–'),
      leftOut < 2 && left('kernels', (r) => leadRow(r)?.servedBy ?? 'estimate'),
      right('fits', (r) => String(leadRow(r)?.maxBatch.exact ?? 0)),
      right('run', (r) => String(figuresOf(leadRow(r))?.batch ?? '–')),
      right('ms/token', (r) => figureCell(figuresOf(leadRow(r))?.secondsPerStep, milliseconds, leftOut > 0)),
      right('tok/s', (r) => figureCell(figuresOf(leadRow(r))?.tokensPerSecond, brief, true)),
      reports.some(isPriced) &&
        right('$/Mtok', (r) => figureCell(figuresOf(leadRow(r))?.usdPerMillionTokens, brief, leftOut > 0)),
      leftOut < 3 && right('full cache', fullLabel),
      left('upside', (r) => upsideRow(r)?.codec.label ?? '–'),
      leftOut === 0 && right('tok/s', (r) => figureCell(figuresOf(upsideRow(r))?.tokensPerSecond, brief, true)),
      leftOut === 0 && right('published', (r) => asPublishedLabel(upsideRow(r)) || '–'),
    ]);
  const { spec: shown, lines: table } = fitting([spec(0), spec(1), spec(2), spec(3)], sorted, width);
  const saysKernels = shown.some(({ title }) => title === 'kernels');
  const each = (of: (r: PlanReport) => string): string => [...new Set(reports.map(of))].join(', ');
  /** What holds of some lines and not of others; none where all are alike. */
  const ofSome = (has: (r: PlanReport) => boolean, words: string): string[] => {
    const some = sorted.filter(has);
    if (some.length === 0 || some.length === sorted.length) return [];
    return ['', ...wrap(`${[...new Set(some.map(name))].join(', ')}: ${words}`, width).map(c.dim)];
  };
  const question =
    `${each((r) => r.model.name)}, ${each((r) => formatTokens(r.contextTokens))} tokens a sequence, on ` +
    each(deviceName);
  return `${[
    ...wrap(question, width, '  ').map(c.bold),
    ...contexts.flatMap((runs) => [
      ...paragraph({ label: 'Best', text: bestWords(runs, priced, differ, name) }, width).map(c.green),
      ...othersWords(runs, priced, name).flatMap((text) => paragraph({ label: 'Others', text }, width)),
    ]),
    '',
    ...table.map((l, i) => (i === 0 ? c.bold(l) : l)),
    ...(saysKernels ? [] : ofSome((r) => leadRow(r)?.servedBy === null, ESTIMATE)),
    ...ofSome((r) => !isPriced(r), NO_PRICE),
    ...ofSome((r) => r.settings.server === null, NO_SERVER),
  ].join('\n')}\n`;
}

/** Tokens a second of the full cache, so that every line has one plan in common. */
function fullLabel({ plans }: PlanReport): string {
  const full = plans.find(isFullCache);
  const speed = full && shownDecode(full).tokensPerSecond;
  return speed ? `${brief(speed.estimate)} tok/s` : full ? `${full.maxBatch.exact} fit` : '–';
}

const ESTIMATE = 'an estimate: no server is known to run the plan.';
const NO_PRICE =
  'no price, so by speed, not cost: first what runs today, then estimates. --usd-per-hour takes one a device.';
const NO_SERVER =
  "no server is known to run there, so no server's own memory is taken off, and more fits. --reserve and " +
  '--utilization set the same for all.';

/** `35 (18–90)`, without its ends where there is no room. */
function figureCell(of: Interval | null | undefined, text: (value: number) => string, narrow: boolean): string {
  if (!of) return '–';
  return `${text(of.estimate)}${narrow ? '' : ` (${text(of.low)}–${text(of.high)})`}`;
}

/** Whether runs differ in something. */
type Differ = (of: (r: PlanReport) => unknown) => boolean;

/** Why a run comes after another that it may be faster than. */
function behind(first: PlanReport, { answer }: PlanReport): string {
  if (answer.verdict === first.answer.verdict) return '';
  return answer.verdict === 'not-recommended' ? `, not recommended: ${answer.reason}` : ', by estimates';
}

/** Why GPUs that may be cheaper come after the first: what they would have to cost, or what keeps them behind. */
function othersWords(runs: readonly PlanReport[], priced: boolean, name: Name): string[] {
  const [first, ...rest] = runs as [PlanReport, ...PlanReport[]];
  if (first.answer.deploy === null && first.answer.upside === null) return [];
  const speed = (r: PlanReport): number => figuresOf(leadRow(r))?.tokensPerSecond?.low ?? 0;
  const share = (r: PlanReport): string => `${Math.floor((100 * speed(r)) / speed(first))} %`;
  const hour = (r: PlanReport): number => r.settings.usdPerHour ?? 0;
  const others = rest.filter((r) => name(r) !== name(first));
  const behind = others.filter((r) => r.answer.verdict !== first.answer.verdict);
  const machine = (r: PlanReport): string => `${r.settings.gpus} ${r.device.name}`;
  const cheaper = others.filter(
    (r) => !behind.includes(r) && speed(r) > 0 && (priced ? hour(r) < hour(first) : machine(r) !== machine(first)),
  );
  const words = priced
    ? 'cheaper an hour, dearer a token at the slow end: ' +
      `${cheaper.map((r) => `${name(r)} ($${brief(hour(r))} for ${share(r)} of ${name(first)}'s tokens)`).join(', ')}`
    : `cheaper a token, at the slow end, only where an hour costs less than this share of ${name(first)}'s: ` +
      `${cheaper.map((r) => `${name(r)} ${share(r)}`).join(', ')}`;
  return present([
    cheaper.length > 0 && words,
    ...behind.map((r) => `${name(r)}: ${missedWords(r) ?? r.answer.reason}`),
  ]);
}

/** What words call a run. */
type Name = (r: PlanReport) => string;

/** A run by its GPU, and by its model, the number of GPUs and its label where these differ. */
function nameIn(differ: Differ, labelOf: Name): Name {
  const [models, counts, labels] = [differ((r) => r.model.name), differ((r) => r.settings.gpus), differ(labelOf)];
  return (r) =>
    (models ? `${r.model.name} on ` : '') +
    (counts ? `${r.settings.gpus} × ` : '') +
    deviceName(r) +
    (labels && labelOf(r) !== '' ? ` (${labelOf(r)})` : '');
}

/** Which target keeps a GPU from every plan: of the full cache, where that fits. */
function missedWords({ answer, removed }: PlanReport): string | null {
  const miss = removed.find(({ id }) => id.startsWith('full/')) ?? removed[0];
  return answer.verdict === 'nothing' && miss ? `${miss.id} misses ${miss.target}: ${miss.reason}` : null;
}

/** ` with kv-quant-4bit ($1.2 with full cache)`: the plan of a run that leads with another than the first. */
function unlikeWords(first: PlanReport, of: PlanReport, priced: boolean, value: (of: Interval) => string): string {
  const [own, other] = [leadRow(first), leadRow(of)];
  if (!own || !other || own.codec.label === other.codec.label) return '';
  const same = figuresOf(of.plans.find((p) => p.id === own.id) ?? null);
  const figure = priced ? same?.usdPerMillionTokens : same?.tokensPerSecond;
  return ` with ${other.codec.label}${figure ? ` (${value(figure)} with ${leadOf(first)!.name})` : ''}`;
}

/** Which run of a context wins, by how much over the next, and whether intervals tell them apart. */
function bestWords(sorted: readonly PlanReport[], priced: boolean, differ: Differ, apartBy: Name): string {
  const [first, second] = sorted as [PlanReport, PlanReport | undefined];
  const name = (r: PlanReport): string =>
    `${apartBy(r)}${differ((x) => x.settings.cacheType) ? ` in ${r.settings.cacheType}` : ''}`;
  const at = differ((x) => x.contextTokens) ? ` at ${formatTokens(first.contextTokens)}` : '';
  const lead = leadOf(first);
  if (!lead) return `nothing fits anywhere${at}`;
  const { verdict } = first.answer;
  const none = verdict === 'not-recommended' ? 'nothing recommended; fastest that fits: ' : '';
  const row = leadRow(first);
  const timed = figuresOf(row)?.tokensPerSecond;
  const speed = timed ? `${brief(timed.estimate)} tok/s` : `${row?.maxBatch.exact ?? 0} fit, its speed is not known`;
  const on = row?.servedBy ? ` on ${row.servedBy}` : '';
  const by = timed && verdict === 'estimates-only' ? ', by estimates' : '';
  const start = `${none}${name(first)}${at}: ${lead.name}${on}${by}, ${speed}`;
  const usd = priced ? figuresOf(row)?.usdPerMillionTokens : null;
  const price = usd ? `, $${brief(usd.estimate)} a million output tokens` : '';
  const [a, b] = [figuresOf(row), second ? figuresOf(leadRow(second)) : null];
  const [x, y] = priced ? [a?.usdPerMillionTokens, b?.usdPerMillionTokens] : [a?.tokensPerSecond, b?.tokensPerSecond];
  if (!second || !x || !y) return start + price;
  const apart = x.low > y.high || y.low > x.high;
  const value = (of: Interval): string => (priced ? `$${brief(of.estimate)}` : `${brief(of.estimate)} tok/s`);
  const slowEnd = ({ low, high }: Interval): string => (priced ? `$${brief(high)}` : `${brief(low)} tok/s`);
  return (
    `${start}${price}; next ${name(second)}, ` +
    `${value(y)}${unlikeWords(first, second, priced, value)}${behind(first, second)}` +
    (apart ? '' : ` (their intervals overlap; at the slow end ${slowEnd(x)} and ${slowEnd(y)})`)
  );
}
