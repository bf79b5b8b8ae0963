/** Tables that compare codecs on different axes: isocache (1.4B), scale (2.6B), huginn, ablations, decoupled_char. */
import { type Metric, type QualityFigure, figure, row } from '../figure.js';
import type { CodecKind } from '../../codecs/codec.js';

function isoCache(): QualityFigure[] {
  const table = { model: 'ouro-1.4b', source: 'Table isocache' } as const;
  const rows: readonly (readonly [
    CodecKind,
    ratio: string,
    kl: number | null,
    gsm8k: number,
    mc: number,
    mmlu: number,
  ])[] = [
    ['full', '1', null, 0.794, 0.646, 0.682],
    ['final-loop', '4', null, 0, 0.443, 0.537],
    ['lla', '4', 0.059, 0.8, 0.64, 0.672],
    ['mla-head', '4', 0.122, 0.522, 0.585, 0.657],
    ['cla', '4', 0.267, 0.66, 0.597, 0.666],
    ['kv-quant', '4', null, 0.702, 0.645, 0.672],
    ['lla', '5.33', 0.062, 0.752, 0.64, 0.674],
    ['mla-head', '5.33', 0.123, 0.18, 0.576, 0.64],
    ['lla-2d', '5.33', 0.078, 0.76, 0.628, 0.674],
    ['kv-quant', '5.33', null, 0.122, 0.621, 0.607],
    ['lla', '21.33', 0.128, 0.74, 0.622, 0.668],
    ['mla-head', '21.33', 0.128, 0.68, 0.613, 0.633],
    ['lla-2d', '21.33', 0.097, 0.723, 0.624, 0.67],
  ];
  return rows.flatMap(([codec, ratioLabel, kl, gsm8k, mc, mmlu]) => {
    const common = { ...table, codec, ratioLabel };
    return [
      ...row(
        { ...common, items: 32, protocol: 'held-out teacher-forced KL, iso-cache checkpoint' },
        ['train-kl'],
        [kl],
      ),
      figure(
        {
          ...common,
          items: codec === 'full' ? 1319 : 100,
          protocol: '5-shot strict EM, 256 new tokens, faithful two-pass decoder',
        },
        'gsm8k',
        gsm8k,
      ),
      ...row(
        { ...common, protocol: '0-shot log-likelihood accuracy, full sets, decoder-independent' },
        ['mc-avg', 'mmlu'],
        [mc, mmlu],
      ),
    ];
  });
}

function scale(): QualityFigure[] {
  const table = { model: 'ouro-2.6b', source: 'Table scale' } as const;
  const gsm8k = { ...table, protocol: 'Ouro-2.6B-Thinking, 2-shot strict EM, faithful two-pass decoder' };
  const kl = { ...table, items: 32, protocol: 'Ouro-2.6B-Thinking, held-out teacher-forced KL' };
  /** Columns, with the items of each as the appendix states them; it is silent on kv_quant. */
  const columns: readonly (readonly [CodecKind, number | null])[] = [
    ['lla', 1319],
    ['mla-head', 1319],
    ['lla-2d', 100],
    ['kv-quant', null],
  ];
  const rows: readonly (readonly [ratio: string, gsm8k: readonly (number | null)[], kl: readonly (number | null)[]])[] =
    [
      ['4', [0.834, 0.585, 0.66, 0.814], [0.057, 0.15, 0.192, null]],
      ['5.33', [0.817, 0.772, 0.74, 0.351], [0.056, 0.155, 0.165, null]],
      ['10.67', [0.821, 0.775, 0.82, null], [0.07, 0.121, 0.11, null]],
    ];
  return [
    figure({ ...gsm8k, items: 1319, variant: 'approximate, as printed' }, 'gsm8k', 0.83),
    ...rows.flatMap(([ratioLabel, scores, kls]) =>
      columns.flatMap(([codec, items], i) => [
        ...row({ ...gsm8k, codec, ratioLabel, items }, ['gsm8k'], [scores[i] ?? null]),
        ...row({ ...kl, codec, ratioLabel }, ['train-kl'], [kls[i] ?? null]),
      ]),
    ),
  ];
}

function huginn(): QualityFigure[] {
  const table = {
    model: 'huginn-3.5b',
    source: 'Table huginn',
    protocol: 'R = 32, decoder-independent, against the uncompressed model on held-out text; ratio of the looped core',
  } as const;
  const metrics: readonly Metric[] = ['svd-kl', 'svd-top-1', 'distill-kl', 'top-1', 'mc-avg'];
  const rows: readonly (readonly [ratio: string, ...values: (number | null)[]])[] = [
    ['16', 0.005, 0.97, null, 0.97, 0.523],
    ['32', 0.01, 0.954, null, 0.954, 0.525],
    ['64', 0.197, 0.799, 0.145, 0.834, 0.486],
    ['128', 0.763, 0.62, 0.177, 0.812, 0.473],
  ];
  return [
    figure(table, 'mc-avg', 0.523),
    ...rows.flatMap(([ratioLabel, ...values]) => row({ ...table, codec: 'lla', ratioLabel }, metrics, values)),
  ];
}

function ablations(): QualityFigure[] {
  const table = {
    model: 'ouro-1.4b',
    source: 'Table ablations',
    codec: 'lla',
    ratioLabel: '4',
    items: 32,
    protocol: 'held-out teacher-forced KL after 300 steps',
  } as const;
  const rows: readonly (readonly [variant: string, number])[] = [
    ['init: SVD', 0.105],
    ['init: t=1 SVD', 0.128],
    ['init: random', 0.771],
    ['ranks: 96/160', 0.105],
    ['ranks: shared 128/128', 0.129],
    ['loss: KL + attention output', 0.105],
    ['loss: KL only', 0.11],
  ];
  return rows.map(([variant, value]) => figure({ ...table, variant }, 'ablation-kl', value));
}

function decoupled(): QualityFigure[] {
  const table = {
    model: 'ouro-1.4b',
    source: 'Table decoupled_char',
    codec: 'lla',
    ratioLabel: '4',
    protocol: 'post-hoc decoupled RoPE, d_rope = 64, frozen model',
  } as const;
  const absorbed = { ...table, pathClass: 'absorbed' } as const;
  return [
    figure({ ...table, protocol: 'full-RoPE reconstruction, the reference' }, 'reconstruction-kl', 0.059),
    figure({ ...absorbed, variant: 'no query adapter' }, 'reconstruction-kl', 0.55),
    figure({ ...absorbed, variant: 'query adapter' }, 'reconstruction-kl', 0.34),
    figure({ ...absorbed, variant: 'query adapter, extended training' }, 'reconstruction-kl', 0.3),
  ];
}

export const AXES_FIGURES: readonly QualityFigure[] = [
  ...isoCache(),
  ...scale(),
  ...huginn(),
  ...ablations(),
  ...decoupled(),
];
