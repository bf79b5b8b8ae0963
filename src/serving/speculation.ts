/**
 * Self-speculation of a looped model, as vllm-rlt has it (ThinkFlowLab/vllm-rlt 4f46d48, docs/cdb_runtime.md,
 * Apache-2.0): the first loops propose tokens, one after the other; the remaining loops then run over all of them at
 * once, and tell how many are those of all loops. A round of K proposals with d of T loops takes d · (K + 1) passes of
 * a row a sequence and T − d passes of K + 1 rows. It gives the proposals that were accepted and one token more. Greedy
 * tokens are those without speculation, so nothing is lost.
 */
import type { Interval } from '../cost/evidence.js';
import { UserError } from '../errors.js';
import type { Geometry } from '../geometry/geometry.js';
import { halved } from '../numbers/halving.js';
import { mix } from '../numbers/hash.js';
import { sum } from '../numbers/statistics.js';
import { parseNumber } from '../numbers/units.js';
import { asked, type Server, type Workload } from '../schema/serving.js';

export interface Speculation {
  /** Loops that propose a token: fewer than the model has. */
  readonly draftLoops: number;
  /** Proposals of a round. */
  readonly draftTokens: number;
  /** Probability that a proposal is accepted if those before it in its round were. */
  readonly acceptance: number;
  /** Where the acceptance comes from; null where the user says it. */
  readonly source: string | null;
  readonly seed: number;
}

/** Expected tokens of a round: 1 + p + p² + … + p^K. */
export const tokensPerRound = (of: Pick<Speculation, 'acceptance' | 'draftTokens'>): number =>
  sum(Array.from({ length: of.draftTokens + 1 }, (_, i) => of.acceptance ** i));

/**
 * The probability that a proposal is accepted after accepted ones, from the share of all proposals that were accepted,
 * as servers report it.
 * @param share 0 to 1
 */
export function acceptanceOf(share: number, draftTokens: number): number {
  const kept = (acceptance: number): number => tokensPerRound({ acceptance, draftTokens }) - 1;
  const [low, high] = halved([0, 1], 60, (acceptance) => kept(acceptance) < share * draftTokens);
  return (low + high) / 2;
}

/**
 * Accepted proposals of a round: the same in every run of a seed, whatever the schedule.
 * @param request number of the request @param token number of the output token that the round begins with, from 0
 */
export function acceptedOf({ acceptance, draftTokens, seed }: Speculation, request: number, token: number): number {
  const uniform = (mix(mix(mix(seed ^ 0x2545f491) + request) + token) + 0.5) / 2 ** 32;
  // The chance of k accepted ones or more is p^k.
  let accepted = 0;
  for (let chance = acceptance; accepted < draftTokens && uniform < chance; chance *= acceptance) accepted++;
  return accepted;
}

/** Acceptance that was published, by preset and draft loops. */
interface PublishedAcceptance {
  readonly model: string;
  readonly draftLoops: number;
  readonly source: string;
  /** Shares of proposals that were accepted, by proposals a round. */
  readonly shares: Readonly<Record<number, readonly number[]>>;
}

/** Eight loads each: prompts and outputs of 32 and 128 tokens, 1 and 8 sequences. */
const PUBLISHED: readonly PublishedAcceptance[] = [
  {
    model: 'ouro-1.4b',
    draftLoops: 2,
    source: 'vllm-rlt on H800 (d092c97 docs/speculative_evaluation.md), prompts not published',
    shares: {
      1: [0.875, 0.937, 0.924, 0.892, 0.938, 0.937, 0.984, 0.935],
      2: [0.864, 0.897, 0.921, 0.842, 0.826, 0.87, 0.954, 0.911],
      4: [0.71, 0.838, 0.815, 0.725, 0.719, 0.721, 0.917, 0.845],
      8: [0.625, 0.821, 0.709, 0.649, 0.61, 0.578, 0.874, 0.715],
    },
  },
];

/**
 * Acceptance that was published for a model: the median over texts and proposals a round, and the ends.
 * @param preset its id; null where the model is a file
 * @returns null where nothing is published
 */
export function publishedAcceptance(
  preset: string | null,
  draftLoops: number,
): (Interval & { readonly source: string }) | null {
  const found = PUBLISHED.find((p) => p.model === preset && p.draftLoops === draftLoops);
  if (!found) return null;
  const all = Object.entries(found.shares)
    .flatMap(([tokens, shares]) => shares.map((share) => acceptanceOf(share, Number(tokens))))
    .sort((a, b) => a - b);
  return { estimate: all[Math.floor(all.length / 2)]!, low: all[0]!, high: all.at(-1)!, source: found.source };
}

/** @throws UserError naming the setting, its rule and the value */
export function readSpeculation(
  w: Workload,
  s: Server,
  { loops, loopsInRow }: Pick<Geometry, 'loops' | 'loopsInRow'>,
  preset: string | null,
): Speculation | null {
  if (!asked(s.draftTokens)) {
    const idle = asked(s.draftLoops) ? 'draft-loops' : asked(w.draftAcceptance) ? 'draft-acceptance' : null;
    if (idle === null) return null;
    throw new UserError(
      `--${idle} is for speculation`,
      'say with --draft-tokens how many tokens are proposed, or leave it out',
    );
  }
  if (loops < 2 || loopsInRow)
    throw new UserError(
      '--draft-tokens: ' +
        (loops < 2
          ? 'a model of one loop has no first loops that propose'
          : 'no loop proposes a token, because each layer runs all its loops before the next layer begins'),
      'leave --draft-tokens out',
    );
  if (asked(w.depth)) throw new UserError('--draft-tokens does not go with --depth', 'leave one of them out');
  const draftTokens = parseNumber(s.draftTokens, '--draft-tokens', { min: 1, max: 64, whole: true });
  const draftLoops = parseNumber(s.draftLoops ?? Math.min(2, loops - 1), '--draft-loops', {
    min: 1,
    max: loops - 1,
    whole: true,
  });
  const published = asked(w.draftAcceptance) ? null : publishedAcceptance(preset, draftLoops);
  if (!asked(w.draftAcceptance) && published === null)
    throw new UserError(
      `nobody published how often ${draftLoops} of ${loops} loops of this model propose what all of them say`,
      'say it: --draft-acceptance 0.9; lla-sim fidelity --only speculation measures it on your model',
    );
  return {
    draftLoops,
    draftTokens,
    acceptance: published?.estimate ?? parseNumber(w.draftAcceptance!, '--draft-acceptance', { min: 0, max: 1 }),
    source: published?.source ?? null,
    seed: asked(w.seed) ? Number(w.seed) : 1,
  };
}
