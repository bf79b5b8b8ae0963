/** More of one row for a terminal: the explanation of its step, its figures by batch. */
import { KERNELS } from '../../../kernels/registry.js';
import { widthOf, type CallExplanation, type LeftOut, type WidthContribution } from '../../cost/explain.js';
import { isEstimate, type Interval } from '../../cost/evidence.js';
import type { Explained } from '../../plan/evaluate/explain.js';
import { formatCount, formatMilliseconds, formatNumber } from '../../numbers/units.js';
import { columns, right, wrap, type Column } from './text.js';
import type { DecodeFigures, Plan, PlanReport } from '../../plan/types.js';
import { timeLabel } from '../../plan/words/words.js';
import type { Sweep } from '../plan-json.js';
import { usdLabel } from '../plan-rows.js';

const INDENT = '   ';
/** Schedules count activations as f32; servers send 16 bits of each. */
const F32_BYTES = 4;
/** Whose prices are those of the program's own kernels. */
const OURS = 'lla-sim';
/** Kernels that are named of those of the weakest evidence, and the share of the time that is all of it. */
const NAMED = 4;
const ALL = 0.995;
/** A smaller factor of a residual is no news. */
const RESIDUAL_TOLD = 0.005;

/** A part of a law under this share of the longest one decides nothing, and the fit leaves it free. */
const DECIDES_NOTHING = 0.1;

/** Microseconds below a millisecond. */
const inUnit = (seconds: number): [string, string] => {
  if (seconds < 1e-3) return [formatNumber(seconds * 1e6), 'µs'];
  return seconds < 10 ? [formatMilliseconds(seconds), 'ms'] : [formatNumber(seconds), 's'];
};
const time = (seconds: number): string => inUnit(seconds).join(' ');

/** The unit stands once where it is the same. */
const range = ({ estimate, low, high }: Interval): string => {
  const [least, most] = [inUnit(low), inUnit(high)];
  return `${time(estimate)} (${least[1] === most[1] ? least[0] : least.join(' ')} to ${most.join(' ')})`;
};

/** Rounded: what is told comes to the whole. */
const share = (of: number): string => `${Math.round(100 * of)} %`;

/** As a factor: 1.120 for a half-width of 12 %. */
const factor = (by: number): string => (by < 2 ? by.toFixed(3) : formatNumber(by));

/** Sizes that are not 0 or 1. */
const sizes = (shape: Readonly<Record<string, number>>, names: readonly string[] = Object.keys(shape)): string =>
  names
    .filter((name) => (shape[name] ?? 0) > 1)
    .map((name) => `${name} ${formatNumber(shape[name]!)}`)
    .join(', ');

/** @param width columns of the terminal */
export function explainText(e: Explained, { width }: { readonly width: number }): string {
  const { kernels, share: ofTime } = e.weakest;
  const some = kernels.length > NAMED ? `${kernels.slice(0, NAMED).join(', ')} …` : kernels.join(', ');
  const weakest = ofTime > ALL || e.evidence === 'measured' ? '' : ` (${some}: ${share(ofTime)} of the time)`;
  const attainable = e.contributions.some(({ evidence }) => isEstimate(evidence))
    ? '; kernels that nobody measured are taken to be wrong all in the same direction: they are one term, the sum of ' +
      'their widths, and each has its part of it'
    : '';
  const { floor } = e;
  const ends = floor && FLOOR_ENDS[endsOf(floor.kernels, e.secondsPerStep)];
  const servers = floor
    ? `${ends} a factor of ${factor(Math.exp(widthOf(floor.leftOut)))} away, within which 90 % of a group of ` +
      `published steps lay: ${floor.leftOut.map(({ what }) => what).join(', ')}. By its kernels alone it would be ` +
      `${range(floor.kernels)}; of either end the wider counts. `
    : '';
  const head =
    `${e.planId} on ${e.device} at ${e.batch} sequences of ${e.contextTokens} tokens: a step takes ` +
    `${range(e.secondsPerStep)}, at weakest ${e.evidence}${weakest}. ${servers}What makes ` +
    `${floor ? 'its kernels’ interval' : 'the interval'} that wide (shares of the squared distance to the slow ` +
    `end${attainable}):`;
  const others = `${e.contributions.length + 1}. ${share(e.shareOfOthers)}: all others`;
  return [
    ...wrap(head, width),
    ...e.contributions.flatMap((c, i) => contribution(c, i + 1, width)),
    ...(e.shareOfOthers > 0 ? [others] : []),
    ...wrap(remedy(e), width),
    '',
  ].join('\n');
}

/** Which ends of a step whole servers set. */
type Ends = 'fast' | 'slow' | 'both';
const FLOOR_ENDS: Readonly<Record<Ends, string>> = {
  fast: 'Its fast end is',
  slow: 'Its slow end is',
  both: 'Both ends are',
};

function endsOf(kernels: Interval, step: Interval): Ends {
  if (kernels.high >= step.high) return 'fast';
  return kernels.low <= step.low ? 'slow' : 'both';
}

/** What would make it surer: where kernels set an end, a time of the widest; where servers do, rows. */
function remedy({ floor, contributions, secondsPerStep }: Explained): string {
  const [first] = contributions;
  const ends = floor ? endsOf(floor.kernels, secondsPerStep) : null;
  const isServer = first?.kernel === 'server' || first?.kernel === 'step-overhead';
  const rows = ends !== null || isServer ? ['To check: rows of your own server (lla-sim accuracy --ledger).'] : [];
  if (ends === 'both' || isServer || !first?.call) return rows.join('');
  const { kernel, call } = first;
  const which = ends === null ? 'it' : `the ${ends === 'fast' ? 'slow' : 'fast'} end`;
  const where =
    call.data === null ? 'on this GPU at the sizes above' : `on this GPU at or near ${sizes(call.data.asked)}`;
  return [`To narrow ${which}: time ${kernel} ${where}; lla-sim import csv takes a table of it.`, ...rows].join(' ');
}

function contribution(c: WidthContribution, place: number, width: number): string[] {
  const begins = `${place}. ${share(c.shareOfWidth)}: `;
  const told = (head: string, lines: readonly string[]): string[] => [
    ...wrap(begins + head, width, INDENT),
    ...lines.flatMap((text) => wrap(text, width - INDENT.length, INDENT).map((line) => INDENT + line)),
  ];
  if (c.kernel === 'server')
    return told(`whole servers of ${c.by}, beyond what their kernels and hosts explain`, [widthLine(c.leftOut, null)]);
  const seconds = c.seconds ? range(c.seconds) : '';
  if (c.kernel === 'step-overhead') {
    const { host } = c;
    const most = c.seconds?.estimate === 0 ? `up to ${time(c.seconds.high)}, mostly hidden behind the GPU` : seconds;
    return told(
      `the server’s own work, ${c.by}, ${c.evidence}: ${most}`,
      host
        ? [`its host launches a kernel in ${range(host.secondsPerLaunch)}: ${hostSource(host.row)}`]
        : ['of the published steps of servers a tenth needed less, and a tenth more'],
    );
  }
  const by = c.by === c.evidence ? c.by : `by ${c.by}, ${c.evidence}`;
  const head = `${c.kernel}, ${c.calls} calls, ${by}: ${seconds}`;
  if (c.exchange) {
    const { kind, bytesEach, gpus, times } = c.exchange;
    const values = formatCount(bytesEach / F32_BYTES);
    const which = `${kind} of ${values} values over ${gpus} GPUs`;
    return told(head, [
      `adds most: ${times} × ${range(c.exchange.seconds)}, ${c.exchange.evidence}: ${which}`,
      ...explained(c.exchange),
    ]);
  }
  if (!c.call) return told(head, []);
  const { kernel, variant, shape, times } = c.call;
  // How a sequence is divided is our kernels' own; a server's choose for themselves.
  const dims = KERNELS[kernel].dims.filter((name) => c.by === OURS || name !== 'splits');
  const which = `${variant}, ${sizes(shape, dims)}`;
  return told(head, [
    `adds most: ${times} × ${range(c.call.seconds)}, ${c.call.evidence}: ${which}`,
    ...explained(c.call),
  ]);
}

const hostSource = (row: string | null): string =>
  row === null ? 'no host beside such a GPU was measured' : `row ${row} of the ledger`;

function explained(of: CallExplanation & { readonly seconds: Interval }): string[] {
  const { law, data, leftOut, seconds, rule } = of;
  const [first, ...all] = law.parts;
  const longest = Math.max(...all.map((p) => p.seconds));
  const [others, idle] = [
    all.filter((p) => p.seconds >= DECIDES_NOTHING * longest),
    all.filter((p) => p.seconds < DECIDES_NOTHING * longest),
  ];
  const listed = others.map((p) => `${p.part} ${time(p.seconds)}`);
  const parts =
    law.kind === 'sum' || listed.length < 2 ? listed : [`a little more than the longest of ${listed.join(', ')}`];
  const decided =
    law.kind === 'longest' && idle.length > 0 ? ` (${idle.map((p) => p.part).join(', ')}: negligible)` : '';
  const sum = [first ? `${first.part} ${time(first.seconds)}` : 'none', ...parts].join(' + ');
  const total = all.length === 0 ? '' : `${time(law.seconds)} = `;
  const alone = rule?.from ?? seconds.estimate;
  const by = law.seconds > 0 ? alone / law.seconds : 1;
  const residual =
    Math.abs(Math.log(by)) < RESIDUAL_TOLD ? '' : `; data near this call: × ${factor(by)}, ${time(alone)}`;
  return [
    `law: ${total}${sum}${decided}${residual}`,
    data
      ? `data: ${data.points} shapes ${data.source ? `kept of those by ${data.source}` : 'measured'}${nearest(data)}`
      : `data: none of such calls; law of ${law.of ?? 'none'}`,
    widthLine(leftOut, seconds),
    ...(rule
      ? [
          `then ${time(rule.from)} becomes ${time(seconds.estimate)}, and its interval grows with it: ${rule.what}; ` +
            'how far this rule is off is in the width of whole servers',
        ]
      : []),
  ];
}

function nearest({ asked, nearest, octavesAway }: NonNullable<CallExplanation['data']>): string {
  const names = Object.keys(asked);
  return octavesAway === 0
    ? ', this call among them'
    : `; this call is one of ${sizes(asked)}; the nearest, ${formatNumber(octavesAway)} octaves away, has ` +
        sizes(nearest, names);
}

/** The width, and what was left out to find it, each with the factor within which it lets 90 % come. */
function widthLine(leftOut: readonly LeftOut[], seconds: Interval | null): string {
  const by = ({ what, halfWidth }: LeftOut): string => `× ${factor(Math.exp(halfWidth))} (${what})`;
  const that = (enters: LeftOut['enters']): LeftOut[] => leftOut.filter((l) => l.enters === enters);
  const [found, added, instead] = [that('widest'), that('added'), that('instead')];
  // What asks for no more than the first decides nothing.
  const least = found[0]?.halfWidth ?? 0;
  const widest = found.filter((l, i) => i === 0 || l.halfWidth > least + RESIDUAL_TOLD / 5);
  const [below, above] = seconds
    ? [factor(seconds.estimate / seconds.low), factor(seconds.high / seconds.estimate)]
    : [null, factor(Math.exp(widthOf(leftOut)))];
  const ends = below === null || below === above ? `÷ and × ${above}` : `÷ ${below} and × ${above}`;
  if (leftOut.length === 1 && found.length === 1)
    return `width: ${ends}: 90 % came within it when left out: ${leftOut[0]!.what}`;
  const parts = [
    widest.length === 0 ? '' : `told by leaving out: ${widest.map(by).join(', ')}`,
    widest.length > 1 ? 'the widest counts' : '',
    added.length === 0 ? '' : `on top of that ${added.map(by).join(', ')}`,
    instead.length === 0 ? '' : `instead of that ${instead.map(by).join(', ')}`,
  ];
  return `width: ${ends}: ${parts.filter((part) => part !== '').join('; ')}`;
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
