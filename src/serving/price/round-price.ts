/** What a round of speculation costs, and where it is faster than tokens one by one. */
import { MixedBatch } from '../scheduler/batch.js';
import type { LoopPricer } from './loop-price.js';
import { tokensPerRound, type Speculation } from '../speculation.js';

/**
 * Seconds of a round of all sequences of a batch (speculation.ts).
 * @param batch a row a sequence @param rows the same sequences with K + 1 rows each, where each reads for itself
 */
export function roundSeconds(
  { draftLoops, draftTokens }: Pick<Speculation, 'draftLoops' | 'draftTokens'>,
  loops: number,
  pricer: LoopPricer,
  batch: MixedBatch,
  rows: () => MixedBatch,
): number {
  const n = batch.size;
  const drafts = draftLoops * (draftTokens + 1) * pricer.pass(batch);
  const outside = draftTokens * pricer.outside(n, 0, n, 0) + pricer.outside(n, 0, n * (draftTokens + 1), 0);
  const verified = pricer.readsTogether ? pricer.pass(batch, draftTokens + 1) : pricer.pass(rows());
  return drafts + (loops - draftLoops) * verified + outside;
}

function batchOf(pricer: LoopPricer, rows: number, length: number): MixedBatch {
  const batch = new MixedBatch(pricer.knots, 1);
  for (let i = 0; i < rows; i++) batch.add(length);
  return batch;
}

/** Where rounds are faster than tokens one by one. */
export function whereItPays(
  of: Speculation,
  loops: number,
  pricer: LoopPricer,
  at: { readonly length: number; readonly sequences: number; readonly mostSequences: number },
): { readonly paysFromAcceptance: number | null; readonly paysUpToSequences: number } {
  const given = tokensPerRound(of);
  /** Tokens of a round that take as long one by one. */
  const breakEven = (sequences: number): number => {
    const batch = batchOf(pricer, sequences, at.length);
    const step = loops * pricer.pass(batch) + pricer.outside(sequences, 0, sequences, 0);
    const rows = (): MixedBatch => batchOf(pricer, sequences * (of.draftTokens + 1), at.length);
    return roundSeconds(of, loops, pricer, batch, rows) / step;
  };
  const wanted = breakEven(at.sequences);
  let [low, high] = [0, at.mostSequences];
  if (breakEven(high) < given) low = high;
  // Rounds have more rows than steps, so that they lose more the more sequences there are.
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (breakEven(middle) < given) low = middle;
    else high = middle;
  }
  const acceptance = Array.from({ length: 1001 }, (_, i) => i / 1000).find(
    (p) => tokensPerRound({ ...of, acceptance: p }) >= wanted,
  );
  return { paysFromAcceptance: acceptance ?? null, paysUpToSequences: low };
}
