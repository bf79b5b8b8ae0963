/** All codecs, and the functions over them: layout, ratio, parameters, label. */
import { blocksOf, cacheSlots, rowsOfSlot, type Geometry, type LayerBlock } from '../geometry/geometry.js';
import { evenRow, type Storage } from '../../kernels/spec.js';
import {
  CODEC_KINDS,
  type Branch,
  type Codec,
  type CodecKind,
  type CodecSpec,
  type Path,
  type PathChoice,
  type Sharing,
  type Streams,
} from './codec.js';
import { type StorageChoice, fullTensors, scalarsPerToken, type CacheLayout, type CacheTensor } from './layout.js';
import { choiceOf, pathSpec } from './paths.js';
import { flashloop } from './flashloop-codec.js';
import { hla } from './hla.js';
import { lla, lla2d, llaWindow, mlaHead } from './lla.js';
import { ratioLabel } from './ranks.js';
import { residualQuant } from './residual-quant.js';
import { finalLoop, loopWindow, meanLoop, melt } from './shared-loops.js';
import { cla, full, kvQuant } from './uncompressed.js';

/** Every codec by its kind: what it stores, and what can be asked of it. */
export const CODECS = {
  full,
  lla,
  'lla-2d': lla2d,
  'mla-head': mlaHead,
  cla,
  'kv-quant': kvQuant,
  'residual-quant': residualQuant,
  'final-loop': finalLoop,
  'mean-loop': meanLoop,
  'lla-window': llaWindow,
  hla,
  'loop-window': loopWindow,
  melt,
  flashloop,
} satisfies Record<CodecKind, CodecSpec>;

const specOf = (kind: CodecKind): CodecSpec => CODECS[kind];
export const codecSpec = ({ kind }: Pick<Codec, 'kind'>): CodecSpec => specOf(kind);

/** True for codecs that store latents (and have an up-projection). */
export const isLatent = (codec: Codec): boolean => codec.rankK !== undefined;

/** True for the plain cache, with which others are compared. */
export const isUncompressed = ({ kind }: Pick<Codec, 'kind'>): boolean => specOf(kind).uncompressed === true;

/** When the loops of a codec share rows; undefined where none reads another's. */
export const sharingOf = ({ kind, shared }: Pick<Codec, 'kind' | 'shared'>): Sharing | undefined =>
  shared ?? specOf(kind).sharings?.[0];

/**
 * True where a prompt takes two passes: the second attends to what the cache keeps of the first. Decoding goes on from
 * it.
 */
export const takesTwoPasses = (codec: Codec): boolean =>
  (isLatent(codec) && !isHybrid(codec)) || sharingOf(codec) === 'two-pass';

/** Last tokens of their own that loops after the first attend to beside the first one's rows; undefined without. */
export const laterWindowOf = (g: Geometry, codec: Codec): number | undefined =>
  g.laterLoopsWindow ?? (specOf(codec.kind).windowsLoops ? codec.windowTokens : undefined);

/** True for rotated latents, of which the first loop has its own. */
export const isHybrid = ({ kind }: Pick<Codec, 'kind'>): boolean => specOf(kind).hybrid === true;

/** True where a prompt's token needs the rows that tokens before it have after their last loop. */
export const takesPositions = (codec: Pick<Codec, 'kind' | 'shared'>): boolean => sharingOf(codec) === 'all';

/** True where what is cached of a token in the core is the mean over its loops. */
export const averagesLoops = ({ kind }: Pick<Codec, 'kind'>): boolean => specOf(kind).averages === true;

/** Ways that are planned where nobody names any: prompts position by position only where they are named. */
export const PLANNED_SHARINGS: readonly Sharing[] = ['two-pass', 'decode'];

/** A codec whose loops share rows at another time. What is meant where nothing is given is not written. */
export const sharedAs = ({ shared: _own, ...codec }: Codec, shared: Sharing): Codec =>
  shared === specOf(codec.kind).sharings?.[0] ? codec : { ...codec, shared };

/** A codec in each way that its loops can share rows, the usual one first; itself where they share none. */
export const inEverySharing = (codec: Codec): Codec[] =>
  specOf(codec.kind).sharings?.map((shared) => sharedAs(codec, shared)) ?? [codec];

/**
 * Loops whose rows of a token are stored together, and wait for the last of them; 1 where each is stored as it comes.
 */
export const anchoredLoops = (g: Geometry, codec: Pick<Codec, 'kind'>): number =>
  specOf(codec.kind).anchoredLoops?.(g) ?? 1;

/** True where loops are stored as differences to another. */
export const isAnchored = ({ kind }: Pick<Codec, 'kind'>): boolean => specOf(kind).anchoredLoops !== undefined;

/** Loops as packed differences, of which later ones run and read a part; undefined where every loop does the same. */
export const streamsOf = (g: Geometry, codec: Codec): Streams | undefined => specOf(codec.kind).streams?.(g, codec);

/** True where loops are such differences. */
export const isPacked = ({ kind }: Pick<Codec, 'kind'>): boolean => specOf(kind).streams !== undefined;

/** True where prompts are taken in whole: attention of a prompt does not read what the cache keeps of a token. */
export const takesWhole = (codec: Pick<Codec, 'kind'>): boolean =>
  isAnchored(codec) || isHybrid(codec) || isPacked(codec);

/** Kinds that are planned where nobody names any. */
export const PLANNED_KINDS: readonly CodecKind[] = CODEC_KINDS.filter((kind) => !specOf(kind).onlyAsked);

/** Kinds that store latents: they have ranks. */
export const LATENT_KINDS: readonly CodecKind[] = CODEC_KINDS.filter((kind) => specOf(kind).latentFor);

/** Latent rows of a token in one layer and loop: one a KV head, or one for all. */
export const latentHeads = (codec: Codec, kvHeads: number): number =>
  codecSpec(codec).latentFor === 'one-head' ? kvHeads : 1;

/** KV heads that each of these rows is the latent of. */
export const headsOfLatent = (codec: Codec, kvHeads: number): number => kvHeads / latentHeads(codec, kvHeads);

/** The storage type of the cache: that of the codec where it has its own, else the one chosen. */
export const storageOfCodec = (codec: Codec, chosen: Storage): Storage => codecSpec(codec).storage?.(codec) ?? chosen;

/** The choices of a path that a codec has. */
export const pathChoices = (codec: Codec): PathChoice[] =>
  codecSpec(codec).paths.flatMap((path) => [
    choiceOf(path, false),
    ...(pathSpec(path).materialises && !codecSpec(codec).fusedOnly ? [choiceOf(path, true)] : []),
  ]);

/** True where the codec stores its rows in a type of its own, whatever the cache type. */
export const hasOwnStorage = (codec: Pick<Codec, 'kind'>): boolean => codecSpec(codec).storage !== undefined;

/**
 * The cache that a codec and path keep, block by block. Prelude and coda are never loop-indexed: learned codecs leave
 * them alone, precision (kv-quant) applies to them too. The `fast` path keeps full-width rows, whatever the codec.
 * @param branch rotary branch, stored by the absorbed path only
 */
export function layoutOf(g: Geometry, codec: Codec, path: Path, choice: StorageChoice, branch: Branch): CacheLayout {
  const outside = storageOfCodec(codec, choice.storage);
  const tensors = blocksOf(g).flatMap((block) =>
    block.name === 'core'
      ? keptOfLoops(g, coreTensors(g, block, codec, path, choice, branch))
      : fullTensors(block, g, { ...choice, storage: outside }),
  );
  return g.valuesAreKeys ? tensors.filter(({ role }) => role !== 'value') : tensors;
}

/** The first loop's rows of all tokens and the others' windows, where later loops keep no more. */
function keptOfLoops({ laterLoopsWindow: windowTokens }: Geometry, tensors: CacheTensor[]): CacheTensor[] {
  if (windowTokens === undefined) return tensors;
  return [
    ...tensors.map((t) => ({ ...t, loops: 1 })),
    ...tensors.map((t) => ({ ...t, loops: t.loops - 1, windowTokens })),
  ];
}

/**
 * Why a codec cannot exist for a model, or undefined: codecs that share rows among loops, layers or heads, or stand for
 * them, are defined for loops that all run the same layers and keep their rows.
 */
export function refusalOf(g: Geometry, codec: Codec): string | undefined {
  const spec = codecSpec(codec);
  if (g.loopsInRow && codec.shareLayers !== undefined)
    return (
      `layers of ${g.name} run all their loops before the next, and ${codec.kind} is defined for layers that ` +
      `follow one another`
    );
  const unlike =
    g.laterLoopsWindow === undefined
      ? g.stacks
        ? `${g.name} runs stacks of layers ${g.stacks.map(({ runs }) => runs * g.loops).join(' and ')} times`
        : g.valuesAreKeys
          ? `${g.name} caches keys alone`
          : null
      : `loops of ${g.name} after the first keep ${g.laterLoopsWindow} tokens`;
  return !spec.rowByRow && unlike !== null
    ? `${unlike}, and ${codec.kind} is defined for loops that all keep keys and values of the same layers`
    : spec.refuse(g, codec);
}

/** Why no eviction policy goes with a codec of a model, or undefined. */
export const evictionRefusalOf = (g: Geometry, codec: Codec): string | undefined =>
  g.laterLoopsWindow === undefined
    ? codecSpec(codec).refusesEviction
    : `loops of ${g.name} after the first keep windows of their own`;

function coreTensors(
  g: Geometry,
  core: LayerBlock,
  codec: Codec,
  path: Path,
  choice: StorageChoice,
  branch: Branch,
): CacheTensor[] {
  if (pathSpec(path).restores) return fullTensors(core, g, choice);
  const tensors = codecSpec(codec).core(g, core, codec, choice);
  if (!pathSpec(path).branch) return tensors;
  const latent = tensors[0] as CacheTensor;
  return [...tensors, { ...latent, role: 'rotary-key', heads: branch.perHead ? g.kvHeads : 1, width: branch.width }];
}

/** Scalars that the uncompressed cache holds per token: 2·slots·H_kv·d (1· where values are keys). */
export const fullScalars = (g: Geometry): number => rowsOfSlot(g) * cacheSlots(g) * g.kvHeads * g.headDim;

/** ρ on the core alone, as the paper counts it: scalars of the full cache over those of the codec, scales left out. */
export const coreRatio = (g: Geometry, codec: Codec): number => codecSpec(codec).ratio(g, codec);

/** ρ of the whole model's cache in scalars, prelude and coda included. */
export const modelRatio = (g: Geometry, layout: CacheLayout): number => fullScalars(g) / scalarsPerToken(layout);

/**
 * Codec parameters in scalars. The absorbed path adds the rotary branch's projections: hidden → width for every query
 * head, and for every KV head or one shared key (shared by the loops, since weights are tied).
 */
export function codecParameters(g: Geometry, codec: Codec, path: Path, branch: Branch): number {
  const own = codecSpec(codec).parameters(g, codec);
  if (!pathSpec(path).branch) return own;
  return own + g.layers * g.hidden * branch.width * (g.heads + (branch.perHead ? g.kvHeads : 1));
}

/** Scalars of the means μ among the codec's parameters. */
export const codecMeans = (g: Geometry, codec: Codec): number =>
  isLatent(codec) && !isHybrid(codec) ? codecSpec(codec).parameters(g, { ...codec, rankK: 0, rankV: 0 }) : 0;

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
  // Key ranks are even, and K and V are encoded side by side: an odd sum pads each row of E.
  if (isHybrid(codec))
    return codecParameters(g, codec, path, branch) + (evenRow(rankV) - rankV) * g.layers * (g.loops - 1) * g.hidden;
  const means = codecMeans(g, codec);
  const matrices = (k: number, v: number): number =>
    codecSpec(codec).parameters(g, { ...codec, rankK: k, rankV: v }) - means;
  const own =
    (matrices(evenRow(rankK), evenRow(rankV)) +
      matrices(pathSpec(path).restores ? rankK : evenRow(rankK), materialised ? evenRow(rankV) : rankV)) /
    2;
  return own + codecParameters(g, codec, path, branch) - codecParameters(g, codec, 'reconstruct', branch);
}

/** `lla-4x`, `cla-6x`, `kv-quant-4bit`, `full`: short, unique among published settings. */
export const codecLabel = (g: Geometry, codec: Codec): string =>
  codecSpec(codec).label?.(codec) ??
  `${codec.kind}-${ratioLabel(coreRatio(g, codec))}x${codecSpec(codec).suffix?.(codec) ?? ''}`;
