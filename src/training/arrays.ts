/** Tensors to and from jax-js. Matrices are [outputs, inputs] in files and [inputs, outputs] in training. */
import { numpy as np } from '@jax-js/jax';
import { modelTensors, type TensorSpec } from '../decoder/tensors.js';
import type { NamedTensor, TensorSource } from '../decoder/weights.js';
import type { Geometry } from '../geometry/geometry.js';
import { isTrained } from '../tiny/model.js';
import { initialMoments, type Moments } from './adamw.js';
import type { Parameters } from './looped.js';

export const trainedTensors = (g: Geometry): TensorSpec[] => modelTensors(g).filter(isTrained);

/** A tensor that is trained; matrices alone are transposed. */
export type Trained = Pick<TensorSpec, 'name' | 'shape'> & Partial<Pick<TensorSpec, 'role'>>;

function transposed(values: Float32Array, rows: number, columns: number): Float32Array {
  const out = new Float32Array(values.length);
  for (let i = 0; i < rows; i++)
    for (let j = 0; j < columns; j++) out[j * rows + i] = values[i * columns + j] as number;
  return out;
}

/** @param prefix of the names in the source */
export function parametersFrom(trained: readonly Trained[], source: TensorSource, prefix = ''): Parameters {
  const out: Parameters = {};
  for (const { name, shape, role } of trained) {
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
export async function tensorsOf(
  trained: readonly Trained[],
  parameters: Parameters,
  prefix = '',
): Promise<NamedTensor[]> {
  const out: NamedTensor[] = [];
  for (const { name, shape, role } of trained) {
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

/** Parameters and moments. */
interface State {
  readonly parameters: Parameters;
  readonly moments: Moments;
}

/** Parameters that are trained. */
export abstract class Training {
  protected state: State;

  /** @param source what `saved` gave; or tensors to begin with, whose moments are zero */
  constructor(
    protected readonly trained: readonly Trained[],
    source: TensorSource,
  ) {
    const parameters = parametersFrom(trained, source);
    const moments = source.shapes.has(`first.${trained[0]?.name}`)
      ? { first: parametersFrom(trained, source, 'first.'), second: parametersFrom(trained, source, 'second.') }
      : initialMoments(parameters);
    this.state = { parameters, moments };
  }

  weights(): Promise<NamedTensor[]> {
    return tensorsOf(this.trained, this.state.parameters);
  }

  /** Tensors and moments: what a training goes on from. */
  async saved(): Promise<NamedTensor[]> {
    const { trained, state } = this;
    const { first, second } = state.moments;
    return [
      ...(await tensorsOf(trained, state.parameters)),
      ...(await tensorsOf(trained, first, 'first.')),
      ...(await tensorsOf(trained, second, 'second.')),
    ];
  }
}
