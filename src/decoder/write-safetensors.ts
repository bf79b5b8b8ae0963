/** Writes tensors as a safetensors file, in f32 or f16. */
import { halfBits } from '../../kernels/host/half.js';
import { elementsOf } from './tensors.js';
import type { NamedTensor } from './weights.js';

function bytesOf(values: Float32Array, half: boolean): Uint8Array {
  const stored = half ? Uint16Array.from(values, halfBits) : values;
  return new Uint8Array(stored.buffer, stored.byteOffset, stored.byteLength);
}

/**
 * A safetensors file, piece by piece: 8 bytes of header length and a JSON header padded with spaces to a multiple of 8,
 * then each tensor's values as they lie in memory (little-endian wherever Dawn runs), in the order given.
 * @param read values of a tensor, when its turn has come: one at a time is in memory
 * @param metadata names to texts; left out where there is none
 * @param isHalf which tensors are rounded to f16
 */
export function* safetensorsParts<T extends Pick<NamedTensor, 'name' | 'shape'>>(
  tensors: readonly T[],
  read: (tensor: T) => Float32Array,
  metadata: Readonly<Record<string, string>> = {},
  isHalf: (tensor: T) => boolean = () => false,
): Generator<Uint8Array> {
  const header: Record<string, unknown> = Object.keys(metadata).length > 0 ? { __metadata__: metadata } : {};
  let at = 0;
  for (const tensor of tensors) {
    const { name, shape } = tensor;
    if (Object.hasOwn(header, name)) throw new RangeError(`tensor ${name} is given twice`);
    const bytes = (isHalf(tensor) ? 2 : 4) * elementsOf(shape);
    header[name] = { dtype: isHalf(tensor) ? 'F16' : 'F32', shape, data_offsets: [at, at + bytes] };
    at += bytes;
  }
  yield headerBytes(header);
  for (const tensor of tensors) {
    const values = read(tensor);
    if (elementsOf(tensor.shape) !== values.length)
      throw new RangeError(`tensor ${tensor.name} has ${values.length} values`);
    yield bytesOf(values, isHalf(tensor));
  }
}

/** A header with its length before it; the data begins at a multiple of 8. */
export function headerBytes(header: Readonly<Record<string, unknown>>): Uint8Array {
  const text = new TextEncoder().encode(JSON.stringify(header));
  const length = Math.ceil(text.length / 8) * 8;
  const out = new Uint8Array(8 + length).fill(0x20, 8);
  out.set(text, 8);
  new DataView(out.buffer).setBigUint64(0, BigInt(length), true);
  return out;
}

/** The same as one array, of tensors in memory. The same tensors give the same bytes. */
export const safetensorsBytes = (
  tensors: readonly NamedTensor[],
  metadata: Readonly<Record<string, string>> = {},
  half = false,
): Uint8Array =>
  Buffer.concat([
    ...safetensorsParts(
      tensors,
      ({ values }) => values,
      metadata,
      () => half,
    ),
  ]);
