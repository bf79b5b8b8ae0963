/** Launch parts that element-wise kernels share: places of rows of f32, and grids over them. */
import type { Placement } from '../../placement.js';
import { requireShape } from '../../host/errors.js';
import { f32, type BufferPlan, type Role, type Step, type Uniforms } from '../../host/plan.js';
import type { KernelCall } from '../../registry.js';

/** Grid of a kernel that strides over its elements; beyond this many workgroups a thread takes several. */
const MOST_WORKGROUPS = 32768;

/** Elements of one call, which are counted in 32 bits and stepped over by a whole grid. */
const MOST_ELEMENTS = 2 ** 31;

export const grid = (kernel: string, count: number, workgroup: number): Step['workgroups'] => {
  requireShape(count <= MOST_ELEMENTS, `${kernel}: ${count} elements in one call, over ${MOST_ELEMENTS}`);
  return [Math.min(MOST_WORKGROUPS, Math.ceil(count / workgroup)), 1, 1];
};

/** A grid of at least one workgroup a row. */
export const rowGrid = (rows: number): Step['workgroups'] => {
  const planes = Math.ceil(rows / MOST_WORKGROUPS);
  return [Math.ceil(rows / planes), planes, 1];
};

/** A buffer of f32 rows, and where they lie in it. */
export function rowsOf(
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
  return { buffer: f32(name, role, at.offset + (rows - 1) * at.stride + width), at };
}

/** Uniforms `<name>_offset` and `<name>_stride`. */
export const placeUniforms = (name: string, at: Placement): Uniforms => ({
  [`${name}_offset`]: at.offset,
  [`${name}_stride`]: at.stride,
});
