/** Tables of Ouro-1.4B's generation: tier4 (cold-start sweep), broadsuite, onpolicy and evict. */
import type { Eviction } from '../../eviction/policy.js';
import type { QualityFigure } from '../figure.js';
import { type ColumnOf, readColumns, subjectNamed } from '../printed.js';

const MODEL = 'ouro-1.4b';
const named = ([label = '']: readonly string[]) => subjectNamed(label);

function tier4(): QualityFigure[] {
  const columns: Record<string, ColumnOf> = {
    'GSM8K strict': {
      metric: 'gsm8k',
      protocol: 'cold start; GSM8K 5-shot strict EM, 256 new tokens',
      // So the appendix, twice; the caption has the cached reconstruction decoder (contradiction decoder-tier4).
      decoder: 'streaming',
      items: 200,
      teacherItems: 100,
    },
    'codec train KL': {
      metric: 'train-kl',
      protocol: 'held-out teacher-forced KL of the trained codec',
      decoder: null,
      items: 32,
    },
  };
  return readColumns('tier4', MODEL, columns, named);
}

/** The appendix gives the broad suite the two-pass decoder as a whole, and names it again for MATH-500 and BBH. */
const BROAD_SUITE: Readonly<Record<string, ColumnOf>> = {
  GSM8K: {
    metric: 'gsm8k',
    protocol: '5-shot strict EM, 256 new tokens',
    decoder: 'two-pass',
    items: 100,
    teacherItems: 1319,
  },
  'HumanEval b/p': {
    metric: ['humaneval', 'humaneval-plus'],
    protocol: 'EvalPlus pass@1, base and plus',
    decoder: 'two-pass',
    items: 164,
  },
  'MBPP b/p': {
    metric: ['mbpp', 'mbpp-plus'],
    protocol: 'EvalPlus pass@1, base and plus',
    decoder: 'two-pass',
    items: 378,
  },
  'MATH-500': {
    metric: 'math500',
    protocol: '4-shot, 2048 new tokens, symbolic verification',
    decoder: 'two-pass',
    items: 200,
    teacherItems: 500,
  },
  BBH: {
    metric: 'bbh',
    protocol: '3-shot exact match, 1024 new tokens',
    decoder: 'two-pass',
    items: 135,
    teacherItems: 675,
  },
  'MMLU-Pro': { metric: 'mmlu-pro', protocol: 'exact match, full set', decoder: 'two-pass' },
};

function onPolicy(): QualityFigure[] {
  const scored = {
    protocol: 'MATH-500, 4-shot, 2048 new tokens, final-answer extraction and symbolic verification',
    decoder: 'two-pass',
    items: 200,
    teacherItems: 500,
  } as const;
  const columns: Record<string, ColumnOf> = {
    'off-policy': { ...scored, metric: 'math500', variant: 'off-policy' },
    'on-policy': { ...scored, metric: 'math500', variant: 'on-policy' },
    'off no-ans': { ...scored, metric: 'math500-no-answer', variant: 'off-policy' },
    'on no-ans': { ...scored, metric: 'math500-no-answer', variant: 'on-policy' },
  };
  return readColumns('onpolicy', MODEL, columns, ([label = '']) =>
    subjectNamed(label.startsWith('teacher') ? label : `LLA ${label}`),
  );
}

function evict(): QualityFigure[] {
  const eviction: Eviction = { policy: 'streaming', sinkTokens: 4, windowTokens: 256, budgetTokens: 260 };
  const columns: Record<string, ColumnOf> = {
    'GSM8K strict': {
      metric: 'gsm8k',
      protocol: 'GSM8K 5-shot strict EM; StreamingLLM/H2O-style eviction, about 74 % of a 1k-token prompt is evicted',
      // Not named for this table: the rule of Section experiments for generative results.
      decoder: 'two-pass',
    },
  };
  return readColumns('evict', MODEL, columns, ([label = '']) => ({
    ...(label.includes('kv_quant-8') ? subjectNamed('kv_quant', '2×') : subjectNamed(label)),
    eviction,
  }));
}

export const GENERATION_FIGURES: readonly QualityFigure[] = [
  ...tier4(),
  ...readColumns('broadsuite', MODEL, BROAD_SUITE, named),
  ...onPolicy(),
  ...evict(),
];
