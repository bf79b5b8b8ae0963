/** All codecs, and the functions over them: layout, ratio, parameters, label. */
import { blocksOf, cacheSlots, type Geometry, type LayerBlock } from '../geometry/geometry.js';
import { evenRow } from '../kernels/spec.js';
import type { Branch, Codec, CodecKind, CodecSpec, Path, StorageChoice } from './codec.js';
import { fullTensors, scalarsPerToken, type CacheLayout, type CacheTensor } from './layout.js';
import { lla } from './lla.js';
import { lla2d } from './lla-2d.js';
import { mlaHead } from './mla-head.js';
import { ratioLabel } from './ranks.js';
import { cla, finalLoop, full, kvQuant, QUANT_STORAGE } from './uncompressed.js';

export const CODECS = {
  full,
  lla,
  'lla-2d': lla2d,
  'mla-head': mlaHead,
  cla,
  'kv-quant': kvQuant,
  'final-loop': finalLoop,
} satisfies Record<CodecKind, CodecSpec>;

export const codecSpec = (codec: Codec): CodecSpec => CODECS[codec.kind];

/** True for codecs that store latents (and have an up-projection). */
export const isLatent = (codec: Codec): boolean => codec.rankK !== undefined;

/**
 * The cache that a codec and path keep, block by block. Prelude and coda are never loop-indexed: learned codecs leave
 * them alone, precision (kv-quant) applies to them too. The `fast` path keeps full-width rows, whatever the codec.
 * @param branch rotary branch, stored by the absorbed path only
 */
export function layoutOf(g: Geometry, codec: Codec, path: Path, choice: StorageChoice, branch: Branch): CacheLayout {
  const outside = codec.kind === 'kv-quant' ? QUANT_STORAGE[codec.bits ?? 8] : choice.storage;
  return blocksOf(g).flatMap((block) =>
    block.name === 'core'
      ? coreTensors(g, block, codec, path, choice, branch)
      : fullTensors(block, g.kvHeads, g.headDim, outside, choice.groupSize),
  );
}

function coreTensors(
  g: Geometry,
  core: LayerBlock,
  codec: Codec,
  path: Path,
  choice: StorageChoice,
  branch: Branch,
): CacheTensor[] {
  if (path === 'fast') return fullTensors(core, g.kvHeads, g.headDim, choice.storage, choice.groupSize);
  const tensors = codecSpec(codec).core(g, core, codec, choice);
  if (path !== 'absorbed') return tensors;
  const latent = tensors[0] as CacheTensor;
  return [...tensors, { ...latent, role: 'rotary-key', heads: branch.perHead ? g.kvHeads : 1, width: branch.width }];
}

/** Scalars that the uncompressed cache holds per token: 2·slots·H_kv·d. */
export const fullScalars = (g: Geometry): number => 2 * cacheSlots(g) * g.kvHeads * g.headDim;

/** ρ on the core alone, as the paper counts it: scalars of the full cache over those of the codec, scales left out. */
export function coreRatio(g: Geometry, codec: Codec): number {
  switch (codec.kind) {
    case 'full':
      return 1;
    case 'kv-quant':
      return 16 / (codec.bits ?? 16);
    case 'cla':
      return codec.shareLayers ?? 1;
    case 'final-loop':
      return g.loops;
    case 'lla':
      return (2 * g.loops * g.headDim) / latentSum(codec);
    case 'lla-2d':
      return (2 * g.loops * g.kvHeads * g.headDim) / latentSum(codec);
    case 'mla-head':
      return (2 * g.kvHeads * g.headDim) / latentSum(codec);
  }
}

const latentSum = ({ rankK = 0, rankV = 0 }: Codec): number => rankK + rankV;

/** ρ of the whole model's cache in scalars, prelude and coda included. */
export const modelRatio = (g: Geometry, layout: CacheLayout): number => fullScalars(g) / scalarsPerToken(layout);

/**
 * Codec parameters in scalars. The absorbed path adds the rotary branch's projections: hidden → width for every query
 * head, and for every KV head or one shared key (shared by the loops, since weights are tied).
 */
export function codecParameters(g: Geometry, codec: Codec, path: Path, branch: Branch): number {
  const own = codecSpec(codec).parameters(g, codec);
  if (path !== 'absorbed') return own;
  return own + g.layers * g.hidden * branch.width * (g.heads + (branch.perHead ? g.kvHeads : 1));
}

/** Scalars of the means μ among the codec's parameters. */
export const codecMeans = (g: Geometry, codec: Codec): number =>
  isLatent(codec) ? codecSpec(codec).parameters(g, { ...codec, rankK: 0, rankV: 0 }) : 0;

/**
 * Scalars of the codec's matrices as they are stored, without the means. Words hold pairs, so rows of an odd rank are
 * padded by one: those of W_down, which end in a latent, and of an up-projection that is read row by row (K's in
 * attention, both where rows are rebuilt).
 */
export function paddedCodecParameters(
  g: Geometry,
  codec: Codec,
  path: Path,
  branch: Branch,
  materialised = false,
): number {
  if (!isLatent(codec)) return codecParameters(g, codec, path, branch);
  const { rankK = 0, rankV = 0 } = codec;
  const means = codecMeans(g, codec);
  const matrices = (k: number, v: number): number =>
    codecSpec(codec).parameters(g, { ...codec, rankK: k, rankV: v }) - means;
  const own =
    (matrices(evenRow(rankK), evenRow(rankV)) +
      matrices(path === 'fast' ? rankK : evenRow(rankK), materialised ? evenRow(rankV) : rankV)) /
    2;
  return own + codecParameters(g, codec, path, branch) - codecParameters(g, codec, 'reconstruct', branch);
}

/** `lla-4x`, `cla-6x`, `kv-quant-4bit`, `full`: short, unique among published settings. */
export function codecLabel(g: Geometry, codec: Codec): string {
  switch (codec.kind) {
    case 'full':
    case 'final-loop':
      return codec.kind;
    case 'kv-quant':
      return `kv-quant-${codec.bits}bit`;
    default:
      return `${codec.kind}-${ratioLabel(coreRatio(g, codec))}x`;
  }
}
