/** Holds predictions against the rows of the ledger: error and interval, figure by figure, then group by group. */
import type { Row } from '../schema/ledger-file.js';
import { FIGURES, type FigureName, type Use } from '../schema/ledger.js';
import { median, quantile } from '../numbers/statistics.js';
import { STATISTICS, type Priced, type StatisticName } from './price.js';

/** What a figure is about. Tokens a second of steps alone are steps. */
export const KINDS = ['step', 'first token', 'request', 'throughput', 'cache', 'weights'] as const;
export type Kind = (typeof KINDS)[number];

/** One figure of a row beside its prediction. */
export interface Judged {
  readonly file: string;
  readonly row: Row;
  readonly use: Use;
  readonly looped: boolean;
  readonly figure: FigureName;
  readonly statistic: StatisticName;
  readonly kind: Kind;
  readonly measured: number;
  readonly predicted: number;
  readonly low: number;
  readonly high: number;
  /** Predicted over measured, less 1. */
  readonly error: number;
  readonly inside: boolean;
  readonly evidence: string;
}

const KIND_OF: Partial<Record<FigureName, Kind>> = {
  tpotSeconds: 'step',
  itlSeconds: 'step',
  ttftSeconds: 'first token',
  e2elSeconds: 'request',
  tokensPerSecond: 'throughput',
  requestsPerSecond: 'throughput',
  kvTokens: 'cache',
  requestsOfMaxLength: 'cache',
  sequences: 'cache',
  availableKvBytes: 'cache',
  weightsBytes: 'weights',
};

/** The figures of a row that are predicted, each by the first statistic that the source gives. */
export function judgedOf(
  file: string,
  row: Row,
  looped: boolean,
  priced: Extract<Priced, { predicted: unknown }>,
): Judged[] {
  return (Object.keys(FIGURES) as FigureName[]).flatMap((figure): Judged[] => {
    const kind = kindOf(row, figure);
    const found = measuredOf(row, figure);
    if (!found || !kind) return [];
    const interval = priced.predicted(figure, found.statistic);
    if (!interval) return [];
    const { measured, statistic } = found;
    return [
      {
        file,
        row,
        use: row.use,
        looped,
        figure,
        statistic,
        kind,
        measured,
        predicted: interval.estimate,
        low: interval.low,
        high: interval.high,
        error: interval.estimate / measured - 1,
        inside: interval.low <= measured && measured <= interval.high,
        evidence: priced.evidence,
      },
    ];
  });
}

function kindOf(row: Row, figure: FigureName): Kind | undefined {
  const { workload: w } = row;
  if (figure === 'tokensPerSecond' && w.kind === 'decode-only') return 'step';
  // Below its capacity a server gives back what comes.
  const idle = w.kind === 'rate' && w.requestsPerSecond !== null;
  if (idle && (figure === 'tokensPerSecond' || figure === 'requestsPerSecond')) return undefined;
  return KIND_OF[figure];
}

function measuredOf(row: Row, figure: FigureName): { measured: number; statistic: StatisticName } | null {
  const figures = row.figures[figure];
  if (!figures) return null;
  const statistic = STATISTICS.find((name) => figures[name] !== undefined);
  if (statistic !== undefined) return { measured: figures[statistic]!, statistic };
  return figures.runs ? { measured: median(figures.runs), statistic: 'median' } : null;
}

/** Errors of several figures: shares, not percent. */
export interface Summary {
  readonly figures: number;
  readonly rows: number;
  /** Of the errors' sizes. */
  readonly median: number;
  readonly p90: number;
  /** Median error with its sign. */
  readonly bias: number;
  readonly worst: number;
  readonly inside: number;
  /** Median half-width of the intervals over their estimate. */
  readonly halfWidth: number;
}

/** @param judged at least one */
export function summaryOf(judged: readonly Judged[]): Summary {
  const sizes = judged.map((j) => Math.abs(j.error));
  return {
    figures: judged.length,
    rows: new Set(judged.map((j) => `${j.file} ${j.row.id}`)).size,
    median: median(sizes),
    p90: quantile(sizes, 0.9),
    bias: median(judged.map((j) => j.error)),
    worst: Math.max(...sizes),
    inside: judged.filter((j) => j.inside).length / judged.length,
    halfWidth: median(judged.map((j) => (j.high - j.low) / 2 / j.predicted)),
  };
}
