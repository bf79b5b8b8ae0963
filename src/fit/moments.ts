/**
 * How the vectors of a codec's latents are kept while they stream by, and the memory that it takes: covariances of
 * narrow stacks, sketches of wide ones, of as many layers in a pass as the memory holds.
 */
import type { Codec } from '../codecs/codec.js';
import { latentGroups, type CodecAxis, type LatentGroups } from '../decoder/tensors.js';
import type { Initialisation } from '../decoder/index.js';
import { UserError } from '../errors.js';
import type { Geometry } from '../geometry/geometry.js';
import { formatBytes } from '../units.js';
import type { Captured } from './capture.js';
import { BLOCK, Covariance, type Moments } from './covariance.js';
import { Sketch, sketchColumns } from './sketch.js';

/**
 * Widest stack with a covariance of its own. Eigenvectors of a wider one take minutes each, and those of 8,192 numbers
 * half a day.
 */
export const WIDEST_EXACT = 1024;

export const AXES = ['key', 'value'] as const satisfies readonly CodecAxis[];

/** What a fit asks of the moments of one kind of codec: all its ranks and initialisations. */
export interface Asked {
  readonly codec: Codec;
  readonly initialisation: Initialisation;
}

/** How the latents of one kind of codec are kept. */
export interface MomentsPlan {
  readonly groups: LatentGroups;
  /** Largest ranks that are asked for. */
  readonly ranks: Readonly<Record<CodecAxis, number>>;
  /** Columns of the sketches; null where covariances are kept. */
  readonly columns: Readonly<Record<CodecAxis, number>> | null;
}

const rankOf = ({ codec }: Asked, axis: CodecAxis): number => (axis === 'key' ? codec.rankK : codec.rankV) as number;

/**
 * A control needs the covariance itself.
 * @param asked of one kind of codec
 */
export function momentsPlan(g: Geometry, asked: readonly Asked[], widestExact = WIDEST_EXACT): MomentsPlan {
  const groups = latentGroups(g, (asked[0] as Asked).codec);
  const most = (axis: CodecAxis): number => Math.max(...asked.map((own) => rankOf(own, axis)));
  const ranks = { key: most('key'), value: most('value') };
  const columns = { key: sketchColumns(groups.width, ranks.key), value: sketchColumns(groups.width, ranks.value) };
  const wide = groups.width > widestExact && Math.max(columns.key, columns.value) < groups.width;
  const sketched = wide && asked.every(({ initialisation }) => initialisation === 'svd');
  return { groups, ranks, columns: sketched ? columns : null };
}

/** Bytes of the moments of one layer. */
export const layerBytes = ({ groups: { count, width }, columns }: MomentsPlan): number =>
  AXES.reduce((sum, axis) => sum + count * (columns ? Sketch.bytes(width, columns[axis]) : Covariance.bytes(width)), 0);

/**
 * Bytes beside the moments: keys or values of a layer in a batch and the block that is centred; or, once a pass is over,
 * eigenvectors of one latent and the tensors of one layer.
 * @param tokens of a batch
 */
export function workBytes(g: Geometry, plan: MomentsPlan, tokens: number): number {
  const { groups, ranks, columns } = plan;
  const { width, count } = groups;
  const widest = Math.max(columns?.key ?? 0, columns?.value ?? 0);
  // One loop's rows are there twice more while they are turned back.
  const captured = 8 * g.kvHeads * g.headDim * tokens * (g.loops + 2) + 8 * BLOCK * (width + widest);
  const basis = Math.max(
    ...AXES.map((axis) =>
      columns ? Sketch.basisBytes(width, columns[axis], ranks[axis]) : Covariance.basisBytes(width, ranks[axis]),
    ),
  );
  return Math.max(captured, basis + 8 * count * width * (ranks.key + ranks.value));
}

/**
 * The layers of each pass over the text, so that what is kept of them fits into the memory.
 * @param tokens of a batch of windows
 * @throws UserError where one layer's does not
 */
export function layersOfPasses(g: Geometry, plan: MomentsPlan, memoryBytes: number, tokens: number): number[][] {
  const [each, work] = [layerBytes(plan), workBytes(g, plan, tokens)];
  const together = Math.floor((memoryBytes - work) / each);
  if (together < 1)
    throw new UserError(
      `one layer takes ${formatBytes(each)} of ${plan.columns ? 'sketches' : 'covariances'} (${2 * plan.groups.count} of stacks of ${plan.groups.width}) and ${formatBytes(work)} to work in, more than the ${formatBytes(memoryBytes)} of --memory`,
      `give --memory ${formatBytes(each + work)} or more, a higher --ratio or a shorter --window`,
    );
  const passes: number[][] = [];
  for (let from = 0; from < g.layers; from += together)
    passes.push(Array.from({ length: Math.min(together, g.layers - from) }, (_, i) => from + i));
  return passes;
}

/** Moments of one layer, by axis and latent. */
export type LayerMoments = Readonly<Record<CodecAxis, readonly Moments[]>>;

export function emptyMoments({ groups: { count, width }, columns }: MomentsPlan): LayerMoments {
  const make = (axis: CodecAxis): Moments[] =>
    Array.from({ length: count }, () => (columns ? new Sketch(width, columns[axis]) : new Covariance(width)));
  return { key: make('key'), value: make('value') };
}

/** Joins captured keys and values of a layer to its moments. */
export async function accumulate(
  g: Geometry,
  groups: LatentGroups,
  layer: number,
  into: LayerMoments,
  captured: Captured,
): Promise<void> {
  const headGroups = g.kvHeads / groups.heads;
  for (const axis of AXES) {
    const columns = await captured.columns(axis, layer);
    into[axis].forEach((moments, group) => {
      const firstLoop = Math.floor(group / headGroups) * groups.loops;
      const firstHead = (group % headGroups) * groups.heads;
      const stacked = columns
        .slice(firstLoop, firstLoop + groups.loops)
        .flatMap((heads) => heads.slice(firstHead, firstHead + groups.heads).flat());
      moments.add(stacked, captured.tokens);
    });
  }
}
