/**
 * MELT (arXiv 2605.07721): a token has one row of K and V a layer, which each loop overwrites. It is projected from a
 * state that gates of the loops accumulate:
 *
 *   z = σ(x_t W_z + s_{t−1} U_z + b),  s_t = z⊙s_{t−1} + (1−z)⊙x_t,  k = W_K s_t,  v = W_V s_t
 *
 * Assumed, as summaries alone were at hand: t counts loops, and s_0 = x_1: the first loop has no gate. Loops read
 * earlier tokens' rows as their last loop left them; a prompt is one pass in which each loop reads its own rows.
 */
import type { CodecSpec } from './codec.js';
import { fullTensors, sharedByLoops } from './layout.js';

export const melt: CodecSpec = {
  title: 'MELT, one row that gated loops overwrite',
  paths: ['full'],
  settings: [],
  onlyAsked: true,
  gatesState: true,
  undecodable: 'projects keys and values from a gated state, of which no code and no weights are published',
  closes: 'last-loop',
  loopAxis: false,
  ratio: (g) => g.loops,
  publishedRatios: (g) => (g.loops > 1 ? [g.loops] : []),
  fromRatio: (g, ratio) =>
    ratio === g.loops && g.loops > 1 ? { kind: 'melt' } : `melt has ratio T = ${g.loops}, and needs at least two loops`,
  refuse: (g) => (g.loops < 2 ? 'melt needs a model with at least two loops' : undefined),
  core: (g, core, _codec, choice) =>
    fullTensors(sharedByLoops(core), g.kvHeads, g.headDim, choice.storage, choice.groupSize),
  // W_z, U_z and b of each layer: D(2h² + h).
  parameters: (g) => g.layers * (2 * g.hidden ** 2 + g.hidden),
  wholeParameters: (g) => g.layers * (2 * g.hidden ** 2 + g.hidden),
};
