/**
 * Exit depths that were published: how many loops generated tokens took under a model's own gate, and what its answers
 * were worth then. `--depth` names them. Read from vllm-rlt and its fork (Apache-2.0).
 */

export interface PublishedDepths {
  /** Preset. */
  readonly model: string;
  /** In `--depth`, behind the model's name. */
  readonly at: string;
  /** In words: the gate and the text. */
  readonly label: string;
  /** Share of tokens that leave after loop 1, 2, … */
  readonly shares: readonly number[];
  /** Right answers, with the gate and with all loops; null where nobody asked. */
  readonly quality: {
    readonly task: string;
    readonly items: number;
    readonly right: number;
    readonly allLoops: number;
  } | null;
  readonly source: string;
}

const OURO = 'ouro-1.4b';

export const EXIT_DEPTHS: readonly PublishedDepths[] = [
  {
    model: OURO,
    at: '0.5',
    label: 'gate at 0.5 on 100 questions of GSM8K, three examples in the prompt',
    shares: [0, 0.043, 0.877, 0.08],
    quality: { task: 'GSM8K', items: 100, right: 64, allLoops: 63 },
    source: '0z5a/vllm-rlt 4e497fb docs/loopkv/quality.md',
  },
  {
    model: OURO,
    at: '0.5:short',
    label: 'gate at 0.5 on four prompts of 128 tokens, repeated, 256 tokens each',
    shares: [0, 0.779, 0.221, 0],
    quality: null,
    source: '0z5a/vllm-rlt 9894e0e docs/loopkv/evidence/ouro-1.4b-pilot-pairs.json',
  },
  {
    model: OURO,
    at: '0.5:delayed',
    label: 'gate at 0.5, read one loop later, on made-up requests over HTTP',
    shares: [0, 0, 0.554, 0.446],
    quality: null,
    source: '0z5a/vllm-rlt e6b72c8 docs/loopkv/evidence/http-pilot-v1.json',
  },
  {
    model: OURO,
    at: '0.2',
    // Means of 2.43 loops at once and 3.34 read a loop later, medians over 11 cells: loop 2 has 4 − 3.34.
    label: 'gate at 0.2 on LongBench-v2, from its mean loops (2.43, and 3.34 read a loop later)',
    shares: [0, 0.66, 0.25, 0.09],
    quality: null,
    source: '0z5a/vllm-rlt ca68902 docs/feature_stacking_results_20260916.md',
  },
];

/** The entry that a word names, such as `ouro-1.4b@0.5`; undefined where there is none. */
export const publishedDepths = (word: string): PublishedDepths | undefined =>
  EXIT_DEPTHS.find(({ model, at }) => word === `${model}@${at}`);

/** Names of a model's entries. */
export const depthNames = (model: string | null): string[] =>
  EXIT_DEPTHS.filter((d) => d.model === model).map((d) => `${d.model}@${d.at}`);
