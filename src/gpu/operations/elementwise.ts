/** The small operations between the products: norms, residuals, rotary embedding, activation, embedding. */
import type { KernelCall } from '../../kernels/registry.js';
import { requireShape } from '../errors.js';
import { f32, read, u32, write, type BufferPlan, type OperationPlan, type Role, type Step } from '../plan.js';
import { rotaryTable, type RotaryOptions } from '../rotary.js';
import { bytesOfPairs, dimensions, elementOf, requireEven, requirePositive, requireVariant } from '../shape.js';
import { tuned, type Tuning } from './tuning.js';

/** Where rows lie in a buffer, in floats: the first one, and from one to the next. */
export interface Placement {
  readonly offset: number;
  readonly stride: number;
}

/** Rows that an operation reads and writes; side by side unless given. */
export interface PlacementOptions {
  readonly input?: Placement;
  readonly output?: Placement;
}

export interface RopeOptions {
  /** Rows of the data: queries and keys inside a packed row, for instance. Heads follow each other. */
  readonly data?: Placement;
  /** Rows that take the results of the first heads; in place unless given. */
  readonly target?: Placement & {
    /** Floats from a head to the next; the head width unless given. */ readonly head?: number;
  };
  /** How many heads go there: all unless given. The others are rotated in place. */
  readonly targetHeads?: number;
  /** Added to every position, which must not fall below 0. */
  readonly positionOffset?: number;
  /** A bias [head][head width] is added before the rotation. */
  readonly bias?: boolean;
}

/** Threads of a kernel that has one workgroup a row. */
const ROW_WORKGROUP = 256;
/** Grid of a kernel that strides over its elements; beyond this many workgroups a thread takes several. */
const MOST_WORKGROUPS = 32768;
/** Elements of one call, which are counted in 32 bits and stepped over by a whole grid. */
const MOST_ELEMENTS = 2 ** 31;
const grid = (kernel: string, count: number, workgroup: number): Step['workgroups'] => {
  requireShape(count <= MOST_ELEMENTS, `${kernel}: ${count} elements in one call, over ${MOST_ELEMENTS}`);
  return [Math.min(MOST_WORKGROUPS, Math.ceil(count / workgroup)), 1, 1];
};
/** A grid of at least one workgroup a row. */
const rowGrid = (rows: number): Step['workgroups'] => {
  const planes = Math.ceil(rows / MOST_WORKGROUPS);
  return [Math.ceil(rows / planes), planes, 1];
};

/** A buffer of f32 rows, and where they lie in it. */
function rowsOf(
  call: KernelCall,
  name: string,
  role: Role,
  rows: number,
  width: number,
  placement: Placement | undefined,
): { buffer: BufferPlan; at: Placement } {
  const at = placement ?? { offset: 0, stride: width };
  requireShape(
    Number.isSafeInteger(at.offset) && at.offset >= 0 && Number.isSafeInteger(at.stride),
    `${call.kernel}: rows of ${name} lie at whole floats, not ${at.offset} and every ${at.stride}`,
  );
  // An input row may serve all rows: a bias.
  requireShape(
    at.stride >= width || rows === 1 || (at.stride === 0 && role === 'input'),
    `${call.kernel}: ${name} rows of ${width} floats overlap at a stride of ${at.stride}`,
  );
  return { buffer: { name, role, content: 'f32', bytes: (at.offset + (rows - 1) * at.stride + width) * 4 }, at };
}
const places = (...all: readonly Placement[]) => all.flatMap((p) => [u32(p.offset), u32(p.stride)]);

/** Buffers: input, weight (not for `add`), target. `eps` as in the model's configuration. */
export function planRmsnorm(
  call: KernelCall,
  eps: number,
  { input, output }: PlacementOptions = {},
  tuning?: Tuning,
): OperationPlan {
  requireVariant(call);
  const s = dimensions(call, 'rows', 'width');
  requirePositive(call, s);
  const added = call.variant !== 'norm';
  const from = rowsOf(call, 'input', 'input', s.rows, s.width, input);
  const to = rowsOf(call, 'target', added ? 'state' : 'output', s.rows, s.width, output);
  const buffers = [from.buffer, to.buffer];
  if (call.variant === 'add') {
    const count = s.rows * s.width;
    const uniforms = [u32(count), u32(s.width), ...places(from.at, to.at)];
    const step: Step = {
      source: 'add',
      element: 'f32',
      constants: {},
      uniforms,
      buffers: [...read('input'), ...write('target')],
      workgroups: grid(call.kernel, count, 256),
    };
    return { buffers, steps: [step], tuning: { workgroup: 256 } };
  }
  const workgroup = tuned(tuning, 'workgroup', ROW_WORKGROUP);
  return {
    buffers: [...buffers, { name: 'weight', role: 'input', content: 'f32', bytes: s.width * 4 }],
    steps: [
      {
        source: 'rmsnorm',
        element: 'f32',
        constants: { WG: workgroup },
        uniforms: [f32(eps), u32(s.rows), u32(s.width), u32(added ? 1 : 0), ...places(from.at, to.at)],
        buffers: [...read('input', 'weight'), ...write('target')],
        workgroups: rowGrid(s.rows),
      },
    ],
    tuning: { workgroup },
  };
}

/** Buffers: positions, turns, data, target (16 bytes that are not used, in place), bias (only with a bias). */
export function planRope(
  call: KernelCall,
  rotary: RotaryOptions,
  { data, target, targetHeads, positionOffset = 0, bias = false }: RopeOptions = {},
): OperationPlan {
  requireVariant(call);
  const s = dimensions(call, 'rows', 'heads', 'headDim');
  requirePositive(call, s);
  requireEven(call, s, 'headDim');
  requireShape(Number.isSafeInteger(positionOffset), `rope: the position offset must be whole, not ${positionOffset}`);
  const width = s.heads * s.headDim;
  const count = (s.rows * width) / 2;
  const moved = target ? (targetHeads ?? s.heads) : 0;
  requireShape(
    Number.isSafeInteger(moved) && moved >= 0 && moved <= s.heads,
    `rope: ${moved} of ${s.heads} heads cannot go elsewhere`,
  );
  const from = rowsOf(call, 'data', moved === s.heads ? 'input' : 'state', s.rows, width, data);
  const head = target?.head ?? s.headDim;
  requireShape(
    Number.isSafeInteger(head) && head >= s.headDim,
    `rope: heads of ${s.headDim} floats overlap at a stride of ${head}`,
  );
  const to =
    moved > 0
      ? rowsOf(call, 'target', 'output', s.rows, (moved - 1) * head + s.headDim, target)
      : {
          buffer: { name: 'target', role: 'scratch', content: 'f32', bytes: 16 } as const,
          at: { offset: 0, stride: 0 },
        };
  return {
    buffers: [
      {
        name: 'positions',
        role: 'input',
        content: 'u32',
        bytes: s.rows * 4,
        below: rotary.positions - Math.max(0, positionOffset),
      },
      rotaryTable(s.headDim, rotary),
      from.buffer,
      to.buffer,
      ...(bias ? [{ name: 'bias', role: 'input', content: 'f32', bytes: width * 4 } as const] : []),
    ],
    steps: [
      {
        source: 'rope',
        element: 'f32',
        constants: {},
        uniforms: [
          count,
          s.heads,
          s.headDim / 2,
          call.variant === 'adjacent' ? 1 : 0,
          positionOffset >>> 0,
          bias ? 1 : 0,
          moved,
        ]
          .map(u32)
          .concat(places(from.at, to.at), u32(head)),
        buffers: [
          ...read('positions', 'turns'),
          ...write('data'),
          ...read(bias ? 'bias' : 'turns'),
          ...write('target'),
        ],
        workgroups: grid(call.kernel, count, 128),
      },
    ],
    tuning: { workgroup: 128 },
  };
}

export interface RopeKeptOptions {
  /** Where the keys lie; side by side unless given. */
  readonly data?: Placement;
  /** Heads that a row of positions is for: 1 unless given. */
  readonly pooled?: number;
  /** Row of the first head, and slot of the first token; 0 unless given. */
  readonly firstRow?: number;
  readonly first?: number;
  /** Slots of a row of positions; those of the call unless given. */
  readonly capacity?: number;
}

/** Buffers: positions [row][slot], turns, data. */
export function planRopeKept(
  call: KernelCall,
  rotary: RotaryOptions,
  { data, pooled = 1, firstRow = 0, first = 0, capacity }: RopeKeptOptions = {},
): OperationPlan {
  requireVariant(call);
  const s = dimensions(call, 'rows', 'heads', 'headDim');
  requirePositive(call, s);
  requireEven(call, s, 'headDim');
  const slots = capacity ?? first + s.rows;
  requireShape(s.heads % pooled === 0, `rope_kept: ${s.heads} heads are not pooled evenly by ${pooled}`);
  requireShape(first + s.rows <= slots, `rope_kept: ${s.rows} tokens from slot ${first} on do not fit ${slots} slots`);
  const count = (s.rows * s.heads * s.headDim) / 2;
  const keys = rowsOf(call, 'data', 'state', s.rows, s.heads * s.headDim, data);
  return {
    buffers: [
      {
        name: 'positions',
        role: 'input',
        content: 'u32',
        bytes: (firstRow + s.heads / pooled) * slots * 4,
        below: rotary.positions,
      },
      rotaryTable(s.headDim, rotary),
      keys.buffer,
    ],
    steps: [
      {
        source: 'rope_kept',
        element: 'f32',
        constants: {},
        uniforms: [
          count,
          s.heads,
          s.headDim / 2,
          call.variant === 'adjacent' ? 1 : 0,
          pooled,
          firstRow,
          slots,
          first,
          keys.at.offset,
          keys.at.stride,
        ].map(u32),
        buffers: [...read('positions', 'turns'), ...write('data')],
        workgroups: grid(call.kernel, count, 128),
      },
    ],
    tuning: { workgroup: 128 },
  };
}

/** Buffers: input (gates and ups side by side in a row), output. */
export function planSwiglu(call: KernelCall, { input, output }: PlacementOptions = {}): OperationPlan {
  requireVariant(call);
  const s = dimensions(call, 'rows', 'width');
  requirePositive(call, s);
  const count = s.rows * s.width;
  const from = rowsOf(call, 'input', 'input', s.rows, 2 * s.width, input);
  const to = rowsOf(call, 'output', 'output', s.rows, s.width, output);
  return {
    buffers: [from.buffer, to.buffer],
    steps: [
      {
        source: 'swiglu',
        element: 'f32',
        constants: {},
        uniforms: [u32(count), u32(s.width), ...places(from.at, to.at)],
        buffers: [...read('input'), ...write('output')],
        workgroups: grid(call.kernel, count, 256),
      },
    ],
    tuning: { workgroup: 256 },
  };
}

/**
 * Buffers: tokens, embedding, output. The call does not say how long the table is.
 * @param columns the table lies [width][vocabulary, padded to even], as the weights of a tied output projection do
 */
export function planEmbed(
  call: KernelCall,
  vocabulary: number,
  { output }: PlacementOptions = {},
  columns = false,
): OperationPlan {
  const s = dimensions(call, 'rows', 'width');
  requirePositive(call, s);
  requireEven(call, s, 'width');
  const element = elementOf(call);
  const count = (s.rows * s.width) / 2;
  const to = rowsOf(call, 'output', 'output', s.rows, s.width, output);
  return {
    buffers: [
      { name: 'tokens', role: 'input', content: 'u32', bytes: s.rows * 4, below: vocabulary },
      {
        name: 'embedding',
        role: 'input',
        content: element,
        bytes: (columns ? s.width * Math.ceil(vocabulary / 2) : vocabulary * (s.width / 2)) * bytesOfPairs(element),
      },
      to.buffer,
    ],
    steps: [
      {
        source: 'embed',
        element,
        constants: {},
        uniforms: [u32(count), u32(s.width / 2), ...places(to.at), u32(columns ? Math.ceil(vocabulary / 2) : 0)],
        buffers: [...read('tokens', 'embedding'), ...write('output')],
        workgroups: grid(call.kernel, count, 128),
      },
    ],
    tuning: { workgroup: 128 },
  };
}
