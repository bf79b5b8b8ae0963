/** Tables of Ouro-1.4B's generation: tier4 (cold-start sweep), broadsuite, onpolicy and evict. */
import { type Common, type Metric, type QualityFigure, figure, row } from '../figure.js';

const OURO = { model: 'ouro-1.4b' } as const;
const STREAMING_DECODER =
  'cold start; GSM8K 5-shot strict EM, 256 new tokens, earlier streaming reconstruction decoder';

function tier4(): QualityFigure[] {
  const table = { ...OURO, source: 'Table tier4' };
  const rows: readonly (readonly [ratio: string, gsm8k: number, kl: number])[] = [
    ['4.00', 0.59, 0.016],
    ['3.20', 0.575, 0.0153],
    ['2.67', 0.575, 0.0157],
    ['2.00', 0.75, 0.0155],
    ['1.60', 0.755, 0.007],
    ['1.33', 0.795, 0.0035],
  ];
  return [
    figure({ ...table, items: 100, protocol: STREAMING_DECODER }, 'gsm8k', 0.82),
    ...rows.flatMap(([ratioLabel, gsm8k, kl]) => [
      figure({ ...table, codec: 'lla', ratioLabel, items: 200, protocol: STREAMING_DECODER }, 'gsm8k', gsm8k),
      figure(
        { ...table, codec: 'lla', ratioLabel, items: 32, protocol: 'held-out teacher-forced KL of the trained codec' },
        'train-kl',
        kl,
      ),
    ]),
  ];
}

/**
 * Columns of Table broadsuite: metric, protocol, items of the teacher and of the codecs as the appendix states them.
 */
const SUITE: readonly (readonly [Metric, string, number | null, number | null])[] = [
  ['gsm8k', '5-shot strict EM, 256 new tokens', 1319, 100],
  ['humaneval', 'EvalPlus pass@1, base', 164, 164],
  ['humaneval-plus', 'EvalPlus pass@1, plus', 164, 164],
  ['mbpp', 'EvalPlus pass@1, base', 378, 378],
  ['mbpp-plus', 'EvalPlus pass@1, plus', 378, 378],
  ['math500', '4-shot, 2048 new tokens, symbolic verification, faithful decoder', 500, 200],
  ['bbh', '3-shot exact match, 1024 new tokens, faithful decoder', 675, 135],
  ['mmlu-pro', 'exact match, full set', null, null],
];

function broadSuite(): QualityFigure[] {
  const rows: readonly (readonly [ratio: string | null, ...values: number[]])[] = [
    [null, 0.794, 0.707, 0.671, 0.72, 0.595, 0.74, 0.708, 0.481],
    ['1.33', 0.795, 0.756, 0.713, 0.725, 0.606, 0.7, 0.705, 0.467],
    ['1.60', 0.755, 0.726, 0.689, 0.733, 0.624, 0.67, 0.695, 0.475],
    ['2.00', 0.75, 0.744, 0.695, 0.733, 0.603, 0.63, 0.677, 0.469],
    ['2.67', 0.575, 0.543, 0.488, 0.672, 0.566, 0.54, 0.578, 0.402],
    ['3.20', 0.575, 0.591, 0.537, 0.646, 0.537, 0.72, 0.495, 0.399],
    ['4.00', 0.59, 0.61, 0.561, 0.616, 0.513, 0.52, 0.527, 0.416],
  ];
  return rows.flatMap(([ratioLabel, ...values]) =>
    SUITE.map(([metric, protocol, teacherItems, items], i) => {
      const table = { ...OURO, source: 'Table broadsuite', protocol };
      const common: Common =
        ratioLabel === null ? { ...table, items: teacherItems } : { ...table, codec: 'lla', ratioLabel, items };
      return figure(common, metric, values[i] as number);
    }),
  );
}

function onPolicy(): QualityFigure[] {
  const table = {
    ...OURO,
    source: 'Table onpolicy',
    protocol: 'MATH-500, 4-shot, 2048 new tokens, final-answer extraction and symbolic verification, faithful decoder',
  };
  const metrics: readonly Metric[] = ['math500', 'math500-no-answer'];
  const rows: readonly (readonly [ratio: string, off: number, on: number, offNoAnswer: number, onNoAnswer: number])[] =
    [
      ['3.2', 0.46, 0.7, 0.21, 0.06],
      ['4', 0.43, 0.66, 0.15, 0.03],
      ['5.33', 0.53, 0.69, 0.12, 0.03],
      ['10.67', 0.65, 0.69, 0.09, 0.07],
      ['21.33', 0.66, 0.62, 0.11, 0.05],
    ];
  return [
    ...row({ ...table, items: 500 }, metrics, [0.74, 0.02]),
    ...rows.flatMap(([ratioLabel, off, on, offNone, onNone]) => [
      ...row({ ...table, codec: 'lla', ratioLabel, items: 200, variant: 'off-policy' }, metrics, [off, offNone]),
      ...row({ ...table, codec: 'lla', ratioLabel, items: 200, variant: 'on-policy' }, metrics, [on, onNone]),
    ]),
  ];
}

function evict(): QualityFigure[] {
  const table = {
    ...OURO,
    source: 'Table evict',
    protocol: 'GSM8K 5-shot strict EM; StreamingLLM/H2O-style eviction, about 74 % of a 1k-token prompt is evicted',
    eviction: { policy: 'streaming', sinkTokens: 4, windowTokens: 256, budgetTokens: 260 },
  } as const;
  return [
    figure({ ...table, codec: 'kv-quant', ratioLabel: '2' }, 'gsm8k', 0.51), // 8 bits
    figure({ ...table, codec: 'lla', ratioLabel: '4' }, 'gsm8k', 0.52),
  ];
}

export const GENERATION_FIGURES: readonly QualityFigure[] = [...tier4(), ...broadSuite(), ...onPolicy(), ...evict()];
