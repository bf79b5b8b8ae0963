/**
 * Which caches let several proposed tokens be verified in one pass (self-speculation): in every layer and loop a
 * proposal attends to those before it in the pass, so their rows must be complete there, as the cache stores them.
 */
import { UserError } from '../errors.js';
import { evictionLabel, type Eviction } from '../eviction/policy.js';
import type { Geometry } from '../geometry/geometry.js';
import type { Codec } from './codec.js';
import { codecSpec } from './registry.js';

/** The proposals of a round, and the loops that make them. */
export interface Draft {
  readonly draftLoops: number;
  readonly draftTokens: number;
}

/**
 * Why tokens of a round cannot be those of decoding one by one, or undefined.
 * @param eviction policy of the cache; null without
 */
export function verificationRefusal(
  codec: { readonly kind: Codec['kind']; readonly windowTokens?: number | undefined },
  eviction: Eviction | null,
  { draftTokens }: Pick<Draft, 'draftTokens'>,
): string | undefined {
  const { kind, windowTokens = 0 } = codec;
  const spec = codecSpec(codec);
  const { closes } = spec;
  if (eviction) return `${evictionLabel(eviction)} evicts tokens that a rejected proposal cannot bring back`;
  if (spec.streams) return `${kind} packs rows of several tokens together, and a rejected proposal cannot be taken out`;
  if (closes === 'always' || closes === 'closing-layer' || windowTokens >= draftTokens) return undefined;
  return windowTokens > 0
    ? `${kind} keeps ${windowTokens} exact token${windowTokens === 1 ? '' : 's'}, fewer than the ${draftTokens} ` +
        `proposals that read each other`
    : `${kind} has a token's rows only after ${closes === 'last-loop' ? 'the last loop' : 'several loops'}, and ` +
        `proposals read each other in every loop`;
}

/** Why the decoder does not speculate with a model, or undefined. */
const modelRefusal = ({ loopsInRow, shiftsLoops, laterLoopsWindow, stacks }: Geometry): string | undefined =>
  loopsInRow
    ? 'each layer runs all its loops before the next layer begins'
    : shiftsLoops
      ? 'a loop begins with the state of the token before, which a rejected proposal has replaced'
      : laterLoopsWindow !== undefined
        ? 'later loops attend to the first one and to a window, token by token'
        : stacks
          ? 'its stacks keep states of their own'
          : undefined;

/** @throws UserError for a draft that cannot be verified, or loops and tokens out of range */
export function requireVerifiable(g: Geometry, codec: Codec, eviction: Eviction | null, draft: Draft): void {
  const { draftLoops, draftTokens } = draft;
  if (!(Number.isInteger(draftLoops) && draftLoops >= 1 && draftLoops < g.loops))
    throw new UserError(
      `${draftLoops} draft loops of the ${g.loops} of ${g.name} propose nothing faster than all loops`,
      g.loops > 1 ? `give 1 to ${g.loops - 1}` : 'a model with one loop has no first loops',
    );
  if (!(Number.isInteger(draftTokens) && draftTokens >= 1))
    throw new UserError(`${draftTokens} proposals a round are not a whole number of at least 1`, 'give for example 4');
  const model = modelRefusal(g);
  if (model !== undefined) throw new UserError(`no speculation with ${g.name}: ${model}`, 'leave --draft-tokens out');
  const reason = verificationRefusal(codec, eviction, draft);
  if (reason !== undefined)
    throw new UserError(
      `no speculation with this cache: ${reason}`,
      'take full, kv-quant, cla or mla-head without eviction, or an exact window of as many tokens as proposals',
    );
}
