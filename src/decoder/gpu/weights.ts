/** The weights of a decoder on the device, packed as the kernels read them; each is made when it is first asked for. */
import { tableWidth } from '../../geometry/geometry.js';
import type { CodecMatrixRef, NormName, WeightRef } from '../../schedule/bind/refs.js';
import type { Configuration } from '../../schedule/schedule.js';
import { evenRow } from '../../../kernels/spec.js';
import type { Buffer, Device } from '../../gpu/index.js';
import {
  CHANGE_BIAS,
  CHANGE_RATES,
  CORE_NORM,
  EMBEDDING,
  FINAL_NORM,
  layerTensor,
  LOW_STATE,
  codecTensors,
  loopGateTensor,
  modelTensors,
  requireTensors,
  type TensorSpec,
} from '../tensors.js';
import { combined, fabricate, storedAs, type TensorSource, type WeightStorage } from '../weights.js';
import type { AllocationKind, Allocations } from './allocations.js';
import { CodecWeights } from './codec-weights.js';
import { Placer, type Box, type Origin } from './place.js';
import { labelOf, PIECES, type Piece, type ProjectionRef } from './projections.js';

export interface DecoderWeights {
  /** Element type of projections and embeddings. Codec matrices are f16. */
  readonly storage: WeightStorage;
  /** Tensors of `modelTensors` and `codecTensors`; what is not given is fabricated from the seed. */
  readonly model?: TensorSource;
  readonly codec?: TensorSource;
  readonly seed: number;
  /** Fabricated codec matrices: `random` unless given (see weights.ts). */
  readonly matrices?: 'random' | 'identity';
}

const NORMS: Partial<Record<NormName, string>> = { final: FINAL_NORM, core: CORE_NORM };

/** Bytes of a packed matrix [groups][rows][columns]: pairs fill words. */
const packedBytes = (storage: WeightStorage, groups: number, rows: number, columns: number): number =>
  groups * rows * evenRow(columns) * (storage === 'f16' ? 2 : 4);

export class Weights {
  private readonly specs: ReadonlyMap<string, TensorSpec>;
  private readonly modelOrigin: Origin;
  private readonly codecOrigin: Origin;
  /** Values on the host: norms, biases and means are small. */
  private readonly host: TensorSource;
  private readonly placer: Placer;
  private readonly codec: CodecWeights;

  /** @throws UserError for tensors that are missing or of another shape */
  constructor(
    device: Device,
    private readonly c: Configuration,
    private readonly options: DecoderWeights,
    private readonly allocations: Allocations,
    unused: Buffer,
  ) {
    const g = c.geometry;
    const model = modelTensors(g);
    const codec = codecTensors(g, c.codec, c.path, c.branch);
    this.specs = new Map([...model, ...codec].map((spec) => [spec.name, spec]));
    const made = { seed: options.seed, tiedEmbeddings: g.tiedEmbeddings };
    const matrices = options.matrices ?? 'random';
    const originOf = (
      given: TensorSource | undefined,
      storage: WeightStorage,
      specs: readonly TensorSpec[],
      what: string,
    ): Origin => {
      if (!given) return { kind: 'seed', ...made, matrices };
      requireTensors(specs, given.shapes, `${what} of ${g.name}`);
      return { kind: 'tensors', tensors: storedAs(given, storage) };
    };
    this.modelOrigin = originOf(options.model, options.storage, model, 'the weights');
    this.codecOrigin = originOf(options.codec, 'f16', codec, 'the codec');
    const sourceOf = (given: TensorSource | undefined, specs: readonly TensorSpec[]): TensorSource =>
      given ?? fabricate(specs, { ...made, codec: matrices });
    this.host =
      codec.length > 0
        ? combined(only(sourceOf(options.model, model), model), only(sourceOf(options.codec, codec), codec))
        : sourceOf(options.model, model);
    const held = this.codecOrigin.kind === 'tensors' ? this.codecOrigin.tensors : this.host;
    this.codec = new CodecWeights(c, held, this.host);
    this.placer = new Placer(device, unused);
  }

  /** Element type of projections and embeddings. */
  get storage(): WeightStorage {
    return this.options.storage;
  }

  private spec(name: string): TensorSpec {
    const spec = this.specs.get(name);
    if (!spec) throw new RangeError(`no tensor ${name}`);
    return spec;
  }

  /** Elements of a tensor on the host. */
  private read(name: string, from?: number, count?: number): Float32Array {
    return this.host.read(name, from, count);
  }

  /** The buffer of weights that an operation binds. */
  of(ref: WeightRef): Promise<Buffer> {
    switch (ref.weights) {
      case 'projection':
        return this.projection(ref);
      case 'embedding':
        return this.embedding(EMBEDDING, ref.first, ref.columns);
      case 'norm':
        return this.norm(NORMS[ref.of] ?? layerTensor(ref.stored, `${ref.of}.weight`));
      case 'biases': {
        const own = [...ref.letters].map((letter) => layerTensor(ref.stored, `self_attn.${letter}_proj.bias`));
        const label = `${layerTensor(ref.stored, 'self_attn')} biases ${ref.letters}`;
        return this.vector(label, 'weights', () => own.flatMap((name) => [...this.read(name)]));
      }
      case 'low-state':
        return this.c.geometry.extraParameters === undefined
          ? this.vector('zero state', 'control', () => new Float32Array(this.c.geometry.hidden))
          : this.vector(LOW_STATE, 'weights', () => this.read(LOW_STATE));
      case 'change-rates':
        return this.vector(CHANGE_RATES, 'weights', () =>
          [CHANGE_BIAS, CHANGE_RATES].flatMap((name) => [...this.read(name)]),
        );
      case 'loop-gate':
        return this.loopGate(ref.stored);
      case 'loop-gate-bias': {
        const name = loopGateTensor(ref.stored, 'bias');
        return this.vector(name, 'weights', () => this.read(name));
      }
      case 'mean':
      case 'centre':
      case 'restored-means': {
        const { label, values } = this.codec.vector(ref);
        return this.vector(label, 'codec', values);
      }
      default:
        return this.codecMatrix(ref);
    }
  }

  /** A buffer of f32 values from the host. */
  private vector(label: string, kind: AllocationKind, values: () => Iterable<number>): Promise<Buffer> {
    return this.allocations.write(label, kind, () => Float32Array.from(values()));
  }

  /** A norm's weight; ones where norms have none. */
  private norm(name: string): Promise<Buffer> {
    const { plainNorms, hidden } = this.c.geometry;
    if (plainNorms) return this.vector('ones', 'control', () => new Float32Array(hidden).fill(1));
    return this.vector(name, 'weights', () => this.read(name));
  }

  /** Columns [first, first + n) of the embedding, [token][n]. */
  private async embedding(name: string, first: number, n: number): Promise<Buffer> {
    const { vocab } = this.c.geometry;
    return this.packed(
      `${name} from ${first}`,
      [{ kind: 'weights', bytes: packedBytes(this.options.storage, 1, vocab, n) }],
      async (buffer) => {
        const box: Box = {
          groups: 1,
          rows: vocab,
          columns: n,
          width: n,
          column0: 0,
          source: { at: first, group: 0, row: tableWidth(this.c.geometry), column: 1 },
        };
        await this.placer.place(buffer, this.options.storage, this.modelOrigin, this.spec(name), box);
      },
    );
  }

  /** Columns [first, first + n) of the matrix [k][outputs of all pieces]: part of a projection's weights. */
  private async projection(ref: ProjectionRef): Promise<Buffer> {
    const { part, first, columns: n, inputs } = ref;
    const pieces = PIECES[ref.of](this.c, ref);
    const name = labelOf(ref);
    const label = part === 0 && !inputs ? name : `${name} part ${part}${inputs ? ` inputs ${inputs.from}` : ''}`;
    const { storage } = this.options;
    const own = pieces
      .map((piece, i) => ({ ...piece, at: pieces.slice(0, i).reduce((sum, p) => sum + p.outputs, 0) }))
      .map((piece) => ({
        ...piece,
        from: Math.max(first, piece.at),
        to: Math.min(first + n, piece.at + piece.outputs),
      }))
      .filter((piece) => piece.to > piece.from);
    const inputsOf = (tensor: string): number => this.spec(tensor).shape[1] as number;
    const k = inputs?.count ?? inputsOf((own[0] as Piece).tensor);
    const bytes = packedBytes(storage, 1, k, n);
    const apart = own
      .filter((piece) => piece.kind !== undefined && piece.kind !== 'weights')
      .map((piece) => ({
        kind: piece.kind as AllocationKind,
        bytes: packedBytes(storage, 1, k, piece.to - piece.from),
      }));
    const shares = [
      { kind: 'weights' as AllocationKind, bytes: bytes - apart.reduce((sum, share) => sum + share.bytes, 0) },
      ...apart,
    ].filter((share) => share.bytes > 0);
    return this.packed(label, shares, async (buffer) => {
      for (const piece of own) {
        const stride = inputsOf(piece.tensor);
        const source = { at: (piece.from - piece.at) * stride + (inputs?.from ?? 0), group: 0, row: 1, column: stride };
        const origin = piece.tensor.startsWith('codec.') ? this.codecOrigin : this.modelOrigin;
        await this.placer.place(buffer, storage, origin, this.spec(piece.tensor), {
          groups: 1,
          rows: k,
          columns: piece.to - piece.from,
          width: n,
          column0: piece.from - first,
          source,
        });
      }
    });
  }

  private async packed(
    label: string,
    shares: readonly { kind: AllocationKind; bytes: number }[],
    fill: (buffer: Buffer) => Promise<void>,
  ): Promise<Buffer> {
    const own = `matrix ${label}`;
    if (this.allocations.has(own)) return this.allocations.get(own);
    const buffer = await this.allocations.make(own, shares);
    await fill(buffer);
    return buffer;
  }

  /** The gates of a layer between the first loop's rows and a window: [head][component][1]. */
  private async loopGate(layer: number): Promise<Buffer> {
    const { heads, headDim } = this.c.geometry;
    const name = loopGateTensor(layer, 'weight');
    const box = { groups: heads, rows: headDim, columns: 1, width: 1, column0: 0 };
    const source = { at: 0, group: headDim, row: 1, column: 1 };
    return this.packed(name, [{ kind: 'weights', bytes: packedBytes('f16', heads, headDim, 1) }], (buffer) =>
      this.placer.place(buffer, 'f16', this.modelOrigin, this.spec(name), { ...box, source }),
    );
  }

  private codecMatrix(ref: CodecMatrixRef): Promise<Buffer> {
    const { label, tensor, box } = this.codec.matrix(ref);
    return this.packed(
      label,
      [{ kind: 'codec', bytes: packedBytes('f16', box.groups, box.rows, box.width) }],
      (buffer) =>
        // The paper initialises W_up with the slices of W_down; fabricated ones do so too.
        this.placer.place(buffer, 'f16', this.codecOrigin, this.spec(tensor), box, tensor.replace(/\.up$/, '.down')),
    );
  }

  close(): void {
    this.placer.close();
  }
}

/** A source reduced to the tensors named. */
const only = (source: TensorSource, specs: readonly TensorSpec[]): TensorSource => ({
  shapes: new Map(specs.map((spec) => [spec.name, source.shapes.get(spec.name) as readonly number[]])),
  read: (name, from, count) => source.read(name, from, count),
});
