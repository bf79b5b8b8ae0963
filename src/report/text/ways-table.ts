/** Ways of serving a looped model for a terminal: what runs today, and what would have to be written. */
import type { WayRow } from '../../serving/types.js';
import { present } from '../../present.js';
import { formatNumber } from '../../numbers/units.js';
import { millis, refusedWords, shownOf } from '../simulation-words.js';
import { apart, columns, left, right, shareText, wrap, type Column } from './text.js';

/** `100 %`; `102 % †` where a footnote says of what; `unknown`. */
const keepsWords = ({ share, of }: WayRow['quality']): string =>
  share === null ? 'unknown' : `${shareText(share)}${of === null ? '' : ' †'}`;

/** At the rate that is sure. */
const PRICE: Column<WayRow> = right('$/Mtok', (r) => {
  const usd = r.usdPerMillionOutputTokens?.high ?? null;
  return usd === null ? '–' : formatNumber(usd);
});

const WAYS: readonly Column<WayRow>[] = [
  left('', (r) => (r.onFront ? '*' : '')),
  left('tokens come', (r) => r.way),
  left('cache', (r) => r.id),
  right('slow req/s', (r) => formatNumber(r.requestsPerSecond.low)),
  right('estimate', (r) => formatNumber(r.requestsPerSecond.estimate)),
  right('users', (r) => (r.users === null ? '–' : formatNumber(r.users))),
  right('p99 TTFT', (r) => millis(r.atEstimate && shownOf(r.atEstimate, 'p99', 'ttft'))),
  right('p99 TPOT', (r) => millis(r.atEstimate && shownOf(r.atEstimate, 'p99', 'tpot'))),
  right('keeps', (r) => keepsWords(r.quality)),
  left('needs', (r) => r.needs),
];

/** With prices where there are any. */
export const waysColumns = (rows: readonly WayRow[]): readonly Column<WayRow>[] =>
  rows.some((r) => r.usdPerMillionOutputTokens !== null) ? [...WAYS.slice(0, -1), PRICE, ...WAYS.slice(-1)] : WAYS;

const described = (r: WayRow): string =>
  `${r.way} with ${r.id}, ${formatNumber(r.requestsPerSecond.low)} requests a second (estimate ` +
  `${formatNumber(r.requestsPerSecond.estimate)}), ${r.quality.of ?? `keeps ${keepsWords(r.quality)}`}`;

/** The best that runs today, and that which would have to be written. */
export function waysWords(rows: readonly WayRow[]): string[] {
  const today = rows.find((r) => r.servedBy !== null && r.requestsPerSecond.low > 0);
  const written = rows.find((r) => r.onFront && r.servedBy === null);
  const none = rows.some((r) => r.servedBy !== null)
    ? 'Nothing that runs today is sure to serve it.'
    : 'Nothing serves it today.';
  return present([
    today ? `Most today, on ${today.servedBy}: ${described(today)}.` : none,
    written && `To be written (${written.needs}): ${described(written)}.`,
  ]);
}

/** The rows of the table, and those that meet no rate in words. */
export const waysShown = (rows: readonly WayRow[]) => ({
  rows: rows.filter((r) => r.refused === null),
  others: refusedWords(rows, (r) => `${r.way} ${r.id}`),
});

/** What the columns mean. */
export function waysNote(rows: readonly WayRow[]): string {
  const [scored] = present(rows.map(({ quality }) => quality.of));
  const looping = rows.some(({ needs }) => needs.endsWith('schedules loops'))
    ? ' vllm-rlt schedules loops, at a speed of its own: ask with --stack vllm-rlt.'
    : '';
  return (
    '*: no other way serves more and keeps more. users: requests in the server on average, by the estimate. keeps: ' +
    'worst published score of the cache; proposals change no ' +
    `token.${scored ? ` †: ${scored}; nobody scored early exit on another cache.` : ''}${looping}`
  );
}

/** A table of what runs today, and one of what no server runs under its own heading. */
export const tablesByServer = <T extends { readonly servedBy: string | null }>(
  spec: readonly Column<T>[],
  rows: readonly T[],
  unserved: string,
): string[][] =>
  ['Runs today:', unserved].flatMap((heading) => {
    const own = rows.filter((r) => (r.servedBy === null) === (heading === unserved));
    return own.length === 0 ? [] : [[heading, ...columns(spec, own)]];
  });

export function waysTables(all: readonly WayRow[], width: number): string[] {
  const { rows, others } = waysShown(all);
  return apart([
    ...tablesByServer(waysColumns(rows), rows, 'To be written:'),
    ...(rows.length > 0 ? [wrap(waysNote(rows), width)] : []),
    ...others.map((words) => wrap(words, width)),
  ]);
}
