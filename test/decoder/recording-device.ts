/** A device that records what is dispatched and computes nothing: what a decoder runs, without a GPU. */
import type { BoundStep, Buffer, Device, RunTime } from '../../src/gpu/index.js';
import type { Step } from '../../src/gpu/plan.js';
import { packUniforms } from '../../src/gpu/uniforms.js';
import { loadSource } from '../../kernels/source.js';

/** The sources of one planned call: the first of them names it. */
const FURTHER = ['evict_copy', 'evict_gather'];
const KERNELS: Readonly<Record<string, string>> = {
  add: 'rmsnorm',
  matvec: 'matmul',
  matvec_quads: 'matmul',
  matmul_transposed: 'matmul',
  attend_block_components: 'attend_block_absorbed',
};
/** Kernels whose grid does not follow from the shape alone, but from the room of a cached row. */
const BY_ROOM = ['mass', 'block_basis', 'rebuild', 'mass_prefill', 'evict_prefill', 'evict_chunk'];

/** A call as far as its first step tells: the kernel, and its shape or grid. */
export function signatureOf(step: Step): string {
  const kernel = KERNELS[step.source] ?? step.source;
  if (kernel === 'matmul') {
    const { m, k, n } = step.uniforms as Readonly<Record<'m' | 'k' | 'n', number>>;
    return `matmul ${step.workgroups[2]} ${m} ${k} ${n}`;
  }
  return BY_ROOM.includes(kernel) ? kernel : `${kernel} ${step.workgroups.join(' ')}`;
}

interface Recorded extends BoundStep {
  readonly step: Step;
}

export class RecordingDevice {
  /** Signatures of the calls that were run, in order. */
  calls: string[] = [];
  readonly description = { software: true };
  readonly limits = { maxComputeWorkgroupStorageSize: 32_768, maxBufferSize: Infinity };
  readonly units = { matrixConfigs: [], subgroupSizes: [8, 8] };

  has = (): boolean => false;

  buffer(label: string, bytes: number): Promise<Buffer> {
    return Promise.resolve({ label, bytes: Math.max(16, Math.ceil(bytes / 4) * 4), raw: {} as GPUBuffer });
  }

  write(buffer: Buffer, data: ArrayBufferView, offset = 0): Promise<void> {
    if (offset + data.byteLength > buffer.bytes) throw new RangeError(`${buffer.label} is too short`);
    return Promise.resolve();
  }

  copy = (): Promise<number> => Promise.resolve(0);
  read = (_: Buffer, bytes: number): Promise<ArrayBuffer> => Promise.resolve(new ArrayBuffer(bytes));
  free = (): void => undefined;

  bind(step: Step): Promise<BoundStep> {
    const bytes = packUniforms(loadSource(step.source, step.element), step.uniforms).byteLength;
    const uniforms: Buffer = { label: 'uniforms', bytes, raw: {} as GPUBuffer };
    return Promise.resolve({ step, uniforms, workgroups: step.workgroups } as unknown as BoundStep);
  }

  run(steps: readonly BoundStep[]): Promise<RunTime> {
    for (const { step } of steps as readonly Recorded[])
      if (!FURTHER.includes(step.source)) this.calls.push(signatureOf(step));
    return Promise.resolve({ wallSeconds: 0, deviceSeconds: 0 });
  }

  get device(): Device {
    return this as unknown as Device;
  }
}
