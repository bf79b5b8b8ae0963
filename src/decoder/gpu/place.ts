/**
 * Puts tensors into packed matrices on the device: made there from a seed, or uploaded in pieces.
 * place_weights.wgsl.
 */
import type { Buffer, Device, Step } from '../../gpu/index.js';
import { read, write } from '../../../kernels/host/plan.js';
import { elementsOf, type TensorSpec } from '../tensors.js';
import { levelsOf, tensorSeed, type TensorSource, type WeightStorage } from '../weights.js';

/**
 * Elements of a tensor, in three dimensions, and the columns of a packed matrix [group][row][columns, in pairs] that
 * take them.
 */
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

function stepOf(
  box: Box,
  storage: WeightStorage,
  mode: number,
  made: {
    words?: readonly [number, number];
    levels?: { base: number; step: number; count: number };
    width?: number;
    rank?: number;
    stagedFrom?: number;
  },
): Step {
  const firstPair = Math.floor(box.column0 / 2);
  const span = Math.ceil((box.column0 + box.columns) / 2) - firstPair;
  const words = box.groups * box.rows * span;
  const {
    words: [first, second] = [0, 0],
    levels = { base: 0, step: 0, count: 0 },
    width = 1,
    rank = 1,
    stagedFrom = 0,
  } = made;
  const { at, group, row, column } = box.source;
  return {
    source: 'place_weights',
    element: 'f32',
    constants: { MODE: mode, HALVES: storage === 'f16' ? 1 : 0 },
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
      seed_first: first,
      seed_second: second,
      levels: levels.count,
      base: levels.base,
      step: levels.step,
      width,
      rank,
      staged_from: stagedFrom,
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
  const { source: s } = box;
  const [dimension] = (['groups', 'rows', 'columns'] as const)
    .filter((name) => box[name] > 1)
    .sort((a, b) => s[b.slice(0, -1) as 'group'] - s[a.slice(0, -1) as 'group']) as ['groups' | 'rows' | 'columns'];
  const count = box[dimension];
  const low = Math.ceil(count / 2);
  const later = { ...s, at: s.at + low * s[dimension.slice(0, -1) as 'group'] };
  return [
    { ...box, [dimension]: low },
    {
      ...box,
      [dimension]: count - low,
      source: later,
      ...(dimension === 'columns' ? { column0: box.column0 + low } : {}),
    },
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
    if (origin.kind === 'tensors') {
      await this.upload(target, storage, origin.tensors, spec, box);
      return;
    }
    if (spec.role === 'codec' && origin.matrices === 'identity') {
      const [, width, rank] = spec.shape as [number, number, number];
      await this.run(target, this.unused, stepOf(box, storage, MODES.identity, { width, rank }));
      return;
    }
    await this.run(
      target,
      this.unused,
      stepOf(box, storage, MODES.seed, {
        words: tensorSeed(origin.seed, valueOf),
        levels: levelsOf(spec, origin.tiedEmbeddings),
      }),
    );
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
    await this.run(target, this.staging, stepOf(box, storage, MODES.staged, { stagedFrom: box.source.at }));
  }

  private async run(target: Buffer, staged: Buffer, step: Step): Promise<void> {
    const bound = await this.device.bind(
      step,
      new Map([
        ['staged', staged],
        ['target', target],
      ]),
    );
    try {
      await this.device.run([bound]);
    } finally {
      this.device.free(bound.uniforms);
    }
  }

  close(): void {
    if (this.staging) this.device.free(this.staging);
    this.staging = undefined;
  }
}
