/**
 * LLA 4× (ranks 96/160) as another group trained and scored it: HLA, arXiv 2610.07940, beside the uncompressed model in
 * the same harness (lm-eval). Tokens that were decoded kept an exact cache, which the paper's decoder does not keep.
 */
import { type Metric, type QualityFigure, figure } from '../figure.js';
import type { QualityModel } from '../figure.js';

export const HLA_SOURCE = 'HLA (arXiv 2610.07940)';
const PROTOCOL = 'lm-eval; retrained by the authors of HLA, exact cache of decoded tokens';
const RULER_CONTEXTS = [4096, 8192, 16_384] as const;
const METRICS: readonly Metric[] = ['mmlu-pro', 'bbh', 'math500'];

/** Model, full cache or LLA 4×, RULER at 4k, 8k and 16k, then METRICS, in per cent as printed. */
const ROWS: readonly (readonly [QualityModel, 'full' | 'lla', ruler: readonly number[], scores: readonly number[]])[] =
  [
    ['ouro-1.4b', 'full', [89.5, 85.2, 77.5], [48.9, 71, 75.9]],
    ['ouro-1.4b', 'lla', [87.4, 82.7, 71.1], [46.6, 69.1, 73.4]],
    ['ouro-2.6b', 'full', [92.3, 86.3, 82.9], [56, 80.1, 81.1]],
    ['ouro-2.6b', 'lla', [92.5, 85.4, 81], [54.2, 79.3, 80.6]],
  ];

export const HLA_FIGURES: readonly QualityFigure[] = ROWS.flatMap(([model, codec, ruler, scores]) => {
  const common = {
    model,
    source: HLA_SOURCE,
    protocol: PROTOCOL,
    decoder: null,
    ...(codec === 'full' ? {} : { codec, ratioLabel: '4' }),
  } as const;
  const fraction = (percent: number): number => Number((percent / 100).toFixed(4));
  return [
    ...RULER_CONTEXTS.map((contextTokens, i) =>
      figure({ ...common, contextTokens }, 'ruler', fraction(ruler[i] ?? NaN)),
    ),
    ...METRICS.map((metric, i) => figure(common, metric, fraction(scores[i] ?? NaN))),
  ];
});
