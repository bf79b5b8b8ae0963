/** Scores of predictions against those of the uncompressed model, item by item, and what they amount to. */
import { groups as groupBy } from 'd3-array';
import { bootstrapMean, mean, type Interval } from '../numbers/statistics.js';
import { greedy } from '../decoder/sampler.js';
import type { Predictions } from './forced.js';
import type { Item, ItemKind } from './items.js';

export interface ItemScore {
  readonly kind: ItemKind;
  /** Tokens of the prompt. */
  readonly context: number;
  /** Tokens that were predicted after it. */
  readonly scored: number;
  readonly depth?: number;
  /** Mean over its tokens, nats. */
  readonly kl: number;
  /** Share of its tokens whose most likely one is the uncompressed model's. */
  readonly top1: number;
  /** Mean of −log p of the forced tokens, nats. */
  readonly loss: number;
  /** Tokens that are predicted as forced, before the first that is not. */
  readonly agreed: number;
  /** 1 where all are. */
  readonly exact: number;
}

/** KL(p ‖ q) in nats, from log-probabilities. */
export function divergence(p: Float32Array, q: Float32Array): number {
  let sum = 0;
  for (let i = 0; i < p.length; i++) sum += Math.exp(p[i] as number) * ((p[i] as number) - (q[i] as number));
  return Math.max(0, sum);
}

/** @param teacher predictions of the uncompressed model on the same forced tokens */
export function scoreItem(item: Item, teacher: Predictions, own: Predictions): ItemScore {
  const { continuation } = item;
  const hits = own.map((p, i) => (greedy(p) === continuation[i] ? 1 : 0));
  const firstMiss = hits.findIndex((hit) => hit === 0);
  const agreed = firstMiss < 0 ? hits.length : firstMiss;
  return {
    kind: item.kind,
    context: item.prompt.length,
    scored: own.length,
    ...(item.depth === undefined ? {} : { depth: item.depth }),
    kl: mean(own.map((q, i) => divergence(teacher[i] as Float32Array, q))),
    top1: mean(own.map((q, i) => (greedy(q) === greedy(teacher[i] as Float32Array) ? 1 : 0))),
    loss: mean(own.map((q, i) => -(q[continuation[i] as number] as number))),
    agreed,
    exact: agreed === hits.length ? 1 : 0,
  };
}

/** Exact answers at a context and depth. */
interface PasskeyCell {
  readonly context: number;
  readonly depth: number;
  readonly count: number;
  readonly score: number;
}

/** Means with 95 % bootstrap intervals over items; null where there is no item. */
export interface Scores {
  /** Nats a token, on texts. */
  readonly kl: Interval | null;
  readonly top1: Interval | null;
  readonly perplexity: Interval | null;
  /** Tokens that a greedy rollout follows the uncompressed model's. */
  readonly agreedTokens: Interval | null;
  /** Share of the rollouts that follow it to the end. */
  readonly agreement: Interval | null;
  readonly passkey: Interval | null;
  readonly recall: Interval | null;
  readonly sums: Interval | null;
  readonly passkeyCells: readonly PasskeyCell[];
}

/** @param seed of the bootstrap */
export function summarise(scores: readonly ItemScore[], seed = 1): Scores {
  const of = (kind: ItemKind): ItemScore[] => scores.filter((s) => s.kind === kind);
  const interval = (kind: ItemKind, value: (s: ItemScore) => number): Interval | null => {
    const values = of(kind).map(value);
    return values.length === 0 ? null : bootstrapMean(values, seed);
  };
  const loss = interval('text', ({ loss }) => loss);
  const cells = groupBy(of('passkey'), (s) => `${s.context} ${s.depth}`);
  return {
    kl: interval('text', ({ kl }) => kl),
    top1: interval('text', ({ top1 }) => top1),
    perplexity: loss && { estimate: Math.exp(loss.estimate), low: Math.exp(loss.low), high: Math.exp(loss.high) },
    agreedTokens: interval('rollout', ({ agreed }) => agreed),
    agreement: interval('rollout', ({ exact }) => exact),
    passkey: interval('passkey', ({ exact }) => exact),
    recall: interval('recall', ({ exact }) => exact),
    sums: interval('sum', ({ exact }) => exact),
    passkeyCells: cells.map(([, own]) => ({
      context: (own[0] as ItemScore).context,
      depth: (own[0] as ItemScore).depth as number,
      count: own.length,
      score: mean(own.map(({ exact }) => exact)),
    })),
  };
}
