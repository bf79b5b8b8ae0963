/**
 * The launch of one kernel call, as plain data: which buffers, which pipelines, how many workgroups. A plan is made
 * without a device (so it can be tested without one) and executed by device.ts.
 *
 * Convention of every kernel: @group(0) @binding(0) is its uniform block, its storage buffers follow from 1 in the
 * order of `Step.buffers`.
 */
import type { Element } from '../source.js';

/**
 * Role of a buffer in the operation. `stream`: read once a call and larger than a cache in real use (cache rows,
 * weights), so a benchmark rotates copies of it. `input`: small operands. `table`: precomputed contents that come with
 * the plan. `scratch`: written by one step and read by the next. `state`: read and written in place. `output`: written
 * only.
 */
export type Role = 'stream' | 'input' | 'table' | 'scratch' | 'state' | 'output';

/** Type of a buffer's contents: f16 are pairs in a u32. */
type Content = 'f16' | 'f32' | 'u32';

export interface BufferPlan {
  readonly name: string;
  readonly role: Role;
  readonly content: Content;
  readonly bytes: number;
  /** Bound of the values of u32 contents: indices and positions are below it. */
  readonly below?: number;
  /** f32 contents that are positive by nature, such as sums of exponentials. */
  readonly positive?: boolean;
  /** Contents of a `table`, made when asked for (they can be megabytes). */
  readonly data?: () => Float32Array<ArrayBuffer> | Uint32Array<ArrayBuffer>;
}

/** A buffer of floats. */
export const f32 = (
  name: string,
  role: Role,
  floats: number,
  more?: Pick<BufferPlan, 'positive' | 'data'>,
): BufferPlan => ({ name, role, content: 'f32', bytes: 4 * floats, ...more });

/** A buffer of words. */
export const u32 = (
  name: string,
  role: Role,
  words: number,
  more?: Pick<BufferPlan, 'below' | 'data'>,
): BufferPlan => ({ name, role, content: 'u32', bytes: 4 * words, ...more });

/** A buffer of weights in the type that they are stored in. */
export function stored(name: string, role: Role, content: Content, bytes: number): BufferPlan {
  return { name, role, content, bytes };
}

export interface Step {
  /** File in kernels/, without .wgsl. */
  readonly source: string;
  readonly element: Element;
  /** Values of the source's `override` constants. */
  readonly constants: Readonly<Record<string, number>>;
  /** Values of the source's uniform block, all of them, by the names of its struct. */
  readonly uniforms: Uniforms;
  readonly buffers: readonly { readonly name: string; readonly access: 'read' | 'readWrite' }[];
  readonly workgroups: readonly [number, number, number];
}

/** Numbers by the names of a struct in WGSL, which has their types; a member that is a struct has values of its own. */
export interface Uniforms {
  readonly [name: string]: number | Uniforms;
}

export interface OperationPlan {
  readonly buffers: readonly BufferPlan[];
  readonly steps: readonly Step[];
  /** Constants worth recording beside a measurement: workgroup size, tokens a tile, ... */
  readonly tuning: Readonly<Record<string, number>>;
}

export const read = (...names: string[]): Step['buffers'] => names.map((name) => ({ name, access: 'read' }));
export const write = (...names: string[]): Step['buffers'] => names.map((name) => ({ name, access: 'readWrite' }));

const READ: ReadonlySet<Role> = new Set(['stream', 'input', 'table']);

/** A call of one dispatch: its buffers are bound in their order, read or written as their roles say. */
export function oneStep({
  buffers,
  source,
  element = 'f32',
  constants = {},
  uniforms,
  binds = buffers.map(({ name }) => name),
  workgroups,
  tuning,
}: Pick<OperationPlan, 'buffers' | 'tuning'> &
  Pick<Step, 'source' | 'uniforms' | 'workgroups'> &
  Partial<Pick<Step, 'element' | 'constants'>> & {
    /** Names of what is bound, where that is not every buffer once. */
    readonly binds?: readonly string[];
  }): OperationPlan {
  const bound = binds.map((name) => (READ.has(bufferOf({ buffers }, name).role) ? read(name) : write(name)));
  return { buffers, steps: [{ source, element, constants, uniforms, buffers: bound.flat(), workgroups }], tuning };
}

/** The buffer of that name. */
export function bufferOf(plan: Pick<OperationPlan, 'buffers'>, name: string): BufferPlan {
  const found = plan.buffers.find((b) => b.name === name);
  if (!found) throw new Error(`operation has no buffer ${name}`);
  return found;
}
