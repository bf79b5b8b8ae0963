/** What follows split-KV attention: the merge of its partials, and the current token's exact key and value. */
import type { KernelCall } from '../../kernels/registry.js';
import { requireShape } from '../errors.js';
import { f32, read, u32, write, type BufferPlan, type OperationPlan, type Step, type Uniform } from '../plan.js';
import { dimensions, requirePositive, requireVariant } from '../shape.js';
import { tuned, type Tuning } from './tuning.js';

const WORKGROUP = 64;
/** Workgroups of one dimension that every adapter allows. */
const MOST_WORKGROUPS = 65535;

/**
 * Vectors of the current token in a buffer, in floats: the first one, and from a sequence to the next. Heads follow
 * each other.
 */
export interface Vectors {
  readonly offset: number;
  readonly stride: number;
}

export interface CurrentOptions {
  /** Query heads of a sequence. */
  readonly heads: number;
  /** Query heads that share a KV head. */
  readonly group: number;
  /** Of q · k: (key width)^-½ unless given. */
  readonly scale?: number;
  /** Side by side unless given. */
  readonly queries?: Vectors;
  readonly keys?: Vectors;
  readonly values?: Vectors;
  /** attend_merge only: row of output and stats that the call begins with; 0 unless given. */
  readonly firstRow?: number;
  /** attend_current only: the last components of query and key, in places of their own. */
  readonly branch?: Branch;
}

/**
 * A rotary branch: its width, where the vectors of query heads lie (`head`: floats from one to the next), and its keys,
 * side by side.
 */
export interface Branch {
  readonly width: number;
  readonly queries: Vectors & { readonly head: number };
  readonly keys: Vectors;
  /** Keys of a sequence: one a KV head, or 1 for all. */
  readonly heads: number;
}

/** A grid of at least one workgroup a row. */
function rowGrid(rows: number): Step['workgroups'] {
  const planes = Math.ceil(rows / MOST_WORKGROUPS);
  return [Math.ceil(rows / planes), planes, 1];
}

interface Fold extends CurrentOptions {
  readonly rows: number;
  readonly keyWidth: number;
  readonly valueWidth: number;
}

/** The vectors of the current token as buffers, and the struct `Current` of attend_new.wgsl. */
function currentOperands(kernel: string, c: Fold): { buffers: BufferPlan[]; uniforms: Uniform[] } {
  requireShape(
    c.rows % c.heads === 0 && c.heads % c.group === 0,
    `${kernel}: ${c.rows} rows of ${c.heads} heads in groups of ${c.group} do not divide`,
  );
  const sequences = c.rows / c.heads;
  const vectors = (name: string, width: number, given: Vectors | undefined): { buffer: BufferPlan; at: Vectors } => {
    const at = given ?? { offset: 0, stride: width };
    requireShape(
      at.stride >= width || sequences === 1,
      `${kernel}: ${name} of ${width} floats do not fit a stride of ${at.stride}`,
    );
    return {
      buffer: { name, role: 'input', content: 'f32', bytes: (at.offset + (sequences - 1) * at.stride + width) * 4 },
      at,
    };
  };
  const kvHeads = c.heads / c.group;
  const [q, k, v] = [
    vectors('queries', c.heads * c.keyWidth, c.queries),
    vectors('newKeys', kvHeads * c.keyWidth, c.keys),
    vectors('newValues', kvHeads * c.valueWidth, c.values),
  ];
  return {
    buffers: [q.buffer, k.buffer, v.buffer],
    uniforms: [
      ...[c.heads, c.group, c.keyWidth, c.valueWidth].map(u32),
      f32((c.scale ?? c.keyWidth ** -0.5) * Math.LOG2E),
      ...[q.at.offset, q.at.stride, k.at.offset, k.at.stride, v.at.offset, v.at.stride, c.rows].map(u32),
    ],
  };
}

/** Without options: one query head a sequence. */
const ALONE: CurrentOptions = { heads: 1, group: 1 };

/** Buffers: partials, output, stats; for `current` also queries, newKeys, newValues. */
export function planMerge(call: KernelCall, options: CurrentOptions = ALONE, tuning?: Tuning): OperationPlan {
  requireVariant(call);
  const s = dimensions(call, 'rows', 'splits', 'width', 'keyWidth');
  const withCurrent = call.variant === 'current';
  requirePositive(call, s, ...(withCurrent ? [] : ['keyWidth']));
  const { firstRow = 0 } = options;
  const workgroup = tuned(tuning, 'workgroup', WORKGROUP);
  const current = currentOperands(call.kernel, {
    ...(withCurrent ? options : ALONE),
    rows: s.rows,
    keyWidth: s.keyWidth,
    valueWidth: s.width,
  });
  return {
    buffers: [
      {
        name: 'partials',
        role: 'stream',
        content: 'f32',
        positive: true,
        bytes: s.rows * s.splits * (s.width + 2) * 4,
      },
      { name: 'output', role: 'output', content: 'f32', bytes: (firstRow + s.rows) * s.width * 4 },
      { name: 'stats', role: 'output', content: 'f32', bytes: (firstRow + s.rows) * 8 },
      ...(withCurrent ? current.buffers : []),
    ],
    steps: [
      {
        source: 'attend_merge',
        element: 'f32',
        constants: { WG: workgroup, CURRENT: withCurrent ? 1 : 0 },
        uniforms: [...current.uniforms, ...[s.splits, s.width, firstRow].map(u32)],
        buffers: [
          ...read('partials'),
          ...write('output', 'stats'),
          ...read(...(withCurrent ? ['queries', 'newKeys', 'newValues'] : ['partials', 'partials', 'partials'])),
        ],
        workgroups: rowGrid(s.rows),
      },
    ],
    tuning: { workgroup },
  };
}

/**
 * Buffers: output (o in, y out), stats (m, l; in and out), valueMeans, queries, newKeys, newValues; keyMeans for
 * `absorbed`; branchQueries, branchKeys with a branch, which is part of the shape's key width.
 */
export function planCurrent(call: KernelCall, options: CurrentOptions = ALONE, tuning?: Tuning): OperationPlan {
  requireVariant(call);
  const s = dimensions(call, 'rows', 'keyWidth', 'valueWidth');
  requirePositive(call, s);
  const absorbed = call.variant === 'absorbed';
  const { branch } = options;
  const content = s.keyWidth - (branch?.width ?? 0);
  requireShape(
    content > 0,
    `attend_current: a branch of ${branch?.width ?? 0} leaves nothing of a key of ${s.keyWidth}`,
  );
  const workgroup = tuned(tuning, 'workgroup', WORKGROUP);
  const current = currentOperands(call.kernel, {
    ...options,
    scale: options.scale ?? s.keyWidth ** -0.5,
    rows: s.rows,
    keyWidth: content,
    valueWidth: s.valueWidth,
  });
  const kvHeads = options.heads / options.group;
  const sequences = s.rows / options.heads;
  requireShape(
    branch === undefined || branch.heads === 1 || branch.heads === kvHeads,
    `attend_current: a branch has 1 key or one a KV head (${kvHeads}), not ${branch?.heads ?? 0}`,
  );
  const keyMeans: BufferPlan[] = absorbed
    ? [{ name: 'keyMeans', role: 'input', content: 'f32', bytes: kvHeads * content * 4 }]
    : [];
  const reach = (name: string, at: Vectors, width: number): BufferPlan => ({
    name,
    role: 'input',
    content: 'f32',
    bytes: (at.offset + (sequences - 1) * at.stride + width) * 4,
  });
  const branches = branch
    ? [
        reach('branchQueries', branch.queries, (options.heads - 1) * branch.queries.head + branch.width),
        reach('branchKeys', branch.keys, branch.heads * branch.width),
      ]
    : [];
  const places = branch
    ? [
        branch.width,
        branch.heads,
        branch.queries.offset,
        branch.queries.stride,
        branch.queries.head,
        branch.keys.offset,
        branch.keys.stride,
      ]
    : [0, 1, 0, 0, 0, 0, 0];
  return {
    buffers: [
      { name: 'output', role: 'state', content: 'f32', bytes: s.rows * s.valueWidth * 4 },
      { name: 'stats', role: 'state', content: 'f32', positive: true, bytes: s.rows * 8 },
      { name: 'valueMeans', role: 'input', content: 'f32', bytes: kvHeads * s.valueWidth * 4 },
      ...current.buffers,
      ...keyMeans,
      ...branches,
    ],
    steps: [
      {
        source: 'attend_current',
        element: 'f32',
        constants: { WG: workgroup, ABSORBED: absorbed ? 1 : 0 },
        uniforms: [...current.uniforms, ...places.map(u32)],
        buffers: [
          ...write('output', 'stats'),
          ...read(
            'valueMeans',
            'queries',
            'newKeys',
            'newValues',
            absorbed ? 'keyMeans' : 'valueMeans',
            branch ? 'branchQueries' : 'queries',
            branch ? 'branchKeys' : 'newKeys',
          ),
        ],
        workgroups: rowGrid(s.rows),
      },
    ],
    tuning: { workgroup },
  };
}
