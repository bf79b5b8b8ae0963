/**
 * What a claim is: what it needs of a model, how its effect follows from that, and what becomes of it beside the same
 * effect on the model's untrained twin.
 */
import type { Geometry } from '../../geometry/geometry.js';
import type { Structure } from '../../fit/spectra.js';
import { rowId, type Row } from '../grid.js';
import { LONG_ROLLOUT, type Item, type ItemKind } from '../items.js';
import type { ItemScore } from '../score.js';
import type { Verdict } from '../../schema/claim-words.js';
import { bootstrap, type Interval } from '../../numbers/statistics.js';

/** A claim says that its effect is above zero. A function of texts, so that they can be resampled. */
export interface Effect {
  readonly texts: number;
  /** The effect over texts with these numbers, each as often as it is named. */
  readonly over: (texts: readonly number[]) => number;
}

/** 95 % bootstrap intervals over texts; null where there is no such effect. */
export interface Tried {
  readonly verdict: Verdict;
  readonly estimate: Interval | null;
  /** The effect on the untrained twin. */
  readonly control: Interval | null;
  /** The effect less the twin's, over the same texts: their joint interval. */
  readonly beyond: Interval | null;
}

const SEED = 1;

const measured = (effect: Effect): Interval => bootstrap(effect.over, effect.texts, SEED);

/** An effect by a mean over texts. */
export const meanEffect = (values: readonly number[]): Effect => ({
  texts: values.length,
  over: (texts) => texts.reduce((sum, i) => sum + (values[i] as number), 0) / texts.length,
});

/**
 * Judges an effect. Both models must have been asked the same texts: those are resampled together.
 * @throws RangeError where they were not
 */
export function judged(own: Effect | null, twin: Effect | null): Tried {
  const [effect, other] = [own, twin].map((e) => (e && e.texts > 0 ? e : null)) as [Effect | null, Effect | null];
  if (effect && other && effect.texts !== other.texts)
    throw new RangeError(`${effect.texts} texts of the model, ${other.texts} of its twin`);
  const estimate = effect && measured(effect);
  const beyond =
    effect && other && measured({ texts: effect.texts, over: (texts) => effect.over(texts) - other.over(texts) });
  return { verdict: verdictOf(estimate, beyond), estimate, control: other && measured(other), beyond };
}

/**
 * The rule, for every claim:
 * - An interval that holds zero decides nothing.
 * - One below zero contradicts. One counter-example is enough, so the twin has no say.
 * - One above zero agrees where the effect exceeds the twin's by more than their joint interval. Otherwise the twin
 *   shows it as well, without any training: it is not shown by this.
 * - Without a twin's effect nothing agrees.
 */
export function verdictOf(estimate: Interval | null, beyond: Interval | null): Verdict {
  if (estimate === null || (estimate.low <= 0 && estimate.high >= 0)) return 'not decided';
  if (estimate.high < 0) return 'contradicts';
  if (beyond === null) return 'not decided';
  return beyond.low > 0 ? 'agrees' : 'not shown by this';
}

/** What a row is asked: items of a kind, or the long rollouts. */
export type Asked = ItemKind | 'long rollout';

export const askedOf = ({ kind, rolloutTokens }: Pick<Item, 'kind' | 'rolloutTokens'>): Asked =>
  rolloutTokens === undefined ? kind : 'long rollout';

export interface Training {
  readonly lambdaAttn: number;
  /** Its last half is on-policy. */
  readonly onPolicy: boolean;
}

/** A configuration that a claim looks at. */
export interface Need {
  readonly row: Row;
  /** Of its fitted weights; null where they stay as they were fitted. */
  readonly training: Training | null;
  readonly asked: readonly Asked[];
}

/** The scores of a claim's needs, in their order, and how keys and values lie. */
export interface Seen {
  readonly scores: readonly (readonly ItemScore[])[];
  readonly structure: readonly Structure[];
}

export interface Claim {
  readonly claim: string;
  /** What the effect is, in words and units. Above zero the claim holds. */
  readonly effect: string;
  /** What the paper has for it, and where. */
  readonly paper: string;
  /** null where the model has no such codec. */
  readonly needs: readonly Need[] | null;
  readonly effectOf: (seen: Seen) => Effect;
  /** The figures behind the effect, of the model or of its twin. */
  readonly figures?: (seen: Seen) => string;
  readonly note?: string;
}

export interface ClaimResult extends Tried {
  readonly claim: string;
  readonly effect: string;
  readonly paper: string;
  /** The figures behind the effect, how it was read, or why there is none. */
  readonly note: string;
}

export interface Evidence {
  /** Scores by `needId`. */
  readonly scores: ReadonlyMap<string, readonly ItemScore[]>;
  /** One a text. */
  readonly structure: readonly Structure[];
}

export const needId = (g: Geometry, { row, training }: Need): string =>
  [
    rowId(g, row),
    ...(training ? [`trained with λ ${training.lambdaAttn}${training.onPolicy ? ', on-policy' : ''}`] : []),
  ].join('/');

/** What all claims need, each configuration once, with all that it is asked. */
export function needsOf(g: Geometry, claims: readonly Claim[]): Need[] {
  const all = new Map<string, Need>();
  for (const need of claims.flatMap(({ needs }) => needs ?? [])) {
    const id = needId(g, need);
    all.set(id, { ...need, asked: [...new Set([...(all.get(id)?.asked ?? []), ...need.asked])] });
  }
  return [...all.values()];
}

export const textsOf = (scores: readonly ItemScore[], asked: Asked): readonly ItemScore[] =>
  scores.filter(({ kind, scored }) =>
    asked === 'long rollout'
      ? kind === 'rollout' && scored === LONG_ROLLOUT
      : kind === asked && (kind !== 'rollout' || scored !== LONG_ROLLOUT),
  );

const UNTRAINABLE = "training is for small models of Ouro's layers";

/** Judges all claims. What was not measured of a model is not decided. */
export function tryClaims(g: Geometry, claims: readonly Claim[], model: Evidence, twin: Evidence): ClaimResult[] {
  return claims.map(({ claim, effect, paper, needs, effectOf, figures, note }) => {
    const seen = ({ scores, structure }: Evidence): Seen | null => {
      const own = (needs ?? []).flatMap((need) => {
        const found = scores.get(needId(g, need));
        return found ? [found] : [];
      });
      return needs && own.length === needs.length ? { scores: own, structure } : null;
    };
    const [own, other] = [seen(model), seen(twin)];
    const tried = judged(own && effectOf(own), other && effectOf(other));
    const why = needs === null ? 'this model does not have one of the codecs at this ratio' : UNTRAINABLE;
    const parts =
      own === null
        ? [why]
        : [
            ...(figures && tried.estimate ? [`here ${figures(own)}`] : []),
            ...(figures && other && tried.control ? [`untrained ${figures(other)}`] : []),
            ...(tried.estimate ? [] : ['this text has no such task']),
            ...(note === undefined ? [] : [note]),
          ];
    return { claim, effect, paper, ...tried, note: parts.join('; ') };
  });
}
