/**
 * What models scored with fewer loops than they were trained with, all tokens alike, as published. Other numbers of
 * loops are unknown: no score is interpolated.
 */
import type { Metric } from './figure.js';

interface LoopTable {
  /** Preset. */
  readonly model: string;
  readonly metric: Metric;
  /** Score by number of loops; the one that the model was trained with is among them. */
  readonly scores: Readonly<Record<number, number>>;
  readonly source: string;
}

const OURO_PAPER = 'Ouro (arXiv 2510.25741)';
const HUGINN = { model: 'huginn-3.5b', source: 'Huginn (arXiv 2502.05171), Table 1' } as const;

export const LOOP_TABLES: readonly LoopTable[] = [
  {
    model: 'ouro-1.4b',
    metric: 'gsm8k',
    scores: { 1: 0.23, 2: 0.64, 3: 0.72, 4: 0.8 },
    source: 'BrandeisPatrick/loop-transformer 0c86f97, 100 questions',
  },
  {
    model: 'ouro-1.4b',
    metric: 'mmlu',
    scores: { 1: 0.4121, 2: 0.6043, 3: 0.6671, 4: 0.6745 },
    source: `${OURO_PAPER}, Table 10`,
  },
  {
    model: 'ouro-2.6b',
    metric: 'mmlu',
    scores: { 1: 0.5155, 2: 0.6763, 3: 0.7357, 4: 0.746 },
    source: `${OURO_PAPER}, Table 11`,
  },
  {
    model: 'ouro-1.4b-thinking',
    metric: 'aime24',
    scores: { 1: 0, 2: 0.3733, 3: 0.6233, 4: 0.65 },
    source: `${OURO_PAPER}, Table 12`,
  },
  { ...HUGINN, metric: 'arc-c', scores: { 4: 0.2799, 8: 0.3515, 16: 0.3771, 32: 0.3823 } },
  { ...HUGINN, metric: 'hellaswag', scores: { 4: 0.4346, 8: 0.5854, 16: 0.6467, 32: 0.6521 } },
  { ...HUGINN, metric: 'mmlu', scores: { 4: 0.2339, 8: 0.2529, 16: 0.3125, 32: 0.3138 } },
];

/** A score with so many loops beside that of all. */
export interface LoopScore {
  readonly metric: Metric;
  readonly value: number;
  readonly allLoops: number;
  readonly source: string;
}

/**
 * Published scores of a model that runs `loops` of the loops that it was trained with, uncompressed.
 * @param trained what its scores are compared with
 */
export const scoresWithLoops = (model: string, loops: number, trained: number): LoopScore[] =>
  LOOP_TABLES.filter((table) => table.model === model).flatMap(({ metric, scores, source }) => {
    const value = scores[loops];
    const allLoops = scores[trained];
    return value === undefined || allLoops === undefined ? [] : [{ metric, value, allLoops, source }];
  });

/** Fewer loops than the model was trained with of which a score is published, the fewest first. */
export const publishedLoops = (model: string, trained: number): number[] =>
  [...new Set(LOOP_TABLES.flatMap((table) => (table.model === model ? Object.keys(table.scores).map(Number) : [])))]
    .filter((loops) => loops < trained)
    .sort((a, b) => a - b);
