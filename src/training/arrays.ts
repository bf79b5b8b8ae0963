/** Tensors of a model to and from jax-js. Matrices are [outputs, inputs] in files and [inputs, outputs] in training. */
import { defaultDevice, init, numpy as np } from '@jax-js/jax';
import { modelTensors, type TensorSpec } from '../decoder/tensors.js';
import type { TensorSource } from '../decoder/weights.js';
import type { NamedTensor } from '../decoder/write-safetensors.js';
import type { Geometry } from '../geometry/geometry.js';
import { UserError } from '../errors.js';
import { isTrained } from '../tiny/model.js';
import type { Parameters } from './looped.js';

/** Prepares jax-js to compute in WebAssembly. Call once before anything else. */
export async function startJax(): Promise<void> {
  const devices = await init('cpu', 'wasm');
  if (!devices.includes('wasm'))
    throw new UserError('this Node.js runs no WebAssembly with SIMD', 'use Node.js 20.19 or later');
  defaultDevice('wasm');
}

/** The tensors that training changes. */
export const trainedTensors = (g: Geometry): TensorSpec[] => modelTensors(g).filter(isTrained);

function transposed(values: Float32Array, rows: number, columns: number): Float32Array {
  const out = new Float32Array(values.length);
  for (let i = 0; i < rows; i++)
    for (let j = 0; j < columns; j++) out[j * rows + i] = values[i * columns + j] as number;
  return out;
}

/** @param prefix of the names in the source */
export function parametersFrom(g: Geometry, source: TensorSource, prefix = ''): Parameters {
  const out: Parameters = {};
  for (const { name, shape, role } of trainedTensors(g)) {
    const values = source.read(prefix + name);
    const [rows, columns] = shape as [number, number];
    out[name] =
      role === 'matrix'
        ? np.array(transposed(values, rows, columns)).reshape([columns, rows])
        : np.array(values).reshape([...shape]);
  }
  return out;
}

/** The tensors as files have them. The parameters stay usable. */
export async function tensorsOf(g: Geometry, parameters: Parameters, prefix = ''): Promise<NamedTensor[]> {
  const out: NamedTensor[] = [];
  for (const { name, shape, role } of trainedTensors(g)) {
    const values = Float32Array.from((await (parameters[name] as np.Array).ref.data()) as Float32Array);
    const [rows, columns] = shape as [number, number];
    out.push({
      name: prefix + name,
      shape,
      values: role === 'matrix' ? transposed(values, columns, rows) : values,
    });
  }
  return out;
}
