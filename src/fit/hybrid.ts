/**
 * The closed-form start of rotated latents (HLA, arXiv 2610.07940, initialisation), of a layer. Keys: at each rotary
 * frequency the first eigenvectors M of Σ K Kᵀ over the key pairs of all (loop, head) that share a latent, not centred;
 * E = M times the key projection, A = the columns of M. Values: the first principal components of loops and heads side
 * by side; as no mean is stored, they are not centred either.
 */
import { ranksOfLoops } from '../codecs/hla.js';
import type { Codec } from '../codecs/codec.js';
import type { Initialisation, NamedTensor, TensorSource } from '../decoder/index.js';
import {
  biasedProjections,
  HYBRID_PARTS,
  hybridTensor,
  layerTensor,
  type CodecAxis,
  type HybridPart,
} from '../decoder/tensors.js';
import { UserError } from '../errors.js';
import type { Geometry } from '../geometry/geometry.js';
import { sum } from '../numbers/statistics.js';
import { principalBasis } from './basis.js';
import { component } from './branch.js';
import { Covariance, type Moments } from './covariance.js';
import type { FittedLayer, LatentEnergy } from './fit.js';
import type { LayerMoments, Stack } from './moments.js';
import { Sketch, sketchColumns } from './sketch.js';

/** Loops that share a latent: the first of them, and how many. */
const loopsOf = (g: Geometry, part: HybridPart): readonly [from: number, count: number] =>
  part === 'first' ? [0, 1] : [1, g.loops - 1];

/** @throws UserError where the start is not defined: keys and values must be linear in attention's input */
export function refuseHybridFit(g: Geometry, initialisation: Initialisation): void {
  if (initialisation !== 'svd')
    throw new UserError(`hla begins with eigenvectors of its own, not ${initialisation}`, 'leave --init out');
  if (biasedProjections(g).some((letter) => letter !== 'q'))
    throw new UserError(
      `keys and values of ${g.name} have biases, and hla encodes attention's input without one`,
      'fit lla, lla-2d or mla-head',
    );
}

/** Key pairs of each frequency, and values: of the first loop, then of the others. @param codecs all ranks asked for */
export function hybridStacks(
  g: Geometry,
  codecs: readonly Codec[],
  widestExact: number,
): Record<CodecAxis, readonly Stack[]> {
  const { headDim: d, kvHeads, rope } = g;
  const most = (part: HybridPart, axis: 'rankK' | 'rankV'): number =>
    Math.max(...codecs.map((codec) => ranksOfLoops(codec)[part][axis]));
  const layerOf = (part: HybridPart, layer: readonly Float64Array[][][]): Float64Array[][] => {
    const [from, count] = loopsOf(g, part);
    return layer.slice(from, from + count).flat();
  };
  const keys = HYBRID_PARTS.flatMap((part) =>
    Array.from({ length: d / 2 }, (_, frequency): Stack => {
      const of = (half: number) => component(rope.pairing, d, frequency, half);
      return {
        width: loopsOf(g, part)[1] * kvHeads,
        rank: most(part, 'rankK') / d,
        columns: null,
        centred: false,
        vectors: (layer) => [0, 1].map((half) => layerOf(part, layer).map((head) => head[of(half)] as Float64Array)),
      };
    }),
  );
  const values = HYBRID_PARTS.map((part): Stack => {
    const width = loopsOf(g, part)[1] * kvHeads * d;
    const rank = most(part, 'rankV');
    const columns = sketchColumns(width, rank);
    return {
      width,
      rank,
      columns: width > widestExact && columns < width ? columns : null,
      centred: false,
      vectors: (layer) => [layerOf(part, layer).flat()],
    };
  });
  return { key: keys, value: values };
}

/** The first directions of some moments, [width][rank], with what they keep and what there is. */
interface Directions {
  readonly vectors: Float64Array;
  readonly kept: number;
  readonly all: number;
  readonly below?: number;
}

function directionsOf(moments: Moments, rank: number): Directions {
  if (moments instanceof Covariance) {
    const { vectors, variances } = principalBasis(moments, rank);
    return { vectors, kept: sum(variances.slice(0, rank)), all: sum(variances) };
  }
  const { vectors, kept, below } = (moments as Sketch).basis(rank);
  return { vectors, kept: kept * moments.trace, all: moments.trace, below };
}

/** Fits a layer. @param model its tensors: E is made of its projections */
export function fitHybridLayer(
  g: Geometry,
  codec: Codec,
  layer: number,
  moments: LayerMoments,
  model: TensorSource,
): FittedLayer {
  const { headDim: d, hidden, kvHeads, rope } = g;
  const projection = (letter: 'k' | 'v'): Float32Array =>
    model.read(layerTensor(g.preludeLayers + layer, `self_attn.${letter}_proj.weight`));
  const [keys, values] = [projection('k'), projection('v')];
  const tensors: NamedTensor[] = [];
  const energy: LatentEnergy[] = [];
  for (const [group, part] of HYBRID_PARTS.entries()) {
    const { rankK, rankV } = ranksOfLoops(codec)[part];
    const loops = loopsOf(g, part)[1];
    const [width, columns] = [loops * kvHeads * d, rankK + rankV];
    const encode = new Float32Array(loops * hidden * columns);
    /** Adds a share of a projection's row to the encoder of its loop. @param row of all loops, heads and components */
    const add = (weights: Float32Array, row: number, column: number, share: number): void => {
      const loop = Math.floor(row / (kvHeads * d));
      const from = (row % (kvHeads * d)) * hidden;
      for (let j = 0; j < hidden; j++) {
        const at = (loop * hidden + j) * columns + column;
        encode[at] = (encode[at] as number) + share * (weights[from + j] as number);
      }
    };
    const key = new Float32Array(width * rankK);
    const mixtures = Array.from({ length: d / 2 }, (_, frequency) =>
      directionsOf(moments.key[(group * d) / 2 + frequency] as Moments, rankK / d),
    );
    for (const [frequency, { vectors }] of mixtures.entries())
      for (const at of [0, 1].map((half) => component(rope.pairing, d, frequency, half)))
        for (let head = 0; head < loops * kvHeads; head++)
          for (let m = 0; m < rankK / d; m++) {
            const share = vectors[(head * rankK) / d + m] as number;
            key[(head * d + at) * rankK + m * d + at] = share;
            add(keys, head * d + at, m * d + at, share);
          }
    const components = directionsOf(moments.value[group] as Moments, rankV);
    for (let row = 0; row < width; row++)
      for (let r = 0; r < rankV; r++) add(values, row, rankK + r, components.vectors[row * rankV + r] as number);
    const total = (of: 'kept' | 'all'): number => sum(mixtures.map((own) => own[of]));
    const { kept, all, below } = components;
    energy.push(
      { layer, axis: 'key', group, kept: total('kept') / total('all') },
      { layer, axis: 'value', group, kept: kept / all, ...(below === undefined ? {} : { below }) },
    );
    tensors.push(
      { name: hybridTensor(layer, part, 'encode'), shape: [loops, hidden, columns], values: encode },
      { name: hybridTensor(layer, part, 'key'), shape: [loops, kvHeads * d, rankK], values: key },
      {
        name: hybridTensor(layer, part, 'value'),
        shape: [loops, kvHeads * d, rankV],
        values: Float32Array.from(components.vectors),
      },
    );
  }
  return { tensors, energy, shares: { svd: energy.map(({ kept }) => kept) } };
}
