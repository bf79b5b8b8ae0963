/**
 * Fits a learned codec to the moments of a model's own keys and values (paper, Sec. "Initialization and conversion"),
 * without training, layer by layer.
 */
import type { Codec } from '../codecs/codec.js';
import { codecTensor, latentGroups, type CodecAxis } from '../decoder/tensors.js';
import { INITIALISATIONS, type Initialisation, type NamedTensor, type TensorSource } from '../decoder/index.js';
import type { Geometry } from '../geometry/geometry.js';
import { mix } from '../numbers/hash.js';
import { randomFrom } from '../numbers/random.js';
import { Covariance, type Moments } from './covariance.js';
import { AXES, rankOf, type LayerMoments } from './moments.js';
import { latentWeights } from './weights.js';

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
