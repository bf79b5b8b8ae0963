/** Every buffer of a decoder, with what it is for: the table that the memory model is compared with. */
import { GpuError, type Buffer, type Device } from '../../gpu/index.js';
import { rotaryTable } from '../../../kernels/host/rotary.js';
import { stepBuffers, stepControls, type BufferKind, type BufferRow } from '../../schedule/buffers.js';
import type { CacheMap } from '../../schedule/cache-map.js';
import type { Setting } from '../../schedule/bind/frame.js';
import { partSuffix } from '../../schedule/bind/refs.js';
import type { Configuration } from '../../schedule/schedule.js';

/** Kind of memory, as cost/memory.ts counts it: `codec` are its parameters. */
export type AllocationKind = BufferKind | 'weights' | 'codec' | 'cache';

export interface Allocation {
  readonly label: string;
  readonly kind: AllocationKind;
  readonly bytes: number;
}

/** What a part of a buffer is for. */
export type Share = Omit<Allocation, 'label'>;

export class Allocations {
  private readonly buffers = new Map<string, Buffer>();
  private readonly rows: Allocation[] = [];

  constructor(private readonly device: Device) {}

  /**
   * The buffer of that name, made where there is none yet. It holds zeros until it is written.
   * @param shares of a buffer that serves several purposes; their sum is its size
   * @throws GpuError `out-of-memory`, naming the buffer and what is allocated already
   */
  async make(label: string, shares: readonly Share[]): Promise<Buffer> {
    const known = this.buffers.get(label);
    if (known) return known;
    const size = shares.reduce((sum, { bytes }) => sum + bytes, 0);
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
    this.rows.push(...shares.map((share) => ({ label, ...share })));
    // Buffers are whole words and at least 16 bytes; the padding belongs to no share.
    if (buffer.bytes > size)
      this.rows.push({ label: `${label} (rounding)`, kind: 'control', bytes: buffer.bytes - size });
    return buffer;
  }

  /** The buffer of that name, made and written where there is none yet. */
  async write(
    label: string,
    kind: AllocationKind,
    values: () => Float32Array<ArrayBuffer> | Uint32Array<ArrayBuffer>,
  ): Promise<Buffer> {
    const known = this.buffers.get(label);
    if (known) return known;
    const data = values();
    const buffer = await this.make(label, [{ kind, bytes: data.byteLength }]);
    await this.device.write(buffer, data);
    return buffer;
  }

  /**
   * The buffers of rows of the list; padded to the 16 bytes that kernels read at a time.
   * @param batch sequences @param caches how they are divided into parts
   * @throws GpuError as `make`; `unsupported` for activations of the whole batch that no binding holds
   */
  async makeRows(
    { c, contextTokens }: Setting,
    rows: readonly BufferRow[],
    batch: number,
    caches: Pick<CacheMap, 'parts'>,
  ): Promise<void> {
    for (const row of rows) {
      const { label, binding, contents, fixedBytes } = row;
      if (contents === 'numbers')
        await this.write(label, row.kind, () => Uint32Array.from({ length: fixedBytes / 4 }, (_, i) => i));
      else if (contents) {
        const rotary = { ropeBase: c.geometry.rope.theta, positions: contextTokens + 1, back: contents.back ?? false };
        const { data } = rotaryTable(contents.anglesOf, rotary);
        await this.write(label, row.kind, () => data?.() as Float32Array<ArrayBuffer>);
      } else if (typeof binding === 'string') {
        if (binding === 'whole') requireBindable(c, batch, row);
        await this.makeRow(row, batch);
      } else for (const { index, count } of caches.parts(binding.apartIn)) await this.makeRow(row, count, index);
    }
  }

  private async makeRow(
    { kind, label, count, fixedBytes, sequenceBytes }: BufferRow,
    batch: number,
    part = 0,
  ): Promise<void> {
    const bytes = fixedBytes + batch * sequenceBytes;
    const shares = kind === 'control' ? [{ kind, bytes }] : padded(kind, bytes);
    for (let i = 0; i < (count ?? 1); i++)
      await this.make(`${label}${count === undefined ? '' : ` ${i}`}${partSuffix(part)}`, shares);
  }

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

/** Shares of a buffer that kernels read 16 bytes at a time; the padding belongs to no other share. */
export function padded(kind: AllocationKind, bytes: number): Share[] {
  const padding = Math.ceil(bytes / 16) * 16 - bytes;
  return [{ kind, bytes }, ...(padding > 0 ? [{ kind: 'control' as const, bytes: padding }] : [])];
}

/** Activations of all sequences are bound at once: only buffers that grow with the cache are divided. */
function requireBindable(c: Configuration, batch: number, { label, sequenceBytes }: BufferRow): void {
  if (batch * sequenceBytes <= c.bindingBytes) return;
  const most = Math.floor(c.bindingBytes / sequenceBytes);
  throw new GpuError(
    'unsupported',
    `buffer ${label} takes ${batch * sequenceBytes} bytes for ${batch} sequences, more than the ${c.bindingBytes} ` +
      `that the device binds at once (maxStorageBufferBindingSize): take a batch of at most ${most}`,
  );
}

/** What bindings that a call leaves open take: one that is read, one that is written. @returns the first */
export async function makeUnused(allocations: Allocations): Promise<Buffer> {
  const unused = await allocations.make('unused', [{ kind: 'control', bytes: 16 }]);
  await allocations.make('unused output', [{ kind: 'control', bytes: 16 }]);
  return unused;
}

/** Everything of a step that is neither weight nor cache: activations, latents in flight, eviction's state, inputs. */
export async function makeWorkspace(setting: Setting, caches: CacheMap, allocations: Allocations): Promise<void> {
  const { c, batch } = setting;
  const rows = [...stepBuffers(c, caches.slots.capacity), ...stepControls(c, batch, caches)];
  await allocations.makeRows(setting, rows, batch, caches);
}
