/** The weights of a decoder on the device, packed as the kernels read them; each is made when it is first asked for. */
import { latentOfLoop, ranksOfLoops } from '../../codecs/hla.js';
import { tableWidth } from '../../geometry/geometry.js';
import { CODECS } from '../../codecs/registry.js';
import type { NormName, Projection, WeightRef } from '../../schedule/bind/refs.js';
import { latentsOf } from '../../schedule/configuration.js';
import type { Configuration } from '../../schedule/schedule.js';
import { evenRow } from '../../../kernels/spec.js';
import type { Buffer, Device } from '../../gpu/index.js';
import {
  ADAPTER,
  branchTensor,
  CHANGE_BIAS,
  CHANGE_DOWN,
  CHANGE_RATES,
  CHANGE_UP,
  CORE_NORM,
  EMBEDDING,
  EMBEDDING_UP,
  FINAL_NORM,
  HEAD,
  HEAD_DOWN,
  layerTensor,
  LOW_STATE,
  codecTensor,
  codecTensors,
  hybridTensor,
  latentGroups,
  loopGateTensor,
  modelTensors,
  requireTensors,
  type CodecAxis,
  type LatentGroups,
  type TensorSpec,
} from '../tensors.js';
import { combined, fabricate, storedAs, type TensorSource, type WeightStorage } from '../weights.js';
import type { AllocationKind, Allocations } from './allocations.js';
import { Placer, type Box, type Origin } from './place.js';

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

/** A run of rows of a tensor [outputs, inputs], in a matrix that has the outputs of several side by side. */
interface Piece {
  readonly tensor: string;
  readonly outputs: number;
  readonly kind?: AllocationKind;
}

type ProjectionRef = Extract<WeightRef, { weights: 'projection' }>;

const NORMS: Partial<Record<NormName, string>> = { final: FINAL_NORM, core: CORE_NORM };

/** Projections that a model has once, by the name of their matrix. */
const ONCE: Partial<Record<Projection, string>> = {
  'embedding-up': 'embedding up',
  adapter: 'adapter',
  'change-down': 'change down',
  'change-up': 'change up',
  'exit-gate': 'exit gate',
  'head-down': 'head down',
  head: 'head',
};
const labelOf = ({ of, stored, layer }: ProjectionRef): string =>
  ONCE[of] ?? (of === 'branch-key' ? `branch key ${layer}` : `${of} ${stored}`);

type PiecesOf = (c: Configuration, ref: ProjectionRef) => Piece[];

const attentionPieces =
  (letters: string): PiecesOf =>
  ({ geometry: { heads, kvHeads, headDim, copiesKeys } }, { stored }) =>
    [...letters].map((letter) => ({
      tensor: layerTensor(stored, `self_attn.${copiesKeys && letter === 'v' ? 'k' : letter}_proj.weight`),
      outputs: (letter === 'q' ? heads : kvHeads) * headDim,
    }));

/** A tensor that is a projection by itself. */
const whole =
  (tensorOf: (ref: ProjectionRef, c: Configuration) => string, outputs: (c: Configuration) => number): PiecesOf =>
  (c, ref) => [{ tensor: tensorOf(ref, c), outputs: outputs(c) }];
const hidden = ({ geometry }: Configuration): number => geometry.hidden;

/**
 * The tensors of each projection, whose outputs lie side by side. The gate of attention's output is before its queries.
 */
const PIECES: Readonly<Record<Projection, PiecesOf>> = {
  qkv: (c, ref) => {
    const { heads, headDim, attentionGate } = c.geometry;
    const gate = { tensor: layerTensor(ref.stored, 'self_attn.gate_proj.weight'), outputs: heads * headDim };
    const branch = { tensor: branchTensor(ref.layer, 'query'), outputs: ref.branch * heads, kind: 'codec' as const };
    return [...(attentionGate ? [gate] : []), ...attentionPieces('qkv')(c, ref), ...(ref.branch > 0 ? [branch] : [])];
  },
  q: attentionPieces('q'),
  kv: attentionPieces('kv'),
  'attention-out': whole(({ stored }) => layerTensor(stored, 'self_attn.o_proj.weight'), hidden),
  'gate-up': ({ geometry: { mlpHidden } }, { stored }) =>
    ['gate', 'up'].map((part) => ({ tensor: layerTensor(stored, `mlp.${part}_proj.weight`), outputs: mlpHidden })),
  down: whole(({ stored }) => layerTensor(stored, 'mlp.down_proj.weight'), hidden),
  'branch-key': ({ geometry: { kvHeads }, branch }, { layer }) => [
    { tensor: branchTensor(layer, 'key'), outputs: (branch.perHead ? kvHeads : 1) * branch.width, kind: 'codec' },
  ],
  'embedding-up': whole(() => EMBEDDING_UP, hidden),
  adapter: whole(() => ADAPTER, hidden),
  'exit-gate': whole(
    () => 'model.early_exit_gate.weight',
    () => 1,
  ),
  'loop-gate': whole(
    ({ stored }) => loopGateTensor(stored, 'weight'),
    ({ geometry }) => geometry.heads,
  ),
  'change-down': whole(
    () => CHANGE_DOWN,
    ({ geometry }) => geometry.changeRank as number,
  ),
  'change-up': whole(() => CHANGE_UP, hidden),
  'head-down': whole(
    () => HEAD_DOWN,
    ({ geometry }) => tableWidth(geometry),
  ),
  head: whole(
    (_, { geometry }) => (geometry.tiedEmbeddings ? EMBEDDING : HEAD),
    ({ geometry }) => geometry.vocab,
  ),
};

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
  private readonly groups: LatentGroups;

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
    this.groups = latentGroups(g, c.codec);
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
      case 'down':
        return this.down(ref.layer, ref.loop, ref.axis);
      case 'up-rows':
        return this.upRows(ref.layer, ref.loop, ref.axis);
      case 'up-columns':
        return this.upColumns(ref.layer, ref.loop, ref.axis);
      case 'up-stacked':
        return this.upStacked(ref.layer, ref.loop, ref.axis);
      case 'mean':
        return this.mean(ref.layer, ref.loop, ref.axis);
      case 'centre':
        return this.centre(ref.layer, ref.loop, ref.axis);
      case 'restored-means': {
        const label = `${codecTensor(ref.layer, ref.axis, 'mean')} of loops ${ref.loops.join()}, reconstructed`;
        return this.vector(label, 'codec', () =>
          ref.loops.flatMap((loop) => [...this.restoredMean(ref.layer, loop, ref.axis)]),
        );
      }
      case 'map':
        return this.hybridMap(ref.layer, ref.loop, ref.map);
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

  private rank(axis: CodecAxis): number {
    return (axis === 'key' ? this.c.codec.rankK : this.c.codec.rankV) as number;
  }

  /** The latent of a loop and KV head, and where in its stacked vector that head's begins. */
  private stackedAt(loop: number, head: number): { group: number; offset: number } {
    const { loops, heads } = this.groups;
    const { kvHeads, headDim } = this.c.geometry;
    return {
      group: Math.floor(loop / loops) * (kvHeads / heads) + Math.floor(head / heads),
      offset: ((loop % loops) * heads + (head % heads)) * headDim,
    };
  }

  /**
   * Rows of a stacked matrix [latent][stacked width][rank] that belong to a loop, by KV head: row (head, i) at `at +
   * head * group + i * rank`.
   */
  private headRows(axis: CodecAxis, loop: number): { at: number; group: number } {
    const rank = this.rank(axis);
    const { width, heads } = this.groups;
    const { group, offset } = this.stackedAt(loop, 0);
    return { at: (group * width + offset) * rank, group: (heads === 1 ? width : this.c.geometry.headDim) * rank };
  }

  /** W_down of a loop: [groups][stacked part of the loop][rank], one group a KV head (lla) or one for all. */
  private async down(layer: number, loop: number, axis: CodecAxis): Promise<Buffer> {
    const rank = this.rank(axis);
    const { headDim, kvHeads } = this.c.geometry;
    const perHead = this.groups.heads === 1;
    const [groups, rows] = perHead ? [kvHeads, headDim] : [1, kvHeads * headDim];
    const name = codecTensor(layer, axis, 'down');
    const { at, group } = this.headRows(axis, loop);
    return this.codecMatrix(`${name} loop ${loop}`, name, {
      groups,
      rows,
      columns: rank,
      width: rank,
      column0: 0,
      source: { at, group, row: rank, column: 1 },
    });
  }

  /** W_up of a loop as [KV head][component of the head][rank]: for absorbed queries and rebuilt rows. */
  private async upRows(layer: number, loop: number, axis: CodecAxis): Promise<Buffer> {
    const rank = this.rank(axis);
    const { headDim, kvHeads } = this.c.geometry;
    const name = codecTensor(layer, axis, 'up');
    const { at, group } = this.headRows(axis, loop);
    return this.codecMatrix(`${name} loop ${loop}`, name, {
      groups: kvHeads,
      rows: headDim,
      columns: rank,
      width: rank,
      column0: 0,
      source: { at, group, row: rank, column: 1 },
    });
  }

  /** W_up of a loop as [KV head][rank][component of the head]: the value up-projection. */
  private async upColumns(layer: number, loop: number, axis: CodecAxis): Promise<Buffer> {
    const rank = this.rank(axis);
    const { headDim, kvHeads } = this.c.geometry;
    const name = codecTensor(layer, axis, 'up');
    const { at, group } = this.headRows(axis, loop);
    return this.codecMatrix(`${name} loop ${loop}, transposed`, name, {
      groups: kvHeads,
      rows: rank,
      columns: headDim,
      width: headDim,
      column0: 0,
      source: { at, group, row: 1, column: rank },
    });
  }

  /**
   * W_up of a whole latent as [rank][stacked width]: what the `fast` path reconstructs where one latent serves all
   * heads.
   */
  private async upStacked(layer: number, loop: number, axis: CodecAxis): Promise<Buffer> {
    const rank = this.rank(axis);
    const { width } = this.groups;
    const name = codecTensor(layer, axis, 'up');
    const at = this.stackedAt(loop, 0).group * width * rank;
    return this.codecMatrix(`${name} latent ${this.stackedAt(loop, 0).group}, transposed`, name, {
      groups: 1,
      rows: rank,
      columns: width,
      width,
      column0: 0,
      source: { at, group: 0, row: 1, column: rank },
    });
  }

  /**
   * A map of rotated latents in a loop, of as many groups: E [hidden][r_k + r_v], or A [KV head][component][r_k], or B
   * [KV head][r_v][component].
   */
  private async hybridMap(layer: number, loop: number, map: 'encode' | 'key' | 'value'): Promise<Buffer> {
    const { hidden, headDim, kvHeads } = this.c.geometry;
    const part = latentOfLoop(loop);
    const { rankK, rankV } = ranksOfLoops(this.c.codec)[part];
    const rank = { encode: rankK + rankV, key: rankK, value: rankV }[map];
    const [groups, rows] = map === 'encode' ? [1, hidden] : [kvHeads, headDim];
    const name = hybridTensor(layer, part, map);
    const at = Math.max(0, loop - 1) * groups * rows * rank;
    const source = { at, group: rows * rank, row: rank, column: 1 };
    const box = map === 'value' ? { groups, rows: rank, columns: rows } : { groups, rows, columns: rank };
    return this.codecMatrix(`${name} loop ${loop}`, name, {
      ...box,
      width: box.columns,
      column0: 0,
      source: map === 'value' ? { ...source, row: 1, column: rank } : source,
    });
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

  private async codecMatrix(label: string, name: string, box: Box): Promise<Buffer> {
    return this.packed(
      label,
      [{ kind: 'codec', bytes: packedBytes('f16', box.groups, box.rows, box.width) }],
      (buffer) =>
        // The paper initialises W_up with the slices of W_down; fabricated ones do so too.
        this.placer.place(buffer, 'f16', this.codecOrigin, this.spec(name), box, name.replace(/\.up$/, '.down')),
    );
  }

  /** mu of a loop, [KV head][component]. */
  private meanOf(layer: number, loop: number, axis: CodecAxis): Float64Array {
    const { headDim, kvHeads } = this.c.geometry;
    const mean = this.read(codecTensor(layer, axis, 'mean'));
    const out = new Float64Array(kvHeads * headDim);
    for (let head = 0; head < kvHeads; head++) {
      const { group, offset } = this.stackedAt(loop, head);
      const start = group * this.groups.width + offset;
      for (let i = 0; i < headDim; i++) out[head * headDim + i] = mean[start + i] as number;
    }
    return out;
  }

  /** W_up of a loop and KV head on the host, [component][rank], as the device holds it. */
  private upOf(layer: number, loop: number, axis: CodecAxis, head: number): Float32Array {
    const rank = this.rank(axis);
    const { group, offset } = this.stackedAt(loop, head);
    const matrices = this.codecOrigin.kind === 'tensors' ? this.codecOrigin.tensors : this.host;
    return matrices.read(
      codecTensor(layer, axis, 'up'),
      (group * this.groups.width + offset) * rank,
      this.c.geometry.headDim * rank,
    );
  }

  private async mean(layer: number, loop: number, axis: CodecAxis): Promise<Buffer> {
    return this.vector(`${codecTensor(layer, axis, 'mean')} loop ${loop}`, 'codec', () =>
      this.meanOf(layer, loop, axis),
    );
  }

  /**
   * −mu W_down of the latents of a layer (those of one loop, where every loop has its own), [latent][rank]: centres
   * what was encoded.
   */
  private centreOf(layer: number, loop: number, axis: CodecAxis): Float64Array {
    const rank = this.rank(axis);
    const { width, count } = this.groups;
    const latents = CODECS[this.c.codec.kind].loopAxis ? count : 1;
    const firstLatent = CODECS[this.c.codec.kind].loopAxis ? 0 : this.stackedAt(loop, 0).group;
    // As the device holds them, rounded to halves.
    const matrices = this.codecOrigin.kind === 'tensors' ? this.codecOrigin.tensors : this.host;
    const down = matrices.read(codecTensor(layer, axis, 'down'), firstLatent * width * rank, latents * width * rank);
    const mean = this.read(codecTensor(layer, axis, 'mean'), firstLatent * width, latents * width);
    const out = new Float64Array(latents * rank);
    for (let row = 0; row < latents * width; row++) {
      const to = Math.floor(row / width) * rank;
      for (let r = 0; r < rank; r++)
        out[to + r] = (out[to + r] as number) - (mean[row] as number) * (down[row * rank + r] as number);
    }
    return out;
  }

  private async centre(layer: number, loop: number, axis: CodecAxis): Promise<Buffer> {
    const own = CODECS[this.c.codec.kind].loopAxis ? '' : ` loop ${loop}`;
    return this.vector(`${codecTensor(layer, axis, 'mean')} encoded${own}`, 'codec', () =>
      this.centreOf(layer, loop, axis),
    );
  }

  /**
   * The terms to add to restored rows: mu, and the term that centring the latent would have subtracted. [KV
   * head][component] of a loop.
   */
  private restoredMean(layer: number, loop: number, axis: CodecAxis): Float64Array {
    const { kvHeads, headDim } = this.c.geometry;
    const rank = this.rank(axis);
    const out = this.meanOf(layer, loop, axis);
    const centre = this.centreOf(layer, loop, axis);
    for (let head = 0; head < kvHeads; head++) {
      const up = this.upOf(layer, loop, axis, head);
      const latent = latentsOf(this.c) === 1 ? 0 : head * rank;
      for (let i = 0; i < headDim; i++) {
        for (let r = 0; r < rank; r++)
          out[head * headDim + i] =
            (out[head * headDim + i] as number) + (up[i * rank + r] as number) * (centre[latent + r] as number);
      }
    }
    return out;
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
