/** The network's own parts: single operations by hand, and what each switch of a geometry does to the whole. */
import { describe, expect, it } from 'vitest';
import { product, rmsNorm, rotate, softmax, swiglu, type Vector } from '../../src/decoder/reference/arithmetic.js';
import { forward } from '../../src/decoder/reference/forward.js';
import { loadModel, type Model } from '../../src/decoder/reference/model.js';
import { modelTensors } from '../../src/decoder/tensors.js';
import type { TensorSource } from '../../src/decoder/weights.js';
import type { Geometry } from '../../src/geometry/geometry.js';
import { SEED } from '../gpu/random.js';
import { distance, GEOMETRIES, modelOf, promptOf, weightsOf } from './models.js';
import { expectOther } from './account.js';

const EXACT = 1e-12;
const [ouro, huginn, grouped, ordinary] = GEOMETRIES as [Geometry, Geometry, Geometry, Geometry];

/** A model with some tensors changed. */
function changed(g: Geometry, change: (name: string, values: Float32Array) => Float32Array, epsilon?: number): Model {
  const source = weightsOf(g, SEED);
  const edited: TensorSource = { shapes: source.shapes, read: (name) => change(name, source.read(name)) };
  return loadModel(g, edited, epsilon);
}
const zeroed = (pattern: RegExp) => (name: string, values: Float32Array) =>
  pattern.test(name) ? values.fill(0) : values;
const embeddingOf = (model: Model, token: number): Vector =>
  model.embedding.data.slice(token * model.geometry.hidden, (token + 1) * model.geometry.hidden);

describe('operations', () => {
  it('are what their definitions say', () => {
    const x = Float64Array.from([3, 4]);
    expect([...rmsNorm(x, Float64Array.from([1, 2]), 0)]).toEqual([3 / Math.sqrt(12.5), 8 / Math.sqrt(12.5)]);
    expect(rmsNorm(x, Float64Array.from([1, 1]), 87.5)[0]).toBeCloseTo(0.3, 12);
    expect([
      ...product(
        { rows: 3, columns: 2, data: Float64Array.from([1, 0, 0, 1, 1, -1]) },
        x,
        Float64Array.from([0, 0, 10]),
      ),
    ]).toEqual([3, 4, 9]);
    expect(swiglu(Float64Array.from([2]), Float64Array.from([3]))[0]).toBeCloseTo(6 / (1 + Math.exp(-2)), 12);
    expect(softmax([1000, 1000 + Math.log(3)])[1]).toBeCloseTo(0.75, 12);
  });

  it('rotate turns pairs by position · θ^(−2m/d): half-split and adjacent are the same up to the order', () => {
    const rope = { theta: 100, pairing: 'half-split' } as const;
    const y = rotate(Float64Array.from([1, 0, 0, 2]), 5, rope);
    [Math.cos(5), -2 * Math.sin(0.5), Math.sin(5), 2 * Math.cos(0.5)].forEach((expected, i) =>
      expect(y[i]).toBeCloseTo(expected, 12),
    );
    const adjacent = rotate(Float64Array.from([1, 0, 0, 2]), 5, { theta: 100, pairing: 'adjacent' });
    [Math.cos(5), Math.sin(5), -2 * Math.sin(0.5), 2 * Math.cos(0.5)].forEach((expected, i) =>
      expect(adjacent[i]).toBeCloseTo(expected, 12),
    );
    const twice = rotate(rotate(Float64Array.from([1, 2, 3, 4]), 7, rope), -9, rope);
    rotate(Float64Array.from([1, 2, 3, 4]), -2, rope).forEach((expected, i) =>
      expect(twice[i]).toBeCloseTo(expected, 12),
    );
  });
});

describe('network (seed ' + SEED + ')', () => {
  it('with layers that add nothing is embedding, shared norm a loop, head', () => {
    const tokens = promptOf(ouro, 3, SEED);
    const model = changed(ouro, zeroed(/layernorm_2/), 0.01);
    const expected = tokens.map((token) => {
      let x = embeddingOf(model, token);
      for (let loop = 0; loop < ouro.loops; loop++) x = rmsNorm(x, model.norm, 0.01);
      return product(model.head, x);
    });
    expect(distance(forward(model, tokens), expected)).toBeLessThan(EXACT);
    const once = changed(grouped, zeroed(/o_proj|down_proj/));
    expect(
      distance(forward(once, [4]), [
        product(once.head, rmsNorm(rmsNorm(embeddingOf(once, 4), once.norm, 1e-6), once.norm, 1e-6)),
      ]),
    ).toBeLessThan(EXACT);
    const plain = changed(ordinary, zeroed(/o_proj|down_proj/));
    expect(
      distance(forward(plain, [4]), [product(plain.head, rmsNorm(embeddingOf(plain, 4), plain.norm, 1e-6))]),
    ).toBeLessThan(EXACT);
  });

  it('one token attends to itself alone: a layer is n2(W_o W_v n1(x)), then the MLP', () => {
    const model = modelOf({ ...ouro, layers: 1, loops: 1 }, SEED);
    const [layer] = model.layers as [Model['layers'][number]];
    const x = embeddingOf(model, 7);
    const add = (a: Vector, b: Vector): Vector => a.map((v, i) => v + b[i]!);
    const norm = (v: Vector, weight: Vector | undefined): Vector => rmsNorm(v, weight!, 1e-6);
    const attended = add(
      x,
      norm(product(layer.output, product(layer.value, norm(x, layer.attentionNorm))), layer.attentionOutNorm),
    );
    const input = norm(attended, layer.mlpNorm);
    const out = add(
      attended,
      norm(product(layer.down, swiglu(product(layer.gate, input), product(layer.up, input))), layer.mlpOutNorm),
    );
    expect(distance(forward(model, [7]), [product(model.head, norm(out, model.norm))])).toBeLessThan(EXACT);
  });

  it('loops use the same weights: more loops, another result from the same tensors', () => {
    const tokens = promptOf(ouro, 3, SEED);
    expect(modelTensors({ ...ouro, loops: 9 })).toEqual(modelTensors(ouro));
    expectOther(forward(modelOf({ ...ouro, loops: 9 }, SEED), tokens), forward(modelOf(ouro, SEED), tokens), 1e-3);
  });

  it('biases of q and k, or of v as well, are used where the geometry has them', () => {
    const tokens = promptOf(huginn, 4, SEED);
    for (const [g, pattern] of [
      [huginn, /q_proj.bias/],
      [ordinary, /k_proj.bias/],
      [ordinary, /v_proj.bias/],
    ] as const) {
      // A key's bias turns with its position, so it does not cancel in softmax.
      expectOther(forward(changed(g, zeroed(pattern)), tokens), forward(modelOf(g, SEED), tokens));
    }
  });

  it('refuses weights that are missing or of another shape', () => {
    const specs = modelTensors(ouro);
    const source = (list: typeof specs): TensorSource => weightsOf(ouro, SEED, list);
    expect(() => loadModel(ouro, source(specs.slice(1)))).toThrow(
      'the weights of ouro-like: "model.embed_tokens.weight" is missing',
    );
    expect(() => loadModel(ouro, source(modelTensors({ ...ouro, mlpHidden: 21 })))).toThrow(
      'mlp.gate_proj.weight has shape [21,12], where [20,12] is needed',
    );
  });
});
