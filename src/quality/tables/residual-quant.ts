/**
 * ResidualQuant (arXiv 2610.10381): its scores with the calibrated rotation and without. Those without are scores of
 * the codec residual-quant, which rotates nothing; the others stand beside it and count for no codec here.
 */
import type { ResidualForm } from '../../codecs/codec.js';
import { figure, type Metric, type QualityFigure } from '../figure.js';

const RESIDUAL_QUANT_SOURCE = 'ResidualQuant (arXiv 2610.10381)';
const PROTOCOL = 'neither shots nor items are stated; a rotation is calibrated on 128 sequences of the task';
const METRICS: readonly Metric[] = ['gsm8k', 'math500', 'humaneval', 'mbpp'];

/**
 * Bits are printed for heads of 128 channels, which share one coefficient in three of four loops; Huginn's have 96.
 * @returns the ratio that the codec has
 */
const ratioOf = (model: string, bits: number): number =>
  16 / (bits + (model === 'huginn-3.5b' ? (3 / 4) * (16 / 96 - 16 / 128) : 0));

/** Percentages in the order of the metrics, null where none is published. */
type Scores = readonly (number | null)[];

/**
 * Rows as published, with the form of the codec whose scores these are: null for the uncompressed model and for what is
 * not planned.
 */
const ROWS: readonly (readonly [label: string, bits: number, ResidualForm | null, ouro: Scores, huginn?: Scores])[] = [
  ['BF16', 16, null, [79.23, 75.0, 71.95, 74.34], [43.14, 16.4, 23.78, 39.68]],
  ['INT2 direct g32', 2.5, null, [33.66, 27.8, 41.46, 55.56], [18.95, 7.8, 20.73, 33.6]],
  ['mixed direct g32', 3, null, [48.67, 47.4, 56.71, 67.99], [30.1, 9.8, 21.95, 34.39]],
  ['INT4 direct g32', 4.5, null, [null, 74.2, null, null]],
  ['mixed g32 without coefficient', 3, null, [null, 70.2, null, null]],
  ['INT2 g32, no rotation', 2.59375, 'int2-g32', [64.67, 60.6, 55.49, 66.4], [34.95, 9.8, 24.39, 36.24]],
  ['INT2 g32, with rotation', 2.59375, null, [73.31, 71.6, 68.9, 71.69], [38.21, 12.6, 23.78, 38.89]],
  ['mixed g32, no rotation', 3.09375, 'mixed-g32', [77.79, 73.8, 71.34, 73.02], [42.46, 14.6, 23.17, 40.74]],
  ['mixed g32, with rotation', 3.09375, null, [77.03, 76.0, 70.73, 73.81], [42.76, 14.6, 23.78, 40.21]],
  ['mixed g16, no rotation', 3.46875, 'mixed-g16', [77.03, 75.0, 71.95, 74.07], [41.02, 15.4, 23.17, 41.53]],
];

/** Those of the uncompressed models and of the codec. */
export const RESIDUAL_QUANT_FIGURES: readonly QualityFigure[] = ROWS.filter(
  ([, bits, form]) => form !== null || bits === 16,
).flatMap(([, bits, form, ...scores]) =>
  (['ouro-1.4b', 'huginn-3.5b'] as const).flatMap((model, m) =>
    (scores[m] ?? []).flatMap((value, i) => {
      if (value === null) return [];
      const codec =
        form === null ? {} : ({ codec: 'residual-quant', ratioLabel: ratioOf(model, bits).toFixed(2) } as const);
      const common = { model, source: RESIDUAL_QUANT_SOURCE, protocol: PROTOCOL, decoder: null, ...codec };
      return [figure(common, METRICS[i] as Metric, Number((value / 100).toFixed(4)))];
    }),
  ),
);
