/** Which models and codecs the bundled decoder runs: others are planned, and `run` says in one line why it does not. */
import type { Codec } from '../codecs/codec.js';
import { codecSpec } from '../codecs/registry.js';
import { UserError } from '../errors.js';
import type { Geometry } from '../geometry/geometry.js';

/** The shape that the decoder runs for a model: keys that serve as values are cached as both. */
export const decodedAs = ({ valuesAreKeys, ...g }: Geometry): Geometry =>
  valuesAreKeys ? { ...g, copiesKeys: true } : g;

/** Why the decoder does not run a model, or undefined. */
export function undecodable(g: Geometry): string | undefined {
  if (g.mlp !== 'gated') return 'has an MLP without a gate';
  if (g.stacks && (g.stacks.length !== 2 || g.adapter)) return 'runs other stacks than two, of which each has a state';
  if (g.attentionGate && !g.stacks) return 'has a gate of attention outside stacks';
  if (g.shiftsLoops && g.preludeLayers > 0) return 'begins later loops with the embedding, and has a prelude';
  if (g.laterLoopsWindow !== undefined && g.laterLoopsWindow < 2) return 'has windows of one token in later loops';
  if (g.laterLoopsWindow !== undefined && g.preludeLayers + g.codaLayers > 0)
    return 'has windows in later loops beside a prelude or coda';
  if (g.valuesAreKeys) return 'keeps its keys alone, and rotates them as it reads';
  if (g.embeddingRank !== undefined && g.embeddingRank > g.hidden) return 'has an embedding wider than its layers';
  if (g.adapter === 'input') return "adds the prelude's output to a decayed state";
  if (g.changeRank !== undefined && (g.changeRank > g.mlpHidden || g.adapter || g.stacks || g.loopsInRow))
    return 'keeps a share of what a loop changes beside an adapter, stacks or loops in a row';
  if (g.extraParameters !== undefined && !(g.stacks && g.extraParameters === g.hidden) && g.changeRank === undefined)
    return 'has parts outside its layers';
  if (g.quantised) return `has weights in ${g.quantised.name}`;
  return undefined;
}

/** @throws UserError for a model that the decoder does not run */
export function refuseUndecodable(g: Geometry): void {
  const reason = undecodable(g);
  if (reason !== undefined)
    throw new UserError(
      `${g.name} ${reason}, which the decoder does not run`,
      'plan it (lla-sim plan), or run a model of another layout',
    );
}

export function refuseCodec(codec: Codec, decoder: 'gpu' | 'reference'): void {
  const { kind } = codec;
  const spec = codecSpec(codec);
  const [never, reason] = [spec.undecodable, spec.referenceOnly?.(codec)];
  if (never !== undefined)
    throw new UserError(`${kind} ${never}, which the decoder does not run`, 'plan it: lla-sim plan');
  if (decoder === 'gpu' && reason !== undefined)
    throw new UserError(
      `${kind} ${reason}: the GPU decoder does not run it`,
      'decode it in float64 (lla-sim run --reference), or plan it',
    );
}
