/** Safetensors files made by hand, independent of the reader. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll } from 'vitest';
import { halfBits } from '../../kernels/host/half.js';

export interface PlainTensor {
  dtype: 'BF16' | 'F16' | 'F32';
  shape: number[];
  values: number[];
}

/** Little-endian bytes of values; bf16 by cutting off the lower half of an f32. */
export function bytesOf({ dtype, values }: PlainTensor): Buffer {
  const out = Buffer.alloc(values.length * (dtype === 'F32' ? 4 : 2));
  values.forEach((x, i) => {
    if (dtype === 'F32') out.writeFloatLE(x, 4 * i);
    else if (dtype === 'F16') out.writeUInt16LE(halfBits(x), 2 * i);
    else {
      const word = Buffer.alloc(4);
      word.writeFloatBE(x);
      out.writeUInt16LE(word.readUInt16BE(0), 2 * i);
    }
  });
  return out;
}

/** A file from a header text and data. */
export function fileOf(header: string, data: Buffer): Buffer {
  const text = Buffer.from(header);
  const length = Buffer.alloc(8);
  length.writeBigUInt64LE(BigInt(text.length));
  return Buffer.concat([length, text, data]);
}

/** A valid file. */
export function safetensors(tensors: Record<string, PlainTensor>, metadata?: Record<string, string>): Buffer {
  const header: Record<string, unknown> = metadata ? { __metadata__: metadata } : {};
  const parts: Buffer[] = [];
  let at = 0;
  for (const [name, tensor] of Object.entries(tensors)) {
    const bytes = bytesOf(tensor);
    header[name] = { dtype: tensor.dtype, shape: tensor.shape, data_offsets: [at, at + bytes.length] };
    parts.push(bytes);
    at += bytes.length;
  }
  return fileOf(JSON.stringify(header), Buffer.concat(parts));
}

let folder: string | undefined;
const home = (): string => (folder ??= mkdtempSync(join(tmpdir(), 'lla-sim-')));
let count = 0;

/** Called by a file of tests that makes temporary files: they are gone after its tests. */
export const removeTemporary = (): void =>
  afterAll(() => {
    if (folder !== undefined) rmSync(folder, { recursive: true, force: true });
    folder = undefined;
  });

/** Writes a temporary file. */
export function temporary(contents: Buffer | string, name = `${count++}.safetensors`): string {
  const path = join(home(), name);
  writeFileSync(path, contents);
  return path;
}

/** A new temporary folder. */
export const temporaryFolder = (): string => mkdtempSync(join(home(), 'model-'));

/** A folder with a model's config.json and tensors, in as many shards as wanted. */
export function modelFolder(config: object, tensors: Record<string, PlainTensor>, shards = 1): string {
  const folder = temporaryFolder();
  writeFileSync(join(folder, 'config.json'), JSON.stringify(config));
  const weightMap: Record<string, string> = {};
  for (let i = 0; i < shards; i++) {
    const part = Object.entries(tensors).filter((_, n) => n % shards === i);
    const name = shards === 1 ? 'model.safetensors' : `model-0000${i + 1}-of-0000${shards}.safetensors`;
    for (const [tensor] of part) weightMap[tensor] = name;
    writeFileSync(join(folder, name), safetensors(Object.fromEntries(part), { format: 'pt' }));
  }
  const index = { metadata: { total_size: 1 }, weight_map: weightMap };
  if (shards > 1) writeFileSync(join(folder, 'model.safetensors.index.json'), JSON.stringify(index));
  return folder;
}
