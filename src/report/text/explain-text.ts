/** More of one row for a terminal: the explanation of its step, its figures by batch. */
import { KERNELS } from '../../../kernels/registry.js';
import { widthOf, type CallExplanation, type LeftOut, type WidthContribution } from '../../cost/explain.js';
import { isEstimate, type Interval } from '../../cost/evidence.js';
import type { Host } from '../../cost/latency.js';
import type { Explained } from '../../plan/evaluate/explain.js';
import { formatCount, formatFactor, formatMilliseconds, formatNumber } from '../../numbers/units.js';
import { columns, right, wrap, type Column } from './text.js';
import type { DecodeFigures, Plan, PlanReport } from '../../plan/types.js';
import { present } from '../../present.js';
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
/** What a call takes that has nothing to do; none where a neighbour's kernel does it on the way. */
const FLOORS = ['floor', 'launch'];
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

type Sizes = Readonly<Record<string, number>>;

/** Sizes that are not 0 or 1. */
const sizes = (shape: Sizes, names: readonly string[] = Object.keys(shape)): string =>
  names
    .filter((name) => (shape[name] ?? 0) > 1)
    .map((name) => `${name} ${formatNumber(shape[name]!)}`)
    .join(', ');

/** @param width columns of the terminal */
export function explainText(e: Explained, { width }: { readonly width: number }): string {
  const { kernels, share: ofTime } = e.weakest;
  const some = kernels.length > NAMED ? `${kernels.slice(0, NAMED).join(', ')} …` : kernels.join(', ');
  const isAll = ofTime > ALL || e.evidence === 'measured';
  const word = isAll ? e.evidence : `${e.evidence}, as ${share(ofTime)} of its time is that or less sure (${some})`;
  const { floor } = e;
  const ends = floor && FLOOR_ENDS[endsOf(floor.kernels, e.secondsPerStep)];
  const servers = floor
    ? ` ${ends} set by whole servers: of published steps 90 % came within × ${formatFactor(widthOf(floor.leftOut))} ` +
      `of their predictions in the worst group (${floor.leftOut.map(({ what }) => what).join(', ')}). Without them ` +
      `it would take ${range(floor.kernels)}; of each end the wider counts.`
    : '';
  const asOne = e.contributions.some(({ evidence }) => isEstimate(evidence))
    ? 'Attainable is what tuned kernels would take, which nobody measured: slower ones may lie outside. They are ' +
      `assumed to err all to one side: their distances to the slow end add up to ${time(e.unmeasuredSeconds)}, and a ` +
      "share is its distance times that, over the square of the step's."
    : '';
  const isLeftOut = e.contributions.some(({ leftOut, call, exchange }) =>
    [...leftOut, ...(call?.leftOut ?? []), ...(exchange?.leftOut ?? [])].some(({ what }) => what.includes('left out')),
  );
  const head =
    `${e.planId} of ${e.model} on ${e.gpus > 1 ? `${e.gpus} × ` : ''}${e.device}, ${e.batch} sequences of ` +
    `${e.contextTokens} tokens: a step takes ${range(e.secondsPerStep)}, ${word}.${servers} What makes ` +
    `${floor ? 'the kernels' : 'it'} that unsure, with shares of the squared distance to the slow end:`;
  const others = `${e.contributions.length + 1}. ${share(e.shareOfOthers)}: all others`;
  return [
    ...wrap(head, width),
    ...e.contributions.flatMap((c, i) => contribution(c, i + 1, width, e.secondsPerStep)),
    ...(e.shareOfOthers > 0 ? [others] : []),
    ...(asOne ? wrap(asOne, width) : []),
    ...(isLeftOut ? wrap(LEFT_OUT, width) : []),
    ...wrap(remedy(e), width),
    '',
  ].join('\n');
}

const LEFT_OUT =
  'Left out: taken from the data, predicted from the rest, compared. "Came within" holds for 90 % of it, unless ' +
  'another share is told.';

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
  const rows = 'Rows of your own server check these times, and narrow nothing (lla-sim accuracy --ledger).';
  if (first?.host && first.host.step === null)
    return 'To narrow it: time a token of one sequence on your server, kernels launched one by one: --measured-step.';
  const which = ends === null ? 'it' : `the ${ends === 'fast' ? 'slow' : 'fast'} end`;
  return present([
    ends !== 'both' &&
      !isServer &&
      first?.call &&
      (contributions.some(({ by }) => by === 'lla-sim')
        ? `To narrow ${which}: lla-sim calibrate --kernel ${first.kernel} --resume, on the machine of the calibration.`
        : `To narrow ${which}: time ${first.kernel} on this device at the sizes above; lla-sim import csv takes a ` +
          'table of it.'),
    (ends !== null || isServer) && rows,
  ]).join(' ');
}

/** Of a line that goes on. */
const HANGING = '  ';

function contribution(c: WidthContribution, place: number, width: number, step: Interval): string[] {
  const told = (head: string, lines: readonly string[]): string[] => [
    ...wrap(`${place}. ${share(c.shareOfWidth)}: ${head}`, width, INDENT),
    ...lines.flatMap((text) => wrap(text, width - INDENT.length, HANGING).map((line) => INDENT + line)),
  ];
  if (c.kernel === 'server') {
    const whole = step.high - step.estimate;
    const without = whole * Math.sqrt(1 - c.shareOfWidth);
    return told(`whole servers of ${c.by}, beyond their kernels and host`, [
      ...widthLines(c.leftOut, null),
      `slow end: + ${time(whole)} with this, + ${time(without)} without; its share is 1 − (without ÷ with)²`,
    ]);
  }
  const seconds = c.seconds ? range(c.seconds) : '';
  if (c.kernel === 'step-overhead') {
    const { host } = c;
    const most = c.seconds?.estimate === 0 ? `0 to ${time(c.seconds.high)} beside the GPU's` : seconds;
    return told(`the server’s own work, ${c.by}, ${c.evidence}: ${most}`, [
      host
        ? `data: its host launches a kernel in ${range(host.secondsPerLaunch)}: ${hostSource(host)}`
        : 'data: what published steps of its servers took beyond their kernels: 80 % of them lie in that range',
    ]);
  }
  const by = c.by === c.evidence ? c.by : `by ${c.by}, ${c.evidence}`;
  const head = `${c.kernel}, ${c.calls} calls, ${by}: ${seconds} together`;
  const widest = (times: number, one: Interval, which: string): string =>
    `${times === c.calls ? 'all alike' : `the ${times} that add most`}, each ${range(one)}: ${which}`;
  if (c.exchange) {
    const { kind, bytesEach, gpus, times } = c.exchange;
    const which = `${kind} of ${formatCount(bytesEach / F32_BYTES)} values over ${gpus} GPUs`;
    return told(head, [widest(times, c.exchange.seconds, which), ...explained(c.exchange, {})]);
  }
  if (!c.call) return told(head, []);
  const { kernel, variant, shape, times } = c.call;
  // How a sequence is divided is our kernels' own; a server's choose for themselves.
  const dims = KERNELS[kernel].dims.filter((name) => c.by === OURS || name !== 'splits');
  const which = `${variant}, ${sizes(shape, dims)}`;
  return told(head, [widest(times, c.call.seconds, which), ...explained(c.call, shape)]);
}

const hostSource = ({ row, step }: Host): string =>
  row !== null
    ? `row ${row} of the ledger`
    : step !== null
      ? `by --measured-step ${step}`
      : 'no host beside such a GPU was measured';

const MORE_SEQUENCES = 'measured calls of more sequences (the L2 may have held the cache of so few)';

function explained(of: CallExplanation & { readonly seconds: Interval }, shape: Sizes): string[] {
  const { law, data, leftOut, seconds, rule } = of;
  const first = law.parts.find((p) => FLOORS.includes(p.part));
  const all = law.parts.filter((p) => p !== first);
  const longest = Math.max(...all.map((p) => p.seconds));
  const decisive = all.filter((p) => p.seconds >= DECIDES_NOTHING * longest);
  const listed = decisive.map((p) => `${p.part} ${time(p.seconds)}`);
  const parts =
    law.kind === 'sum' || listed.length < 2
      ? listed
      : [`${listed.join(' and ')} side by side (their fourth powers add)`];
  const sum = present([first && `launch ${time(first.seconds)}`, ...parts]).join(' + ');
  const alone = rule?.from ?? seconds.estimate;
  const residual = law.seconds > 0 ? Math.log(alone / law.seconds) : 0;
  const near =
    Math.abs(residual) < RESIDUAL_TOLD
      ? law.warm
        ? ', and by that alone: the L2 may have held what measured calls of this size read again'
        : ''
      : `; ${law.warm ? MORE_SEQUENCES : 'measured shapes'} move it × ${formatFactor(residual)}, to ${time(alone)}`;
  return present([
    data
      ? `data: ${data.points} shapes ${data.source ? `of ${data.source}` : 'measured'}${nearest(data, shape)}`
      : `data: none of this very call; its law was fitted to ${law.of ?? 'nothing'}`,
    ...widthLines(leftOut, seconds),
    of.fastEnd &&
      `fast end: that of memory, whose bytes take ${time(of.fastEnd.memorySeconds)} at the full bandwidth, less ` +
        `${time(of.fastEnd.cachedSeconds)} of what the L2 may hold`,
    `time: ${sum}${all.length === 0 ? '' : ` = ${time(law.seconds)}`} by the law of its kind${near}`,
    rule &&
      `rule: ${rule.what}, so that ${time(rule.from)} becomes ${time(seconds.estimate)}` +
        (rule.counted
          ? ''
          : ', with the same factors; how far this is off counts in the width of whole servers, not here'),
  ]);
}

/** Where a call lies beside the nearest measured one: what it is to the data, and in which sizes that differs. */
function nearest({ asked, nearest, octavesAway }: NonNullable<CallExplanation['data']>, shape: Sizes): string {
  if (octavesAway === 0) return ', this call among them';
  const differ = Object.keys(asked).filter((name) => asked[name] !== nearest[name]);
  const alike = Object.keys(asked).every((name) => asked[name] === shape[name]);
  return `; ${alike ? '' : `there the call is ${sizes(asked)}; `}the nearest has ${sizes(nearest, differ)}`;
}

/** The width, and the factors that it is made of, with what was left out to find each. */
function widthLines(leftOut: readonly LeftOut[], seconds: Interval | null): string[] {
  const enters = (how: LeftOut['enters']): LeftOut[] => leftOut.filter((l) => l.enters === how);
  const [instead] = enters('instead');
  // What asks for no more than the first decides nothing.
  const widest = enters('widest').reduce<LeftOut | null>(
    (best, l) => (best === null || l.halfWidth > best.halfWidth + RESIDUAL_TOLD / 5 ? l : best),
    null,
  );
  const parts = instead ? [instead] : present([widest, ...enters('added')]);
  const [below, above] = seconds
    ? [formatFactor(Math.log(seconds.estimate / seconds.low)), formatFactor(Math.log(seconds.high / seconds.estimate))]
    : [null, formatFactor(widthOf(leftOut))];
  const ends = below === null || below === above ? `÷ and × ${above}` : `÷ ${below} and × ${above}`;
  const [only, ...more] = parts;
  if (!only) return [];
  if (more.length === 0) return [`width: ${ends}: ${only.what}`];
  const product = parts.map((part) => formatFactor(part.halfWidth)).join(' · ');
  return [`width: ${ends} = ${product}`, ...parts.map((part) => `× ${formatFactor(part.halfWidth)}: ${part.what}`)];
}

export function sweepText(report: PlanReport, sweeps: readonly Sweep[]): string {
  return sweeps
    .map(({ planId, points }) => {
      const plan = report.plans.find((p) => p.id === planId) as Plan;
      const spec = present<Column<DecodeFigures>>([
        right(' ', (d) => (d.batch === plan.knee?.batch ? '>' : ' ')),
        right('batch', (d) => String(d.batch)),
        right('ms/token', (d) => timeLabel(d.secondsPerStep)),
        right('tok/s', (d) => (d.tokensPerSecond ? formatCount(d.tokensPerSecond.estimate) : '–')),
        right('a user', (d) => (d.secondsPerStep ? formatNumber(1 / d.secondsPerStep.estimate) : '–')),
        report.settings.usdPerHour !== null && right('$/Mtok', usdLabel),
      ]);
      return `${planId}, by batch (> the operating point)\n${columns(spec, points).join('\n')}\n`;
    })
    .join('\n');
}
