/** Puts tensors into packed matrices (place_weights.wgsl): made there from a seed, or uploaded in pieces. */
import type { Buffer, Device, Step } from '../../gpu/index.js';
import { read, write } from '../../../kernels/host/plan.js';
import { elementsOf, type TensorSpec } from '../tensors.js';
import { levelsOf, tensorSeed, type TensorSource, type WeightStorage } from '../weights.js';
import { runAlone } from './program.js';

/** Elements of a tensor, and the columns of a matrix [group][row][columns, in pairs] that take them. */
export interface Box {
  readonly groups: number;
  readonly rows: number;
  readonly columns: number;
  /** Columns of a whole row of the matrix, and the first that is written. */
  readonly width: number;
  readonly column0: number;
  /** Element of the tensor at the start, and from a group, row and column to the next. */
  readonly source: { readonly at: number; readonly group: number; readonly row: number; readonly column: number };
}

/** Where values come from: a seed (and `identity` for codec matrices that copy), or tensors. */
export type Origin =
  | {
      readonly kind: 'seed';
      readonly seed: number;
      readonly tiedEmbeddings: boolean;
      readonly matrices: 'random' | 'identity';
    }
  | { readonly kind: 'tensors'; readonly tensors: TensorSource };

const MODES = { seed: 0, identity: 1, staged: 2 } as const;
const WORKGROUP = 256;
const MOST_WORKGROUPS = 32768;
/** Elements of a tensor that are uploaded at once: 8 MiB. */
const PIECE_ELEMENTS = 2 ** 21;

/** A box that covers a matrix, or `columns` of its `width` from `column0` on. */
export const boxOf = (
  groups: number,
  rows: number,
  columns: number,
  source: Box['source'],
  width = columns,
  column0 = 0,
): Box => ({ groups, rows, columns, width, column0, source });

/** @param made uniforms of the mode */
function stepOf(box: Box, storage: WeightStorage, mode: keyof typeof MODES, made: Step['uniforms']): Step {
  const firstPair = Math.floor(box.column0 / 2);
  const span = Math.ceil((box.column0 + box.columns) / 2) - firstPair;
  const words = box.groups * box.rows * span;
  const { at, group, row, column } = box.source;
  return {
    source: 'place_weights',
    element: 'f32',
    constants: { MODE: MODES[mode], HALVES: storage === 'f16' ? 1 : 0 },
    uniforms: {
      words,
      rows: box.rows,
      pairs: Math.ceil(box.width / 2),
      first_pair: firstPair,
      span,
      column0: box.column0,
      columns: box.columns,
      source: at,
      source_group: group,
      source_row: row,
      source_column: column,
      seed_first: 0,
      seed_second: 0,
      levels: 0,
      base: 0,
      step: 0,
      width: 1,
      rank: 1,
      staged_from: 0,
      ...made,
    },
    buffers: [...read('staged'), ...write('target')],
    workgroups: [Math.min(MOST_WORKGROUPS, Math.ceil(words / WORKGROUP)), 1, 1],
  };
}

/** First and last element of a box: the range to read for it. */
const reach = ({ groups, rows, columns, source: s }: Box): number =>
  (groups - 1) * s.group + (rows - 1) * s.row + (columns - 1) * s.column + 1;

/** A box in two halves, along the dimension in which the tensor is largest. */
function halves(box: Box): [Box, Box] {
  const { source } = box;
  const strides = { groups: source.group, rows: source.row, columns: source.column };
  const [dimension] = (['groups', 'rows', 'columns'] as const)
    .filter((name) => box[name] > 1)
    .sort((a, b) => strides[b] - strides[a]) as ['groups' | 'rows' | 'columns'];
  const low = Math.ceil(box[dimension] / 2);
  const later = { ...source, at: source.at + low * strides[dimension] };
  const column0 = box.column0 + (dimension === 'columns' ? low : 0);
  return [
    { ...box, [dimension]: low },
    { ...box, [dimension]: box[dimension] - low, source: later, column0 },
  ];
}

/** Fills boxes of one decoder's matrices. `staging` is made when tensors are first uploaded; close() frees it. */
export class Placer {
  private staging: Buffer | undefined;

  constructor(
    private readonly device: Device,
    /** Bound where nothing is staged. */
    private readonly unused: Buffer,
  ) {}

  /**
   * @param valueOf the tensor whose values a seed makes, where that is another of the same shape
   * @throws UserError as the tensors' reader does
   */
  async place(
    target: Buffer,
    storage: WeightStorage,
    origin: Origin,
    spec: TensorSpec,
    box: Box,
    valueOf = spec.name,
  ): Promise<void> {
    if (origin.kind === 'tensors') return this.upload(target, storage, origin.tensors, spec, box);
    const run = (mode: keyof typeof MODES, made: Step['uniforms']): Promise<void> =>
      runAlone(this.device, stepOf(box, storage, mode, made), { staged: this.unused, target });
    if (spec.role === 'codec' && origin.matrices === 'identity') {
      const [, width, rank] = spec.shape as [number, number, number];
      return run('identity', { width, rank });
    }
    const [first, second] = tensorSeed(origin.seed, valueOf);
    const { count, base, step } = levelsOf(spec, origin.tiedEmbeddings);
    return run('seed', { seed_first: first, seed_second: second, levels: count, base, step });
  }

  private async upload(
    target: Buffer,
    storage: WeightStorage,
    tensors: TensorSource,
    spec: TensorSpec,
    box: Box,
  ): Promise<void> {
    const elements = reach(box);
    if (elements > PIECE_ELEMENTS && box.groups * box.rows * box.columns > 1) {
      for (const half of halves(box)) await this.upload(target, storage, tensors, spec, half);
      return;
    }
    if (box.source.at + elements > elementsOf(spec.shape))
      throw new RangeError(`${spec.name}: elements up to ${box.source.at + elements} of ${elementsOf(spec.shape)}`);
    this.staging ??= await this.device.buffer('staged weights', PIECE_ELEMENTS * 4);
    await this.device.write(
      this.staging,
      tensors.read(spec.name, box.source.at, elements) as Float32Array<ArrayBuffer>,
    );
    const step = stepOf(box, storage, 'staged', { staged_from: box.source.at });
    await runAlone(this.device, step, { staged: this.staging, target });
  }

  close(): void {
    if (this.staging) this.device.free(this.staging);
    this.staging = undefined;
  }
}
