/** The weights of a decoder on the device, packed as the kernels read them; each is made when it is first asked for. */
import { tableWidth } from '../../geometry/geometry.js';
import type { NormName, WeightRef } from '../../schedule/bind/refs.js';
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
import type { AllocationKind, Allocations, Share } from './allocations.js';
import { CodecWeights } from './codec-weights.js';
import { boxOf, Placer, type Box, type Origin } from './place.js';
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
  readonly storage: WeightStorage;
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
    options: DecoderWeights,
    private readonly allocations: Allocations,
    unused: Buffer,
  ) {
    const g = c.geometry;
    this.storage = options.storage;
    const model = modelTensors(g);
    const codec = codecTensors(g, c.codec, c.path, c.branch);
    this.specs = new Map([...model, ...codec].map((spec) => [spec.name, spec]));
    const made = { seed: options.seed, tiedEmbeddings: g.tiedEmbeddings };
    const matrices = options.matrices ?? 'random';
    const from = (
      given: TensorSource | undefined,
      storage: WeightStorage,
      specs: readonly TensorSpec[],
      what: string,
    ): { origin: Origin; host: TensorSource } => {
      if (!given)
        return { origin: { kind: 'seed', ...made, matrices }, host: fabricate(specs, { ...made, codec: matrices }) };
      requireTensors(specs, given.shapes, `${what} of ${g.name}`);
      return { origin: { kind: 'tensors', tensors: storedAs(given, storage) }, host: only(given, specs) };
    };
    const ofModel = from(options.model, options.storage, model, 'the weights');
    const ofCodec = from(options.codec, 'f16', codec, 'the codec');
    [this.modelOrigin, this.codecOrigin] = [ofModel.origin, ofCodec.origin];
    this.host = combined(ofModel.host, ofCodec.host);
    const held = this.codecOrigin.kind === 'tensors' ? this.codecOrigin.tensors : this.host;
    this.codec = new CodecWeights(c, held, this.host);
    this.placer = new Placer(device, unused);
  }

  private spec(name: string): TensorSpec {
    const spec = this.specs.get(name);
    if (!spec) throw new RangeError(`no tensor ${name}`);
    return spec;
  }

  /** The buffer of weights that an operation binds. */
  of(ref: WeightRef): Promise<Buffer> {
    switch (ref.weights) {
      case 'projection':
        return this.projection(ref);
      case 'embedding': {
        // [token][columns]
        const source = { at: ref.first, group: 0, row: tableWidth(this.c.geometry), column: 1 };
        const box = boxOf(1, this.c.geometry.vocab, ref.columns, source);
        return this.boxed(`${EMBEDDING} from ${ref.first}`, EMBEDDING, box, this.storage);
      }
      case 'norm': {
        const { plainNorms, hidden } = this.c.geometry;
        if (plainNorms) return this.vector('ones', 'control', () => new Float32Array(hidden).fill(1));
        const name = NORMS[ref.of] ?? layerTensor(ref.stored, `${ref.of}.weight`);
        return this.tensors(name, name);
      }
      case 'biases': {
        const own = [...ref.letters].map((letter) => layerTensor(ref.stored, `self_attn.${letter}_proj.bias`));
        const label = `${layerTensor(ref.stored, 'self_attn')} biases ${ref.letters}`;
        return this.tensors(label, ...own);
      }
      case 'low-state':
        return this.c.geometry.extraParameters === undefined
          ? this.vector('zero state', 'control', () => new Float32Array(this.c.geometry.hidden))
          : this.tensors(LOW_STATE, LOW_STATE);
      case 'change-rates':
        return this.tensors(CHANGE_RATES, CHANGE_BIAS, CHANGE_RATES);
      case 'loop-gate': {
        // Between the first loop's rows and a window: [head][component][1].
        const { heads, headDim } = this.c.geometry;
        const name = loopGateTensor(ref.stored, 'weight');
        return this.boxed(name, name, boxOf(heads, headDim, 1, { at: 0, group: headDim, row: 1, column: 1 }), 'f16');
      }
      case 'loop-gate-bias': {
        const name = loopGateTensor(ref.stored, 'bias');
        return this.tensors(name, name);
      }
      case 'mean':
      case 'centre':
      case 'restored-means': {
        const { label, values } = this.codec.vector(ref);
        return this.vector(label, 'codec', values);
      }
      default: {
        const { label, tensor, box } = this.codec.matrix(ref);
        return this.boxed(label, tensor, box, 'f16');
      }
    }
  }

  /** A buffer of f32 values from the host. */
  private vector(label: string, kind: AllocationKind, values: () => Iterable<number>): Promise<Buffer> {
    return this.allocations.write(label, kind, () => Float32Array.from(values()));
  }

  /** Whole tensors of the model, one after the other. */
  private tensors(label: string, ...names: readonly string[]): Promise<Buffer> {
    return this.vector(label, 'weights', () => names.flatMap((name) => [...this.host.read(name)]));
  }

  /** Columns [first, first + n) of the matrix [k][outputs of all pieces]: part of a projection's weights. */
  private async projection(ref: ProjectionRef): Promise<Buffer> {
    const { part, first, columns: n, inputs } = ref;
    const name = labelOf(ref);
    const label = part === 0 && !inputs ? name : `${name} part ${part}${inputs ? ` inputs ${inputs.from}` : ''}`;
    const { storage } = this;
    let end = 0;
    const own = PIECES[ref.of](this.c, ref)
      .map((piece) => {
        const at = end;
        end += piece.outputs;
        return { ...piece, at, from: Math.max(first, at), to: Math.min(first + n, end) };
      })
      .filter((piece) => piece.to > piece.from);
    const inputsOf = (tensor: string): number => this.spec(tensor).shape[1] as number;
    const k = inputs?.count ?? inputsOf((own[0] as Piece).tensor);
    const codecBytes = own.reduce(
      (sum, { codec, from, to }) => sum + (codec ? packedBytes(storage, 1, k, to - from) : 0),
      0,
    );
    const shares = [
      { kind: 'weights' as const, bytes: packedBytes(storage, 1, k, n) - codecBytes },
      { kind: 'codec' as const, bytes: codecBytes },
    ].filter((share) => share.bytes > 0);
    return this.packed(label, shares, async (buffer) => {
      for (const { tensor, at, from, to } of own) {
        const column = inputsOf(tensor);
        const source = { at: (from - at) * column + (inputs?.from ?? 0), group: 0, row: 1, column };
        const box = boxOf(1, k, to - from, source, n, from - first);
        await this.placer.place(buffer, storage, this.originOf(tensor), this.spec(tensor), box);
      }
    });
  }

  private async packed(
    label: string,
    shares: readonly Share[],
    fill: (buffer: Buffer) => Promise<void>,
  ): Promise<Buffer> {
    const own = `matrix ${label}`;
    if (this.allocations.has(own)) return this.allocations.get(own);
    const buffer = await this.allocations.make(own, shares);
    await fill(buffer);
    return buffer;
  }

  private originOf(tensor: string): Origin {
    return tensor.startsWith('codec.') ? this.codecOrigin : this.modelOrigin;
  }

  /** A matrix that one box of a tensor fills. */
  private boxed(label: string, tensor: string, box: Box, storage: WeightStorage): Promise<Buffer> {
    const origin = this.originOf(tensor);
    const kind = origin === this.codecOrigin ? 'codec' : 'weights';
    const bytes = packedBytes(storage, box.groups, box.rows, box.width);
    // The paper initialises W_up with the slices of W_down; fabricated ones do so too.
    const valueOf = tensor.replace(/^(codec\..*)\.up$/, '$1.down');
    return this.packed(label, [{ kind, bytes }], (buffer) =>
      this.placer.place(buffer, storage, origin, this.spec(tensor), box, valueOf),
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
