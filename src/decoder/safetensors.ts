/**
 * Reads one safetensors file: 8 bytes of header length (little-endian), a JSON header {name: {dtype, shape,
 * data_offsets}}, the data (github.com/huggingface/safetensors, "Format"). The file is not trusted: every length,
 * offset and name is checked before a byte of data is read, and data is read in bounded pieces.
 */
import { closeSync, constants, fstatSync, openSync, statSync } from 'node:fs';
import { UserError, show } from '../errors.js';
import { displayPath, readAt } from '../io/files.js';
import { halfValue } from '../../kernels/host/half.js';
import { formatBytes } from '../numbers/units.js';
import { isObject, parseJson } from '../io/json.js';
import { repeatedKey } from './json-keys.js';
import { checkedLength, type TensorSource } from './weights.js';

/**
 * The format allows 100 MB. A tensor takes about 120 bytes of the header; a file of a large model has some thousand
 * tensors.
 */
const MAX_HEADER_BYTES = 2 ** 24;
const MAX_TENSORS = 100_000;
/** More dimensions than any weight has. */
const MAX_DIMENSIONS = 8;
const PIECE_BYTES = 2 ** 20;
const ELEMENT_BYTES = { BF16: 2, F16: 2, F32: 4 } as const;
type Dtype = keyof typeof ELEMENT_BYTES;

interface Entry {
  readonly name: string;
  readonly dtype: Dtype;
  readonly shape: readonly number[];
  readonly elements: number;
  /** From the start of the data. */
  readonly begin: number;
  readonly end: number;
}

const WHOLE = 'download it again';
const isSize = (value: unknown): value is number =>
  typeof value === 'number' && Number.isSafeInteger(value) && value >= 0;

function entryOf(file: string, name: string, value: unknown): Entry {
  const refuse = (what: string, hint = WHOLE): never => {
    throw new UserError(`${file}: tensor ${show(name)} ${what}`, hint);
  };
  if (!isObject(value)) return refuse(`must be an object with dtype, shape and data_offsets, not ${show(value)}`);
  const { dtype, shape, data_offsets: offsets } = value;
  const unknown = Object.keys(value).find((key) => !['dtype', 'shape', 'data_offsets'].includes(key));
  if (unknown !== undefined) return refuse(`has a field ${show(unknown)}, which the format does not know`);
  if (typeof dtype !== 'string' || !Object.hasOwn(ELEMENT_BYTES, dtype))
    return refuse(`has dtype ${show(dtype)}; only BF16, F16 and F32 are read`, 'convert the file to one of them');
  if (!Array.isArray(shape) || shape.length > MAX_DIMENSIONS || !shape.every(isSize))
    return refuse(`has shape ${show(shape)}, which is not a list of at most ${MAX_DIMENSIONS} sizes`);
  if (!Array.isArray(offsets) || offsets.length !== 2 || !offsets.every(isSize))
    return refuse(`has data_offsets ${show(offsets)}, which are not two offsets`);
  const elements = shape.reduce((product: number, n: number) => product * n, 1);
  const bytes = elements * ELEMENT_BYTES[dtype as Dtype];
  // A product that is not exact is far beyond any file. Zero sizes make the product 0 whatever the rest.
  if (!Number.isSafeInteger(bytes)) return refuse(`has shape ${show(shape)}, more elements than a file can hold`);
  const [begin, end] = offsets as [number, number];
  if (end - begin !== bytes)
    return refuse(
      `takes ${end - begin} bytes (data_offsets ${show(offsets)}), but its shape ${show(shape)} of ${dtype} takes ` +
        `${bytes}`,
    );
  return { name, dtype: dtype as Dtype, shape: shape as number[], elements, begin, end };
}

/** The header's tensors, which must cover the data without gap or overlap, and its texts. */
function readHeader(
  file: string,
  text: string,
  dataBytes: number,
): { readonly entries: Entry[]; readonly metadata: Readonly<Record<string, string>> } {
  // Seven values a tensor of two dimensions; one more for each further dimension.
  const header = parseJson(text, `${file}: the header`, { maxValues: 16 * MAX_TENSORS, hint: WHOLE });
  if (!isObject(header)) throw new UserError(`${file}: the header is not a JSON object`, WHOLE);
  const repeated = repeatedKey(text);
  if (repeated !== undefined) throw new UserError(`${file}: the header names ${show(repeated)} twice`, WHOLE);
  const tensors = Object.keys(header).length;
  if (tensors > MAX_TENSORS)
    throw new UserError(
      `${file}: the header names ${tensors} tensors, more than ${MAX_TENSORS}`,
      'split the file into shards',
    );
  const entries: Entry[] = [];
  let metadata: Readonly<Record<string, string>> = {};
  for (const [name, value] of Object.entries(header)) {
    if (name !== '__metadata__') entries.push(entryOf(file, name, value));
    else if (!isObject(value) || !Object.values(value).every((v) => typeof v === 'string'))
      throw new UserError(`${file}: __metadata__ must map names to texts`, WHOLE);
    else metadata = value as Readonly<Record<string, string>>;
  }
  const byOffset = [...entries].sort((a, b) => a.begin - b.begin || a.end - b.end);
  let covered = 0;
  for (const { name, begin, end } of byOffset) {
    if (begin < covered)
      throw new UserError(
        `${file}: tensor ${show(name)} begins at byte ${begin} of the data, inside the tensor before it, which ` +
          `ends at ${covered}`,
        WHOLE,
      );
    if (begin > covered)
      throw new UserError(`${file}: bytes ${covered} to ${begin} of the data belong to no tensor`, WHOLE);
    covered = end;
  }
  if (covered > dataBytes)
    throw new UserError(
      `${file} is cut short: it has ${dataBytes} bytes of data, its header describes ${covered}`,
      WHOLE,
    );
  if (covered < dataBytes)
    throw new UserError(
      `${file} is too long: it has ${dataBytes} bytes of data, its header describes ${covered}`,
      WHOLE,
    );
  return { entries, metadata };
}

function fileError(file: string, error: unknown): UserError {
  if (error instanceof UserError) return error;
  const code = error instanceof Error && 'code' in error ? String(error.code) : 'unreadable';
  return new UserError(
    `weights file ${file} ${code === 'ENOENT' ? 'does not exist' : `cannot be read (${code})`}`,
    'check the path',
  );
}

/** Fills `target` from an offset of the file. */
function readFully(fd: number, file: string, target: Uint8Array, position: number): void {
  try {
    const done = readAt(fd, target, position);
    if (done < target.length)
      throw new UserError(
        `${file} ended at byte ${position + done} while it was read`,
        'leave the file alone while it is in use',
      );
  } catch (error) {
    throw fileError(file, error);
  }
}

/**
 * Elements as f32 values; f32 holds all three types without loss. Typed arrays have the machine's byte order, which is
 * the file's (little-endian) wherever Dawn runs.
 */
function decodeElements(dtype: Dtype, bytes: Uint8Array, out: Float32Array, from: number): void {
  if (dtype === 'F32') {
    out.set(new Float32Array(bytes.buffer, bytes.byteOffset, bytes.length / 4), from);
    return;
  }
  const words = new Uint16Array(bytes.buffer, bytes.byteOffset, bytes.length / 2);
  if (dtype === 'BF16') {
    const bits = new Uint32Array(out.buffer, out.byteOffset, out.length);
    for (let i = 0; i < words.length; i++) bits[from + i] = (words[i] as number) << 16;
    return;
  }
  for (let i = 0; i < words.length; i++) out[from + i] = halfValue(words[i] as number);
}

/** An open safetensors file. Close it when done. */
export class SafetensorsFile implements TensorSource {
  readonly shapes: ReadonlyMap<string, readonly number[]>;
  readonly file: string;
  /** Texts of the header's __metadata__; none where it has none. */
  readonly metadata: Readonly<Record<string, string>>;
  private readonly entries: ReadonlyMap<string, Entry>;
  private readonly fd: number;
  private readonly dataStart: number;

  /**
   * @throws UserError, one line with file, place and remedy, for anything that is not a whole, valid file of BF16, F16
   * or F32 tensors
   */
  constructor(path: string) {
    this.file = displayPath(path);
    const { file } = this;
    try {
      if (!statSync(path).isFile())
        throw new UserError(`weights file ${file} is not a regular file`, 'give a .safetensors file');
      // Without O_NONBLOCK, opening a pipe that replaced the file would wait without end.
      this.fd = openSync(path, constants.O_RDONLY | constants.O_NONBLOCK);
    } catch (error) {
      throw fileError(file, error);
    }
    try {
      const stats = fstatSync(this.fd);
      if (!stats.isFile())
        throw new UserError(`weights file ${file} is not a regular file`, 'give a .safetensors file');
      if (stats.size < 10)
        throw new UserError(`${file} has ${stats.size} bytes, fewer than the smallest safetensors file`, WHOLE);
      const prefix = new Uint8Array(8);
      readFully(this.fd, file, prefix, 0);
      const headerBytes = new DataView(prefix.buffer).getBigUint64(0, true);
      if (headerBytes > BigInt(MAX_HEADER_BYTES))
        throw new UserError(
          `${file}: a header of ${headerBytes} bytes is beyond the limit of ${formatBytes(MAX_HEADER_BYTES)}`,
          'check that it is a .safetensors file',
        );
      if (headerBytes > BigInt(stats.size - 8))
        throw new UserError(
          `${file} is cut short: its header takes ${headerBytes} bytes, and the file has ${stats.size}`,
          WHOLE,
        );
      this.dataStart = 8 + Number(headerBytes);
      const header = new Uint8Array(Number(headerBytes));
      readFully(this.fd, file, header, 8);
      let text: string;
      try {
        text = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(header);
      } catch {
        throw new UserError(`${file}: the header is not UTF-8`, 'check that it is a .safetensors file');
      }
      if (!text.startsWith('{'))
        throw new UserError(`${file}: the header does not begin with {`, 'check that it is a .safetensors file');
      const { entries, metadata } = readHeader(file, text, stats.size - this.dataStart);
      this.metadata = metadata;
      this.entries = new Map(entries.map((entry) => [entry.name, entry]));
      this.shapes = new Map([...this.entries].map(([name, entry]) => [name, entry.shape]));
    } catch (error) {
      closeSync(this.fd);
      throw error;
    }
  }

  read(name: string, from = 0, count?: number): Float32Array {
    const entry = this.entries.get(name);
    if (!entry) throw new RangeError(`no tensor ${name}`);
    const length = checkedLength(name, entry.elements, from, count);
    const bytesEach = ELEMENT_BYTES[entry.dtype];
    const values = new Float32Array(length);
    const piece = new Uint8Array(Math.min(PIECE_BYTES, length * bytesEach));
    for (let done = 0; done < length; done += PIECE_BYTES / bytesEach) {
      const bytes = piece.subarray(0, Math.min(piece.length, (length - done) * bytesEach));
      readFully(this.fd, this.file, bytes, this.dataStart + entry.begin + (from + done) * bytesEach);
      decodeElements(entry.dtype, bytes, values, done);
    }
    const bad = values.findIndex((x) => !Number.isFinite(x));
    if (bad >= 0)
      throw new UserError(
        `${this.file}: tensor ${show(name)} holds ${values[bad]} at element ${from + bad}`,
        'use weights without NaN and infinity',
      );
    return values;
  }

  close(): void {
    closeSync(this.fd);
  }
}
