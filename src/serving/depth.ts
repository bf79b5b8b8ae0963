/**
 * Early exit: how many of a looped model's loops a token takes, and what becomes of the keys and values of the loops
 * that it left out.
 */
import type { Codec } from '../codecs/codec.js';
import { isAnchored, isHybrid, isPacked } from '../codecs/registry.js';
import { UserError } from '../errors.js';
import type { Geometry } from '../geometry/geometry.js';
import { mix } from '../numbers/hash.js';
import { namedDepths, readProbabilities, recordedDepths } from '../plan/ask/probabilities.js';
import type { PublishedDepths } from '../quality/exit-depths.js';
import { asked, choice, SERVER_SETTINGS, servingFlag, type Server, type Workload } from '../schema/serving.js';

/**
 * `steps`: all sequences begin a token together, and wait for the deepest. `loops`: each pass over the looped layers
 * takes the sequences as they are, whatever loop each is in; one that leaves begins its next token in the next pass, or
 * makes room.
 */
export type Batching = (typeof SERVER_SETTINGS.depthBatching.choices)[number];

/**
 * `recompute`: the token runs the loops that it left out after its exit, beside its successors, for its keys and values
 * alone. `copy`: those of its last loop are written in their place. `share`: later tokens read those of its last loop,
 * and nothing is stored.
 */
export type SkippedKv = (typeof SERVER_SETTINGS.skippedKv.choices)[number];

export interface Depth {
  /** Probability that a token leaves after loop 1, 2, …, one for each loop of the model; their sum is 1. */
  readonly probabilities: readonly number[];
  readonly batching: Batching;
  readonly skippedKv: SkippedKv;
  readonly seed: number;
  /** Loops of each token, by answer: request after request takes the next answer. Null: they are drawn. */
  readonly recorded: readonly Uint8Array[] | null;
  /** Who published the probabilities, and what answers were worth; null where the user gives them. */
  readonly published: PublishedDepths | null;
}

/** A server that schedules loop by loop does so where all tokens take all loops, too. */
export const allLoops = (loops: number): Depth => ({
  probabilities: Array.from({ length: loops }, (_, i) => (i === loops - 1 ? 1 : 0)),
  batching: 'loops',
  skippedKv: 'copy',
  seed: 1,
  recorded: null,
  published: null,
});

/** Loops of an output token. A token has the same in every run of a seed, whatever the schedule. */
export class DepthDraws {
  private readonly cumulative: Float64Array;
  private readonly recorded: Depth['recorded'];
  private readonly salt: number;

  constructor(
    { probabilities, recorded = null }: Pick<Depth, 'probabilities'> & Partial<Pick<Depth, 'recorded'>>,
    seed: number,
  ) {
    this.recorded = recorded;
    this.salt = mix(seed ^ 0x5bd1e995);
    let sum = 0;
    this.cumulative = Float64Array.from(probabilities, (p) => (sum += p));
  }

  /** @param request number of the request @param token number of the output token, from 0 */
  of(request: number, token: number): number {
    if (this.recorded) {
      const answer = this.recorded[request % this.recorded.length]!;
      return answer[token % answer.length]!;
    }
    const uniform = mix(mix(this.salt + request) + token) / 2 ** 32;
    const { cumulative } = this;
    let loop = 0;
    while (loop < cumulative.length - 1 && uniform >= cumulative[loop]!) loop++;
    return loop + 1;
  }
}

interface Refusal {
  readonly why: string;
  readonly instead: string;
}

/** Why passes of single loops of a codec cannot be priced, and what to do instead; null where they can. */
export const refusedPasses = (codec: Pick<Codec, 'kind'>): Refusal | null =>
  isPacked(codec)
    ? {
        why: 'runs and reads less in its later loops, and a pass of one loop is priced as the mean of all',
        instead: 'simulate it without --depth and --draft-tokens, or take another codec',
      }
    : null;

/** Why a codec cannot go on after a token that left early, and what to write instead; null where it can. */
export function refusedSkipping(codec: Pick<Codec, 'kind'>, skippedKv: SkippedKv): Refusal | null {
  const unequal = refusedPasses(codec);
  if (unequal) return unequal;
  if (isHybrid(codec) && skippedKv !== 'recompute')
    return {
      why: 'sums latents over the inputs of all later loops, and a loop that was left out has no input to add',
      instead: 'take --skipped-kv recompute, or another codec',
    };
  if (isAnchored(codec) && skippedKv !== 'copy')
    return {
      why: "stores a token's loops as differences to the last of them, which one that left early has not run",
      instead: 'add --skipped-kv copy, which writes those of its last loop in their place',
    };
  return null;
}

/** @throws UserError naming the setting, its rule and the value */
export function readDepth(
  w: Workload,
  s: Server,
  { loops, loopsInRow }: Pick<Geometry, 'loops' | 'loopsInRow'>,
  preset: string | null,
  isOwn: boolean,
): Depth | null {
  for (const name of ['depthBatching', 'skippedKv'] as const)
    if (asked(s[name]) && !asked(w.depth))
      throw new UserError(
        `--${servingFlag(name)} is for tokens that leave early`,
        'say with --depth how many do, or leave it out',
      );
  if (!asked(w.depth)) return null;
  if (loopsInRow)
    throw new UserError(
      '--depth: no token leaves early, because each layer runs all its loops before the next layer begins',
      'leave --depth out',
    );
  const probabilities = readProbabilities(String(w.depth), loops, preset);
  if (s.prefixCaching === 'on')
    throw new UserError('--depth does not go with --prefix-caching on', 'leave one of them out');
  return {
    probabilities,
    batching: choice(
      'depth-batching',
      s.depthBatching ?? (isOwn ? 'loops' : undefined),
      SERVER_SETTINGS.depthBatching.choices,
    ),
    skippedKv: choice('skipped-kv', s.skippedKv ?? (isOwn ? 'copy' : undefined), SERVER_SETTINGS.skippedKv.choices),
    seed: asked(w.seed) ? Number(w.seed) : 1,
    recorded: recordedDepths(String(w.depth), loops),
    published: namedDepths(String(w.depth), preset),
  };
}
