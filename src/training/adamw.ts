/** AdamW (Loshchilov and Hutter, algorithm 2) with clipping by the global norm, for jax-js. */
import { numpy as np, tree } from '@jax-js/jax';
import type { Parameters } from './looped.js';

const [BETA1, BETA2, EPSILON] = [0.9, 0.98, 1e-8];
/** Of matrices; vectors (norms) do not decay. */
const WEIGHT_DECAY = 0.01;
/** Gradients longer than this together are shortened to it. */
const CLIP = 1;

/** Moments of the gradient, by parameter. */
export interface Moments {
  readonly first: Parameters;
  readonly second: Parameters;
}

export function initialMoments(parameters: Parameters): Moments {
  const zeros = (): Parameters => tree.map((x: np.Array) => np.zerosLike(x), tree.ref(parameters));
  return { first: zeros(), second: zeros() };
}

/** Learning rate and bias corrections of step `step` (from 1), as the update takes them. */
export function stepSizes(step: number, rate: number): np.Array {
  return np.array([rate, 1 / (1 - BETA1 ** step), 1 / (1 - BETA2 ** step)]);
}

/** One update, for use inside `jit`. All arrays given are used up. @param sizes of `stepSizes` */
export function update(
  parameters: Parameters,
  gradients: Parameters,
  moments: Moments,
  sizes: np.Array,
): [Parameters, Moments] {
  const names = Object.keys(parameters);
  const squares = names.map((name) => np.square((gradients[name] as np.Array).ref).sum());
  const norm = np.sqrt(squares.reduce((sum, square) => sum.add(square)));
  const shrink = np.minimum(np.array(1), np.array(CLIP).div(norm.add(1e-12)));
  const [rate, correct1, correct2] = np.split(sizes, 3).map((size) => size.reshape([])) as [
    np.Array,
    np.Array,
    np.Array,
  ];
  const out = { parameters: {} as Parameters, first: {} as Parameters, second: {} as Parameters };
  for (const name of names) {
    const value = parameters[name] as np.Array;
    const gradient = (gradients[name] as np.Array).mul(shrink.ref);
    const first = (moments.first[name] as np.Array).mul(BETA1).add(gradient.ref.mul(1 - BETA1));
    const second = (moments.second[name] as np.Array).mul(BETA2).add(np.square(gradient).mul(1 - BETA2));
    const change = first.ref.mul(correct1.ref).div(np.sqrt(second.ref.mul(correct2.ref)).add(EPSILON));
    const decay = value.shape.length > 1 ? WEIGHT_DECAY : 0;
    out.parameters[name] = value.ref.sub(change.add(value.mul(decay)).mul(rate.ref));
    out.first[name] = first;
    out.second[name] = second;
  }
  for (const array of [shrink, rate, correct1, correct2]) array.dispose();
  return [out.parameters, { first: out.first, second: out.second }];
}
