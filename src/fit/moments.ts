/**
 * How the vectors of a codec's latents are kept while they stream by, and the memory that it takes: covariances of
 * narrow stacks, sketches of wide ones, of as many layers in a pass as the memory holds.
 */
import type { Codec } from '../codecs/codec.js';
import { isHybrid } from '../codecs/registry.js';
import { latentGroups, type CodecAxis, type LatentGroups } from '../decoder/tensors.js';
import { UserError } from '../errors.js';
import type { Geometry } from '../geometry/geometry.js';
import { sum } from '../numbers/statistics.js';
import { formatBytes } from '../numbers/units.js';
import type { Captured } from './capture.js';
import type { FitRequest } from './fit.js';
import { hybridStacks } from './hybrid.js';
import { BLOCK, Covariance, type Moments } from './covariance.js';
import { Sketch, sketchColumns } from './sketch.js';

/**
 * Widest stack with a covariance of its own. Eigenvectors of a wider one take minutes each, and those of 8,192 numbers
 * half a day.
 */
const WIDEST_EXACT = 1024;

export const AXES = ['key', 'value'] as const satisfies readonly CodecAxis[];

/** K or V. */
export const letterOf = (axis: CodecAxis): string => (axis === 'key' ? 'K' : 'V');

export const byAxis = <T>(of: (axis: CodecAxis) => T): Record<CodecAxis, T> => ({ key: of('key'), value: of('value') });

/** What a fit asks of the moments of one kind of codec: all its ranks and initialisations. */
export type Asked = Pick<FitRequest, 'codec' | 'initialisation'>;

/** Vectors whose moments are kept: those that a latent stands for, or those of one frequency of it. */
export interface Stack {
  readonly width: number;
  readonly rank: number;
  /** Columns of its sketch; null where its covariance is kept. */
  readonly columns: number | null;
  /** Second moments about 0 unless centred. */
  readonly centred: boolean;
  /**
   * Its vectors, [component][token], out of those of a layer, [loop][KV head][component][token]: one set or several.
   */
  readonly vectors: (layer: readonly Float64Array[][][]) => readonly Float64Array[][];
}

export interface MomentsPlan {
  readonly stacks: Readonly<Record<CodecAxis, readonly Stack[]>>;
  /** Columns of the sketches; null where covariances are kept. */
  readonly columns: Readonly<Record<CodecAxis, number>> | null;
}

/** Of a codec with latents. */
export const rankOf = ({ rankK, rankV }: Codec, axis: CodecAxis): number => (axis === 'key' ? rankK : rankV) as number;

/** A control needs the covariance itself. @param asked of one kind of codec */
export function momentsPlan(g: Geometry, asked: readonly Asked[], widestExact = WIDEST_EXACT): MomentsPlan {
  const { codec } = asked[0] as Asked;
  const codecs = asked.map((own) => own.codec);
  if (isHybrid(codec)) return { columns: null, stacks: hybridStacks(g, codecs, widestExact) };
  const groups = latentGroups(g, codec);
  const ranks = byAxis((axis) => Math.max(...codecs.map((own) => rankOf(own, axis))));
  const columns = byAxis((axis) => sketchColumns(groups.width, ranks[axis]));
  const wide = groups.width > widestExact && Math.max(columns.key, columns.value) < groups.width;
  const sketched = wide && asked.every(({ initialisation }) => initialisation === 'svd');
  const stacks = byAxis((axis) => stacksOf(g, groups, ranks[axis], sketched ? columns[axis] : null));
  return { columns: sketched ? columns : null, stacks };
}

function stacksOf(g: Geometry, groups: LatentGroups, rank: number, columns: number | null): Stack[] {
  const headGroups = g.kvHeads / groups.heads;
  return Array.from({ length: groups.count }, (_, group) => {
    const firstLoop = Math.floor(group / headGroups) * groups.loops;
    const firstHead = (group % headGroups) * groups.heads;
    return {
      width: groups.width,
      rank,
      columns,
      centred: true,
      vectors: (layer) => [
        layer
          .slice(firstLoop, firstLoop + groups.loops)
          .flatMap((heads) => heads.slice(firstHead, firstHead + groups.heads).flat()),
      ],
    };
  });
}

const allStacks = ({ stacks }: MomentsPlan): Stack[] => AXES.flatMap((axis) => stacks[axis]);

export const layerBytes = (plan: MomentsPlan): number =>
  sum(allStacks(plan).map(({ width, columns }) => (columns ? Sketch.bytes(width, columns) : Covariance.bytes(width))));

/**
 * Bytes beside the moments: keys or values of a layer in a batch and the block that is centred; or, once a pass is
 * over, eigenvectors of one latent and the tensors of one layer.
 * @param tokens of a batch
 */
export function workBytes(g: Geometry, plan: MomentsPlan, tokens: number): number {
  const stacks = allStacks(plan);
  const width = Math.max(...stacks.map((stack) => stack.width));
  const widest = Math.max(...stacks.map(({ columns }) => columns ?? 0));
  // One loop's rows are there twice more while they are turned back.
  const captured = 8 * g.kvHeads * g.headDim * tokens * (g.loops + 2) + 8 * BLOCK * (width + widest);
  const basis = Math.max(
    ...stacks.map(({ width: own, columns, rank }) =>
      columns ? Sketch.basisBytes(own, columns, rank) : Covariance.basisBytes(own, rank),
    ),
  );
  return Math.max(captured, basis + 8 * sum(stacks.map(({ width: own, rank }) => own * rank)));
}

/**
 * The layers of each pass over the text, so that what is kept of them fits into the memory.
 * @param tokens of a batch of windows
 * @throws UserError where one layer's does not
 */
export function layersOfPasses(g: Geometry, plan: MomentsPlan, memoryBytes: number, tokens: number): number[][] {
  const [each, work] = [layerBytes(plan), workBytes(g, plan, tokens)];
  const stacks = allStacks(plan);
  const together = Math.floor((memoryBytes - work) / each);
  if (together < 1)
    throw new UserError(
      `one layer takes ${formatBytes(each)} of ${plan.columns ? 'sketches' : 'covariances'} (${stacks.length} of ` +
        `stacks of at most ${Math.max(...stacks.map(({ width }) => width))}) and ${formatBytes(work)} to work in, ` +
        `more than the ${formatBytes(memoryBytes)} of --memory`,
      `give --memory ${formatBytes(each + work)} or more, a higher --ratio or a shorter --window`,
    );
  const passes: number[][] = [];
  for (let from = 0; from < g.layers; from += together)
    passes.push(Array.from({ length: Math.min(together, g.layers - from) }, (_, i) => from + i));
  return passes;
}

export type LayerMoments = Readonly<Record<CodecAxis, readonly Moments[]>>;

export const emptyMoments = ({ stacks }: MomentsPlan): LayerMoments =>
  byAxis((axis) =>
    stacks[axis].map(({ width, columns, centred }) =>
      columns ? new Sketch(width, columns, centred) : new Covariance(width, centred),
    ),
  );

export async function accumulate(
  { stacks }: MomentsPlan,
  layer: number,
  into: LayerMoments,
  captured: Captured,
): Promise<void> {
  for (const axis of AXES) {
    const columns = await captured.columns(axis, layer);
    into[axis].forEach((moments, i) => {
      for (const vectors of (stacks[axis][i] as Stack).vectors(columns)) moments.add(vectors, captured.tokens);
    });
  }
}
