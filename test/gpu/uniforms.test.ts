/** Uniform blocks are packed by the names of their struct in WGSL. */
import { expect, test } from 'vitest';
import { representativeCalls } from '../../src/bench/regression/cases.js';
import { packUniforms } from '../../src/gpu/uniforms.js';
import { planOperation } from '../../kernels/launches.js';
import { KERNEL_NAMES } from '../../kernels/registry.js';
import { loadSource } from '../../kernels/source.js';

const SOURCE = `
struct Row { width: u32, tail: i32 }   // of a cache
struct Params {
  count: u32,   // rows, all of them
  row: Row,
  scale: f32,
  spare: u32,
}
@group(0) @binding(0) var<uniform> params: Params;
`;
const VALUES = { count: 7, row: { width: 2 ** 32 - 1, tail: -2 }, scale: 0.5 };

test('numbers lie in the order of the struct, in its types; what is spare is 0', () => {
  const bytes = packUniforms(SOURCE, { scale: 0.5, row: { tail: -2, width: 2 ** 32 - 1 }, count: 7 });
  const view = new DataView(bytes);
  expect(bytes.byteLength).toBe(32);
  expect([0, 1].map((i) => view.getUint32(4 * i, true))).toEqual([7, 2 ** 32 - 1]);
  expect(view.getInt32(8, true)).toBe(-2);
  expect(view.getFloat32(12, true)).toBe(0.5);
  expect(view.getUint32(16, true)).toBe(0);
});

test.each([
  ['a missing number', { row: VALUES.row, scale: 1 }, 'uniform count has no value'],
  ['a missing member of a struct', { ...VALUES, row: { width: 1 } }, 'uniform row.tail has no value'],
  ['a number in place of a struct', { ...VALUES, row: 3 }, 'uniform row.width has no value'],
  ['a name too many', { ...VALUES, stride: 1 }, 'no such uniform: stride'],
  ['a name too many in a struct', { ...VALUES, row: { ...VALUES.row, units: 1 } }, 'no such uniform: row.units'],
  ['a fraction', { ...VALUES, count: 1.5 }, 'uniform count must be of type u32, not 1.5'],
  ['a negative count', { ...VALUES, count: -1 }, 'uniform count must be of type u32, not -1'],
])('%s is refused', (_, values, message) => {
  expect(() => packUniforms(SOURCE, values)).toThrow(message);
});

test('a member that is no number and no struct of numbers is refused', () => {
  expect(() => packUniforms(SOURCE.replace('scale: f32', 'scale: vec2f'), VALUES)).toThrow('no struct vec2f');
  expect(() => packUniforms('fn main() {}', {})).toThrow('no uniform block');
});

test('every kernel gives its block the names that its WGSL has', () => {
  const calls = [true, false].flatMap((software) => representativeCalls(software).map((call) => ({ call, software })));
  expect(new Set(calls.map(({ call }) => call.kernel))).toEqual(new Set(KERNEL_NAMES));
  for (const { call, software } of calls)
    for (const matrixUnits of [false, true])
      for (const { source, element, uniforms } of planOperation(call, { software, matrixUnits }).steps)
        expect(() => packUniforms(loadSource(source, element), uniforms), `${call.kernel}: ${source}`).not.toThrow();
});
