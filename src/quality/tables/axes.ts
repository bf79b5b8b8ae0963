/** Tables that compare codecs on different axes: isocache (1.4B), scale and scale_mc (2.6B), huginn, and ablations. */
import { type Metric, type QualityFigure, figure } from '../figure.js';
import { cellsOf, column, type ColumnOf, readColumns, readTable, subjectNamed } from '../printed.js';

const [OURO, OURO_26, HUGINN] = ['ouro-1.4b', 'ouro-2.6b', 'huginn-3.5b'] as const;
const named = ([label = '', ratio = '']: readonly string[]) => subjectNamed(label, ratio);
const LIKELIHOOD = '0-shot log-likelihood accuracy, full sets, decoder-independent';

const ISO_CACHE: Readonly<Record<string, ColumnOf>> = {
  'train-KL': column('train-kl', 'held-out teacher-forced KL, iso-cache checkpoint', null, 32),
  GSM8K: column('gsm8k', '5-shot strict EM, 256 new tokens', 'two-pass', 100, 1319),
  'MC-avg': column('mc-avg', LIKELIHOOD),
  MMLU: column('mmlu', LIKELIHOOD),
};

/** Columns that were scored alike, without a decoder. */
const alike = (protocol: string, metrics: Readonly<Record<string, Metric>>): Record<string, ColumnOf> =>
  Object.fromEntries(Object.entries(metrics).map(([title, metric]) => [title, column(metric, protocol)]));

/** Items of GSM8K by column, as the appendix states them; it is silent on kv_quant. */
const SCALE_ITEMS: Readonly<Record<string, number>> = { 'LLA (loop)': 1319, mla_head: 1319, 'LLA-2D': 100 };

function scale(): QualityFigure[] {
  const gsm8k = {
    model: OURO_26,
    protocol: 'Ouro-2.6B-Thinking, 2-shot strict EM',
    decoder: 'two-pass',
  } as const;
  const kl = { model: OURO_26, items: 32, protocol: 'Ouro-2.6B-Thinking, held-out teacher-forced KL', decoder: null };
  // The teacher stands in a heading: "teacher ≈ 0.83".
  const teacher = cellsOf('scale').flatMap(([heading = '']) => /teacher ≈ ([\d.]+)/.exec(heading)?.[1] ?? []);
  return [
    ...teacher.map((value) =>
      figure(
        { ...gsm8k, source: 'Table scale', items: 1319, variant: 'approximate, as printed' },
        'gsm8k',
        Number(value),
      ),
    ),
    ...readTable('scale', ({ row: [ratio = ''], title, heading }) => {
      const subject = subjectNamed(title, ratio);
      return heading.startsWith('GSM8K')
        ? [{ ...gsm8k, ...subject, items: SCALE_ITEMS[title] ?? null }, 'gsm8k']
        : [{ ...kl, ...subject }, 'train-kl'];
    }),
  ];
}

const SUITE = alike(`Ouro-2.6B-Thinking, ${LIKELIHOOD}`, {
  'ARC-e': 'arc-e',
  'ARC-c': 'arc-c',
  HSwag: 'hellaswag',
  WGr: 'winogrande',
  'C-QA': 'commonsense-qa',
  MMLU: 'mmlu',
  PIQA: 'piqa',
  OBQA: 'openbook-qa',
  Avg: 'mc-avg',
});

const HUGINN_COLUMNS = alike(
  'R = 32, decoder-independent, against the uncompressed model on held-out text; ratio of the looped core',
  {
    'SVD KL': 'svd-kl',
    'SVD top-1': 'svd-top-1',
    'distill KL': 'distill-kl',
    'best top-1': 'top-1',
    'MC-avg': 'mc-avg',
  },
);

const ABLATIONS = {
  'held-out KL': column('ablation-kl', 'held-out teacher-forced KL after 300 steps', null, 32),
};

const DECOUPLED = {
  'reconstruction KL': column(
    'reconstruction-kl',
    'full-RoPE reconstruction, or post-hoc decoupled RoPE (d_rope = 64); frozen model',
  ),
};

export const AXES_FIGURES: readonly QualityFigure[] = [
  ...readColumns('isocache', OURO, ISO_CACHE, named),
  ...scale(),
  ...readColumns('huginn', HUGINN, HUGINN_COLUMNS, ([label = '']) =>
    subjectNamed(label === 'teacher' ? label : `LLA ${label}`),
  ),
  ...readColumns('ablations', OURO, ABLATIONS, ([ablation = '', variant = '']) => ({
    ...subjectNamed('LLA', '4×'),
    variant: `${ablation}: ${variant}`,
  })),
  ...readColumns('decoupled_char', OURO, DECOUPLED, ([label = '']) => ({
    ...subjectNamed('LLA', '4×'),
    ...(label.startsWith('full-RoPE')
      ? {}
      : { pathClass: 'absorbed', variant: label.replace(/^decoupled-RoPE(?:,| \+) /, '') }),
  })),
  ...readColumns('scale_mc', OURO_26, SUITE, named),
];
