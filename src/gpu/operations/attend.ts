/** Split-KV decode attention over rows as they lie, and the merge of its partials. */
import type { KernelCall } from '../../schedule/kernels.js';
import { capacityOf } from '../cache-layout.js';
import { read, u32, write, type BufferPlan, type OperationPlan } from '../plan.js';
import { bytesOfPairs, dimensions, elementOf, requireEven, requirePositive } from '../shape.js';
import { foldConstants, foldUniforms, lanesOf, partialsBytes, workgroupFor } from './fold.js';

/** Floats of the query tile in workgroup memory: 8 KiB. */
const QUERY_FLOATS = 2048;

/**
 * Buffers: queries, keys, values, branch (only with a branch), partials. `scale` multiplies q · k: (width of key and branch)^-½
 * unless given, which an absorbed query must, as its width is a rank.
 */
export function planAttend(call: KernelCall, scale?: number): OperationPlan {
  const s = dimensions(call, 'sequences', 'kvHeads', 'group', 'context', 'keyWidth', 'valueWidth', 'branchWidth', 'branchHeads', 'splits');
  requirePositive(call, s, 'branchWidth', 'branchHeads');
  requireEven(call, s, 'keyWidth', 'valueWidth', 'branchWidth');
  const element = elementOf(call);
  const pairBytes = bytesOfPairs(element);
  const rows = s.sequences * s.kvHeads;
  const capacity = capacityOf(s.context);
  const lanes = lanesOf(s.group);
  const quads = Math.ceil(lanes / 4);
  const chunk = Math.floor(QUERY_FLOATS / (2 * (lanes === 1 ? 1 : 4 * quads)));
  const workgroup = workgroupFor(s.valueWidth / 2, lanes > 8 ? 128 : 256);
  const branchRows = s.branchHeads === 1 ? s.sequences : s.sequences * s.branchHeads;
  const branch: BufferPlan[] = s.branchWidth > 0 ? [{ name: 'branch', role: 'stream', content: element, bytes: branchRows * capacity * (s.branchWidth / 2) * pairBytes }] : [];
  return {
    buffers: [
      { name: 'queries', role: 'input', content: 'f32', bytes: rows * s.group * (s.keyWidth + s.branchWidth) * 4 },
      { name: 'keys', role: 'stream', content: element, bytes: rows * capacity * (s.keyWidth / 2) * pairBytes },
      { name: 'values', role: 'stream', content: element, bytes: rows * capacity * (s.valueWidth / 2) * pairBytes },
      { name: 'partials', role: 'output', content: 'f32', bytes: partialsBytes(rows * s.group, s) },
      ...branch,
    ],
    steps: [
      {
        source: 'attend',
        element,
        constants: {
          ...foldConstants(s, workgroup, workgroup),
          CHUNK: chunk,
          QUERY_ONE: lanes === 1 ? chunk : 1,
          QUERY_MANY: lanes === 1 ? 1 : 2 * chunk * quads,
        },
        uniforms: foldUniforms({ ...s, branchShared: s.branchHeads === 1 }, workgroup, scale ?? (s.keyWidth + s.branchWidth) ** -0.5),
        // Without a branch the binding still wants a buffer; the kernel does not touch it.
        buffers: [...read('queries', 'keys', 'values'), ...write('partials'), ...read(branch.length ? 'branch' : 'keys')],
        workgroups: [s.splits, s.kvHeads, s.sequences],
      },
    ],
    tuning: { workgroup, tile: workgroup, lanes },
  };
}

/** Buffers: partials, output. */
export function planMerge(call: KernelCall): OperationPlan {
  const s = dimensions(call, 'rows', 'splits', 'width');
  requirePositive(call, s);
  const workgroup = 64;
  return {
    buffers: [
      { name: 'partials', role: 'stream', content: 'f32', positive: true, bytes: s.rows * s.splits * (s.width + 2) * 4 },
      { name: 'output', role: 'output', content: 'f32', bytes: s.rows * s.width * 4 },
    ],
    steps: [
      {
        source: 'attend_merge',
        element: 'f32',
        constants: { WG: workgroup },
        uniforms: [u32(s.splits), u32(s.width)],
        buffers: [...read('partials'), ...write('output')],
        workgroups: [s.rows, 1, 1],
      },
    ],
    tuning: { workgroup },
  };
}
