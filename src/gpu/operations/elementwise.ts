/** The small operations between the products: norms, residuals, rotary embedding, activation, embedding, sampling, append. */
import type { KernelCall } from '../../schedule/kernels.js';
import { capacityOf } from '../cache-layout.js';
import { f32, read, u32, write, type OperationPlan, type Step } from '../plan.js';
import { rotaryTables, type RotaryOptions } from '../rotary.js';
import { bytesOfPairs, dimensions, elementOf, requireEven, requirePositive, requireVariant } from '../shape.js';

/** Threads of a kernel that has one workgroup a row. */
const ROW_WORKGROUP = 256;
/** Grid of a kernel that strides over its elements; beyond this many workgroups a thread takes several. */
const MOST_WORKGROUPS = 32768;
const grid = (count: number, workgroup: number): Step['workgroups'] => [Math.min(MOST_WORKGROUPS, Math.ceil(count / workgroup)), 1, 1];

/** Buffers: input, weight (not for `add`), target. `eps` as in the model's configuration. */
export function planRmsnorm(call: KernelCall, eps: number): OperationPlan {
  requireVariant(call);
  const s = dimensions(call, 'rows', 'width');
  requirePositive(call, s);
  const count = s.rows * s.width;
  const added = call.variant !== 'norm';
  const buffers = [
    { name: 'input', role: 'input', content: 'f32', bytes: count * 4 },
    { name: 'target', role: added ? 'state' : 'output', content: 'f32', bytes: count * 4 },
  ] as const;
  if (call.variant === 'add') {
    const step: Step = { source: 'add', element: 'f32', constants: {}, uniforms: [u32(count)], buffers: [...read('input'), ...write('target')], workgroups: grid(count, 256) };
    return { buffers, steps: [step], tuning: { workgroup: 256 } };
  }
  return {
    buffers: [...buffers, { name: 'weight', role: 'input', content: 'f32', bytes: s.width * 4 }],
    steps: [
      {
        source: 'rmsnorm',
        element: 'f32',
        constants: { WG: ROW_WORKGROUP, WIDTH: s.width, MODE: added ? 1 : 0 },
        uniforms: [f32(eps)],
        buffers: [...read('input', 'weight'), ...write('target')],
        workgroups: [s.rows, 1, 1],
      },
    ],
    tuning: { workgroup: ROW_WORKGROUP },
  };
}

/** Buffers: positions, centres, offsets, data. */
export function planRope(call: KernelCall, rotary: RotaryOptions): OperationPlan {
  requireVariant(call);
  const s = dimensions(call, 'rows', 'heads', 'headDim');
  requirePositive(call, s);
  requireEven(call, s, 'headDim');
  const count = (s.rows * s.heads * s.headDim) / 2;
  return {
    buffers: [
      { name: 'positions', role: 'input', content: 'u32', bytes: s.rows * 4, below: rotary.positions },
      ...rotaryTables(s.headDim, rotary),
      { name: 'data', role: 'state', content: 'f32', bytes: count * 8 },
    ],
    steps: [
      {
        source: 'rope',
        element: 'f32',
        constants: { HEADS: s.heads, PAIRS: s.headDim / 2, STYLE: call.variant === 'adjacent' ? 1 : 0 },
        uniforms: [u32(count)],
        buffers: [...read('positions', 'centres', 'offsets'), ...write('data')],
        workgroups: grid(count, 128),
      },
    ],
    tuning: { workgroup: 128 },
  };
}

/** Buffers: input, output. */
export function planSwiglu(call: KernelCall): OperationPlan {
  requireVariant(call);
  const s = dimensions(call, 'rows', 'width');
  requirePositive(call, s);
  const count = s.rows * s.width;
  return {
    buffers: [
      { name: 'input', role: 'input', content: 'f32', bytes: count * 8 },
      { name: 'output', role: 'output', content: 'f32', bytes: count * 4 },
    ],
    steps: [{ source: 'swiglu', element: 'f32', constants: { WIDTH: s.width }, uniforms: [u32(count)], buffers: [...read('input'), ...write('output')], workgroups: grid(count, 256) }],
    tuning: { workgroup: 256 },
  };
}

/** Buffers: tokens, embedding, output. The call does not say how long the table is. */
export function planEmbed(call: KernelCall, vocabulary: number): OperationPlan {
  const s = dimensions(call, 'rows', 'width');
  requirePositive(call, s);
  requireEven(call, s, 'width');
  const element = elementOf(call);
  const count = (s.rows * s.width) / 2;
  return {
    buffers: [
      { name: 'tokens', role: 'input', content: 'u32', bytes: s.rows * 4, below: vocabulary },
      { name: 'embedding', role: 'input', content: element, bytes: vocabulary * (s.width / 2) * bytesOfPairs(element) },
      { name: 'output', role: 'output', content: 'f32', bytes: count * 8 },
    ],
    steps: [
      { source: 'embed', element, constants: { PAIRS: s.width / 2 }, uniforms: [u32(count)], buffers: [...read('tokens', 'embedding'), ...write('output')], workgroups: grid(count, 128) },
    ],
    tuning: { workgroup: 128 },
  };
}

/** Buffers: logits, tokens. */
export function planSample(call: KernelCall): OperationPlan {
  requireVariant(call);
  const s = dimensions(call, 'rows', 'vocab');
  requirePositive(call, s);
  return {
    buffers: [
      { name: 'logits', role: 'input', content: 'f32', bytes: s.rows * s.vocab * 4 },
      { name: 'tokens', role: 'output', content: 'u32', bytes: s.rows * 4 },
    ],
    steps: [
      { source: 'sample', element: 'f32', constants: { WG: ROW_WORKGROUP }, uniforms: [u32(s.vocab)], buffers: [...read('logits'), ...write('tokens')], workgroups: [s.rows, 1, 1] },
    ],
    tuning: { workgroup: ROW_WORKGROUP },
  };
}

export interface AppendOptions {
  /** Heads that the width is divided among. */
  heads: number;
  side: 'key' | 'value';
  /** Tokens that each row of the cache can hold. */
  capacity: number;
}

/** Buffers: tokens, rows, cache. */
export function planAppend(call: KernelCall, { heads, side, capacity }: AppendOptions): OperationPlan {
  const s = dimensions(call, 'rows', 'width');
  requirePositive(call, s);
  requireEven(call, { width: s.width / heads }, 'width');
  const element = elementOf(call);
  const count = (s.rows * s.width) / 2;
  const reserved = capacityOf(capacity);
  return {
    buffers: [
      { name: 'tokens', role: 'input', content: 'u32', bytes: s.rows * 4, below: capacity },
      { name: 'rows', role: 'input', content: 'f32', bytes: count * 8 },
      { name: 'cache', role: 'state', content: element, bytes: count * reserved * bytesOfPairs(element) },
    ],
    steps: [
      {
        source: 'append',
        element,
        constants: { HEADS: heads, PAIRS: s.width / heads / 2, SIDE: side === 'key' ? 0 : 1 },
        uniforms: [u32(count), u32(reserved)],
        buffers: [...read('tokens', 'rows'), ...write('cache')],
        workgroups: grid(count, 128),
      },
    ],
    tuning: { workgroup: 128 },
  };
}
