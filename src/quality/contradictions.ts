/**
 * Where the paper's numbers contradict each other, its text, arithmetic or other groups. Shown to the reader, never
 * smoothed over.
 */

import type { QualityModel } from './figure.js';

export interface Contradiction {
  readonly id: string;
  /** A phrase that completes "published figures disagree on …". */
  readonly subject: string;
  /** Models whose plans it concerns. */
  readonly models: readonly QualityModel[];
  /** The numbers that do not agree, each with its place. */
  readonly figures: readonly { readonly value: string; readonly source: string }[];
  readonly explanation: string;
}

/** A contradiction, its figures written as `value @ source`. */
function contradiction(
  id: string,
  subject: string,
  figures: readonly string[],
  explanation: string,
  models: readonly QualityModel[] = ['ouro-1.4b'],
): Contradiction {
  return {
    id,
    subject,
    models,
    explanation,
    figures: figures.map((f) => ({ value: f.split(' @ ')[0] as string, source: f.split(' @ ')[1] as string })),
  };
}

/** Places where published figures of one configuration disagree. */
export const CONTRADICTIONS: readonly Contradiction[] = [
  contradiction(
    'gsm8k-4x',
    'GSM8K of LLA 4× on Ouro-1.4B',
    ['0.590 @ Table tier4', '0.590 @ Table broadsuite', '0.800 @ Table isocache'],
    'Two checkpoints and two decoders under one name: a cold-start sweep against the checkpoint selected for the ' +
      'iso-cache comparison. Even 21.33× scores 0.740 in the second, above 2.67× (0.575) in the first.',
  ),
  contradiction(
    'gsm8k-teacher',
    'GSM8K of the uncompressed Ouro-1.4B',
    ['0.820 @ Table tier4', '0.794 @ Table broadsuite', '0.794 @ Table isocache'],
    'A 100-item subset against the full 1,319 items. Tier4 compares codecs on 200 items with a teacher on 100.',
  ),
  contradiction(
    'train-kl-4x',
    'train-KL of LLA 4× on Ouro-1.4B',
    ['0.0160 @ Table tier4', '0.059 @ Table isocache', '0.105 @ Table ablations'],
    'All three are called held-out teacher-forced KL. The third is after 300 steps of 3,000; for the first two ' +
      'the paper names different checkpoints only. The worse KL (0.059) has the better GSM8K (0.800).',
  ),
  contradiction(
    'train-kl-transition',
    'whether train-KL collapses where GSM8K jumps (2.67× to 2×)',
    [
      '0.0157 at 2.67× @ Table tier4',
      '0.0155 at 2.00× @ Table tier4',
      '0.0070 at 1.60× @ Table tier4',
      '"collapses over the same transition" @ text, Section experiments',
    ],
    'GSM8K rises from 0.575 to 0.750 while KL stays where it is; KL falls one step later, where GSM8K hardly moves.',
  ),
  contradiction(
    'math500-3.2x',
    'MATH-500 of LLA 3.2× on Ouro-1.4B',
    ['0.72 @ Table broadsuite', '0.460 off-policy @ Table onpolicy', '0.700 on-policy @ Table onpolicy'],
    'The broad suite does not say which training it used; its 0.72 exceeds both rows of the on-policy table and ' +
      'its own 2.67× (0.54).',
  ),
  contradiction(
    'math500-4x',
    'MATH-500 of LLA 4× on Ouro-1.4B',
    ['0.52 @ Table broadsuite', '0.430 off-policy @ Table onpolicy', '0.660 on-policy @ Table onpolicy'],
    'As at 3.2×; the abstract starts from 0.43.',
  ),
  contradiction(
    'math500-order',
    'which way off-policy MATH-500 goes as compression rises',
    [
      '0.430 at 4× @ Table onpolicy',
      '0.530 at 5.33× @ Table onpolicy',
      '0.650 at 10.67× @ Table onpolicy',
      '0.660 at 21.33× @ Table onpolicy',
    ],
    'The text says that long reasoning breaks first and degrades throughout under compression; the table rises ' +
      'from 4× to 21.33×.',
  ),
  contradiction(
    'mla-head-order',
    'which way GSM8K of mla-head goes on Ouro-1.4B as compression rises',
    [
      '0.522 at 4× @ Table isocache',
      '0.180 at 5.33× @ Table isocache',
      '0.680 at 21.33× @ Table isocache',
      'train-KL 0.122, 0.123, 0.128 in that order @ Table isocache',
      'MC-avg 0.585, 0.576, 0.613 @ Table isocache',
    ],
    'The smallest cache scores highest and the middle one lowest, though all have the same recipe and nearly the ' +
      'same KL. So a score says little about the next ratio, or about another training.',
  ),
  contradiction(
    'scale-order',
    'which way quality of mla-head and LLA-2D goes on 2.6B as compression rises',
    [
      'mla_head 0.585, 0.772, 0.775 at 4×, 5.33×, 10.67× @ Table scale',
      'LLA-2D 0.66, 0.74, 0.82 @ Table scale',
      'LLA-2D train-KL 0.192, 0.165, 0.110 @ Table scale',
      'LLA-2D average 0.607, 0.611, 0.631 @ Table scale_mc',
    ],
    'The smaller latent keeps more, though a larger one can hold all that it holds. So training decided these ' +
      'scores as well as the axis.',
    ['ouro-2.6b'],
  ),
  contradiction(
    'code-4x',
    'whether code and MMLU-Pro stay at or above the teacher through 4×',
    [
      'HumanEval 0.610, teacher 0.707 @ Table broadsuite',
      'MBPP 0.616, teacher 0.720 @ Table broadsuite',
      'MMLU-Pro 0.416, teacher 0.481 @ Table broadsuite',
      '"at or above the teacher through 4×" @ caption, Figure broadsuite',
    ],
    'By the table it holds through 2× for code, and for MMLU-Pro at no ratio (0.467 to 0.475 against 0.481). The ' +
      'appendix itself says that lighter ratios are needed.',
  ),
  contradiction(
    'drop-in',
    'whether 1.33× to 2× is close to a drop-in replacement on Ouro-1.4B',
    [
      '"close to a drop-in replacement across the broad suite" @ text, Section discussion',
      'differences "fall within benchmark variation" @ text, Section broadsuite',
      'MATH-500 0.63 at 2.00×, teacher 0.74 @ Table broadsuite',
      'MATH-500 0.85 and GSM8K 0.94 at 2.00× @ Table retention',
    ],
    'True of code, BBH and MMLU-Pro. The loss of MATH-500 at 2× is 2.8 standard errors of 200 and 500 items.',
  ),
  contradiction(
    'retention-order',
    'which tasks degrade fastest under compression',
    [
      'GSM8K and BBH fastest, code and MMLU-Pro least @ caption, Table retention',
      'MATH-500 "the most sensitive task" @ text, Section experiments',
      'at 4.00×: MATH-500 0.70, GSM8K and BBH 0.74 @ Table retention',
      'at 3.20×: MATH-500 0.97, BBH 0.70 @ Table retention',
      'at 2.67×: HumanEval 0.77 and 0.73, BBH 0.82 @ Table retention',
    ],
    'No order holds at all ratios.',
  ),
  contradiction(
    'kv-quant-mild',
    'whether 4-bit quantisation is harmless on Ouro-1.4B',
    [
      '"competitive at 4×", "harmless at mild compression" @ text, Section experiments',
      'GSM8K 0.702, teacher 0.794 @ Table isocache',
      'GSM8K 0.814 on 2.6B, teacher 0.83 @ Table scale',
    ],
    'It keeps 88 % of GSM8K on 1.4B and 98 % on 2.6B.',
  ),
  contradiction(
    'evict-baseline',
    'what eviction is compared with',
    [
      'both rows fall from about 0.79 @ caption, Table evict',
      '0.800 for LLA 4×, 0.794 for the teacher, no row for 8 bits @ Table isocache',
      '0.590 for LLA 4× @ Table tier4',
    ],
    'No table has the 8-bit codec without eviction. The caption refers to the iso-cache table, so LLA 4× is that ' +
      'checkpoint, not the cold-start one.',
  ),
  contradiction(
    'passkey-4x-64k',
    'reliable retrieval of LLA 4× on Ouro-1.4B',
    ['at least 64k at ≤ 5.33× @ text, Section onpolicy', '0.87 at 64k @ Table passkey'],
    'Below the paper’s own line of 0.9, so 32k by the table, though 5.33× reaches 64k. Cells have 15 trials: 0.87 ' +
      'is 13 of 15, 0.93 would be 14.',
  ),
  contradiction(
    'passkey-cells',
    'whether every cell of the passkey figure is in Table passkey',
    [
      'the teacher, 4×, 5.33×, 10.67×, 21.33× of the 1.4B @ Table passkey',
      'curves at 14.2× and 15.5×, and of the 2.6B at 10.67× @ caption, Figure passkey',
    ],
    'For 14.2×, 15.5× and the 2.6B there is only the text (8k; below 1.0 at every length; perfect to 32k).',
    ['ouro-1.4b', 'ouro-2.6b'],
  ),
  contradiction(
    'ratio-15.5x',
    'the ratio 15.5×',
    ['15.5× @ text, Section onpolicy', 'rk + rv = 66 @ Equation ratio'],
    'A sum of 66 has no integer 3:5 split, which every other codec on Ouro uses. Its ranks are not stated.',
  ),
  contradiction(
    'matched-budget',
    'whether per-head LLA outperforms the other axes at matched budget',
    [
      'MC-avg at 4×: kv-quant 0.645, LLA 0.640 @ Table isocache',
      'GSM8K at 5.33×: LLA-2D 0.760, LLA 0.752 @ Table isocache',
      'train-KL at 21.33×: LLA-2D 0.097, LLA 0.128, mla-head 0.128 @ Table isocache',
      'average at 4×: kv-quant 0.645, LLA 0.645 @ Table scale_mc',
      'abstract @ text',
    ],
    'True of GSM8K at 4× and 21.33× and of most rows; not of every metric and ratio.',
    ['ouro-1.4b', 'ouro-2.6b'],
  ),
  contradiction(
    'several-points',
    'whether LLA on 2.6B stays several points above the head and layer baselines and LLA-2D at every budget',
    ['10.67×: LLA 0.640, LLA-2D 0.631 @ Table scale_mc', 'MMLU at 5.33×: LLA 0.748, mla-head 0.747 @ Table scale_mc'],
    'Against LLA-2D at 10.67× it is 0.9 points.',
    ['ouro-2.6b'],
  ),
  contradiction(
    'scale-layer',
    'whether Table scale shows that layer baselines lose more',
    ['columns LLA, mla_head, LLA-2D, kv_quant @ Table scale', '"head and layer baselines" @ caption, Table scale'],
    'It has no layer (cla) column; on 2.6B there is no generation figure for cla.',
    ['ouro-2.6b'],
  ),
  contradiction(
    'items-isocache',
    'the items behind GSM8K of the iso-cache codecs',
    ['100 items @ text, Section expdetails', '0.522, 0.702, 0.752, 0.122, 0.723 @ Table isocache'],
    'With 100 items a score has two decimals. 1,319 items would give all of these numbers; 100 or 200 cannot.',
  ),
  contradiction(
    'items-broadsuite',
    'the items and decoder behind GSM8K of the broad-suite codecs',
    [
      '100 items, faithful decoder @ text, Section expdetails',
      '0.795, 0.755, 0.575 @ Table broadsuite',
      'the same six scores @ Table tier4',
    ],
    'They are the tier4 scores (200 items, earlier streaming decoder); 100 items cannot give them. Their teacher ' +
      'in the same row is the 1,319-item figure.',
  ),
  contradiction(
    'items-bbh',
    'the items behind BBH',
    [
      '135 for codecs, 675 for the teacher @ text, Section expdetails',
      '0.705, 0.695, 0.677, 0.495, 0.527 @ Table broadsuite',
    ],
    'No whole number of 135 gives these five; 675 gives all seven of the column.',
  ),
  contradiction(
    'items-scale',
    'whether the arms of a table are scored on identical items',
    [
      'identical items @ text, Section expdetails',
      'LLA and mla_head 1,319 items, LLA-2D 100 @ text, Section expdetails',
      '0.66, 0.74, 0.82 for LLA-2D @ Table scale',
    ],
    'The two-decimal LLA-2D scores carry a standard error of about 4 points, the others 1.',
    ['ouro-2.6b'],
  ),
  contradiction(
    'decoder-tier4',
    'the decoder of Table tier4',
    [
      'cached reconstruction decoder @ caption, Table tier4',
      'earlier streaming reconstruction decoder @ text, Section expdetails',
    ],
    'The appendix says so twice; the caption contradicts it.',
  ),
  contradiction(
    'svd-init',
    'the gain from SVD initialisation',
    ['0.105 @ Table ablations', '0.771 @ Table ablations', '"an order of magnitude" @ text, Section experiments'],
    'It is a factor of 7.3.',
  ),
  contradiction(
    'huginn-ratio',
    'the ratios of Huginn',
    ['16/32/64/128× @ Table huginn', '11.0/16.5/22.0/26.4× for the whole model @ arithmetic'],
    'They count the looped core. Prelude and coda layers keep ordinary caches, which the codec leaves alone.',
    ['huginn-3.5b'],
  ),
  contradiction(
    'batch-768',
    'whether maximum batch follows the ideal ρ',
    ['768 / 32 = 24 @ Table memory', 'ρ = 21.3 @ Table memory'],
    'More than ideal: the batches are points of a grid 2^k and 3·2^(k−1). Weights, codec and cache alone would ' +
      'allow 979 and 45 in the 143,771 MiB that an H200’s driver reports; with the planner’s reserve and workspace ' +
      'it is 972 and 45 (796 where rebuilt K and V are written to memory).',
  ),
  contradiction(
    'latency-throughput',
    'how long a step of the teacher takes',
    ['63.6 ms a token @ Table memory', '748 tok/s @ Table memory', '32 sequences at most @ Table memory'],
    'At any batch up to 32 the peak is a step of at most 32 / 748 = 42.8 ms, below the 63.6 ms that one token ' +
      'takes. A step’s host time cannot explain the second and leave room for the first; the paper states the batch ' +
      'of neither.',
  ),
  contradiction(
    'lla-2d-infeasible',
    'when LLA-2D has too many parameters',
    [
      'parameter-infeasible on Huginn @ text, Section experiments',
      '28.5 B at 16× on Huginn, 801 % of the model @ arithmetic',
      '0.66 for LLA-2D 4× on 2.6B @ Table scale',
      '3.22 B there, 121 % of the model @ arithmetic',
    ],
    'More parameters than the model is not the limit: the paper trained such a codec. It states none; in AdamW ' +
      'the first takes 343 GB or more, the second 39 GB.',
    ['ouro-2.6b', 'huginn-3.5b'],
  ),
  contradiction(
    'absorbed-parity',
    'what absorbed attention saves and gains',
    [
      '4× @ text, Section serving_details',
      '3.94× with a rotary branch shared by heads, 3.2× with one per head @ arithmetic',
      '4.46 ms/tok at 262,144 tokens @ Table absorbed_latency',
    ],
    'The stored rotary branch (64 dims) counts too. And 262k tokens of the whole model are 192 GiB, more than an ' +
      'H200 holds, so the times are of one layer (four loops), with random weights.',
  ),
  contradiction(
    'headline-decoder',
    'the decoder behind accuracy and behind the memory saving',
    [
      'GSM8K, broad suite, MATH-500: two-pass decoder that keeps full-width K/V @ text, Section expdetails',
      'batch and bytes: latent-store decoder @ Table memory',
    ],
    'Only passkey was measured on the latent store, which realises the saving. The two should agree up to ' +
      'rounding; the paper does not show it.',
    ['ouro-1.4b', 'ouro-2.6b'],
  ),
  contradiction(
    'final-loop',
    'whether the rows of the last loop can serve all loops',
    [
      'GSM8K 0.000 of 0.794 @ Table isocache',
      'GSM8K 0.7885 of 0.7892, MATH-500 0.804 of 0.824 @ Ouro (arXiv 2510.25741), Table 14',
      'more than 10 points of GSM8K @ Ouro (arXiv 2510.25741), section 5.4.2, where prompts share too',
      'mean of five tasks 68.33 of 70.11, 69.96 of 71.21 on 2.6B @ FlashLoop (arXiv 2609.29812), by a summary',
      'MATH-500 0.459 of 0.759, 0.739 of 0.811 on 2.6B @ HLA (arXiv 2610.07940), Table 1',
    ],
    'Several methods under one name. The paper forwards prompts and tokens a second time on the last loop’s rows. ' +
      'Ouro shares while decoding alone, and finds that prompts cannot. HLA shares while decoding, too, keeps the ' +
      'last 128 tokens exact in every loop besides, and loses far more of MATH-500; it allows 8,192 new tokens.',
    ['ouro-1.4b', 'ouro-2.6b'],
  ),
];

/** `0.590 (Table tier4); 0.800 (Table isocache)`: the numbers that do not agree. */
export const figuresText = ({ figures }: Contradiction, between = '; '): string =>
  figures.map((f) => `${f.value} (${f.source})`).join(between);

/** Contradictions that concern a model (a measured model's name); none for a model that the paper does not measure. */
export function contradictionsFor(model: string): Contradiction[] {
  return CONTRADICTIONS.filter((c) => c.models.some((m) => m === model));
}
