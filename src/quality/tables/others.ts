/**
 * What other groups than the paper's publish: of codecs that came after it, of codecs whose loops share rows, and of
 * LLA as they trained it. Each table stands beside the uncompressed model in its own harness: its shares are compared,
 * not its values.
 */
import { type Common, type Metric, type QualityFigure, type QualityModel, figure } from '../figure.js';

/** Ouro, arXiv 2510.25741, section 5.4.2. Its row "first-step only" (18.73, 8.43) is of no codec here. */
const OURO_SOURCE = 'Ouro (arXiv 2510.25741)';
const SHARED_IN_DECODING = 'Table 14: rows are shared in decoding alone; neither shots nor items are stated';
const OURO_METRICS: readonly Metric[] = ['gsm8k', 'math500'];
const OURO_ROWS: readonly (readonly [codec: Pick<Common, 'codec' | 'shared' | 'ratioLabel'>, ...values: number[]])[] = [
  [{}, 0.7892, 0.824],
  [{ codec: 'final-loop', shared: 'decode', ratioLabel: '4' }, 0.7885, 0.804],
  [{ codec: 'mean-loop', shared: 'decode', ratioLabel: '4' }, 0.7873, 0.7852],
];

/**
 * HLA, arXiv 2610.07940, Table 1, of the pretrained models (its 2.6B is not the Thinking one). Its own codec has ranks
 * 512 and, in the first loop, 256; its ablations are without the window, and with ranks of 256. Under "single-loop
 * sharing" tokens before the last 128 read the last loop's rows in all loops; those 128 are exact in every loop, and
 * prompts are one exact pass. It stores more than `decode` and reads no less exactly, so its scores count for it.
 * LLA 4× (ranks 96/160) was trained by these authors; tokens that were decoded kept an exact cache, which the paper's
 * decoder does not keep.
 */
export const HLA_SOURCE = 'HLA (arXiv 2610.07940)';
const WINDOWED = 'with 128 exact tokens';
const HLA_PROTOCOL =
  'Table 1: lm-eval; RULER with chat template in its two question tasks; MATH-500: mean of 4 samples, 8,192 new tokens';
const RULER_CONTEXTS = [4096, 8192, 16_384] as const;
const HLA_METRICS: readonly Metric[] = ['mmlu-pro', 'bbh', 'math500'];
const HLA_CODECS = {
  full: {},
  'final-loop': { codec: 'final-loop', shared: 'decode', ratioLabel: '4', variant: WINDOWED },
  lla: { codec: 'lla', ratioLabel: '4' },
  hla: { codec: 'hla', ratioLabel: '10.67', windowTokens: 128 },
  'hla, no window': { codec: 'hla', ratioLabel: '10.67', windowTokens: 0 },
  'hla, ranks of 256, no window': { codec: 'hla', ratioLabel: '16', windowTokens: 0 },
} as const;
const HLA_ROWS: readonly (readonly [
  QualityModel,
  keyof typeof HLA_CODECS,
  ruler: readonly number[],
  scores: readonly (number | null)[],
])[] = [
  ['ouro-1.4b', 'full', [0.895, 0.852, 0.775], [0.489, 0.71, 0.759]],
  ['ouro-1.4b', 'final-loop', [0.19, 0.1, 0.07], [0.161, 0.433, 0.459]],
  ['ouro-1.4b', 'lla', [0.874, 0.827, 0.711], [0.466, 0.691, 0.734]],
  ['ouro-1.4b', 'hla', [0.887, 0.842, 0.744], [0.477, 0.694, 0.741]],
  ['ouro-1.4b', 'hla, no window', [], [0.398, 0.61, 0.66]],
  ['ouro-1.4b', 'hla, ranks of 256, no window', [], [null, null, 0.514]],
  ['ouro-2.6b', 'full', [0.923, 0.863, 0.829], [0.56, 0.801, 0.811]],
  ['ouro-2.6b', 'final-loop', [0.714, 0.645, 0.526], [0.526, 0.758, 0.739]],
  ['ouro-2.6b', 'lla', [0.925, 0.854, 0.81], [0.542, 0.793, 0.806]],
  ['ouro-2.6b', 'hla', [0.922, 0.85, 0.815], [0.555, 0.798, 0.794]],
];

/**
 * MELT, arXiv 2605.07721, by a summary: mean of six tasks. Its MATH-500 of 0.934 is left out, as no score of the
 * uncompressed model stands beside it.
 */
const MELT_COMMON = {
  model: 'ouro-1.4b',
  source: 'MELT (arXiv 2605.07721)',
  protocol: 'mean of six tasks, by a summary, which does not say whether the checkpoint is the Thinking one',
  decoder: null,
} as const;

/**
 * FlashLoop, arXiv 2609.29812, by a summary: mean of five tasks. The same prompts and generated tokens stand behind
 * both ratios, so the scores count for both.
 */
const FLASHLOOP_RATIOS = ['6.05', '3.56'] as const;
const FLASHLOOP_ROWS: readonly (readonly [QualityModel, full: number, packed: number])[] = [
  ['ouro-1.4b', 0.7011, 0.7048],
  ['ouro-2.6b', 0.7121, 0.7108],
];

export const OTHERS_FIGURES: readonly QualityFigure[] = [
  ...OURO_ROWS.flatMap(([codec, ...values]) => {
    const common = {
      model: 'ouro-1.4b',
      source: OURO_SOURCE,
      protocol: SHARED_IN_DECODING,
      decoder: null,
      ...codec,
    } as const;
    return OURO_METRICS.map((metric, i) => figure(common, metric, values[i] as number));
  }),
  figure(MELT_COMMON, 'task-avg', 0.623),
  figure({ ...MELT_COMMON, codec: 'melt', ratioLabel: '4' }, 'task-avg', 0.599),
  ...FLASHLOOP_ROWS.flatMap(([model, full, packed]) => {
    const common = {
      model,
      source: 'FlashLoop (arXiv 2609.29812)',
      protocol: 'mean of MATH-500, GSM8K, ARC-C, HellaSwag and WinoGrande, by a summary; one sequence at a time',
      decoder: null,
    } as const;
    return [
      figure(common, 'task-avg', full),
      ...FLASHLOOP_RATIOS.map((ratioLabel) =>
        figure({ ...common, codec: 'flashloop', ratioLabel }, 'task-avg', packed),
      ),
    ];
  }),
  ...HLA_ROWS.flatMap(([model, codec, ruler, scores]) => {
    const common = { model, source: HLA_SOURCE, protocol: HLA_PROTOCOL, decoder: null, ...HLA_CODECS[codec] } as const;
    return [
      ...ruler.map((value, i) => figure({ ...common, contextTokens: RULER_CONTEXTS[i] as number }, 'ruler', value)),
      ...scores.flatMap((value, i) => (value === null ? [] : figure(common, HLA_METRICS[i] as Metric, value))),
    ];
  }),
];
