/** Codecs that keep one set of rows for the loops, with or without a window of later ones: ρ = T. */
import { SHARINGS, type Codec, type CodecKind, type CodecSpec, type Sharing } from './codec.js';
import { fullTensors, sharedByLoops, windowTensors } from './layout.js';
import { ROWS } from './uncompressed.js';

/** What they have in common. @param needs behind the ratio, where a model has another */
const oneOfLoops = (usual: Codec, needs = '') =>
  ({
    ...ROWS,
    closes: 'last-loop',
    ratio: (g) => g.loops,
    publishedRatios: (g) => (g.loops > 1 ? [g.loops] : []),
    fromRatio: (g, ratio) =>
      ratio === g.loops && g.loops > 1 ? usual : `${usual.kind} has ratio T = ${g.loops}${needs}`,
    refuse: (g) => (g.loops < 2 ? `${usual.kind} needs a model with at least two loops` : undefined),
    core: (g, core, _codec, choice) => fullTensors(sharedByLoops(core), g, choice),
  }) as const satisfies Partial<CodecSpec>;
const TWO_LOOPS = ', and needs at least two loops';

/** @param choices when loops share rows, the one that is meant where none is given first */
function sharedLoops(kind: CodecKind, choices: readonly Sharing[]): Omit<CodecSpec, 'title'> {
  const common = oneOfLoops({ kind });
  const sharingOf = ({ shared }: Codec): Sharing => shared ?? (choices[0] as Sharing);
  return {
    ...common,
    settings: ['shared'],
    untrained: true,
    sharings: choices,
    label: (codec) => (sharingOf(codec) === 'two-pass' ? kind : `${kind}-${sharingOf(codec)}`),
    refuse: (g, codec) =>
      common.refuse(g) ??
      (choices.includes(sharingOf(codec))
        ? undefined
        : `${kind} is shared ${choices.join(' or ')}, not ${codec.shared}`),
  };
}

/** final-loop: the last loop's K and V serve all loops. */
export const finalLoop: CodecSpec = { ...sharedLoops('final-loop', SHARINGS), title: 'final-loop reuse' };

/** mean-loop: the means of all loops' K (rotated) and V serve all loops (Ouro, Table 14, "Averaged"). */
export const meanLoop: CodecSpec = {
  ...sharedLoops('mean-loop', ['decode', 'all']),
  title: 'means over the loops',
  averages: true,
  onlyAsked: true,
};

/**
 * MELT (arXiv 2605.07721): a token has one row of K and V a layer, which each loop overwrites. It is projected from a
 * state that gates of the loops accumulate:
 *
 *   z = σ(x_t W_z + s_{t−1} U_z + b),  s_t = z⊙s_{t−1} + (1−z)⊙x_t,  k = W_K s_t,  v = W_V s_t
 *
 * Assumed, as summaries alone were at hand: t counts loops, and s_0 = x_1: the first loop has no gate. Loops read
 * earlier tokens' rows as their last loop left them; a prompt is one pass in which each loop reads its own rows.
 */
export const melt: CodecSpec = {
  ...oneOfLoops({ kind: 'melt' }, TWO_LOOPS),
  title: 'MELT, one row that gated loops overwrite',
  onlyAsked: true,
  gatesState: true,
  undecodable: 'projects keys and values from a gated state, of which no code and no weights are published',
  // W_z, U_z and b of each layer: D(2h² + h).
  parameters: (g) => g.layers * (2 * g.hidden ** 2 + g.hidden),
  wholeParameters: (g) => g.layers * (2 * g.hidden ** 2 + g.hidden),
};

/** Window of IQuest-Coder-Loop and LoopCoder-V2. */
const PUBLISHED_WINDOW_TOKENS = 64;
const window = oneOfLoops({ kind: 'loop-window', windowTokens: PUBLISHED_WINDOW_TOKENS }, TWO_LOOPS);

/**
 * loop-window: the first loop caches every token, as an ordinary model does. Later loops attend to the first one's rows
 * and to their own of the last W tokens, itself included, in two softmaxes. A gate of each head mixes them, on its
 * rotated query: o = g·global + (1−g)·local, g = sigmoid(q·w + b) (IQuest-Coder-Loop: `iquestloopcoder.py` of mlx-lm).
 * Models are trained so; those that are have a shape of their own (geometry/families). What it does to others nobody
 * has published. ρ leaves the windows out, which are a number of bytes a sequence.
 */
export const loopWindow: CodecSpec = {
  ...window,
  title: 'windows of later loops beside the first loop’s cache',
  settings: ['windowTokens'],
  onlyAsked: true,
  windowsLoops: true,
  undecodable: 'mixes attention over the first loop and over a window by gates that models are trained with',
  closes: 'always',
  refusesEviction: 'loops after the first keep windows of their own',
  suffix: ({ windowTokens }) => (windowTokens === PUBLISHED_WINDOW_TOKENS ? '' : `-w${windowTokens}`),
  refuse: (g, { windowTokens: tokens }) =>
    window.refuse(g) ??
    (tokens !== undefined && Number.isInteger(tokens) && tokens > 0
      ? undefined
      : `loop-window keeps a whole number of tokens of at least 1 in later loops, not ${tokens}`),
  core: (g, core, { windowTokens }, choice) => [
    ...window.core(g, core, { kind: 'loop-window' }, choice),
    ...windowTensors({ ...core, loops: core.loops - 1 }, g, choice, windowTokens),
  ],
  // A gate of each layer and head: w and b. Later loops share it, as they share all weights.
  parameters: (g) => g.layers * g.heads * (g.headDim + 1),
};
