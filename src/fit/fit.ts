/**
 * Fits a learned codec to a model's own keys and values (paper, Sec. "Initialization and conversion"), without training:
 * one covariance a layer, axis and latent, in as many passes over the text as the memory for them asks for.
 */
import type { Codec } from '../codecs/codec.js';
import { isLatent } from '../codecs/registry.js';
import { elementsOf, codecTensor, latentGroups, type CodecAxis, type LatentGroups } from '../decoder/tensors.js';
import type { Initialisation, TensorSource } from '../decoder/index.js';
import { UserError } from '../errors.js';
import type { Geometry } from '../geometry/geometry.js';
import { randomFrom } from '../random.js';
import { formatBytes } from '../units.js';
import type { Captured } from './capture.js';
import { Covariance } from './covariance.js';
import { energyKept, latentWeights } from './weights.js';

/** What a latent of a layer keeps of its vectors' variance. */
export interface LatentEnergy {
  readonly layer: number;
  readonly axis: CodecAxis;
  /** Loop group × head groups + head group; the KV head for lla. */
  readonly group: number;
  /** Share of the variance kept. */
  readonly kept: number;
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
}

const AXES = ['key', 'value'] as const satisfies readonly CodecAxis[];

/** Covariances of one layer, by axis and latent. */
export type LayerCovariances = Readonly<Record<CodecAxis, readonly Covariance[]>>;

/** Bytes of the covariances of one layer. */
export const layerBytes = ({ count, width }: LatentGroups): number => 2 * count * Covariance.bytes(width);

/**
 * The layers of each pass over the text, so that their covariances fit into the memory.
 * @throws UserError where one layer's do not
 */
export function layersOfPasses(g: Geometry, codec: Codec, memoryBytes: number): number[][] {
  const groups = latentGroups(g, codec);
  const each = layerBytes(groups);
  const together = Math.floor(memoryBytes / each);
  if (together < 1)
    throw new UserError(
      `the covariances of one layer (${2 * groups.count} of ${groups.width} × ${groups.width}) take ${formatBytes(each)}, more than the ${formatBytes(memoryBytes)} of --memory`,
      'give more --memory, or fit lla, whose latents are narrower',
    );
  const passes: number[][] = [];
  for (let from = 0; from < g.layers; from += together)
    passes.push(Array.from({ length: Math.min(together, g.layers - from) }, (_, i) => from + i));
  return passes;
}

export const emptyCovariances = (g: Geometry, codec: Codec): LayerCovariances => {
  const { count, width } = latentGroups(g, codec);
  const make = (): Covariance[] => Array.from({ length: count }, () => new Covariance(width));
  return { key: make(), value: make() };
};

/** Joins captured keys and values of a layer to its covariances. */
export async function accumulate(
  g: Geometry,
  codec: Codec,
  layer: number,
  into: LayerCovariances,
  captured: Captured,
): Promise<void> {
  const groups = latentGroups(g, codec);
  const headGroups = g.kvHeads / groups.heads;
  for (const axis of AXES) {
    const columns = await captured.columns(axis, layer);
    into[axis].forEach((covariance, group) => {
      const firstLoop = Math.floor(group / headGroups) * groups.loops;
      const firstHead = (group % headGroups) * groups.heads;
      const stacked = columns
        .slice(firstLoop, firstLoop + groups.loops)
        .flatMap((heads) => heads.slice(firstHead, firstHead + groups.heads).flat());
      covariance.add(stacked, captured.tokens);
    });
  }
}

/** Normal draws from uniform ones (Box and Muller). */
const normalFrom = (uniform: () => number) => (): number =>
  Math.sqrt(-2 * Math.log(1 - uniform())) * Math.cos(2 * Math.PI * uniform());

/** Collects a codec layer by layer. */
export class CodecFit {
  private readonly tensors = new Map<string, { readonly shape: readonly number[]; readonly values: Float32Array }>();
  readonly energy: LatentEnergy[] = [];
  private readonly groups: LatentGroups;
  private readonly normal: () => number;

  /** @throws UserError for a codec without latents */
  constructor(private readonly request: FitRequest) {
    if (!isLatent(request.codec))
      throw new UserError(`${request.codec.kind} has no weights to fit`, 'fit lla, lla-2d or mla-head');
    this.groups = latentGroups(request.geometry, request.codec);
    this.normal = normalFrom(randomFrom(request.seed));
  }

  /** Fits a layer from its covariances. */
  addLayer(layer: number, covariances: LayerCovariances): void {
    const { groups, request } = this;
    const { codec, initialisation, geometry: g } = request;
    const { count, width } = groups;
    const headGroups = g.kvHeads / groups.heads;
    for (const axis of AXES) {
      const rank = (axis === 'key' ? codec.rankK : codec.rankV) as number;
      const down = new Float32Array(count * width * rank);
      const up = new Float32Array(count * width * rank);
      const mean = new Float32Array(count * width);
      covariances[axis].forEach((own, group) => {
        const first = covariances[axis][group % headGroups] as Covariance;
        const weights = latentWeights(initialisation, groups, rank, own, first, this.normal);
        down.set(weights.down, group * width * rank);
        up.set(weights.up, group * width * rank);
        mean.set(weights.mean, group * width);
        this.energy.push({ layer, axis, group, kept: energyKept(own, weights, rank) });
      });
      this.put(codecTensor(layer, axis, 'down'), [count, width, rank], down);
      this.put(codecTensor(layer, axis, 'up'), [count, width, rank], up);
      this.put(codecTensor(layer, axis, 'mean'), [count, width], mean);
    }
  }

  private put(name: string, shape: readonly number[], values: Float32Array): void {
    this.tensors.set(name, { shape, values });
  }

  /** The codec, once every layer was added. */
  done(): FittedCodec {
    return { codec: this.request.codec, tensors: sourceOf(this.tensors), energy: this.energy };
  }
}

/** Tensors in memory. */
export function sourceOf(
  tensors: ReadonlyMap<string, { readonly shape: readonly number[]; readonly values: Float32Array }>,
): TensorSource {
  return {
    shapes: new Map([...tensors].map(([name, { shape }]) => [name, shape])),
    read(name, from = 0, count) {
      const tensor = tensors.get(name);
      if (!tensor) throw new RangeError(`no tensor ${name}`);
      return tensor.values.slice(from, from + (count ?? elementsOf(tensor.shape) - from));
    },
  };
}
