/** Every buffer of a decoder, with what it is for: the table that the memory model is compared with. */
import { GpuError, type Buffer, type Device } from '../../gpu/index.js';
import type { BufferKind, BufferRow } from '../../schedule/buffers.js';

/**
 * Kind of memory, as cost/memory.ts counts it: `weights`, `codec` (its parameters), `cache`, and the kinds of
 * schedule/buffers.ts. `control` is memory that the model counts in its reserve: tables of angles, positions and spans,
 * placeholders of unused bindings.
 */
export type AllocationKind = BufferKind | 'weights' | 'codec' | 'cache' | 'control';

export interface Allocation {
  readonly label: string;
  readonly kind: AllocationKind;
  readonly bytes: number;
}

export class Allocations {
  private readonly buffers = new Map<string, Buffer>();
  private readonly rows: Allocation[] = [];

  constructor(private readonly device: Device) {}

  /**
   * The buffer of that name, made where there is none yet. It holds zeros until it is written.
   * @param shares of a buffer that serves several purposes; their sum is its size
   * @throws GpuError `out-of-memory`, naming the buffer and what is allocated already
   */
  async make(
    label: string,
    shares: AllocationKind | readonly Omit<Allocation, 'label'>[],
    bytes?: number,
  ): Promise<Buffer> {
    const known = this.buffers.get(label);
    if (known) return known;
    const rows = typeof shares === 'string' ? [{ kind: shares, bytes: bytes as number }] : shares;
    const size = rows.reduce((sum, row) => sum + row.bytes, 0);
    let buffer: Buffer;
    try {
      buffer = await this.device.buffer(label, size);
    } catch (error) {
      if (error instanceof GpuError && error.fault === 'out-of-memory')
        throw new GpuError(
          error.fault,
          `${error.message} (${this.bytes} bytes in ${this.buffers.size} buffers are allocated already)`,
        );
      throw error;
    }
    this.buffers.set(label, buffer);
    this.rows.push(...rows.map((row) => ({ label, kind: row.kind, bytes: row.bytes })));
    // Buffers are whole words and at least 16 bytes; the padding belongs to no share.
    if (buffer.bytes > size)
      this.rows.push({ label: `${label} (rounding)`, kind: 'control', bytes: buffer.bytes - size });
    return buffer;
  }

  /**
   * The buffers of a row of the list, for `batch` sequences; padded to the 16 bytes that kernels read at a time.
   * @param suffix behind the labels
   * @throws GpuError as `make`
   */
  async makeRow(
    { kind, label, count, fixedBytes, sequenceBytes }: BufferRow,
    batch: number,
    suffix = '',
  ): Promise<void> {
    const bytes = fixedBytes + batch * sequenceBytes;
    const padding = Math.ceil(bytes / 16) * 16 - bytes;
    const shares = [{ kind, bytes }, ...(padding > 0 ? [{ kind: 'control' as const, bytes: padding }] : [])];
    for (let i = 0; i < (count ?? 1); i++)
      await this.make(`${label}${count === undefined ? '' : ` ${i}`}${suffix}`, shares);
  }

  /** A buffer that exists. */
  get(label: string): Buffer {
    const buffer = this.buffers.get(label);
    if (!buffer) throw new Error(`no buffer ${label}`);
    return buffer;
  }

  has(label: string): boolean {
    return this.buffers.has(label);
  }

  startingWith(prefix: string): Buffer[] {
    return [...this.buffers].filter(([label]) => label.startsWith(prefix)).map(([, buffer]) => buffer);
  }

  get table(): readonly Allocation[] {
    return this.rows;
  }

  get bytes(): number {
    return this.rows.reduce((sum, row) => sum + row.bytes, 0);
  }

  free(): void {
    this.device.free(...this.buffers.values());
    this.buffers.clear();
  }
}
