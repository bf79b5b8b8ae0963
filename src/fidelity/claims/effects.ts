/** Effects that several claims share. */
import { mean, sum } from '../../numbers/statistics.js';
import type { ItemScore } from '../score.js';
import { meanEffect, textsOf, type Asked, type Claim, type Effect, type Need, type Seen } from './claim.js';

/** Below this a divergence is rounding, nats. */
const LEAST_KL = 1e-9;

/** What a claim needs; null where a part of it is not there. */
export const whole = (needs: readonly (Need | null)[]): readonly Need[] | null =>
  needs.every((need) => need !== null) ? needs : null;

export const klsOf = (scores: readonly ItemScore[], asked: readonly Asked[] = ['text']): readonly number[] =>
  asked.flatMap((kind) => textsOf(scores, kind)).map(({ kl }) => kl);

/**
 * log10 of one divergence over another, each summed over texts. A ratio, because an untrained model's predictions are
 * nearly alike whatever its cache holds: differences in nats would be small on it by themselves.
 * @param worse divergence of each text, nats
 */
export const klRatio = (worse: readonly number[], better: readonly number[]): Effect => ({
  texts: worse.length,
  over: (texts) => {
    const [above, below] = [worse, better].map((kl) =>
      Math.max(LEAST_KL * texts.length, sum(texts.map((i) => kl[i] as number))),
    ) as [number, number];
    return Math.log10(above / below);
  },
});

export const nats = (kls: readonly number[]): string => mean(kls).toPrecision(2);

export const worseThan = (
  what: Pick<Claim, 'claim' | 'paper' | 'note'>,
  [worse, better]: readonly [name: string, name: string],
  needs: readonly [worse: Need | null, better: Need | null],
): Claim => {
  const both = ([a = [], b = []]: Seen['scores']) => [klsOf(a), klsOf(b)] as const;
  return {
    ...what,
    effect: `log10 of KL of ${worse} / KL of ${better}`,
    needs: whole(needs),
    effectOf: ({ scores }) => klRatio(...both(scores)),
    figures: ({ scores }) => `${both(scores).map(nats).join(' against ')} nats`,
  };
};

/** A claim that greedy rollouts follow the uncompressed model further with one row than with another. */
export const followsFurther = (
  what: Pick<Claim, 'claim' | 'effect' | 'paper' | 'note'>,
  asked: Asked,
  needs: readonly [further: Need | null, other: Need | null],
): Claim => {
  const both = ([a = [], b = []]: Seen['scores']) =>
    [a, b].map((scores) => textsOf(scores, asked).map(({ agreed }) => agreed));
  return {
    ...what,
    needs: whole(needs),
    effectOf: ({ scores }) => {
      const [further = [], other = []] = both(scores);
      return meanEffect(further.map((agreed, i) => agreed - (other[i] as number)));
    },
    figures: ({ scores }) =>
      `${both(scores)
        .map((agreed) => mean(agreed).toPrecision(3))
        .join(' against ')} tokens`,
  };
};

/** A claim about keys and values themselves. @param of a text */
export const ofStructure = (
  what: Omit<Claim, 'needs' | 'effectOf'>,
  of: (structure: Seen['structure'][number]) => number,
): Claim => ({
  ...what,
  needs: [],
  effectOf: ({ structure }) => meanEffect(structure.map(of).filter(Number.isFinite)),
});
