/** The safetensors reader on good, damaged and hostile files. */
import { execFileSync } from 'node:child_process';
import { symlinkSync } from 'node:fs';
import { join } from 'node:path';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { SafetensorsFile } from '../../src/decoder/safetensors.js';
import { repeatedKey } from '../../src/decoder/json-keys.js';
import { UserError } from '../../src/errors.js';
import { halfValue } from '../../kernels/host/half.js';
import { SEED } from '../gpu/random.js';
import { fileOf, type PlainTensor, removeTemporary, safetensors, temporary, temporaryFolder } from './files.js';

removeTemporary();

const small = (): Record<string, PlainTensor> => ({
  a: { dtype: 'F32', shape: [2, 3], values: [1, -2.5, 3e-8, 4e10, -0, 6] },
  b: { dtype: 'BF16', shape: [4], values: [1, -0.5, 2 ** 100, 2 ** -126] },
  c: { dtype: 'F16', shape: [3, 1], values: [0.25, -65504, 2 ** -24] },
  none: { dtype: 'F16', shape: [0, 7], values: [] },
});

/** Opens, reads everything, closes. */
function readAll(contents: Buffer): Map<string, Float32Array> {
  const file = new SafetensorsFile(temporary(contents, 'fuzzed.safetensors'));
  try {
    return new Map([...file.shapes.keys()].map((name) => [name, file.read(name)]));
  } finally {
    file.close();
  }
}

const refusal = (contents: Buffer): string => {
  try {
    readAll(contents);
  } catch (error) {
    if (!(error instanceof UserError)) throw error;
    expect(error.message).toContain('.safetensors');
    expect(error.message).not.toContain('\n');
    expect(error.hint).not.toBe('');
    return error.message;
  }
  throw new Error('not refused');
};

describe('safetensors', () => {
  it('reads all three types without loss, in whole and in part', () => {
    const file = new SafetensorsFile(temporary(safetensors(small(), { format: 'pt' })));
    for (const [name, { shape, values }] of Object.entries(small())) {
      expect(file.shapes.get(name)).toEqual(shape);
      expect([...file.read(name)]).toEqual(values.map(Math.fround));
    }
    expect([...file.read('a', 2, 3)]).toEqual([3e-8, 4e10, -0].map(Math.fround));
    expect(() => file.read('a', 5, 2)).toThrow(RangeError);
    expect(() => file.read('z')).toThrow(RangeError);
    file.close();
  });

  it('reads tensors of more than one piece', () => {
    const values = Array.from({ length: 2 ** 20 + 5 }, (_, i) => (i % 251) - 125);
    for (const dtype of ['F32', 'BF16'] as const) {
      const [read] = [
        ...readAll(
          safetensors({ x: { dtype: 'F32', shape: [1], values: [7] }, y: { dtype, shape: [values.length], values } }),
        ).values(),
      ].slice(1);
      expect(Buffer.from(read!.buffer).equals(Buffer.from(Float32Array.from(values).buffer))).toBe(true);
    }
  });

  it('follows links, as model caches have them', () => {
    const link = join(temporaryFolder(), 'link.safetensors');
    symlinkSync(temporary(safetensors(small())), link);
    const file = new SafetensorsFile(link);
    expect(file.shapes.size).toBe(4);
    file.close();
  });

  const one = (fields: string, bytes = 4, name = '"x"'): Buffer => fileOf(`{${name}:{${fields}}}`, Buffer.alloc(bytes));
  const f32 = (shape: string, offsets: string, bytes?: number): Buffer =>
    one(`"dtype":"F32","shape":${shape},"data_offsets":${offsets}`, bytes);
  const good = '"dtype":"F32","shape":[1],"data_offsets":[0,4]';
  it.each<[string, Buffer, RegExp]>([
    ['empty', Buffer.alloc(0), /has 0 bytes/],
    ['cut in the length', Buffer.alloc(5, 1), /has 5 bytes/],
    [
      'a header length beyond the file',
      Buffer.concat([Buffer.from([200, 0, 0, 0, 0, 0, 0, 0]), Buffer.from('{}')]),
      /cut short: its header takes 200 bytes/,
    ],
    [
      'a header length of 2^64 − 1',
      Buffer.concat([Buffer.alloc(8, 255), Buffer.from('{}')]),
      /header of 18446744073709551615 bytes is beyond/,
    ],
    ['not JSON', fileOf('{"x":', Buffer.alloc(0)), /not valid JSON/],
    ['a list', fileOf('[]       ', Buffer.alloc(0)), /does not begin with \{/],
    ['not UTF-8', Buffer.concat([Buffer.from([3, 0, 0, 0, 0, 0, 0, 0]), Buffer.from([0x7b, 0xff, 0x7d])]), /not UTF-8/],
    ['a byte-order mark', fileOf('\ufeff{}', Buffer.alloc(0)), /does not begin with/],
    ['truncated data', one(good, 3), /cut short: it has 3 bytes of data, its header describes 4/],
    ['more data', one(good, 5), /too long: it has 5 bytes of data, its header describes 4/],
    ['another type', one('"dtype":"I64","shape":[1],"data_offsets":[0,4]'), /dtype "I64"; only BF16, F16 and F32/],
    ['a type of the prototype', one('"dtype":"constructor","shape":[1],"data_offsets":[0,4]'), /dtype "constructor"/],
    ['no type', one('"shape":[1],"data_offsets":[0,4]'), /dtype undefined/],
    ['a negative size', f32('[-1]', '[0,4]'), /shape \[-1\]/],
    ['a broken size', f32('[0.5]', '[0,2]'), /shape \[0.5\]/],
    ['a size beyond integers', f32('[9007199254740993]', '[0,4]'), /shape/],
    ['a product that overflows', f32('[4294967296,4294967296]', '[0,4]'), /more elements than a file can hold/],
    [
      'a product that wraps in 64 bits',
      f32('[4294967296,4294967296,4294967296,4294967296,1]', '[0,0]', 0),
      /more elements/,
    ],
    ['nine dimensions', f32(`[${Array(9).fill(1).join()}]`, '[0,4]'), /at most 8 sizes/],
    ['offsets the wrong way', f32('[1]', '[4,0]'), /takes -4 bytes/],
    ['a shape of other size than its bytes', f32('[2]', '[0,4]'), /takes 4 bytes .* takes 8/],
    ['three offsets', f32('[1]', '[0,4,8]'), /not two offsets/],
    ['an unknown field', one(`${good},"extra":1`), /a field "extra"/],
    ['a hole', f32('[1]', '[4,8]', 8), /bytes 0 to 4 of the data belong to no tensor/],
    [
      'an overlap',
      fileOf(`{"x":{${good}},"y":{"dtype":"F32","shape":[1],"data_offsets":[2,6]}}`, Buffer.alloc(6)),
      /"y" begins at byte 2 of the data, inside the tensor before it/,
    ],
    ['the same bytes twice', fileOf(`{"x":{${good}},"y":{${good}}}`, Buffer.alloc(4)), /inside the tensor before it/],
    ['a name twice', fileOf(`{"x":{${good}},"x":{${good}}}`, Buffer.alloc(4)), /names "x" twice/],
    [
      'a name twice in other spelling',
      fileOf(`{"x":{${good}},"\\u0078":{${good}}}`, Buffer.alloc(4)),
      /names "x" twice/,
    ],
    ['a field twice', one(`${good},"shape":[1]`), /names "shape" twice/],
    ['metadata that is no object', fileOf('{"__metadata__":[]}', Buffer.alloc(0)), /__metadata__ must map/],
    ['a tensor that is null', fileOf('{"x":null}', Buffer.alloc(0)), /must be an object/],
    [
      'a name with line ends',
      one(good.replace('F32', 'U8'), 4, '"x\\nError: all is well"'),
      /"x\\nError: all is well"/,
    ],
    ['NaN', safetensors({ x: { dtype: 'F16', shape: [3], values: [1, NaN, 2] } }), /tensor "x" holds NaN at element 1/],
    [
      'infinity',
      safetensors({ x: { dtype: 'BF16', shape: [2], values: [1, -Infinity] } }),
      /holds -Infinity at element 1/,
    ],
  ])('refuses %s', (_, contents, pattern) => {
    expect(refusal(contents)).toMatch(pattern);
  });

  it('takes a tensor named __proto__ as any other', () => {
    const values = readAll(one(good, 4, '"__proto__"'));
    expect([...values.keys()]).toEqual(['__proto__']);
  });

  it.each([
    ['/dev/zero', 'not a regular file'],
    ['/', 'not a regular file'],
    ['/nowhere/x.safetensors', 'does not exist'],
  ])('refuses %s', (path, why) => {
    expect(() => new SafetensorsFile(path)).toThrow(why);
  });

  it('does not wait for a pipe', () => {
    const pipe = join(temporaryFolder(), 'pipe.safetensors');
    execFileSync('mkfifo', [pipe]);
    expect(() => new SafetensorsFile(pipe)).toThrow('not a regular file');
  });

  it('says so when the file shrinks while it is open', () => {
    const path = temporary(safetensors(small()));
    const file = new SafetensorsFile(path);
    execFileSync('truncate', ['-s', '-30', path]);
    expect(() => [...file.shapes.keys()].map((name) => file.read(name))).toThrow(/ended at byte \d+ while it was read/);
    file.close();
  });

  it('of a mutated file yields a refusal or exactly what the file says', () => {
    const mutation = fc.oneof(
      fc.record({ kind: fc.constant('set' as const), at: fc.nat(), byte: fc.integer({ min: 0, max: 255 }) }),
      fc.record({ kind: fc.constant('digit' as const), at: fc.nat(), byte: fc.integer({ min: 48, max: 57 }) }),
      fc.record({ kind: fc.constant('cut' as const), at: fc.nat(), byte: fc.nat(40) }),
      fc.record({ kind: fc.constant('insert' as const), at: fc.nat(), byte: fc.integer({ min: 0, max: 255 }) }),
      fc.record({ kind: fc.constant('end' as const), at: fc.nat(60), byte: fc.constant(0) }),
    );
    const original = safetensors(small(), { format: 'pt' });
    let opened = 0;
    fc.assert(
      fc.property(fc.array(mutation, { maxLength: 4 }), (mutations) => {
        let contents = Buffer.from(original);
        for (const { kind, at, byte } of mutations) {
          const i = at % (contents.length + 1);
          if (kind === 'cut') contents = Buffer.concat([contents.subarray(0, i), contents.subarray(i + byte)]);
          else if (kind === 'insert')
            contents = Buffer.concat([contents.subarray(0, i), Buffer.from([byte]), contents.subarray(i)]);
          else if (kind === 'end') contents = contents.subarray(0, contents.length - at);
          else if (i < contents.length) contents[i] = byte;
        }
        let read: Map<string, Float32Array>;
        try {
          read = readAll(contents);
        } catch (error) {
          if (!(error instanceof UserError)) throw error;
          return;
        }
        opened++;
        const length = Number(contents.readBigUInt64LE(0));
        const header = JSON.parse(contents.toString('utf8', 8, 8 + length)) as Record<
          string,
          { dtype: string; data_offsets: [number, number] }
        >;
        for (const [name, values] of read) {
          const {
            dtype,
            data_offsets: [begin, end],
          } = header[name]!;
          const data = contents.subarray(8 + length + begin, 8 + length + end);
          const bytesEach = dtype === 'F32' ? 4 : 2;
          expect(values).toHaveLength(data.length / bytesEach);
          values.forEach((x, i) => {
            const bits = bytesEach === 4 ? data.readUInt32LE(4 * i) : data.readUInt16LE(2 * i);
            const word = Buffer.alloc(4);
            word.writeUInt32LE(dtype === 'BF16' ? bits * 2 ** 16 : bits);
            expect(x).toBe(dtype === 'F16' ? halfValue(bits) : word.readFloatLE(0));
          });
        }
      }),
      { seed: SEED, numRuns: 600 },
    );
    expect(opened).toBeGreaterThan(50);
  });
});

describe('repeatedKey', () => {
  it('finds a key that an object has twice, at any depth, and nothing else', () => {
    fc.assert(
      fc.property(fc.jsonValue({ maxDepth: 4 }), (value) => {
        expect(repeatedKey(JSON.stringify(value, null, 1))).toBeUndefined();
        const text = JSON.stringify(value);
        expect(repeatedKey(`[${text},{"a\\"":${text},"b":1,"a\\u0022":${text}}]`)).toBe('a"');
      }),
      { seed: SEED },
    );
    expect(repeatedKey('{"a":{"b":1},"c":{"b":2},"d":["a","a"]}')).toBeUndefined();
  });
});
