/** The paper's claims that a small model can be asked. */
import type { Branch, Codec, CodecKind, PathChoice } from '../../codecs/codec.js';
import { genericRatios, ratioLabel } from '../../codecs/ranks.js';
import { parseEviction } from '../../eviction/policy.js';
import { LAMBDA_ATTN } from '../../fit/distillable.js';
import type { SideStructure } from '../../fit/spectra.js';
import { AXES } from '../../fit/moments.js';
import type { Geometry } from '../../geometry/geometry.js';
import { mean } from '../../numbers/statistics.js';
import { codecsAt, pathFor, plain, type Row } from '../grid.js';
import { LONG_ROLLOUT } from '../items.js';
import type { ItemScore } from '../score.js';
import { textsOf, type Asked, type Claim, type Effect, type Need, type Seen, type Training } from './claim.js';
import { followsFurther, whole, klRatio, klsOf, nats, ofStructure, worseThan } from './effects.js';

/** A score of at least this counts as reliable retrieval (paper, Sec. "Long-generation stability"). */
const RELIABLE = 0.9;
/** Tokens that eviction keeps: below the contexts of the items. */
const EVICTION = parseEviction('streaming:4+60', 'eviction');
/** The paper's branch has 64 of a head's 128; its sweep begins at half of that (Table decoupled_char). */
const BRANCH_SHARES = [1 / 2, 1 / 4] as const;
const TRAINED: Training = { lambdaAttn: LAMBDA_ATTN, onPolicy: false };

interface Choice extends Partial<Row> {
  readonly training?: Training | null;
  readonly asked?: readonly Asked[];
}

/** What a claim needs of a codec; null where the geometry does not have it. */
const needOf = (codec: Codec | undefined, { training = null, asked = ['text'], ...more }: Choice = {}): Need | null =>
  codec ? { row: { codec, path: pathFor(codec), ...plain, ...more }, training, asked } : null;

/** A claim of fitted weights alone: the divergence of one is larger. */
const untrained = (claim: string, paper: string, ...of: [Names, Needs]): Claim =>
  worseThan({ claim, paper, note: 'nothing is trained' }, ...of);
type Names = Parameters<typeof worseThan>[1];
type Needs = Parameters<typeof worseThan>[2];

/** The same budget in equal parts. */
function equalRanks({ kind, rankK = 0, rankV = 0 }: Codec): Codec {
  const half = (rankK + rankV) >> 1;
  return { kind, rankK: half, rankV: rankK + rankV - half };
}

const branchOf = (g: Geometry, share: number): Branch => ({
  width: 2 * Math.max(1, Math.round((share * g.headDim) / 2)),
  perHead: false,
});

export function paperClaims(g: Geometry): Claim[] {
  // Ratios as multiples of T, as the paper's on Ouro are.
  const common = Math.max(2, g.loops);
  const [low, costly, extreme] = [4 / 3, 8 / 3, 16 / 3].map((x) => x * g.loops) as [number, number, number];
  const at = (kind: CodecKind, ratio: number, choice?: Choice): Need | null =>
    needOf(codecsAt(g, kind, [ratio])[0], choice);
  const lla = (choice?: Choice): Need | null => at('lla', common, choice);
  const against = (kind: CodecKind, ratio: number, paper: string): Claim =>
    untrained(
      `LLA is better than ${kind} at one budget (${ratioLabel(ratio)}×)`,
      paper,
      [kind, 'LLA'],
      [at(kind, ratio), at('lla', ratio)],
    );
  const [llaCodec] = codecsAt(g, 'lla', [common]);
  return [
    loopAxis(),
    ...valuesSlower(),
    untrained(
      'SVD initialisation is far better than random',
      '0.771 against 0.105 nats after 300 steps (Table ablations)',
      ['random directions', 'SVD directions'],
      [lla({ initialisation: 'random' }), lla()],
    ),
    untrained(
      "directions of all loops are better than the first loop's",
      '0.128 against 0.105 nats after 300 steps (Table ablations)',
      ['directions of the first loop', 'directions of all loops'],
      [lla({ initialisation: 'first-loop' }), lla()],
    ),
    untrained(
      'r_k < r_v is better than equal ranks at one budget',
      '0.129 against 0.105 nats after 300 steps (Table ablations)',
      ['equal ranks', 'ranks of 3:5'],
      [needOf(llaCodec && equalRanks(llaCodec)), lla()],
    ),
    followsFurther(
      {
        claim: 'final-loop reuse collapses generation where LLA does not',
        effect: 'tokens that a greedy rollout of 24 follows: LLA − final-loop',
        paper: 'GSM8K 0.800 against 0.000 at 4× (Table isocache)',
      },
      'rollout',
      [lla({ asked: ['rollout'] }), at('final-loop', g.loops, { asked: ['rollout'] })],
    ),
    against('mla-head', common, '0.122 against 0.059 nats at 4× (Table isocache)'),
    against('cla', 2, '0.267 against 0.059 nats at 4× (Table isocache)'),
    against('kv-quant', common, 'GSM8K 0.702 against 0.800 at 4× (Table isocache)'),
    against('lla-2d', low, '0.078 against 0.062 nats at 5.33× (Table isocache)'),
    untrained(
      `LLA-2D is better than LLA at extreme compression (${ratioLabel(extreme)}×), teacher-forced`,
      '0.128 against 0.097 nats at 21.33× (Table isocache)',
      ['LLA', 'LLA-2D'],
      [at('lla', extreme), at('lla-2d', extreme)],
    ),
    ...absorbed(g, lla),
    composes(lla),
    retrieval(g),
    closes(at('lla', costly), at('lla', costly, { training: TRAINED }), costly),
    worseThan(
      {
        claim: 'attention-output matching improves on KL alone',
        paper: '0.110 against 0.105 nats at 4× after 300 steps (Table ablations)',
        note: `both trained as long, at ${ratioLabel(costly)}×`,
      },
      ['training by KL alone (λ_attn 0)', `training with matching (λ_attn ${LAMBDA_ATTN})`],
      [at('lla', costly, { training: { ...TRAINED, lambdaAttn: 0 } }), at('lla', costly, { training: TRAINED })],
    ),
    followsFurther(
      {
        claim: 'on-policy training helps long rollouts',
        effect:
          `tokens that a greedy rollout of ${LONG_ROLLOUT} follows: on-policy in the last half of the steps ` +
          `− off-policy`,
        paper: 'MATH-500 0.690 against 0.650 at 10.67×, 0.660 against 0.430 at 4× (Table onpolicy)',
        note: `both trained as long, at ${ratioLabel(costly)}×`,
      },
      'long rollout',
      [
        at('lla', costly, { training: { ...TRAINED, onPolicy: true }, asked: ['long rollout'] }),
        at('lla', costly, { training: TRAINED, asked: ['long rollout'] }),
      ],
    ),
  ];
}

/** The loop axis beside the other axes of more than two places: an axis of two has one direction left. */
function loopAxis(): Claim {
  const gaps = ({ axes }: SideStructure): number[] => {
    const loop = axes.find(({ axis, places }) => axis === 'loop' && places > 2);
    const others = axes.filter(({ axis, places }) => axis !== 'loop' && places > 2);
    return loop ? others.map(({ effectiveRank }) => effectiveRank - loop.effectiveRank) : [];
  };
  return ofStructure(
    {
      claim: 'the loop axis has a lower effective rank than the head and layer axes',
      effect: 'effective rank / places: mean of head and layer axes − loop axis, over K and V',
      paper: 'loop 0.61–0.63, head and layer near 1 (Sec. structure)',
      note: "each unit's mean is taken off; axes of more than two places",
    },
    (text) => mean(AXES.flatMap((side) => gaps(text[side]))),
  );
}

/** "K stabilizes earlier, while V moves slower and carries more cross-loop variance" (Sec. structure). */
function valuesSlower(): Claim[] {
  const settled = ({ cosineToLast }: SideStructure): number => mean(cosineToLast.slice(0, -1));
  const percent = (sides: readonly SideStructure[]): string =>
    `${(100 * mean(sides.map((side) => side.varianceAlongLoops))).toFixed(0)} %`;
  const of =
    (figure: (sides: readonly SideStructure[]) => string) =>
    ({ structure }: Seen): string =>
      `V ${figure(structure.map(({ value }) => value))}, K ${figure(structure.map(({ key }) => key))}`;
  return [
    ofStructure(
      {
        claim: 'V carries more variance along the loops than K',
        effect: 'share of the variance along the loops: V − K',
        paper: 'V 17 %, K 6 % (Sec. structure)',
        figures: of(percent),
      },
      ({ key, value }) => value.varianceAlongLoops - key.varianceAlongLoops,
    ),
    ofStructure(
      {
        claim: 'V moves slower to the last loop than K',
        effect: 'cosine to the last loop, mean over the loops before it: K − V',
        paper: 'K earlier (Fig. whyloops, without numbers)',
        figures: of((sides) => mean(sides.map(settled)).toFixed(2)),
      },
      ({ key, value }) => settled(key) - settled(value),
    ),
  ];
}

/** The absorbed path with a trained rotary branch, beside full RoPE and beside a narrower branch. */
function absorbed(g: Geometry, lla: (choice: Choice) => Need | null): Claim[] {
  const path = 'absorbed' satisfies PathChoice;
  const [wide, narrow] = BRANCH_SHARES.map((share) => branchOf(g, share)) as [Branch, Branch];
  const trained = (branch: Branch): Need | null => lla({ path, branch, training: TRAINED });
  const distinct = narrow.width < wide.width;
  return [
    worseThan(
      {
        claim: 'post-hoc absorbed loses what full RoPE keeps',
        paper: '0.34 against 0.059 nats at 4×, 64 of 128 wide (Table decoupled_char)',
        note: `the branch is trained and ${wide.width} of ${g.headDim} wide; block-absorbed is not trained`,
      },
      ['absorbed', 'block-absorbed'],
      [trained(wide), lla({ path: 'block-absorbed' })],
    ),
    worseThan(
      {
        claim: 'a narrower rotary branch costs more',
        paper: '1.04 nats at 32 of 128 against 0.34 at 64 (Table decoupled_char)',
        note: 'both trained as long',
      },
      [`absorbed with a branch ${narrow.width} wide`, `one ${wide.width} wide`],
      [distinct ? trained(narrow) : null, trained(wide)],
    ),
  ];
}

function composes(lla: (choice: Choice) => Need | null): Claim {
  const asked: readonly Asked[] = ['text', 'passkey', 'recall'];
  const needs = [
    lla({ asked }),
    needOf({ kind: 'full' }, { asked, eviction: EVICTION }),
    lla({ asked, eviction: EVICTION }),
  ];
  const kls = (scores: readonly (readonly ItemScore[])[]) =>
    scores.map((own) => klsOf(own, asked)) as [readonly number[], readonly number[], readonly number[]];
  return {
    claim: 'eviction composes with LLA: together they cost no more than both apart',
    effect: 'log10 of (KL of LLA + KL of eviction) / KL of both together',
    paper: 'GSM8K 0.520 with both, 0.510 evicted alone (Table evict)',
    needs: whole(needs),
    effectOf: ({ scores }): Effect => {
      const [alone, evicted, together] = kls(scores);
      return klRatio(
        alone.map((kl, i) => kl + (evicted[i] as number)),
        together,
      );
    },
    figures: ({ scores }) => {
      const [alone, evicted, together] = kls(scores);
      return `${nats(alone)} + ${nats(evicted)} against ${nats(together)} nats`;
    },
  };
}

/** The longest context with reliable retrieval. */
function reach(scores: readonly ItemScore[]): number {
  let reached = 0;
  for (const context of [...new Set(scores.map((s) => s.context))].sort((a, b) => a - b)) {
    if (mean(scores.filter((s) => s.context === context).map(({ exact }) => exact)) < RELIABLE) break;
    reached = context;
  }
  return reached;
}

function retrieval(g: Geometry): Claim {
  const codecs: Codec[] = [{ kind: 'full' }, ...codecsAt(g, 'lla', genericRatios(g))];
  const passkeys = (own: readonly ItemScore[] | undefined): readonly ItemScore[] => textsOf(own ?? [], 'passkey');
  return {
    claim: 'reliable retrieval reaches less far at higher ratios',
    effect: `tokens of the longest context with ≥ ${RELIABLE}: full cache − LLA at its highest ratio`,
    paper: '64k up to 5.33×, 16k at 10.67×, none at 21.33× (Table passkey)',
    needs: codecs.flatMap((codec) => needOf(codec, { asked: ['passkey'] }) ?? []),
    effectOf: ({ scores }) => {
      const [full, highest] = [passkeys(scores[0]), passkeys(scores.at(-1))];
      const over = (own: readonly ItemScore[], texts: readonly number[]): number =>
        reach(texts.map((i) => own[i] as ItemScore));
      return { texts: full.length, over: (texts) => over(full, texts) - over(highest, texts) };
    },
    figures: ({ scores }) => `${scores.map((own) => reach(passkeys(own))).join(', ')}, the full cache first`,
    note: 'few trials a context: a step of one context may be chance',
  };
}

/** How much of the divergence that a fit leaves a training removes. */
function closes(fitted: Need | null, trained: Need | null, ratio: number): Claim {
  const both = ([before = [], after = []]: readonly (readonly ItemScore[])[]) => [klsOf(before), klsOf(after)] as const;
  return {
    claim: 'distillation closes most of the gap that a fit leaves',
    effect: `share of the KL of LLA at ${ratioLabel(ratio)}× that training removes, less one half`,
    paper: '26 % at 64×, 77 % at 128× on Huginn (Table huginn)',
    needs: fitted && trained ? [fitted, trained] : null,
    effectOf: ({ scores }) => {
      const [before, after] = both(scores);
      const total = (kls: readonly number[], texts: readonly number[]): number =>
        texts.reduce((sum, i) => sum + (kls[i] as number), 0);
      return { texts: before.length, over: (texts) => 0.5 - total(after, texts) / total(before, texts) };
    },
    figures: ({ scores }) => both(scores).map(nats).join(' -> ') + ' nats',
    note: 'a short training',
  };
}
