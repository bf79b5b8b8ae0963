/** Table scale_mc: Ouro-2.6B-Thinking on eight multiple-choice tasks and their mean. */
import { type Metric, type QualityFigure, row } from '../figure.js';
import type { CodecKind } from '../../codecs/codec.js';

const TABLE = {
  model: 'ouro-2.6b',
  source: 'Table scale_mc',
  protocol: 'Ouro-2.6B-Thinking, 0-shot log-likelihood accuracy, full sets, decoder-independent',
} as const;
const COLUMNS: readonly Metric[] = [
  'arc-e',
  'arc-c',
  'hellaswag',
  'winogrande',
  'commonsense-qa',
  'mmlu',
  'piqa',
  'openbook-qa',
  'mc-avg',
];

const ROWS: readonly (readonly [CodecKind, ratio: string, ...values: number[]])[] = [
  ['full', '1', 0.833, 0.541, 0.568, 0.684, 0.752, 0.75, 0.785, 0.31, 0.653],
  ['lla', '4', 0.818, 0.521, 0.557, 0.676, 0.754, 0.749, 0.782, 0.302, 0.645],
  ['lla', '5.33', 0.818, 0.526, 0.557, 0.691, 0.746, 0.748, 0.783, 0.3, 0.646],
  ['lla', '10.67', 0.813, 0.526, 0.552, 0.676, 0.741, 0.745, 0.78, 0.288, 0.64],
  ['mla-head', '4', 0.733, 0.46, 0.494, 0.681, 0.723, 0.74, 0.729, 0.234, 0.599],
  ['mla-head', '5.33', 0.751, 0.474, 0.504, 0.66, 0.731, 0.747, 0.739, 0.244, 0.606],
  ['mla-head', '10.67', 0.73, 0.461, 0.498, 0.668, 0.726, 0.747, 0.725, 0.256, 0.601],
  ['lla-2d', '4', 0.738, 0.463, 0.513, 0.661, 0.753, 0.741, 0.742, 0.242, 0.607],
  ['lla-2d', '5.33', 0.753, 0.477, 0.52, 0.664, 0.74, 0.74, 0.76, 0.236, 0.611],
  ['lla-2d', '10.67', 0.786, 0.512, 0.539, 0.672, 0.745, 0.742, 0.761, 0.294, 0.631],
  ['cla', '4', 0.756, 0.484, 0.518, 0.676, 0.647, 0.725, 0.75, 0.26, 0.602],
  ['cla', '6', 0.769, 0.493, 0.505, 0.672, 0.64, 0.692, 0.739, 0.254, 0.596],
  ['cla', '12', 0.732, 0.468, 0.484, 0.669, 0.595, 0.684, 0.717, 0.25, 0.575],
  ['kv-quant', '4', 0.832, 0.53, 0.565, 0.677, 0.738, 0.747, 0.782, 0.292, 0.645],
  ['kv-quant', '5.33', 0.816, 0.519, 0.55, 0.663, 0.712, 0.719, 0.777, 0.292, 0.631],
];

export const SUITE_FIGURES: readonly QualityFigure[] = ROWS.flatMap(([codec, ratioLabel, ...values]) =>
  row({ ...TABLE, codec, ratioLabel }, COLUMNS, values),
);
