/** Writes tensors as a safetensors file, in f32. */
import { elementsOf } from './tensors.js';

export interface NamedTensor {
  readonly name: string;
  readonly shape: readonly number[];
  readonly values: Float32Array;
}

/**
 * A safetensors file: 8 bytes of header length, a JSON header padded with spaces to a multiple of 8, the data in the
 * order given. The same tensors give the same bytes.
 * @param metadata names to texts; left out where there is none
 */
export function safetensorsBytes(
  tensors: readonly NamedTensor[],
  metadata: Readonly<Record<string, string>> = {},
): Uint8Array {
  const header: Record<string, unknown> = Object.keys(metadata).length > 0 ? { __metadata__: metadata } : {};
  let at = 0;
  for (const { name, shape, values } of tensors) {
    if (elementsOf(shape) !== values.length || Object.hasOwn(header, name))
      throw new RangeError(`tensor ${name} has ${values.length} values, or is given twice`);
    header[name] = { dtype: 'F32', shape, data_offsets: [at, at + 4 * values.length] };
    at += 4 * values.length;
  }
  const text = new TextEncoder().encode(JSON.stringify(header));
  const headerBytes = Math.ceil(text.length / 8) * 8;
  const out = new Uint8Array(8 + headerBytes + at).fill(0x20, 8, 8 + headerBytes);
  out.set(text, 8);
  const view = new DataView(out.buffer);
  view.setBigUint64(0, BigInt(headerBytes), true);
  let byte = 8 + headerBytes;
  for (const { values } of tensors)
    for (const value of values) {
      view.setFloat32(byte, value, true);
      byte += 4;
    }
  return out;
}
