/** Buffers, steps that are bound to them, and the passes in which they run. */

export interface Buffer {
  readonly label: string;
  readonly bytes: number;
  readonly raw: GPUBuffer;
  /** Where a part of a buffer begins; 0 unless given. Parts can be bound, not written, read or freed. */
  readonly offset?: number;
}

/** Part of a buffer, for binding: from a multiple of the device's minStorageBufferOffsetAlignment on. */
export const partOf = (buffer: Buffer, offset: number, bytes: number): Buffer =>
  offset === 0 && bytes === buffer.bytes ? buffer : { label: buffer.label, raw: buffer.raw, bytes, offset };

/** One step with its pipeline and its buffers bound: ready to be dispatched any number of times. */
export interface BoundStep {
  readonly pipeline: GPUComputePipeline;
  readonly group: GPUBindGroup;
  readonly workgroups: readonly [number, number, number];
  /** The step's uniform block: rewritten with `device.write` where a value changes between runs. */
  readonly uniforms: Buffer;
}

/** A set of timestamps and where they are resolved. */
export interface Queries {
  readonly set: GPUQuerySet;
  readonly resolve: GPUBuffer;
  readonly count: number;
}

/** Most timestamps of a set, by the standard. */
export const MOST_QUERIES = 4096;

/** Steps in order, in one pass. */
export function encodePass(
  encoder: GPUCommandEncoder,
  steps: readonly BoundStep[],
  descriptor: GPUComputePassDescriptor,
): void {
  const pass = encoder.beginComputePass(descriptor);
  let current: GPUComputePipeline | undefined;
  for (const step of steps) {
    if (step.pipeline !== current) pass.setPipeline((current = step.pipeline));
    pass.setBindGroup(0, step.group);
    pass.dispatchWorkgroups(...step.workgroups);
  }
  pass.end();
}

/** The pass from this timestamp to the next. */
export const timestamps = ({ set }: Queries, first: number): GPUComputePassDescriptor => ({
  timestampWrites: { querySet: set, beginningOfPassWriteIndex: first, endOfPassWriteIndex: first + 1 },
});

/** Times of parts, stretched so that they add up to a total; as they are where there is none. */
export function scaledTo(total: number | null, parts: readonly number[]): readonly number[] {
  const sum = parts.reduce((a, b) => a + b, 0);
  return total === null || sum === 0 ? parts : parts.map((each) => (each * total) / sum);
}
