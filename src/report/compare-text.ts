/** Several plans side by side: what each device, context or cache type would be deployed with. */
import pc from 'picocolors';
import type { Choice, Plan, PlanReport } from '../plan/types.js';
import { shownDecode } from '../plan/words.js';
import { formatTokens } from '../units.js';
import { brief, milliseconds, paragraph } from './answer-text.js';
import { columns, wrap, type Column } from './text.js';

/** What a report puts first: what runs today, else the best estimate, else the cheapest that fits. */
const leadOf = ({ answer }: PlanReport): Choice | null => answer.deploy ?? answer.upside ?? answer.fallback;

const rowOf = (report: PlanReport, choice: Choice | null): Plan | null =>
  report.plans.find((p) => p.id === choice?.planId) ?? null;

const figuresOf = (report: PlanReport, choice: Choice | null) => {
  const p = rowOf(report, choice);
  return p ? shownDecode(p) : null;
};

/** Cheapest first where all have a price, else fastest; what runs today before what does not. */
function order(a: PlanReport, b: PlanReport): number {
  const rank = ({ answer }: PlanReport): number =>
    ['deploy', 'estimates-only', 'not-recommended', 'nothing'].indexOf(answer.verdict);
  const value = (r: PlanReport): number => {
    const d = figuresOf(r, leadOf(r));
    return d?.usdPerMillionTokens?.estimate ?? -(d?.tokensPerSecond?.estimate ?? 0);
  };
  return rank(a) - rank(b) || value(a) - value(b);
}

/** One line a run, best first, below the one that wins. */
export function compareText(
  reports: readonly PlanReport[],
  { width, colour }: { width: number; colour: boolean },
): string {
  const c = pc.createColors(colour);
  const sorted = [...reports].sort(order);
  const differ: Differ = (of) => new Set(reports.map(of)).size > 1;
  const column = (
    title: string,
    cell: (r: PlanReport) => string,
    align: 'left' | 'right' = 'right',
  ): Column<PlanReport> => ({
    title,
    align,
    cell,
  });
  const lead = (r: PlanReport) => figuresOf(r, leadOf(r));
  const priced = reports.some((r) => r.settings.usdPerHour !== null);
  const spec = (narrow: boolean): Column<PlanReport>[] => [
    column('device', (r) => r.device.id ?? r.device.name, 'left'),
    ...(differ((r) => r.contextTokens) ? [column('ctx', (r) => formatTokens(r.contextTokens))] : []),
    ...(differ((r) => r.settings.cacheType) ? [column('cache', (r) => r.settings.cacheType, 'left')] : []),
    column('plan', (r) => rowOf(r, leadOf(r))?.codec.label ?? '–', 'left'),
    ...(narrow ? [] : [column('kernels', (r) => rowOf(r, leadOf(r))?.servedBy ?? 'none', 'left')]),
    column('fits', (r) => String(rowOf(r, leadOf(r))?.maxBatch.exact ?? 0)),
    column('run', (r) => String(lead(r)?.batch ?? '–')),
    column('ms/token', (r) => {
      const s = lead(r)?.secondsPerStep;
      return s
        ? `${milliseconds(s.estimate)}${narrow ? '' : ` (${milliseconds(s.low)}–${milliseconds(s.high)})`}`
        : '–';
    }),
    column('tok/s', (r) => rate(r, leadOf(r))),
    ...(priced
      ? [
          column('$/Mtok', (r) => {
            const usd = lead(r)?.usdPerMillionTokens;
            return usd ? `${brief(usd.estimate)}${narrow ? '' : ` (${brief(usd.low)}–${brief(usd.high)})`}` : '–';
          }),
        ]
      : []),
    column('upside', (r) => rowOf(r, r.answer.upside)?.codec.label ?? '–', 'left'),
    ...(narrow ? [] : [column('tok/s', (r) => rate(r, r.answer.upside))]),
  ];
  const wide = columns(spec(false), sorted);
  const table = wide.every((l) => l.length <= width) ? wide : columns(spec(true), sorted);
  const first = sorted[0] as PlanReport;
  const question = `${first.model.name}, ${[...new Set(reports.map((r) => formatTokens(r.contextTokens)))].join(', ')} tokens a sequence, on ${[...new Set(reports.map((r) => r.device.id ?? r.device.name))].join(', ')}`;
  return `${[
    ...wrap(question, width, '  ').map(c.bold),
    ...paragraph({ label: 'Best', text: bestWords(sorted, priced, differ) }, width).map(c.green),
    '',
    ...table.map((l, i) => (i === 0 ? c.bold(l) : l)),
  ].join('\n')}\n`;
}

const rate = (r: PlanReport, choice: Choice | null): string => {
  const rate = figuresOf(r, choice)?.tokensPerSecond;
  return rate ? brief(rate.estimate) : '–';
};

/** Whether runs differ in something. */
type Differ = (of: (r: PlanReport) => unknown) => boolean;

/** Which run wins, by how much over the next, and whether intervals tell them apart. */
function bestWords(sorted: readonly PlanReport[], priced: boolean, differ: Differ): string {
  const [first, second] = sorted as [PlanReport, PlanReport | undefined];
  const name = (r: PlanReport): string =>
    `${r.device.id ?? r.device.name}${differ((x) => x.contextTokens) ? ` at ${formatTokens(r.contextTokens)}` : ''}${differ((x) => x.settings.cacheType) ? ` in ${r.settings.cacheType}` : ''}`;
  const lead = leadOf(first);
  if (!lead) return 'nothing fits anywhere';
  const what = { deploy: '', 'estimates-only': ', by estimates', 'not-recommended': ', not recommended', nothing: '' };
  const on = rowOf(first, lead)?.servedBy;
  const start = `${name(first)}: ${lead.name}${on ? ` on ${on}` : ''}${what[first.answer.verdict]}, ${rate(first, lead)} tok/s`;
  const usd = priced ? figuresOf(first, lead)?.usdPerMillionTokens : null;
  const price = usd ? `, $${brief(usd.estimate)} a million tokens` : '';
  const [a, b] = [figuresOf(first, lead), second ? figuresOf(second, leadOf(second)) : null];
  const [x, y] = priced ? [a?.usdPerMillionTokens, b?.usdPerMillionTokens] : [a?.tokensPerSecond, b?.tokensPerSecond];
  if (!second || !x || !y) return start + price;
  const apart = x.low > y.high || y.low > x.high;
  return `${start}${price}; next ${name(second)}, ${priced ? `$${brief(y.estimate)}` : `${brief(y.estimate)} tok/s`}${apart ? '' : ' (their intervals overlap)'}`;
}
