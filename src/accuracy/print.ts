/** The priced ledger as text for people: a table for the terminal, and the page docs/accuracy.md. */
import { groups as groupBy } from 'd3-array';
import { present } from '../present.js';
import { csvTable, markdownTable, type CsvColumn } from '../report/tables.js';
import { columns, left, right, wrap, type Column } from '../report/text/text.js';
import { counted, formatError, percent } from '../numbers/units.js';
import { SERVERS } from '../schema/serving.js';
import { median } from '../numbers/statistics.js';
import { isEarlierEngine } from '../stacks/serving.js';
import { UNEXPLAINED } from './causes.js';
import { isTail } from './judge.js';
import {
  EARLIER,
  GROUPINGS,
  TIMES,
  versionOf,
  type AccuracyFigure,
  type AccuracyReport,
  type Group,
  type Grouping,
} from './report.js';

/** Memory is predicted as single numbers. */
const hasInterval = ({ kind }: Pick<Group, 'kind'>): boolean => kind !== 'cache' && kind !== 'weights';

/** The errors of a group. @param head title of its name */
const groupColumns = <G extends Group>(head: string, ...more: readonly Column<G>[]): Column<G>[] => [
  left(head, (g) => g.name),
  left('figure', (g) => g.kind),
  ...more,
  right('rows', (g) => String(g.rows)),
  right('figures', (g) => String(g.figures)),
  right('median', (g) => `${percent(g.median)} %`),
  right('90th', (g) => `${percent(g.p90)} %`),
  right('bias', (g) => formatError(g.bias)),
  right('inside', (g) => (hasInterval(g) ? `${Math.round(100 * g.inside)} %` : '–')),
  right('half-width', (g) => (hasInterval(g) ? `${percent(g.halfWidth)} %` : '–')),
];

/** Figures that are shown one by one, as those of a few rows of one's own. */
const EACH_SHOWN = 24;

const FIGURE_COLUMNS: readonly Column<AccuracyFigure>[] = [
  left('row', (f) => f.id),
  left('figure', (f) => `${f.figure} ${f.statistic}`),
  right('measured', (f) => number(f.measured)),
  right('predicted', (f) => number(f.predicted)),
  right('interval', (f) => (hasInterval(f) ? `${number(f.low)}–${number(f.high)}` : '–')),
  right('error', (f) => formatError(f.error)),
];

const LEGEND =
  'error: predicted / measured − 1. median, 90th: of its absolute value. bias: its signed median. inside: share ' +
  'of the figures in their 90 % interval. half-width: the median interval’s, relative to the prediction. Cache ' +
  'and weights are predicted as single numbers without an interval. Throughput below a server’s capacity is not ' +
  'counted. tail: the highest percentile that a source has, p90 to p99, beside its mean or median: what targets of ' +
  'simulate are about. vllm before 0.8: its first engine, in groups of its own, as it says little of ' +
  'today’s; models without loops.';

const judges = (groups: readonly Group[]): Group[] => groups.filter((g) => g.use === 'judges');
const fits = (groups: readonly Group[]): Group[] => groups.filter((g) => g.use === 'fits');

const intro = ({ rows, priced, figures, kinds }: AccuracyReport): string =>
  `${counted(rows, 'row')} of real servers; ${priced} ${priced === 1 ? 'is' : 'are'} priced, with ` +
  `${counted(figures.length, 'figure')}.` +
  (fits(kinds).length === 0
    ? ''
    : ' Rows that fit may set constants; rows that judge may not, but for one named row a machine that sets its ' +
      'host’s time for launches. Rows were divided before any was priced.');

export function accuracyTable(report: AccuracyReport, width: number): string {
  const part = (title: string, head: string, groups: readonly Group[]): string[] =>
    groups.length === 0 ? [] : ['', title, '', ...columns(groupColumns(head), groups)];
  return `${[
    ...wrap(intro(report), width),
    ...part('Rows that judge', 'model', judges(report.kinds)),
    ...(report.figures.length <= EACH_SHOWN
      ? ['', ...columns(FIGURE_COLUMNS, report.figures)]
      : [
          ...part('Rows that judge, by GPU', 'GPU', judges(report.groups.GPU)),
          ...part('Rows that judge, by server', 'server', judges(report.groups.server)),
        ]),
    ...part('Rows that fit', 'model', fits(report.kinds)),
    ...part('Not possible without a cached prompt', 'campaign', report.cachedPrompts),
    ...unpriced(report, width),
    ...standIns(report, width),
    '',
    ...wrap(LEGEND, width),
    ...wrap(verdict(report), width),
  ].join('\n')}\n`;
}

/** Reasons that a terminal lists. */
const MOST_REASONS = 5;

/** Rows without a prediction and why, where they are few; the page lists all. */
function unpriced({ notPriced }: AccuracyReport, width: number): string[] {
  const more = notPriced.length - MOST_REASONS;
  return present([
    notPriced.length > 0 && '',
    ...notPriced
      .slice(0, MOST_REASONS)
      .flatMap(({ campaign, rows, why }) =>
        wrap(`Not priced, ${counted(rows, 'row')} of ${campaign}: ${why}`, width, '  '),
      ),
    more > 0 && `${more} more: --format markdown lists them`,
  ]);
}

/** Servers without tables of their own, which are priced with others'. */
function standIns({ figures }: AccuracyReport, width: number): string[] {
  const names = [...new Set(figures.map((f) => f.serverName))]
    .filter((name) => !SERVERS.some((server) => server === name))
    .sort();
  if (names.length === 0) return [];
  return [
    '',
    ...wrap(`${names.join(', ')}: no tables of its own, so priced with another server's for the same GPU.`, width),
  ];
}

/** Figures of time below which nothing is said, and the share that intervals of 90 % should hold, a few aside. */
const FEWEST = 3;
const EXPECTED = 0.8;
/** Times a prediction, or the other way round, beyond which a figure is rather in another unit. */
const OTHER_UNIT = 30;

/** In words, for somebody who added rows of a server of their own. */
function verdict(report: AccuracyReport): string {
  const timed = report.figures.filter((f) => TIMES.includes(f.kind) && f.use !== 'out-of-reach' && !f.cachedPrompts);
  if (timed.length === 0) return 'No figure of time was priced.';
  const inside = timed.filter((f) => f.inside).length;
  const apart = ({ measured, predicted }: (typeof timed)[number]): number => Math.abs(Math.log(predicted / measured));
  const worst = timed.reduce((a, b) => (apart(a) > apart(b) ? a : b));
  // Such a figure says nothing of the others.
  const judged = timed.filter((f) => apart(f) <= Math.log(OTHER_UNIT));
  const check =
    judged.length === timed.length
      ? ''
      : `Check ${worst.figure} of ${worst.id} first: it is ${Math.round(Math.exp(apart(worst)))} times off, as with ` +
        `another unit (${worst.kind === 'throughput' ? 'tokens or requests a second' : 'seconds'} are wanted). `;
  const share = judged.filter((f) => f.inside).length / judged.length;
  const believe =
    judged.length < FEWEST
      ? `Too few figures to say whether to believe times here: ${FEWEST} are needed, ${judged.length} count.`
      : share >= EXPECTED
        ? 'Plan with the intervals on servers like these, not with the estimate alone: they hold most of what was ' +
          'measured.'
        : share >= 0.5
          ? 'Believe times here with care: take the far end of an interval, not the estimate.'
          : 'Do not believe times here: measure (lla-sim calibrate), or plan by memory alone.';
  return (
    `${check}${believe} Of ${counted(timed.length, 'figure')} of time ${inside} ` +
    `lie${inside === 1 ? 's' : ''} in the interval. Furthest off, ${number(Math.exp(apart(worst)))} times: ` +
    `${worst.figure} of ${worst.id}, measured ${number(worst.measured)}, predicted ${number(worst.predicted)} ` +
    `(${number(worst.low)}–${number(worst.high)}).`
  );
}

const number = (x: number): string => String(Number(x.toPrecision(4)));

const groupTable = (head: string, groups: readonly Group[]): string[] => markdownTable(groupColumns(head), groups);

const TITLES: Readonly<Record<Grouping, string>> = {
  source: 'By source',
  GPU: 'By GPU',
  server: 'By server',
  model: 'By model',
};

/** Rows of one's own, with their verdict. */
export function ownMarkdown(report: AccuracyReport): string {
  return `${[
    '# Predictions beside what was measured',
    '',
    intro(report),
    '',
    verdict(report),
    '',
    ...(report.figures.length <= EACH_SHOWN
      ? markdownTable(FIGURE_COLUMNS, report.figures)
      : GROUPINGS.flatMap((g) => [`## ${TITLES[g]}`, '', ...groupTable(g, judges(report.groups[g])), ''])),
    ...(report.notPriced.length === 0
      ? []
      : ['', '## Rows without a prediction', '', ...markdownTable(NOT_PRICED, report.notPriced)]),
    '',
    LEGEND,
  ].join('\n')}\n`;
}

/** The page docs/accuracy.md. */
export function accuracyMarkdown(report: AccuracyReport): string {
  return (
    [
      '# How far predictions are from what others measured',
      '',
      'Written by `lla-sim accuracy --format markdown`; a test holds both equal. Where the rows come from and ' +
        'which of them judge is in [ledger/README.md](../ledger/README.md). `lla-sim accuracy --format csv` has ' +
        'every figure, `--ledger FILE` prices rows of your own.',
      '',
      intro(report),
      LEGEND,
      '',
      '## Rows that judge',
      '',
      ...groupTable('model', judges(report.kinds)),
      ...GROUPINGS.flatMap((g) => ['', `### ${TITLES[g]}`, '', ...groupTable(g, judges(report.groups[g]))]),
      '',
      '## Rows that fit',
      '',
      ...groupTable('source', fits(report.groups.source)),
      '',
      ...cachedPrompts(report),
      '## Figures outside their intervals',
      '',
      'Times of rows that judge, by campaign, with the cause where one was found and checked by a number. Tails that ' +
        'miss for the cause of their means or medians are not listed again.',
      '',
      ...markdownTable(MISSES, missesOf(report.figures)),
      '',
      '## Rows without a prediction',
      '',
      ...markdownTable(NOT_PRICED, report.notPriced),
    ].join('\n') + '\n'
  );
}

/**
 * The table of docs/trust.md: how predictions of times fared by server and GPU, on models with loops and without. A
 * cell has the median error, and how many of how many figures lie inside their interval.
 */
function serversMarkdown({ figures }: Pick<AccuracyReport, 'figures'>): string {
  const timed = figures.filter((f) => f.use === 'judges' && !f.cachedPrompts && TIMES.includes(f.kind));
  const headOf = (f: AccuracyFigure): string[] =>
    isEarlierEngine({ stack: f.serverName, version: versionOf(f) })
      ? [EARLIER, 'all', 'without']
      : [f.serverName, f.device, f.looped ? 'with' : 'without'];
  const rows = groupBy(timed, (f) => JSON.stringify(headOf(f)))
    .map(([, own]) => ({ head: headOf(own[0]!), own }))
    .sort((a, b) => a.head.reduce((order, name, i) => order || name.localeCompare(b.head[i]!), 0));
  const cell = (own: readonly AccuracyFigure[]): string =>
    own.length === 0
      ? ''
      : `${percent(median(own.map((f) => Math.abs(f.error))))} %, ` +
        `${own.filter((f) => f.inside).length} of ${own.length}`;
  type Row = (typeof rows)[number];
  return markdownTable<Row>(
    [
      ...['server', 'GPU', 'loops'].map((title, i) => left(title, ({ head }: Row) => head[i]!)),
      ...TIMES.map((kind) => right(kind, ({ own }: Row) => cell(own.filter((f) => f.kind === kind)))),
    ],
    rows,
  ).join('\n');
}

/** A page with the table between its marks. @throws Error without the marks */
export function withServers(page: string, report: Pick<AccuracyReport, 'figures'>): string {
  const [begin, end] = ['<!-- servers: npm run accuracy -->\n\n', '\n\n<!-- end -->'];
  const [from, to] = [page.indexOf(begin), page.indexOf(end)];
  if (from < 0 || to < from) throw new Error(`no table of servers between ${begin.trim()} and ${end.trim()}`);
  return page.slice(0, from + begin.length) + serversMarkdown(report) + page.slice(to);
}

/** Campaigns that judge nothing: predictions compute all prompts. */
function cachedPrompts({ cachedPrompts: groups }: AccuracyReport): string[] {
  if (groups.length === 0) return [];
  return [
    '## Not possible without a cached prompt',
    '',
    'Users who wait for a first token and then for the others say how many prompts a second the GPUs took. Where ' +
      'computing them all, at the rate of the fastest product that anybody measured and with the cache read at the ' +
      'full bandwidth, needs more time than passed, a prefix cache was on. Then no row of the campaign judges: it ' +
      'counts in no group above.',
    '',
    ...markdownTable(
      groupColumns<(typeof groups)[number]>(
        'campaign',
        right('needs of its time', (g) => `${percent(g.need)} %`),
      ),
      groups,
    ),
    '',
  ];
}

interface Miss {
  readonly campaign: string;
  readonly kind: string;
  readonly outside: number;
  readonly of: number;
  /** Median of those outside, with its sign. */
  readonly error: number;
  readonly cause: string;
}

const MISSES: readonly Column<Miss>[] = [
  left('campaign', (m) => m.campaign),
  left('figure', (m) => m.kind),
  right('outside', (m) => String(m.outside)),
  right('of', (m) => String(m.of)),
  right('their median error', (m) => `${percent(m.error)} %`),
  right('cause', (m) => m.cause),
];

const NOT_PRICED: readonly Column<AccuracyReport['notPriced'][number]>[] = [
  left('source', (n) => n.file),
  left('campaign', (n) => n.campaign),
  right('rows', (n) => String(n.rows)),
  right('why', (n) => n.why),
];

/** By campaign, kind of figure and cause. Numbers without an interval are not said to miss it. */
function missesOf(figures: readonly AccuracyFigure[]): Miss[] {
  const timed = figures.filter((f) => f.use === 'judges' && !f.cachedPrompts && f.high > f.low);
  const keyOf = (f: AccuracyFigure): string => JSON.stringify([f.file, f.campaign, f.kind]);
  // A tail that misses for the reason of its middle is no news.
  const missed = timed.filter((f) => !f.inside && !(isTail(f.kind) && f.cause !== UNEXPLAINED));
  return groupBy(missed, (f) => JSON.stringify([keyOf(f), f.cause])).map(([, own]) => {
    const first = own[0]!;
    const errors = own.map((f) => f.error).sort((a, b) => a - b);
    return {
      campaign: `${first.file}: ${first.campaign}`,
      kind: first.kind,
      outside: own.length,
      of: timed.filter((f) => keyOf(f) === keyOf(first)).length,
      error: errors[Math.floor((errors.length - 1) / 2)]!,
      cause: first.cause!,
    };
  });
}

const named = (...names: readonly (keyof AccuracyFigure)[]): CsvColumn<AccuracyFigure>[] =>
  names.map((name) => [name, (f) => f[name]]);

/** Empty of single numbers. */
const ofInterval = (...names: readonly (keyof AccuracyFigure)[]): CsvColumn<AccuracyFigure>[] =>
  names.map((name) => [name, (f) => (hasInterval(f) ? f[name] : null)]);

const CSV: readonly CsvColumn<AccuracyFigure>[] = [
  ['source', (f) => f.file],
  ...named('campaign'),
  ['row', (f) => f.id],
  ...named('use', 'server'),
  ['gpu', (f) => f.device],
  ...named('gpus', 'model', 'looped', 'figure', 'statistic', 'kind', 'measured', 'predicted'),
  ...ofInterval('low', 'high'),
  ...named('error'),
  ...ofInterval('inside'),
  ...named('evidence', 'cause'),
];

/** One line a figure. */
export const accuracyCsv = ({ figures }: AccuracyReport): string => csvTable(CSV, figures);
