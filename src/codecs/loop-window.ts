/**
 * loop-window: the first loop caches every token, as an ordinary model does. Later loops attend to the first one's rows
 * and to their own of the last W tokens, itself included, in two softmaxes; a gate of each head mixes them, on its rotated
 * query: o = g·global + (1−g)·local, g = sigmoid(q·w + b) (IQuest-Coder-Loop: `iquestloopcoder.py` of mlx-lm). Models
 * are trained so; those that are have a shape of their own (geometry/families). What it does to others nobody has
 * published.
 *
 * ρ = T, without the windows, which are a number of bytes a sequence.
 */
import type { CodecSpec } from './codec.js';
import { fullTensors, sharedByLoops } from './layout.js';

/** Of IQuest-Coder-Loop and LoopCoder-V2. */
const PUBLISHED_WINDOW_TOKENS = 64;

export const loopWindow: CodecSpec = {
  title: 'windows of later loops beside the first loop’s cache',
  paths: ['full'],
  settings: ['windowTokens'],
  onlyAsked: true,
  windowsLoops: true,
  undecodable: 'mixes attention over the first loop and over a window by gates that models are trained with',
  closes: 'always',
  loopAxis: false,
  refusesEviction: 'loops after the first keep windows of their own',
  ratio: (g) => g.loops,
  suffix: ({ windowTokens }) => (windowTokens === PUBLISHED_WINDOW_TOKENS ? '' : `-w${windowTokens}`),
  publishedRatios: (g) => (g.loops > 1 ? [g.loops] : []),
  fromRatio: (g, ratio) =>
    ratio === g.loops && g.loops > 1
      ? { kind: 'loop-window', windowTokens: PUBLISHED_WINDOW_TOKENS }
      : `loop-window has ratio T = ${g.loops}, and needs at least two loops`,
  refuse: (g, { windowTokens: tokens }) => {
    if (g.loops < 2) return 'loop-window needs a model with at least two loops';
    return tokens !== undefined && Number.isInteger(tokens) && tokens > 0
      ? undefined
      : `loop-window keeps a whole number of tokens of at least 1 in later loops, not ${tokens}`;
  },
  core: (g, core, { windowTokens }, { storage, groupSize }) => [
    ...fullTensors(sharedByLoops(core), g.kvHeads, g.headDim, storage, groupSize),
    ...fullTensors({ ...core, loops: core.loops - 1 }, g.kvHeads, g.headDim, storage, groupSize).map((tensor) => ({
      ...tensor,
      windowTokens,
    })),
  ],
  // A gate of each layer and head: w and b. Later loops share it, as they share all weights.
  parameters: (g) => g.layers * g.heads * (g.headDim + 1),
};
