/**
 * The paper's claims, tried on one model: each with its effect, a 95 % bootstrap interval over the same texts, and the
 * same effect on the untrained twin. A claim holds where its interval lies beyond zero on the claimed side.
 */
import type { Codec } from '../codecs/codec.js';
import type { Geometry } from '../geometry/geometry.js';
import { genericRatios, ratioLabel } from '../codecs/ranks.js';
import { coreRatio } from '../codecs/registry.js';
import type { Spectra } from '../fit/spectra.js';
import { bootstrapMean, bootstrapRatio, type Interval } from '../statistics.js';
import { codecsAt, defaultGrid, rowId, type Row } from './grid.js';
import { LONG_ROLLOUT } from './items.js';
import type { Judged } from './judge.js';
import type { ItemScore } from './score.js';

export type Verdict = 'agree' | 'disagree' | 'cannot tell';

export interface ClaimResult {
  readonly claim: string;
  readonly verdict: Verdict;
  /** What the effect is, in words and units. */
  readonly effect: string;
  readonly estimate: Interval | null;
  /** The same effect on the untrained twin. */
  readonly control: Interval | null;
  /** Why a claim cannot be told, or how it was read. */
  readonly note: string;
}

/** What was measured of a model. */
export interface Evidence {
  readonly rows: readonly Judged[];
  readonly spectra: Spectra;
  /** Rows of weights that were trained after the fit, by their use; null where the model is not one to train on. */
  readonly distilled: Readonly<Record<DistilUse, Judged>> | null;
}

export const DISTIL_USES = ['rope', 'on-policy', 'absorbed'] as const;
export type DistilUse = (typeof DISTIL_USES)[number];

/** A score of at least this counts as reliable retrieval (paper, Sec. "Long-generation stability"). */
const RELIABLE = 0.9;
const SEED = 1;

const PLAIN = { storage: 'f16', eviction: null, initialisation: 'svd' } as const;
const commonRatio = (g: Geometry): number => Math.max(2, g.loops);

const llaAt = (g: Geometry, ratio: number): Codec => codecsAt(g, 'lla', [ratio])[0] as Codec;

/** The same budget in equal parts. */
function equalRanks({ rankK = 0, rankV = 0 }: Codec): Codec {
  const half = (rankK + rankV) >> 1;
  return { kind: 'lla', rankK: half, rankV: rankK + rankV - half };
}

/**
 * What is trained for the claims: LLA by full RoPE at a ratio that costs much, with on-policy steps and without, and by
 * the absorbed path, whose rotary branch is trained with it, at the common one.
 */
export const distilledRow = (g: Geometry, use: DistilUse): Row => ({
  codec: llaAt(g, use === 'absorbed' ? commonRatio(g) : (8 / 3) * g.loops),
  path: use === 'absorbed' ? 'absorbed' : 'reconstruct',
  ...PLAIN,
});

/** Rows that the claims need. */
export function claimsGrid(g: Geometry): Row[] {
  const lla = llaAt(g, commonRatio(g));
  const needed: Row[] = [
    ...(['random', 'first-loop'] as const).map((initialisation) => ({
      codec: lla,
      path: 'reconstruct' as const,
      ...PLAIN,
      initialisation,
    })),
    { codec: equalRanks(lla), path: 'reconstruct', ...PLAIN },
  ];
  const base = defaultGrid(g).filter(
    ({ codec, path, storage }) =>
      storage === 'f16' &&
      (path === 'reconstruct' || codec.kind !== 'lla' || path !== 'fast') &&
      codec.kind !== 'lla-2d',
  );
  const atCommon = (row: Row): boolean => Math.abs(coreRatio(g, row.codec) - commonRatio(g)) < 0.01;
  return [...base.filter((row) => row.codec.kind !== 'lla' || row.path === 'reconstruct' || atCommon(row)), ...needed];
}

interface Found {
  readonly interval: Interval | null;
}

/** Judges all claims. */
export function tryClaims(g: Geometry, model: Evidence, twin: Evidence): ClaimResult[] {
  const common = commonRatio(g);
  const lla = llaAt(g, common);
  const idOf = (codec: Codec, more: Partial<Row> = {}): string =>
    rowId(g, { codec, path: codec.rankK === undefined ? 'full' : 'reconstruct', ...PLAIN, ...more });
  /** Mean over texts of one row's score minus another's. */
  const difference = (
    from: Evidence,
    a: string,
    b: string,
    value: (s: ItemScore) => number,
    kinds: string[],
  ): Found => {
    const [left, right] = [a, b].map((id) => from.rows.find((row) => row.id === id));
    if (!left || !right) return { interval: null };
    const pairs = left.items
      .map((item, i) => [item, right.items[i] as ItemScore] as const)
      .filter(([item]) => kinds.includes(item.kind));
    if (pairs.length === 0) return { interval: null };
    return {
      interval: bootstrapMean(
        pairs.map(([x, y]) => value(x) - value(y)),
        SEED,
      ),
    };
  };
  const kl = (s: ItemScore): number => s.kl;
  const compared = (
    claim: string,
    effect: string,
    worse: string,
    better: string,
    note = '',
    value = kl,
    kinds = ['text'],
  ): ClaimResult => {
    const own = difference(model, worse, better, value, kinds).interval;
    return {
      claim,
      verdict: verdictOf(own),
      effect,
      estimate: own,
      control: difference(twin, worse, better, value, kinds).interval,
      note: own === null ? 'this model does not have one of the two at this ratio' : note,
    };
  };
  const kindAt = (kind: 'mla-head' | 'kv-quant' | 'cla', ratio: number): Codec | undefined =>
    codecsAt(g, kind, [ratio])[0];
  const against = (kind: 'mla-head' | 'kv-quant' | 'cla', ratio: number): ClaimResult => {
    const other = kindAt(kind, ratio);
    return compared(
      `LLA is better than ${kind} at one budget (${ratio}×)`,
      `KL of ${kind} − KL of lla, nats`,
      other ? idOf(other) : '',
      idOf(llaAt(g, ratio)),
    );
  };
  const evicted = defaultGrid(g).find(({ eviction, codec }) => eviction && codec.kind === 'full')?.eviction ?? null;
  const full: Codec = { kind: 'full' };
  return [
    spectrumClaim(model.spectra, twin.spectra),
    compared(
      'SVD initialisation is far better than random',
      'KL of random − KL of SVD directions, nats',
      idOf(lla, { initialisation: 'random' }),
      idOf(lla),
      'without training; the paper compares after 300 steps',
    ),
    compared(
      'r_k < r_v is better than equal ranks at one budget',
      'KL of equal ranks − KL of 3:5, nats',
      idOf(equalRanks(lla)),
      idOf(lla),
    ),
    compared(
      'final-loop reuse collapses generation where LLA does not',
      'tokens that a greedy rollout of 24 follows: lla − final-loop',
      idOf(lla),
      idOf({ kind: 'final-loop' }),
      '',
      (s) => s.agreed,
      ['rollout'],
    ),
    against('mla-head', common),
    against('cla', 2),
    against('kv-quant', common),
    absorbedClaim(g, model, twin, idOf(lla, { path: 'block-absorbed' })),
    eviction(difference, model, twin, idOf(lla, { eviction: evicted }), idOf(full, { eviction: evicted }), idOf(lla)),
    retrieval(g, model, twin),
    onPolicy(model, twin),
    distillation(g, model, twin),
  ];
}

/** The loop axis beside the other axes of more than two places. */
function spectrumClaim(model: Spectra, twin: Spectra): ClaimResult {
  const gap = (spectra: Spectra): Interval | null => {
    const gaps = [spectra.key, spectra.value].flatMap(({ axes }) => {
      const loop = axes.find(({ axis, places }) => axis === 'loop' && places > 2);
      return loop
        ? axes
            .filter(({ axis, places }) => axis !== 'loop' && places > 2)
            .map(({ effectiveRank }) => effectiveRank - loop.effectiveRank)
        : [];
    });
    if (gaps.length === 0) return null;
    return {
      estimate: gaps.reduce((sum, v) => sum + v, 0) / gaps.length,
      low: Math.min(...gaps),
      high: Math.max(...gaps),
    };
  };
  const own = gap(model);
  return {
    claim: 'the loop axis has a lower effective rank than the head and layer axes',
    verdict: verdictOf(own),
    effect: 'effective rank of head and layer axes − of the loop axis',
    estimate: own,
    control: gap(twin),
    note: 'the interval is the range over K, V and the axes of more than two places',
  };
}

/** Eviction and LLA together cost no more than the sum of both. */
function eviction(
  difference: (from: Evidence, a: string, b: string, value: (s: ItemScore) => number, kinds: string[]) => Found,
  model: Evidence,
  twin: Evidence,
  both: string,
  evicted: string,
  alone: string,
): ClaimResult {
  const extra = (from: Evidence): Interval | null => {
    const [joint, one] = [both, alone].map((id) => from.rows.find((row) => row.id === id));
    const added = difference(from, both, evicted, (s) => s.kl, ['text', 'passkey', 'recall']).interval;
    if (!joint || !one || !added) return null;
    const kinds = new Set(['text', 'passkey', 'recall']);
    const base = from.rows.find((row) => row.id === evicted) as Judged;
    const values = joint.items.flatMap((item, i) =>
      kinds.has(item.kind) ? [(one.items[i] as ItemScore).kl + (base.items[i] as ItemScore).kl - item.kl] : [],
    );
    return bootstrapMean(values, SEED);
  };
  const own = extra(model);
  return {
    claim: 'eviction composes with LLA: together they cost no more than both apart',
    verdict: verdictOf(own),
    effect: 'KL of lla + KL of eviction − KL of both together, nats',
    estimate: own,
    control: extra(twin),
    note: '',
  };
}

const textsOf = (row: Judged): readonly number[] => row.items.filter(({ kind }) => kind === 'text').map(({ kl }) => kl);

/** How much of the divergence that a fit leaves a training removes. */
function distillation(g: Geometry, model: Evidence, twin: Evidence): ClaimResult {
  const row = distilledRow(g, 'rope');
  const pair = ({ rows, distilled }: Evidence): { before: readonly number[]; after: readonly number[] } | null => {
    const fitted = rows.find(({ id }) => id === rowId(g, row));
    return fitted && distilled ? { before: textsOf(fitted), after: textsOf(distilled.rope) } : null;
  };
  const closed = (own: ReturnType<typeof pair>): Interval | null =>
    own &&
    bootstrapRatio(
      own.before.map((kl, i) => kl - (own.after[i] as number)),
      own.before,
      SEED,
    );
  const own = pair(model);
  const share = closed(own);
  const mean = (values: readonly number[]): string =>
    (values.reduce((sum, x) => sum + x, 0) / values.length).toPrecision(2);
  return {
    claim: 'distillation closes most of the gap that a fit leaves',
    verdict:
      share === null || (share.low <= 0.5 && share.high >= 0.5)
        ? 'cannot tell'
        : share.low > 0.5
          ? 'agree'
          : 'disagree',
    effect: `share of the KL of lla at ${ratioLabel(coreRatio(g, row.codec))}× that training removes`,
    estimate: share,
    control: closed(pair(twin)),
    note: own
      ? `${mean(own.before)} nats after the fit, ${mean(own.after)} after a short training; agreed above one half`
      : UNTRAINABLE,
  };
}

/** How far greedy rollouts go with the uncompressed model, with on-policy steps and without, of as many in all. */
function onPolicy(model: Evidence, twin: Evidence): ClaimResult {
  const lengths = (row: Judged): readonly number[] =>
    row.items.filter(({ kind, scored }) => kind === 'rollout' && scored === LONG_ROLLOUT).map(({ agreed }) => agreed);
  const gain = ({ distilled }: Evidence): Interval | null => {
    if (!distilled) return null;
    const off = lengths(distilled.rope);
    const gains = lengths(distilled['on-policy']).map((agreed, i) => agreed - (off[i] as number));
    return gains.length === 0 ? null : bootstrapMean(gains, SEED);
  };
  const mean = (use: DistilUse): string => {
    const own = lengths((model.distilled as NonNullable<Evidence['distilled']>)[use]);
    return (own.reduce((sum, x) => sum + x, 0) / own.length).toPrecision(3);
  };
  const own = gain(model);
  return {
    claim: 'on-policy training helps long rollouts',
    verdict: verdictOf(own),
    effect: `tokens that a greedy rollout of ${LONG_ROLLOUT} follows: on-policy in the last half of the steps − off-policy`,
    estimate: own,
    control: gain(twin),
    note:
      own === null
        ? UNTRAINABLE
        : `${mean('rope')} tokens off-policy, ${mean('on-policy')} on-policy; a short training`,
  };
}

const UNTRAINABLE = "training is for small models of Ouro's layers";

/** An effect above zero agrees with the claim, one below disagrees; an interval that holds zero tells nothing. */
const verdictOf = (effect: Interval | null): Verdict =>
  effect === null || (effect.low <= 0 && effect.high >= 0) ? 'cannot tell' : effect.low > 0 ? 'agree' : 'disagree';

/** The absorbed path, its branch trained or not, beside block-absorbed with fitted weights. */
function absorbedClaim(g: Geometry, model: Evidence, twin: Evidence, kept: string): ClaimResult {
  const loss = ({ rows, distilled }: Evidence): Interval | null => {
    const block = rows.find(({ id }) => id === kept);
    if (!block || !distilled) return null;
    const best = textsOf(block);
    return bootstrapMean(
      textsOf(distilled.absorbed).map((kl, i) => kl - (best[i] as number)),
      SEED,
    );
  };
  const own = loss(model);
  const untrained = model.rows.find(({ id }) => id === rowId(g, { ...distilledRow(g, 'absorbed') }))?.kl;
  return {
    claim: 'post-hoc absorbed loses what block-absorbed keeps',
    verdict: verdictOf(own),
    effect: 'KL of absorbed with a trained branch − KL of block-absorbed without training, nats',
    estimate: own,
    control: loss(twin),
    note:
      own === null
        ? UNTRAINABLE
        : `a short training; ${untrained ? `${untrained.estimate.toPrecision(2)} nats without` : ''}`,
  };
}

/** The longest context with reliable retrieval, by ratio. */
function retrieval(g: Geometry, model: Evidence, twin: Evidence): ClaimResult {
  const lengths = (from: Evidence): number[] =>
    [{ kind: 'full' } as Codec, ...codecsAt(g, 'lla', genericRatios(g))].map((codec) => {
      const id = rowId(g, { codec, path: codec.rankK === undefined ? 'full' : 'reconstruct', ...PLAIN });
      const cells = from.rows.find((row) => row.id === id)?.passkeyCells ?? [];
      let reached = 0;
      for (const context of [...new Set(cells.map((c) => c.context))].sort((a, b) => a - b)) {
        const own = cells.filter((c) => c.context === context);
        const score = own.reduce((s, c) => s + c.count * c.score, 0) / own.reduce((s, c) => s + c.count, 0);
        if (score < RELIABLE) break;
        reached = context;
      }
      return reached;
    });
  const own = lengths(model);
  const shrinks = own.every((length, i) => i === 0 || length <= (own[i - 1] as number));
  return {
    claim: 'reliable retrieval reaches less far at higher ratios',
    verdict: own[0] === 0 || own.every((length) => length === own[0]) ? 'cannot tell' : shrinks ? 'agree' : 'disagree',
    effect: `longest context with ≥ ${RELIABLE}, full cache first, then by ratio: ${own.join(', ')} (untrained: ${lengths(twin).join(', ')})`,
    estimate: null,
    control: null,
    note:
      own[0] === 0
        ? 'the uncompressed model does not retrieve reliably'
        : 'few trials a context: a step of one context may be chance',
  };
}
