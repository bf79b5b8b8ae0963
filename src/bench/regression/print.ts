/** A bench report as a table for terminals and as Markdown for a pull request's comment. */
import { columns, left, right, wrap, type Column } from '../../report/text/text.js';
import { counted, formatCount, formatDecimalBytes, formatMilliseconds, formatNumber } from '../../numbers/units.js';
import { present } from '../../present.js';
import { shapeText } from './cases.js';
import type { Interval } from '../../numbers/statistics.js';
import {
  isRegression,
  type BenchReport,
  type BenchResult,
  type PairedResult,
  type Rates,
  type SkippedResult,
  type TimedResult,
} from './report.js';

const WIDTH = 100;

const isCompared = (r: BenchResult): r is PairedResult => r.state === 'paired';
const isSkipped = (r: BenchResult): r is SkippedResult => 'reason' in r;

const percent = (share: number): string => `${(100 * share).toFixed(share >= 0.0995 ? 0 : 1)} %`;
/** `58 %±2`: a share and half the width of its interval, in points. */
const share = (x: Interval | null): string =>
  x === null ? '–' : `${percent(x.estimate)}±${(50 * (x.high - x.low)).toFixed(x.high - x.low >= 0.1 ? 0 : 1)}`;
const ratio = (x: number): string => (x < 100 ? x.toFixed(3) : formatNumber(x));
const roofline = (r: Rates): string => `${percent(r.rooflineShare)} ${r.boundBy}`;
const verdict = (r: PairedResult): string => (r.verdict === 'slower' ? 'SLOWER' : r.verdict);

const NAME: readonly Column<BenchResult>[] = [left('kernel', (r) => r.kernel), left('variant', (r) => r.variant)];
const SHAPE: Column<BenchResult> = left('shape', shapeText);

const TIMED: readonly Column<TimedResult>[] = [
  ...NAME,
  right('ms', (r) => formatMilliseconds(r.medianSeconds)),
  right('GB/s', (r) => formatNumber(r.rates.bytesPerSecond / 1e9)),
  right('GFLOP/s', (r) => formatNumber(r.rates.flopsPerSecond / 1e9)),
  right('% read', (r) => share(r.shares.read)),
  right('% copy', (r) => share(r.shares.copy)),
  right('% f32', (r) => share(r.shares.f32)),
  right('% matrix', (r) => share(r.shares.matrix)),
  right('% tuned', (r) => (typeof r.attainableShare === 'number' ? percent(r.attainableShare) : '–')),
  SHAPE,
];
/** The columns of matrix units and of tuned kernels only where there are such figures. */
function timedColumns(r: BenchReport): readonly Column<TimedResult>[] {
  const tuned = r.results.some((x) => x.state === 'timed' && typeof x.attainableShare === 'number');
  return TIMED.filter(
    (c) => (c.title !== '% matrix' || r.ceilings.matrixFlopsPerSecond !== null) && (c.title !== '% tuned' || tuned),
  );
}

const COMPARED: readonly Column<PairedResult>[] = [
  ...NAME,
  right('before ms', (r) => formatMilliseconds(r.medianSeconds.before)),
  right('now ms', (r) => formatMilliseconds(r.medianSeconds.now)),
  right('ratio', (r) => ratio(r.ratio.estimate)),
  left('95 %', (r) => `${ratio(r.ratio.low)}–${ratio(r.ratio.high)}`),
  left('verdict', verdict),
  left('roofline', (r) => roofline(r.rates)),
  SHAPE,
];

/** Lines at most WIDTH wide where the shape can go to a line of its own. */
function table<T extends BenchResult>(spec: readonly Column<T>[], rows: readonly T[]): string[] {
  const lines = columns(spec, rows);
  if (lines.every((l) => l.length <= WIDTH)) return lines;
  const narrow = columns(
    spec.filter((c) => c.title !== 'shape'),
    rows,
  );
  return narrow.flatMap((line, i) => (i === 0 ? [line] : [line, `    ${shapeText(rows[i - 1] as T)}`]));
}

const title = (r: BenchReport): string[] => [
  `${r.device.description}${r.device.software ? ' (a software adapter: its times say nothing about a GPU)' : ''}`,
  `ceilings measured now: read ${formatDecimalBytes(r.ceilings.readBytesPerSecond)}/s, copy ` +
    `${formatDecimalBytes(r.ceilings.copyBytesPerSecond)}/s, ${flopCeilings(r.ceilings).join(', ')}; ` +
    `clock ${r.clock}`,
];

const flopCeilings = (c: BenchReport['ceilings']): string[] =>
  (['f32', 'f16', 'matrix'] as const).flatMap((name) => {
    const rate = c[`${name}FlopsPerSecond`];
    return rate === null ? [] : [`${name} ${formatCount(rate)}FLOP/s`];
  });

/** Which path of attention is faster, by how much. */
const pathLines = (r: BenchReport): string[] =>
  r.paths.map(
    (p) =>
      `${p.ranks} at ${p.context} tokens, time of ${p.above} : ${p.below} = ${ratio(p.ratio.estimate)} ` +
      `(${ratio(p.ratio.low)}–${ratio(p.ratio.high)})`,
  );

/** Verdicts of compared calls and states of the others, in the order in which they are told. */
const STATE_WORDS: Readonly<Record<PairedResult['verdict'] | Exclude<BenchResult['state'], 'paired'>, string>> = {
  slower: 'slower',
  faster: 'faster',
  same: 'same',
  unclear: 'unclear',
  wrong: 'wrong',
  timed: 'measured',
  identical: 'with identical source',
  'not-comparable': 'not comparable',
  unsupported: 'not run on this device',
  'not-reached': 'not reached in time',
  checked: 'right, and not timed',
};

/** `2 of 14 kernels are slower` and the like: the answer in a line. */
export function headline(r: BenchReport): string {
  const parts = Object.entries(STATE_WORDS).flatMap(([state, words]) => {
    const n = r.results.filter((x) => (x.state === 'paired' ? x.verdict : x.state) === state).length;
    return n > 0 ? [`${n} ${words}`] : [];
  });
  const isSlower = r.results.some((x) => x.state === 'paired' && x.verdict === 'slower');
  const unjudged = isSlower ? 'times are shown and not judged' : 'no regression found';
  const found = r.against ? (r.regressed ? 'regressed' : unjudged) : r.regressed ? 'failed' : 'done';
  return `${found}: of ${counted(r.results.length, 'call')} ${parts.join(', ') || 'none'}`;
}

/** How to read the figures, only where there are such figures. */
function legend(r: BenchReport): string[] {
  const compared = r.results.filter(isCompared);
  if (r.results.some((x) => x.state === 'timed')) {
    return present([
      'Shares: of the ceiling measured in the same rounds, ± half of the 95 % interval in points. read ' +
        'and copy count bytes read and written, f32 all operations, matrix those of products. Above 100 ' +
        '%: operands came from a cache.',
      timedColumns(r).some((c) => c.title === '% tuned') &&
        'tuned: time of a tuned kernel of the class on this GPU over the measured one; – where no server has such a ' +
          'kernel apart.',
    ]);
  }
  if (compared.length === 0) return [];
  const limit = `${formatNumber(100 * r.threshold)}%`;
  return [
    'Ratio: time now over time before, above 1 is slower. Slower: the whole 95 % interval is beyond ' +
      `${limit}; same: all of it within; unclear: it crosses the ` +
      `limit${compared.some((x) => x.verdict === 'unclear') ? ', give it more --budget' : ''}.`,
  ];
}

const skippedLine = (r: SkippedResult): string => `${r.kernel} ${r.variant} (${shapeText(r)}): ${r.state}, ${r.reason}`;

/** Identical sources are one line; every other call that was not measured says why. */
function skippedLines(r: BenchReport): string[] {
  const skipped = r.results.filter(isSkipped);
  const identical = skipped.filter((s) => s.state === 'identical');
  const late = skipped.filter((s) => s.state === 'not-reached' || s.state === 'checked');
  const names = (of: readonly SkippedResult[]): string => [...new Set(of.map((s) => s.kernel))].join(', ');
  return present([
    identical.length > 0 && `Identical source, not measured (--all measures them): ${names(identical)}`,
    late.length > 0 &&
      `The budget of ${formatNumber(r.budgetSeconds)} s was spent; not measured (more --budget, or --kernel): ` +
        names(late),
    ...skipped.filter((s) => s.state !== 'identical' && !late.includes(s)).map(skippedLine),
  ]);
}

export function benchTable(r: BenchReport): string {
  const timed = r.results.filter((x) => x.state === 'timed');
  const compared = r.results.filter(isCompared);
  const paragraphs = [...skippedLines(r), ...legend(r), ...r.notes].flatMap((p) => wrap(p, WIDTH, '  '));
  const lines = [
    ...title(r),
    ...(r.against ? [`before: ${r.against.kind} ${r.against.name}; now: this program's kernels`] : []),
    ...(timed.length > 0 ? ['', ...table(timedColumns(r), timed)] : []),
    ...(r.paths.length > 0 ? ['', ...pathLines(r)] : []),
    ...(compared.length > 0 ? ['', ...table(COMPARED, compared)] : []),
    ...(paragraphs.length > 0 ? ['', ...paragraphs] : []),
    '',
    headline(r),
  ];
  return `${lines.join('\n')}\n`;
}

/** Text in a Markdown table's cell. */
const cell = (text: string): string =>
  text.replace(/[\\`*_[\]<>|&]/g, (c) =>
    c === '|' ? '\\|' : c === '<' ? '&lt;' : c === '>' ? '&gt;' : c === '&' ? '&amp;' : `\\${c}`,
  );

function markdownTable<T extends BenchResult>(spec: readonly Column<T>[], rows: readonly T[]): string[] {
  const mark = (r: T, text: string): string => (isRegression(r) && text === 'SLOWER' ? '**slower**' : cell(text));
  return [
    `| ${spec.map((c) => c.title).join(' | ')} |`,
    `|${spec.map((c) => (c.align === 'right' ? ' ---: |' : ' --- |')).join('')}`,
    ...rows.map((r) => `| ${spec.map((c) => mark(r, c.cell(r))).join(' | ')} |`),
  ];
}

export function benchMarkdown(r: BenchReport): string {
  const timed = r.results.filter((x) => x.state === 'timed');
  const compared = r.results.filter(isCompared);
  const lines = [
    `**lla-sim bench: ${cell(headline(r))}**`,
    '',
    cell(title(r).join('; ')),
    ...(r.against ? ['', `Before: ${r.against.kind} ${cell(r.against.name)}`] : []),
    ...(timed.length > 0 ? ['', ...markdownTable(timedColumns(r), timed)] : []),
    ...pathLines(r).flatMap((line) => ['', cell(line)]),
    ...(compared.length > 0 ? ['', ...markdownTable(COMPARED, compared)] : []),
    ...[...skippedLines(r), ...legend(r), ...r.notes].flatMap((p) => ['', cell(p)]),
  ];
  return `${lines.join('\n')}\n`;
}
