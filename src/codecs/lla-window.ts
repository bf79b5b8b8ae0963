/**
 * lla-window: LLA's latents of every token, and beside them the exact K and V of all loops of the last W tokens in a
 * ring. Attention of a step reads the ring for these and the latents for older ones. The cache of a token is LLA's; the
 * ring is a number of bytes a sequence.
 */
import type { CodecSpec } from './codec.js';
import { fullTensors } from './layout.js';
import { lla } from './lla.js';

/** Exact tokens unless --window says otherwise. */
export const DEFAULT_WINDOW_TOKENS = 128;

export const llaWindow: CodecSpec = {
  ...lla,
  title: 'LLA with exact K and V of the last tokens',
  paths: ['reconstruct', 'block-absorbed'],
  settings: [...lla.settings, 'windowTokens'],
  onlyAsked: true,
  weightsOf: 'lla',
  fusedOnly: true,
  refusesEviction: 'its latents are those of all tokens',
  fromRatio: (g, ratio) => {
    const codec = lla.fromRatio(g, ratio);
    return typeof codec === 'string' ? codec : { ...codec, kind: 'lla-window', windowTokens: DEFAULT_WINDOW_TOKENS };
  },
  refuse: (g, codec) =>
    codec.windowTokens === undefined || !Number.isInteger(codec.windowTokens) || codec.windowTokens < 1
      ? `lla-window keeps a whole number of exact tokens of at least 1, not ${codec.windowTokens}`
      : lla.refuse(g, codec),
  core: (g, core, codec, choice) => [
    ...lla.core(g, core, codec, choice),
    ...fullTensors(core, g.kvHeads, g.headDim, choice.storage, choice.groupSize).map((tensor) => ({
      ...tensor,
      windowTokens: codec.windowTokens,
    })),
  ],
};
