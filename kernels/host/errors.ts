/** An error on the GPU side of a call. The benchmark records it as a gap, everything else rethrows it. */
export type GpuFault = 'validation' | 'out-of-memory' | 'internal' | 'lost' | 'unsupported';

/** A call that the device refused or could not finish. `fault` says why, so that callers need not read the message. */
export class GpuError extends Error {
  override readonly name = 'GpuError';

  constructor(
    readonly fault: GpuFault,
    message: string,
  ) {
    super(message);
  }
}

/** Refuses a shape that the kernels of this form do not handle. */
export function requireShape(condition: boolean, message: string): asserts condition {
  if (!condition) throw new GpuError('unsupported', message);
}
