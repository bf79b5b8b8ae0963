/** The current token beside split-KV attention: its exact query, key and value (attend_new.wgsl). */
import type { CurrentOptions } from '../../attention-options.js';
import type { Placement as Vectors } from '../../placement.js';
import { requireShape } from '../../host/errors.js';
import { f32, type BufferPlan, type Step, type Uniforms } from '../../host/plan.js';

export const WORKGROUP = 64;

/** Workgroups of one dimension that every adapter allows. */
const MOST_WORKGROUPS = 65535;

/** A grid of at least one workgroup a row. */
export function rowGrid(rows: number): Step['workgroups'] {
  const planes = Math.ceil(rows / MOST_WORKGROUPS);
  return [Math.ceil(rows / planes), planes, 1];
}

interface Fold extends CurrentOptions {
  readonly rows: number;
  readonly keyWidth: number;
  readonly valueWidth: number;
}

/** The vectors of the current token as buffers, and the struct `Current` of attend_new.wgsl. */
export function currentOperands(kernel: string, c: Fold): { buffers: BufferPlan[]; uniforms: Uniforms } {
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
      buffer: f32(name, 'input', at.offset + (sequences - 1) * at.stride + width),
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
    uniforms: {
      heads: c.heads,
      group: c.group,
      key_width: c.keyWidth,
      value_width: c.valueWidth,
      scale: (c.scale ?? c.keyWidth ** -0.5) * Math.LOG2E,
      query_offset: q.at.offset,
      query_stride: q.at.stride,
      key_offset: k.at.offset,
      key_stride: k.at.stride,
      value_offset: v.at.offset,
      value_stride: v.at.stride,
      rows: c.rows,
    },
  };
}

/** Without options: one query head a sequence. */
export const ALONE: CurrentOptions = { heads: 1, group: 1 };
