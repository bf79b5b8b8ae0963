/** Tables of Ouro-1.4B's generation: tier4 (cold-start sweep), broadsuite, onpolicy and evict. */
import type { Eviction } from '../../eviction/policy.js';
import type { Metric, QualityFigure } from '../figure.js';
import { column, type ColumnOf, readColumns, subjectNamed } from '../printed.js';

const MODEL = 'ouro-1.4b';
const named = ([label = '']: readonly string[]) => subjectNamed(label);

const TIER4 = {
  // The decoder as the appendix has it, twice; the caption has the cached reconstruction (contradiction decoder-tier4).
  'GSM8K strict': column('gsm8k', 'cold start; GSM8K 5-shot strict EM, 256 new tokens', 'streaming', 200, 100),
  'codec train KL': column('train-kl', 'held-out teacher-forced KL of the trained codec', null, 32),
};

/** The appendix gives the broad suite the two-pass decoder as a whole, and names it again for MATH-500 and BBH. */
const BROAD_SUITE: Readonly<Record<string, ColumnOf>> = {
  GSM8K: column('gsm8k', '5-shot strict EM, 256 new tokens', 'two-pass', 100, 1319),
  'HumanEval b/p': column(['humaneval', 'humaneval-plus'], 'EvalPlus pass@1, base and plus', 'two-pass', 164),
  'MBPP b/p': column(['mbpp', 'mbpp-plus'], 'EvalPlus pass@1, base and plus', 'two-pass', 378),
  'MATH-500': column('math500', '4-shot, 2048 new tokens, symbolic verification', 'two-pass', 200, 500),
  BBH: column('bbh', '3-shot exact match, 1024 new tokens', 'two-pass', 135, 675),
  'MMLU-Pro': column('mmlu-pro', 'exact match, full set', 'two-pass'),
};

const math = (metric: Metric, variant: string): ColumnOf => ({
  ...column(
    metric,
    'MATH-500, 4-shot, 2048 new tokens, final-answer extraction and symbolic verification',
    'two-pass',
    200,
    500,
  ),
  variant,
});
const ON_POLICY = {
  'off-policy': math('math500', 'off-policy'),
  'on-policy': math('math500', 'on-policy'),
  'off no-ans': math('math500-no-answer', 'off-policy'),
  'on no-ans': math('math500-no-answer', 'on-policy'),
};

const EVICTION: Eviction = { policy: 'streaming', sinkTokens: 4, windowTokens: 256, budgetTokens: 260 };
const EVICT = {
  'GSM8K strict': column(
    'gsm8k',
    'GSM8K 5-shot strict EM; StreamingLLM/H2O-style eviction, about 74 % of a 1k-token prompt is evicted',
    // Not named for this table: the rule of Section experiments for generative results.
    'two-pass',
  ),
};

export const GENERATION_FIGURES: readonly QualityFigure[] = [
  ...readColumns('tier4', MODEL, TIER4, named),
  ...readColumns('broadsuite', MODEL, BROAD_SUITE, named),
  ...readColumns('onpolicy', MODEL, ON_POLICY, ([label = '']) =>
    subjectNamed(label.startsWith('teacher') ? label : `LLA ${label}`),
  ),
  ...readColumns('evict', MODEL, EVICT, ([label = '']) => ({
    ...(label.includes('kv_quant-8') ? subjectNamed('kv_quant', '2×') : subjectNamed(label)),
    eviction: EVICTION,
  })),
];
