/**
 * Fits a learned codec to the moments of a model's own keys and values (paper, Sec. "Initialization and conversion"),
 * without training, layer by layer.
 */
import { Matrix, WrapperMatrix1D } from 'ml-matrix';
import type { Codec } from '../codecs/codec.js';
import { codecTensor, latentGroups, type CodecAxis, type LatentGroups } from '../decoder/tensors.js';
import { INITIALISATIONS, type Initialisation, type NamedTensor, type TensorSource } from '../decoder/index.js';
import type { Geometry } from '../geometry/geometry.js';
import { mix } from '../numbers/hash.js';
import { randomFrom } from '../numbers/random.js';
import { principalBasis, randomBasis } from './basis.js';
import { Covariance, type Moments } from './covariance.js';
import { AXES, rankOf, type LayerMoments } from './moments.js';
import { Sketch } from './sketch.js';

/** What a latent of a layer keeps of its vectors' variance. */
export interface LatentEnergy {
  readonly layer: number;
  readonly axis: CodecAxis;
  /** Loop group × head groups + head group; the KV head for lla. */
  readonly group: number;
  /** Share of the variance kept; at least this, where `below` is given. */
  readonly kept: number;
  /** Of directions from a sketch: the share that the best directions keep beyond that, at most. */
  readonly below?: number;
}

export interface FittedCodec {
  readonly codec: Codec;
  readonly tensors: TensorSource;
  readonly energy: readonly LatentEnergy[];
}

export interface FitRequest {
  readonly geometry: Geometry;
  readonly codec: Codec;
  readonly initialisation: Initialisation;
  /** Of random directions. */
  readonly seed: number;
  /** Whether it is asked what the other initialisations would keep. */
  readonly controls?: boolean;
}

export interface FittedLayer {
  readonly tensors: readonly NamedTensor[];
  readonly energy: readonly LatentEnergy[];
  /** Shares of the variance that each initialisation that was computed keeps, latent by latent. */
  readonly shares: Readonly<Partial<Record<Initialisation, readonly number[]>>>;
}

/** Controls are fitted beside the codec where its stacked vectors are at most this wide: they cost as much again. */
const WIDEST_CONTROL = 512;

/** Normal draws from uniform ones (Box and Muller). */
const normalFrom = (uniform: () => number) => (): number =>
  Math.sqrt(-2 * Math.log(1 - uniform())) * Math.cos(2 * Math.PI * uniform());

export function fitLayer(request: FitRequest, layer: number, moments: LayerMoments): FittedLayer {
  const { codec, initialisation, geometry: g, seed, controls = true } = request;
  const groups = latentGroups(g, codec);
  const { count, width } = groups;
  const headGroups = g.kvHeads / groups.heads;
  const tensors: NamedTensor[] = [];
  const energy: LatentEnergy[] = [];
  const shares: Partial<Record<Initialisation, number[]>> = {};
  for (const axis of AXES) {
    const rank = rankOf(codec, axis);
    const down = new Float32Array(count * width * rank);
    const up = new Float32Array(count * width * rank);
    const mean = new Float32Array(count * width);
    const hasCovariances = moments[axis].every((own) => own instanceof Covariance);
    for (const kind of controls && hasCovariances && width <= WIDEST_CONTROL ? INITIALISATIONS : [initialisation]) {
      // Drawn for each layer by itself, so that a fit can resume at any layer.
      const normal = normalFrom(randomFrom(mix(seed) ^ (2 * layer + (axis === 'key' ? 0 : 1))));
      moments[axis].forEach((own, group) => {
        const first = moments[axis][group % headGroups] as Moments;
        const { kept, below, ...weights } = latentWeights(kind, groups, rank, own, first, normal);
        (shares[kind] ??= []).push(kept);
        if (kind !== initialisation) return;
        down.set(weights.down, group * width * rank);
        up.set(weights.up, group * width * rank);
        mean.set(weights.mean, group * width);
        energy.push({ layer, axis, group, kept, ...(below === undefined ? {} : { below }) });
      });
    }
    const put = (part: 'down' | 'up' | 'mean', shape: readonly number[], values: Float32Array): void =>
      void tensors.push({ name: codecTensor(layer, axis, part), shape, values });
    put('down', [count, width, rank], down);
    put('up', [count, width, rank], up);
    put('mean', [count, width], mean);
  }
  return { tensors, energy, shares };
}

/** Matrices of one latent: [stacked width][rank]. */
interface Directions {
  readonly down: Float64Array;
  readonly up: Float64Array;
}

/** With mu, and the share of the variance that they keep. */
interface FittedLatent extends Directions, Pick<LatentEnergy, 'kept' | 'below'> {
  readonly mean: Float64Array;
}

/**
 * W_down, W_up and mu of a latent: the basis of the most variance of the vectors that it stands for, or a control.
 * @param own moments of the stacked vectors; a sketch for directions of the most variance only
 * @param firstLoop covariance whose leading components are the first loop's, of the same heads
 * @param normal draws of a normal distribution, for random directions
 */
export function latentWeights(
  initialisation: Initialisation,
  groups: LatentGroups,
  rank: number,
  own: Moments,
  firstLoop: Moments,
  normal: () => number,
): FittedLatent {
  const mean = own.mean.slice();
  if (own instanceof Sketch) {
    if (initialisation !== 'svd') throw new RangeError('a sketch has directions of the most variance only');
    const { vectors, kept, below } = own.basis(rank);
    return { down: vectors, up: vectors, mean, kept, below };
  }
  if (!(own instanceof Covariance && firstLoop instanceof Covariance)) throw new RangeError('no covariance');
  const directions = exactDirections(initialisation, groups, rank, own, firstLoop, normal);
  return { ...directions, mean, kept: energyKept(own, directions) };
}

function exactDirections(
  initialisation: Initialisation,
  groups: LatentGroups,
  rank: number,
  own: Covariance,
  firstLoop: Covariance,
  normal: () => number,
): Directions {
  if (initialisation !== 'first-loop') {
    const { vectors } = initialisation === 'svd' ? principalBasis(own, rank) : randomBasis(groups.width, rank, normal);
    return { down: vectors, up: vectors };
  }
  // The first loop's directions serve every loop: the latent is the mean of the loops' coordinates.
  const size = groups.width / groups.loops;
  const basis = principalBasis(firstLoop, Math.min(rank, size), size);
  const down = new Float64Array(groups.width * rank);
  const up = new Float64Array(groups.width * rank);
  for (let i = 0; i < groups.width; i++)
    for (let j = 0; j < basis.rank; j++) {
      const value = basis.vectors[(i % size) * basis.rank + j] as number;
      down[i * rank + j] = value / groups.loops;
      up[i * rank + j] = value;
    }
  return { down, up };
}

/**
 * Share of the variance that a latent keeps: 1 − E‖x − x̂‖² / E‖x − mu‖², exactly, from the covariance C:
 * E‖x − x̂‖² = tr C − 2 tr(Dᵀ C U) + tr(UᵀU Dᵀ C D). Below 0 where it is worse than the mean alone.
 */
export function energyKept(covariance: Covariance, { down, up }: Directions): number {
  const total = covariance.trace;
  if (total === 0) return 1;
  const [d, u, products] = [down, up, covariance.symmetric()].map(
    (values) => new WrapperMatrix1D(values, { rows: covariance.width }),
  ) as [Matrix, Matrix, Matrix];
  const c = Matrix.div(products, covariance.count);
  const product = c.mmul(d);
  const inner = (a: Matrix, b: Matrix): number => Matrix.mul(a, b).sum();
  const error = total - 2 * inner(u, product) + inner(u.transpose().mmul(u), d.transpose().mmul(product));
  return 1 - error / total;
}
