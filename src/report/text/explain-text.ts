/** More of one row for a terminal: the explanation of its step, its figures by batch. */
import { KERNELS } from '../../../kernels/registry.js';
import type { CallExplanation, WidthContribution } from '../../cost/explain.js';
import type { Interval } from '../../cost/evidence.js';
import type { Explained } from '../../plan/evaluate/explain.js';
import { formatCount, formatMilliseconds, formatNumber } from '../../numbers/units.js';
import { columns, right, shareText, wrap, type Column } from './text.js';
import type { DecodeFigures, Plan, PlanReport } from '../../plan/types.js';
import { timeLabel } from '../../plan/words/words.js';
import type { Sweep } from '../plan-json.js';
import { usdLabel } from '../plan-rows.js';

const INDENT = '   ';
/** Schedules count activations as f32; servers send 16 bits of each. */
const F32_BYTES = 4;
/** A smaller factor of a residual is no news. */
const RESIDUAL_TOLD = 0.005;

const range = ({ estimate, low, high }: Interval): string => `${time(estimate)} (${time(low)} to ${time(high)})`;

/** Microseconds below a millisecond. */
const time = (seconds: number): string =>
  seconds < 1e-3 ? `${formatNumber(seconds * 1e6)} µs` : `${formatMilliseconds(seconds)} ms`.replace('s ms', 's');

/** Sizes that are not 0 or 1. */
const sizes = (shape: Readonly<Record<string, number>>, names: readonly string[] = Object.keys(shape)): string =>
  names
    .filter((name) => (shape[name] ?? 0) > 1)
    .map((name) => `${name} ${shape[name]}`)
    .join(', ');

/** @param width columns of the terminal */
export function explainText(e: Explained, { width }: { readonly width: number }): string {
  const head =
    `${e.planId} at ${e.batch} sequences of ${e.contextTokens} tokens: ${range(e.secondsPerStep)} a step, ` +
    `${e.evidence}. What makes it unsure:`;
  const others = `${e.contributions.length + 1}. ${shareText(e.shareOfOthers)}: all others`;
  return [
    ...wrap(head, width),
    ...e.contributions.flatMap((c, i) => contribution(c, i + 1, width)),
    ...(e.shareOfOthers > 0 ? [others] : []),
    '',
  ].join('\n');
}

function contribution(c: WidthContribution, place: number, width: number): string[] {
  const share = `${place}. ${shareText(c.shareOfWidth)}: `;
  const lines = (text: string): string[] => wrap(text, width - INDENT.length, INDENT).map((line) => INDENT + line);
  if (c.kernel === 'server')
    return wrap(`${share}whole servers of ${c.by}: no step is surer than theirs were when left out`, width, INDENT);
  const head = `${share}${c.kernel}, ${c.calls} calls by ${c.by}, ${c.evidence}: ${c.seconds ? range(c.seconds) : ''}`;
  if (c.exchange) {
    const { kind, bytesEach, gpus, times, seconds } = c.exchange;
    const values = formatCount(bytesEach / F32_BYTES);
    const exchange = `call: ${kind} of ${values} values over ${gpus} GPUs: ${times} × ${range(seconds)}`;
    return [...wrap(head, width, INDENT), ...[exchange, ...explained(c.exchange, seconds)].flatMap(lines)];
  }
  if (!c.call) return wrap(head, width, INDENT);
  const { kernel, variant, shape, times, seconds } = c.call;
  const call = `call: ${variant}, ${sizes(shape, KERNELS[kernel].dims)}: ${times} × ${range(seconds)}`;
  return [...wrap(head, width, INDENT), ...[call, ...explained(c.call, seconds)].flatMap(lines)];
}

function explained({ law, data, leftOut }: CallExplanation, { estimate }: Interval): string[] {
  const [first, ...others] = law.parts.map((p) => `${p.part} ${time(p.seconds)}`);
  const parts = law.kind === 'sum' || others.length < 2 ? others : [`the longest of ${others.join(', ')}`];
  const total = others.length === 0 ? '' : ` = ${time(law.seconds)}`;
  const factor = law.seconds > 0 ? estimate / law.seconds : 1;
  const residual = Math.abs(Math.log(factor)) < RESIDUAL_TOLD ? '' : `; data near it: × ${factor.toFixed(2)}`;
  return [
    `law: ${[first ?? 'none', ...parts].join(' + ')}${total}${residual}`,
    data
      ? `data: ${data.points} shapes; the nearest, ${formatNumber(data.octavesAway)} octaves away: ` +
        `${sizes(data.nearest)}`
      : 'data: none of this kernel',
    ...leftOut.map(({ what, halfWidth, enters }) => {
      const word = enters === 'added' ? 'and ' : enters === 'instead' ? 'instead ' : '';
      return `left out: ${what}: ${word}± ${formatNumber(100 * Math.expm1(halfWidth))} %`;
    }),
  ];
}

export function sweepText(report: PlanReport, sweeps: readonly Sweep[]): string {
  return sweeps
    .map(({ planId, points }) => {
      const plan = report.plans.find((p) => p.id === planId) as Plan;
      const spec: Column<DecodeFigures>[] = [
        right(' ', (d) => (d.batch === plan.knee?.batch ? '>' : ' ')),
        right('batch', (d) => String(d.batch)),
        right('ms/token', (d) => timeLabel(d.secondsPerStep)),
        right('tok/s', (d) => (d.tokensPerSecond ? formatCount(d.tokensPerSecond.estimate) : '–')),
        right('a user', (d) => (d.secondsPerStep ? formatNumber(1 / d.secondsPerStep.estimate) : '–')),
        ...(report.settings.usdPerHour === null ? [] : [right<DecodeFigures>('$/Mtok', usdLabel)]),
      ];
      return `${planId}, by batch (> the operating point)\n${columns(spec, points).join('\n')}\n`;
    })
    .join('\n');
}
