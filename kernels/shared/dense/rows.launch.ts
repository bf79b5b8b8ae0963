/** Launch parts that element-wise kernels share: places of rows of f32, and grids over them. */
import type { Placement } from '../../placement.js';
import { requireShape } from '../../host/errors.js';
import { f32, type BufferPlan, type OperationPlan, type Role, type Step, type Uniforms } from '../../host/plan.js';
import type { KernelCall } from '../../registry.js';

/** Most workgroups of a grid; beyond them a thread takes several elements. */
const MOST_WORKGROUPS = 32768;

/** Elements of one call, which are counted in 32 bits and stepped over by a whole grid. */
const MOST_ELEMENTS = 2 ** 31;

/** Grid of a kernel that strides over its elements. */
export function strided(
  { kernel }: KernelCall,
  count: number,
  workgroup: number,
): Pick<Step, 'workgroups'> & Pick<OperationPlan, 'tuning'> {
  requireShape(count <= MOST_ELEMENTS, `${kernel}: ${count} elements in one call, over ${MOST_ELEMENTS}`);
  return { workgroups: [Math.min(MOST_WORKGROUPS, Math.ceil(count / workgroup)), 1, 1], tuning: { workgroup } };
}

/** A grid of at least one workgroup a row. */
export const rowGrid = (rows: number): Step['workgroups'] => {
  const planes = Math.ceil(rows / MOST_WORKGROUPS);
  return [Math.ceil(rows / planes), planes, 1];
};

/** A buffer of f32 rows, and where they lie in it: also as the uniforms `<name>_offset` and `<name>_stride`. */
export function rowsOf(
  call: KernelCall,
  name: string,
  role: Role,
  rows: number,
  width: number,
  placement: Placement | undefined,
): { buffer: BufferPlan; at: Placement; uniforms: Uniforms } {
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
  return {
    buffer: f32(name, role, at.offset + (rows - 1) * at.stride + width),
    at,
    uniforms: { [`${name}_offset`]: at.offset, [`${name}_stride`]: at.stride },
  };
}
