/** Packs the uniform block of a kernel by the names of its struct in WGSL. */
import { codeOf } from '../../kernels/source.js';
import type { Uniforms } from '../../kernels/host/plan.js';

type Scalar = 'u32' | 'i32' | 'f32';

/** A number of a block: where its value is found, and its type. Every one takes four bytes, in order. */
interface Field {
  readonly path: readonly string[];
  readonly name: string;
  /** Fills a struct up: 0 unless given. */
  readonly spare: boolean;
  readonly type: Scalar;
}

const known = new Map<string, readonly Field[]>();

/** Members of a struct in order, each with its type. */
function membersOf(code: string, name: string): (readonly [string, string])[] {
  const body = new RegExp(`\\bstruct ${name}\\{([^}]*)\\}`).exec(code)?.[1];
  if (body === undefined) throw new Error(`no struct ${name} in WGSL`);
  return body
    .split(',')
    .filter((member) => member !== '')
    .map((member) => {
      const [, own, type] = /^(\w+):(\w+)$/.exec(member) ?? [];
      if (own === undefined || type === undefined) throw new Error(`struct ${name}: ${member} cannot be packed`);
      return [own, type] as const;
    });
}

/** Numbers of a struct, those of the structs in it included. */
const fieldsOf = (code: string, struct: string, before: readonly string[] = []): Field[] =>
  membersOf(code, struct).flatMap(([member, type]) => {
    const path = [...before, member];
    if (type !== 'u32' && type !== 'i32' && type !== 'f32') return fieldsOf(code, type, path);
    const name = path.join('.');
    return [{ path, name, spare: /^spare\d*$/.test(name), type }];
  });

/** Numbers of the uniform block of a source with its includes. */
function blockOf(source: string): readonly Field[] {
  const found = known.get(source);
  if (found) return found;
  const code = codeOf(source);
  const struct = /\bvar<uniform>\w+:(\w+);/.exec(code)?.[1];
  if (struct === undefined) throw new Error('no uniform block in WGSL');
  const fields = fieldsOf(code, struct);
  known.set(source, fields);
  return fields;
}

function countOf(values: Uniforms): number {
  let count = 0;
  for (const key in values) {
    const value = values[key] as number | Uniforms;
    count += typeof value === 'number' ? 1 : countOf(value);
  }
  return count;
}

const namesOf = (values: Uniforms, path = ''): string[] =>
  Object.entries(values).flatMap(([name, value]) =>
    typeof value === 'number' ? [`${path}${name}`] : namesOf(value, `${path}${name}.`),
  );

/**
 * The bytes of a source's uniform block, padded to the 16 that a uniform binding needs at least. Members named `spare`
 * fill a struct up; they are 0 unless given.
 * @throws Error for a member without a value, a value without a member, and a number that does not fit its type
 */
export function packUniforms(source: string, values: Uniforms): ArrayBuffer {
  const fields = blockOf(source);
  const bytes = new ArrayBuffer(Math.max(16, Math.ceil(fields.length / 4) * 16));
  const view = new DataView(bytes);
  let used = 0;
  fields.forEach(({ path, name, spare, type }, i) => {
    let given: number | Uniforms | undefined = values;
    for (const key of path) given = typeof given === 'object' ? given[key] : undefined;
    if (given !== undefined) used++;
    const value = given ?? (spare ? 0 : undefined);
    if (typeof value !== 'number') throw new Error(`uniform ${name} has no value`);
    if (type === 'f32') return view.setFloat32(4 * i, value, true);
    const [least, most] = type === 'u32' ? [0, 2 ** 32 - 1] : [-(2 ** 31), 2 ** 31 - 1];
    if (!Number.isInteger(value) || value < least || value > most)
      throw new Error(`uniform ${name} must be of type ${type}, not ${value}`);
    view.setUint32(4 * i, value >>> 0, true);
  });
  if (countOf(values) > used) {
    const known = new Set(fields.map(({ name }) => name));
    throw new Error(
      `no such uniform: ${namesOf(values)
        .filter((name) => !known.has(name))
        .join(', ')}`,
    );
  }
  return bytes;
}
