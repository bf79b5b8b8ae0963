/** Codecs that keep rows of full width: the plain cache, and those that share or quantise it. No parameters. */
import type { CodecSpec } from './codec.js';
import { fullTensors } from './layout.js';
import type { Storage } from '../../kernels/spec.js';

/** What codecs have in common whose rows attention reads as they are stored. */
export const ROWS = {
  paths: ['full'],
  settings: [],
  closes: 'always',
  loopAxis: false,
  parameters: () => 0,
} as const satisfies Partial<CodecSpec>;

export const full: CodecSpec = {
  ...ROWS,
  title: 'full cache, one K and V per loop',
  uncompressed: true,
  untrained: true,
  rowByRow: true,
  ratio: () => 1,
  label: ({ kind }) => kind,
  publishedRatios: () => [1],
  fromRatio: (_g, ratio) => (ratio === 1 ? { kind: 'full' } : 'the full cache has ratio 1'),
  refuse: () => undefined,
  core: (g, core, _codec, choice) => fullTensors(core, g, choice),
};

/** cla: `shareLayers` adjacent layers share one cache; every layer and loop re-reads it. */
export const cla: CodecSpec = {
  ...ROWS,
  title: 'cross-layer sharing',
  settings: ['shareLayers'],
  closes: 'closing-layer',
  ratio: (_g, { shareLayers = 1 }) => shareLayers,
  publishedRatios: (g) => [4, 6, 12, 24].filter((s) => g.layers % s === 0),
  fromRatio: (_g, ratio) =>
    Number.isInteger(ratio) ? { kind: 'cla', shareLayers: ratio } : 'cla shares a whole number of layers',
  refuse: (g, { shareLayers: s }) =>
    s === undefined || !Number.isInteger(s) || s < 2 || g.layers % s !== 0
      ? `cla shares a number of layers of at least 2 that divides the ${g.layers} core layers, not ${s}`
      : undefined,
  core: (g, core, { shareLayers = 1 }, choice) =>
    fullTensors({ ...core, layers: core.layers / shareLayers }, g, choice),
};

const BITS = [2, 3, 4, 8] as const;
const QUANT_STORAGE: Record<2 | 3 | 4 | 8, Storage> = { 2: 'q2', 3: 'q3', 4: 'q4', 8: 'q8' };

/** kv-quant: n-bit scalars with an f16 scale a group. The nominal ratio 16/n leaves the scales out. */
export const kvQuant: CodecSpec = {
  ...ROWS,
  title: 'quantised cache',
  settings: ['bits'],
  untrained: true,
  rowByRow: true,
  ratio: (_g, { bits = 16 }) => 16 / bits,
  label: ({ kind, bits }) => `${kind}-${bits}bit`,
  storage: ({ bits }) => QUANT_STORAGE[bits ?? 8],
  publishedRatios: () => [2, 4, 16 / 3, 8],
  fromRatio: (_g, ratio) => {
    const bits = BITS.find((b) => Math.abs(16 / b - ratio) < 0.01);
    return bits ? { kind: 'kv-quant', bits } : 'kv-quant has the nominal ratios 2, 4, 5.33 and 8 (8, 4, 3 and 2 bits)';
  },
  refuse: (_g, { bits }) =>
    bits !== undefined && BITS.includes(bits) ? undefined : `kv-quant takes 2, 3, 4 or 8 bits, not ${bits}`,
  core: (g, core, { bits = 8 }, choice) => fullTensors(core, g, { ...choice, storage: QUANT_STORAGE[bits] }),
};
