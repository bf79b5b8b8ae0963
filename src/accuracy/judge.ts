/**
 * Holds predictions against the rows of the ledger: error and interval, figure by figure, then group by group; and rows
 * against what a GPU can do.
 */
import { findDevice } from '../devices/find.js';
import type { Geometry } from '../geometry/geometry.js';
import type { Row } from '../schema/ledger-file.js';
import { FIGURES, type FigureName, type Use } from '../schema/ledger.js';
import { median, quantile } from '../numbers/statistics.js';
import { meanOf } from './question.js';
import { STATISTICS, type Priced, type StatisticName } from './price.js';

/** What a figure is about. Tokens a second of steps alone are steps. */
export const KINDS = [
  'step',
  'first token',
  'request',
  'throughput',
  'step tail',
  'first token tail',
  'request tail',
  'cache',
  'weights',
] as const;
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

/** A high percentile of a time whose middle is judged, too. */
export const isTail = (kind: Kind): boolean => Object.values(TAIL_OF).includes(kind);

/** Of times whose highest percentile is judged beside them: the targets of a simulation are about such. */
const TAIL_OF: Partial<Record<Kind, Kind>> = {
  step: 'step tail',
  'first token': 'first token tail',
  request: 'request tail',
};
const TAILS = ['p99', 'p95', 'p90'] as const satisfies readonly StatisticName[];

/**
 * The figures of a row that are predicted, each by the first statistic that the source gives, and times by the highest
 * percentile that it has, too.
 */
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
    const tail = tailOf(row, figure, kind, found.statistic);
    return [{ ...found, kind }, ...(tail ? [tail] : [])].flatMap(({ measured, statistic, kind }): Judged[] => {
      const interval = priced.predicted(figure, statistic);
      if (!interval) return [];
      return [
        {
          ...{ file, row, use: row.use, looped, figure, statistic, kind, measured },
          predicted: interval.estimate,
          low: interval.low,
          high: interval.high,
          error: interval.estimate / measured - 1,
          inside: interval.low <= measured && measured <= interval.high,
          evidence: priced.evidence,
        },
      ];
    });
  });
}

/** @param first statistic by which the figure is judged already */
function tailOf(
  row: Row,
  figure: FigureName,
  kind: Kind,
  first: StatisticName,
): { measured: number; statistic: StatisticName; kind: Kind } | null {
  const statistic = TAILS.find((name) => row.figures[figure]?.[name] !== undefined);
  const tail = TAIL_OF[kind];
  return tail === undefined || statistic === undefined || statistic === first
    ? null
    : { measured: row.figures[figure]![statistic]!, statistic, kind: tail };
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

/**
 * Shares of the datasheet's rate of the fastest product in calibrations/stacks: vLLM on B300, and on H200 in 8 bits.
 */
const FASTEST_PRODUCT = { bf16: 0.97, fp8: 0.85 } as const;

/**
 * Whether a row can be what it says without prompts that were found in a prefix cache. Users of a closed loop wait for
 * a first token, then for the others: so the source itself says how many prompts a second passed the GPUs. Kernels of a
 * GPU run one after another, and none is faster than here.
 * @returns the share of their time that the GPUs of a row need at least for what the source says they did, all prompts
 * being computed: above 1 some were not. Null where the source does not say enough.
 */
export function needOf(row: Row, geometry: () => Geometry): number | null {
  const { workload: w, figures, device, precision, gpus } = row;
  if (w.kind !== 'closed-loop' || device === undefined || row.parallel?.replicas !== undefined) return null;
  const [prompt, output] = [meanOf(w.inputTokens), meanOf(w.outputTokens)];
  const [first, each] = [figures.ttftSeconds?.mean, figures.tpotSeconds?.mean];
  if (prompt === null || output === null || first === undefined || each === undefined) return null;
  const [spec, g] = [findDevice(device), geometry()];
  const fp8 = precision.weights === 'fp8';
  const peak = spec.matrixFlopsPerSecond * gpus * (spec.matrixHalved ? 2 : 1);
  const products = FASTEST_PRODUCT[fp8 ? 'fp8' : 'bf16'] * peak * (fp8 ? 2 : 1);
  const calls = g.layers * g.loops + g.preludeLayers + g.codaLayers;
  // Attention's matrices and those of its MLP; norms, adapters and the head are left out, so that this stays the least.
  const weights =
    g.hidden * g.headDim * 2 * (g.heads + g.kvHeads) + (g.mlp === 'gated' ? 3 : 2) * g.hidden * g.mlpHidden;
  const tokenSeconds = (2 * calls * weights) / products;
  // Causal: half of all pairs, two products of a head each.
  const attending = (2 * calls * g.heads * g.headDim * prompt ** 2) / peak;
  const cachedBytes = 2 * calls * g.kvHeads * g.headDim;
  const reading = ((output - 1) * (prompt + output / 2) * cachedBytes) / (gpus * spec.memoryBytesPerSecond);
  const cycle = first + (output - 1) * each;
  const request = (prompt + output) * tokenSeconds + attending + reading;
  return Math.max((w.concurrency * request) / cycle, (prompt * tokenSeconds + attending) / first);
}

/** A server's prefix cache is on or off for all that a campaign asks of it. */
export const campaignOf = (file: string, row: Row): string => JSON.stringify([file, row.campaign]);
