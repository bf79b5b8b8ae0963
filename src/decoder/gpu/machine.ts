/** What operations run on: the buffers, weights and caches of a decoder, or those of one call beside it. */
import { deviceOptions, partOf, planOperation, type Buffer, type BufferPlan, type Device } from '../../gpu/index.js';
import type { Setting } from '../../schedule/bind/frame.js';
import { labelOf, type BoundVisit, type BufferRef, type Ref } from '../../schedule/bind/refs.js';
import type { Configuration } from '../../schedule/schedule.js';
import type { Allocations } from './allocations.js';
import type { Caches } from './caches.js';
import type { Binder, Operation } from './program.js';
import type { Weights } from './weights.js';

export class Machine {
  readonly c: Configuration;
  readonly batch: number;

  constructor(
    readonly device: Device,
    readonly setting: Setting,
    readonly allocations: Allocations,
    readonly weights: Weights,
    readonly caches: Caches,
    /** Has the buffers that this one lacks. */
    private readonly beside?: Machine,
    /** Rows of a run, where a cache under eviction cannot hold them. */
    private readonly aside?: Caches,
  ) {
    this.c = setting.c;
    this.batch = setting.batch;
  }

  buffer(label: string): Buffer {
    return this.beside && !this.allocations.has(label) ? this.beside.buffer(label) : this.allocations.get(label);
  }

  /** Binds operations in order. @throws GpuError `unsupported` for a shape that a kernel refuses */
  async compile(binder: Binder, visits: Iterable<BoundVisit>): Promise<Operation[]> {
    const operations: Operation[] = [];
    for (const visit of visits) {
      const { op, options, binds } = visit;
      // A model's weights may be held in another type than listed.
      const stored = Object.values(binds).some(
        (ref) => 'weights' in ref && (ref.weights === 'projection' || ref.weights === 'embedding'),
      );
      const variant = stored ? this.weights.storage : op.variant;
      const plan = planOperation(
        { kernel: op.kernel, variant, shape: op.shape },
        { ...deviceOptions(this.device), ...options },
      );
      const buffers: Record<string, Buffer> = {};
      for (const [name, ref] of Object.entries(binds))
        buffers[name] = await this.resolve(
          ref,
          plan.buffers.find((planned) => planned.name === name),
        );
      operations.push({ op, steps: await binder.bind(plan, buffers) });
    }
    return operations;
  }

  /** The buffer that an operation binds. Weights and contents are made when they are first asked for. */
  private async resolve(ref: Ref, planned: BufferPlan | undefined): Promise<Buffer> {
    if ('buffer' in ref) return part(this.buffer(labelOf(ref)), ref, planned);
    if ('cache' in ref)
      return (ref.aside && this.aside ? this.aside : this.caches).buffer(ref.cache, ref.place, ref.loop, ref.part);
    if ('weights' in ref) return this.weights.of(ref);
    const [label, data] =
      'table' in ref
        ? [ref.table, () => planned?.data?.() as Float32Array<ArrayBuffer>]
        : [ref.contents, () => Uint32Array.from(ref.words)];
    return this.allocations.write(label, 'control', data);
  }
}

function part(buffer: Buffer, { offset = 0, words }: BufferRef, planned: BufferPlan | undefined): Buffer {
  if (offset === 0 && words === undefined) return buffer;
  const rest = buffer.bytes - 4 * offset;
  return partOf(buffer, 4 * offset, words === 'planned' ? (planned?.bytes ?? rest) : words ? 4 * words : rest);
}
