/** Tables that compare codecs on different axes: isocache (1.4B), scale and scale_mc (2.6B), huginn, and ablations. */
import { type Metric, type QualityFigure, figure } from '../figure.js';
import { cellsOf, type ColumnOf, readColumns, readTable, subjectNamed } from '../printed.js';

const [OURO, OURO_26, HUGINN] = ['ouro-1.4b', 'ouro-2.6b', 'huginn-3.5b'] as const;
const named = ([label = '', ratio = '']: readonly string[]) => subjectNamed(label, ratio);
const LIKELIHOOD = { protocol: '0-shot log-likelihood accuracy, full sets, decoder-independent', decoder: null };

const ISO_CACHE: Readonly<Record<string, ColumnOf>> = {
  'train-KL': {
    metric: 'train-kl',
    protocol: 'held-out teacher-forced KL, iso-cache checkpoint',
    decoder: null,
    items: 32,
  },
  GSM8K: {
    metric: 'gsm8k',
    protocol: '5-shot strict EM, 256 new tokens',
    decoder: 'two-pass',
    items: 100,
    teacherItems: 1319,
  },
  'MC-avg': { metric: 'mc-avg', ...LIKELIHOOD },
  MMLU: { metric: 'mmlu', ...LIKELIHOOD },
};

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

const SUITE: Readonly<Record<string, Metric>> = {
  'ARC-e': 'arc-e',
  'ARC-c': 'arc-c',
  HSwag: 'hellaswag',
  WGr: 'winogrande',
  'C-QA': 'commonsense-qa',
  MMLU: 'mmlu',
  PIQA: 'piqa',
  OBQA: 'openbook-qa',
  Avg: 'mc-avg',
};

function suite(): QualityFigure[] {
  const scored = { ...LIKELIHOOD, protocol: `Ouro-2.6B-Thinking, ${LIKELIHOOD.protocol}` };
  const columns = Object.fromEntries(Object.entries(SUITE).map(([title, metric]) => [title, { ...scored, metric }]));
  return readColumns('scale_mc', OURO_26, columns, named);
}

function huginn(): QualityFigure[] {
  const scored = {
    protocol: 'R = 32, decoder-independent, against the uncompressed model on held-out text; ratio of the looped core',
    decoder: null,
  };
  const columns: Record<string, ColumnOf> = {
    'SVD KL': { ...scored, metric: 'svd-kl' },
    'SVD top-1': { ...scored, metric: 'svd-top-1' },
    'distill KL': { ...scored, metric: 'distill-kl' },
    'best top-1': { ...scored, metric: 'top-1' },
    'MC-avg': { ...scored, metric: 'mc-avg' },
  };
  return readColumns('huginn', HUGINN, columns, ([label = '']) =>
    subjectNamed(label === 'teacher' ? label : `LLA ${label}`),
  );
}

function ablations(): QualityFigure[] {
  const column: ColumnOf = {
    metric: 'ablation-kl',
    protocol: 'held-out teacher-forced KL after 300 steps',
    decoder: null,
    items: 32,
  };
  return readColumns('ablations', OURO, { 'held-out KL': column }, ([ablation = '', variant = '']) => ({
    ...subjectNamed('LLA', '4×'),
    variant: `${ablation}: ${variant}`,
  }));
}

function decoupled(): QualityFigure[] {
  const column: ColumnOf = {
    metric: 'reconstruction-kl',
    protocol: 'full-RoPE reconstruction, or post-hoc decoupled RoPE (d_rope = 64); frozen model',
    decoder: null,
  };
  return readColumns('decoupled_char', OURO, { 'reconstruction KL': column }, ([label = '']) => ({
    ...subjectNamed('LLA', '4×'),
    ...(label.startsWith('full-RoPE')
      ? {}
      : { pathClass: 'absorbed', variant: label.replace(/^decoupled-RoPE(?:,| \+) /, '') }),
  }));
}

export const AXES_FIGURES: readonly QualityFigure[] = [
  ...readColumns('isocache', OURO, ISO_CACHE, named),
  ...scale(),
  ...huginn(),
  ...ablations(),
  ...decoupled(),
  ...suite(),
];
