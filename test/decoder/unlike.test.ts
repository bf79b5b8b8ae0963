/** Models unlike Ouro in float64: each against models of the usual layout that compute the same. */
import { describe, expect, it } from 'vitest';
import { refusalOf } from '../../src/codecs/registry.js';
import {
  dot,
  product,
  rmsNorm,
  rotate,
  softmax,
  split,
  swiglu,
  type Matrix,
  type Vector,
} from '../../src/decoder/reference/arithmetic.js';
import { forward } from '../../src/decoder/reference/forward.js';
import { loadModel, type LayerWeights, type Model } from '../../src/decoder/reference/model.js';
import { CHANGE_RATES, EMBEDDING, EMBEDDING_UP, HEAD, HEAD_DOWN, modelTensors } from '../../src/decoder/tensors.js';
import type { TensorSource } from '../../src/decoder/weights.js';
import type { Geometry, LayerStack } from '../../src/geometry/geometry.js';
import { SEED } from '../gpu/random.js';
import { decodeAll, distance, modelOf, promptOf, weightsOf } from './models.js';
import {
  BRANCH_NORMS,
  casesOf,
  CHANGES,
  COPIES,
  GATED_INPUT,
  HEAD_NORMS,
  IN_ROW,
  IN_TURN,
  SHIFTED,
  UNLIKE,
  WINDOWS,
} from './unlike-models.js';
import { expectSame, expectOther, decoderFor, decoded, EXACT } from './account.js';

const LENGTH = 6;
/** Longer than some windows. */
const LONG = 24;

/** A model of another geometry, whose tensors are made from those of the first. */
const remade = (g: Geometry, read: (name: string) => Float32Array): Model =>
  loadModel(g, { shapes: new Map(modelTensors(g).map(({ name, shape }) => [name, shape])), read });

const plus = (a: Vector, b: Vector): Vector => a.map((x, i) => x + b[i]!);
const mlp = (w: LayerWeights, x: Vector): Vector => product(w.down, swiglu(product(w.gate, x), product(w.up, x)));
const embedded = (model: Model, tokens: readonly number[]): Vector[] =>
  tokens.map((t) => model.embedding.data.slice(t * model.geometry.hidden, (t + 1) * model.geometry.hidden));

/** Keys and values of all tokens, by head; keys are rotated. */
type Rows = readonly [keys: Vector[][], values: Vector[][]];
const rowsOf = ({ headDim, rope }: Geometry, w: LayerWeights, inputs: readonly Vector[]): Rows => [
  inputs.map((x, n) => split(product(w.key, x), headDim).map((key) => rotate(key, n, rope))),
  inputs.map((x) => split(product(w.value, x), headDim)),
];
/** Attention of a rotated query to tokens `from` … `to`. */
function attend(query: Vector, [keys, values]: Rows, kv: number, from: number, to: number): number[] {
  const seen = Array.from({ length: to - from + 1 }, (_, i) => from + i);
  const weights = softmax(seen.map((t) => dot(query, keys[t]![kv]!) / Math.sqrt(query.length)));
  return [...query].map((_, i) => weights.reduce((sum, p, j) => sum + p * values[seen[j]!]![kv]![i]!, 0));
}

/** A B of row-major matrices, [rows of A][columns of B]. */
function times(a: TensorSource, left: string, right: string): Float32Array {
  const [rows, inner] = a.shapes.get(left) as [number, number];
  const [, columns] = a.shapes.get(right) as [number, number];
  const values = Float64Array.from(a.read(right));
  const transposed: Matrix = {
    rows: columns,
    columns: inner,
    data: Float64Array.from(
      { length: columns * inner },
      (_, i) => values[(i % inner) * columns + Math.floor(i / inner)]!,
    ),
  };
  const from = Float64Array.from(a.read(left));
  return Float32Array.from(
    Array.from({ length: rows }, (_, r) => [...product(transposed, from.slice(r * inner, (r + 1) * inner))]).flat(),
  );
}

describe(`models unlike Ouro (seed ${SEED})`, () => {
  it('loops in a row are an ordinary model whose layers are there several times running', () => {
    const { loopsInRow: _, ...rest } = IN_ROW;
    const weights = weightsOf(IN_ROW, SEED);
    const unrolled = remade({ ...rest, layers: IN_ROW.layers * IN_ROW.loops, loops: 1 }, (name) =>
      weights.read(name.replace(/layers\.(\d+)/, (_, i) => `layers.${Math.floor(Number(i) / IN_ROW.loops)}`)),
    );
    const tokens = promptOf(IN_ROW, LENGTH, SEED);
    const exact = forward(loadModel(IN_ROW, weights), tokens);
    expectSame(exact, forward(unrolled, tokens));
    if (IN_ROW.layers > 1) expectOther(exact, forward(loadModel(rest, weights), tokens));
  });

  it('tables of a lower rank are products of two', () => {
    const { embeddingRank: _, ...rest } = IN_ROW;
    const weights = weightsOf(IN_ROW, SEED);
    const head = IN_ROW.tiedEmbeddings ? EMBEDDING : HEAD;
    const upTransposed: TensorSource = {
      shapes: new Map([...weights.shapes, ['up', [...(weights.shapes.get(EMBEDDING_UP) as number[])].reverse()]]),
      read: (name) => {
        if (name !== 'up') return weights.read(name);
        const [rows, columns] = weights.shapes.get(EMBEDDING_UP) as [number, number];
        const up = weights.read(EMBEDDING_UP);
        return Float32Array.from(up, (_, i) => up[(i % rows) * columns + Math.floor(i / rows)]!);
      },
    };
    const whole = remade({ ...rest, tiedEmbeddings: false }, (name) =>
      name === EMBEDDING
        ? times(upTransposed, EMBEDDING, 'up')
        : name === HEAD
          ? times(weights, head, HEAD_DOWN)
          : weights.read(name),
    );
    const tokens = promptOf(IN_ROW, LENGTH, SEED);
    // Products are rounded to f32.
    expect(distance(forward(loadModel(IN_ROW, weights), tokens), forward(whole, tokens))).toBeLessThan(1e-4);
  });

  it('stacks in turn are two states, of which each run adds the other to its own', () => {
    const { stacks = [], heads, kvHeads, headDim: d, rope, loops } = IN_TURN;
    const model = modelOf(IN_TURN, SEED);
    const tokens = promptOf(IN_TURN, LENGTH, SEED);
    const plain = (x: Vector): Vector => {
      const size = Math.sqrt(x.reduce((sum, y) => sum + y * y, 0) / x.length + 1e-6);
      return x.map((y) => y / size);
    };
    const layer = (w: LayerWeights, xs: Vector[]): Vector[] => {
      const inputs = xs.map(plain);
      const rows = rowsOf(IN_TURN, w, inputs);
      return xs.map((x, n) => {
        const gates = product(w.attentionGate!, inputs[n]!);
        const queries = split(product(w.query, inputs[n]!), d);
        const attended = Array.from({ length: heads }, (_, head) =>
          attend(rotate(queries[head]!, n, rope), rows, Math.floor((head * kvHeads) / heads), 0, n),
        ).flat();
        const gated = Float64Array.from(attended, (y, i) => y / (1 + Math.exp(-gates[i]!)));
        const y = plus(x, product(w.output, gated));
        return plus(y, mlp(w, plain(y)));
      });
    };
    const [low, high] = stacks as [LayerStack, LayerStack];
    const stack = (layers: readonly LayerWeights[], xs: Vector[]): Vector[] =>
      layers.reduce((ys, w) => layer(w, ys), xs).map(plain);
    let zH = embedded(model, tokens);
    let zL = zH.map(() => model.lowState!);
    const sum = (a: Vector[], b: Vector[]): Vector[] => a.map((x, n) => plus(x, b[n]!));
    for (let loop = 0; loop < loops; loop++) {
      for (let run = 0; run < low.runs; run++) zL = stack(model.layers.slice(0, low.layers), sum(zL, zH));
      for (let run = 0; run < high.runs; run++) zH = stack(model.layers.slice(low.layers), sum(zH, zL));
    }
    const expected = zH.map((x) => product(model.head, x)) as Float64Array[];
    expectSame(forward(model, tokens), expected);
  });

  it.each([WINDOWS, SHIFTED, GATED_INPUT])(
    '$name: later ones mix attention to the first one with that to a window',
    (geometry) => {
      const { laterLoopsWindow: window = 0, heads, kvHeads, headDim: d, rope, layers, loops } = geometry;
      const model = modelOf(geometry, SEED);
      const tokens = promptOf(geometry, LONG, SEED);
      const normed = (x: Vector, w: Vector): Vector => rmsNorm(x, w, 1e-6);
      const begins = embedded(model, tokens);
      let xs = begins;
      const firsts: Rows[] = [];
      for (let loop = 0; loop < loops; loop++) {
        if (loop > 0 && geometry.shiftsLoops) {
          const states = xs;
          const { embedding: a, state: b } = geometry.shiftsLoops;
          xs = begins.map((x, n) => x.map((e, i) => a * e + (n === 0 ? 0 : b * states[n - 1]![i]!)));
        }
        for (let i = 0; i < layers; i++) {
          const w = model.layers[i]!;
          const inputs = xs.map((x) => normed(x, w.attentionNorm!));
          const own = rowsOf(geometry, w, inputs);
          if (loop === 0) firsts[i] = own;
          xs = xs.map((x, n) => {
            const attended = Array.from({ length: heads }, (_, head) => {
              const kv = Math.floor((head * kvHeads) / heads);
              const query = rotate(split(product(w.query, inputs[n]!), d)[head]!, n, rope);
              const global = attend(query, firsts[i]!, kv, 0, n);
              if (loop === 0) return global;
              const local = attend(query, own, kv, Math.max(0, n - window + 1), n);
              const { weight, bias, norm } = w.loopGate!;
              const of = norm ? normed(x, norm) : query;
              const gate = weight.data.slice(head * of.length, (head + 1) * of.length);
              const g = 1 / (1 + Math.exp(-dot(of, gate) - bias[head]!));
              return global.map((y, j) => g * y + (1 - g) * local[j]!);
            }).flat();
            const y = plus(x, product(w.output, Float64Array.from(attended)));
            return plus(y, mlp(w, normed(y, w.mlpNorm!)));
          });
        }
        if (geometry.normAfterEachLoop) xs = xs.map((x) => normed(x, model.norm));
      }
      const expected = xs.map((x) =>
        product(model.head, geometry.normAfterEachLoop ? x : normed(x, model.norm)),
      ) as Float64Array[];
      expectSame(forward(model, tokens), expected);
      const decoder = decoderFor(model, { codec: { kind: 'full' } });
      expectSame(decodeAll(decoder, tokens), expected);
      const prompted = decoderFor(model, { codec: { kind: 'full' } });
      expectSame(prompted.prefill(tokens, 'chunked', 5) as Float64Array[], expected);
    },
  );

  it.each([HEAD_NORMS, BRANCH_NORMS])('$name: a norm forgets the size of what it takes', (geometry) => {
    const tokens = promptOf(geometry, LENGTH, SEED);
    const weights = weightsOf(geometry, SEED);
    /** Logits with tensors times a number for each so many of their rows. */
    const with_ = (part: RegExp, rows = Infinity): Float64Array[] => {
      const read = (name: string): Float32Array => {
        const values = weights.read(name);
        const each = rows * (weights.shapes.get(name)?.[1] ?? 1);
        return part.test(name) ? values.map((x, i) => x * (2 + Math.floor(i / each))) : values;
      };
      return forward(loadModel(geometry, { shapes: weights.shapes, read }, 1e-15), tokens);
    };
    const plain = with_(/^$/);
    const { headDim, normsOfBranches } = geometry;
    expectSame(plain, with_(/self_attn\.[qk]_proj/));
    // Norms of rows keep what heads are to each other.
    expect(distance(plain, with_(/self_attn\.[qk]_proj/, headDim)) < EXACT).toBe(!normsOfBranches);
    expectOther(plain, with_(/self_attn\.q_norm/));
    expect(distance(plain, with_(/(o|down)_proj/)) < EXACT).toBe(normsOfBranches === true);
    expect(distance(plain, with_(/embed_tokens/)) < EXACT).toBe(false);
  });

  it('shares of changes: none is kept where rates are high, all where they are low', () => {
    const { changeRank: _rank, extraParameters: _extra, ...plain } = CHANGES;
    const tokens = promptOf(CHANGES, LENGTH, SEED);
    const weights = weightsOf(CHANGES, SEED);
    const at = (logRate: number): Float64Array[] => {
      const read = (name: string): Float32Array =>
        name === CHANGE_RATES ? new Float32Array(CHANGES.hidden).fill(logRate) : weights.read(name);
      return forward(loadModel(CHANGES, { shapes: weights.shapes, read }), tokens);
    };
    const all = forward(loadModel(plain, weights), tokens);
    expectSame(at(-60), all);
    const without = forward(
      loadModel(plain, {
        shapes: weights.shapes,
        // Layers of the core add nothing.
        read: (name) => {
          const stored = Number(/layers\.(\d+)\.(?:self_attn\.o|mlp\.down)_proj/.exec(name)?.[1] ?? -1);
          const core = stored >= plain.preludeLayers && stored < plain.preludeLayers + plain.layers;
          return core ? weights.read(name).fill(0) : weights.read(name);
        },
      }),
      tokens,
    );
    expectSame(at(60), without);
    expectOther(at(0), all);
  });

  it('keys as values are a model whose two projections are the same', () => {
    const { copiesKeys: _, ...plain } = COPIES;
    const tokens = promptOf(COPIES, LENGTH, SEED);
    const weights = weightsOf(COPIES, SEED);
    const both = remade(plain, (name) => weights.read(name.replace('v_proj', 'k_proj')));
    expectSame(forward(loadModel(COPIES, weights), tokens), forward(both, tokens));
  });

  it('cla is refused where layers do not follow one another', () => {
    expect(refusalOf({ ...IN_ROW, layers: 2 }, { kind: 'cla', shareLayers: 2 })).toContain(
      'run all their loops before',
    );
  });

  it.each(UNLIKE)('$name over a full cache is the forward pass', (g) => {
    const model = modelOf(g, SEED);
    const tokens = promptOf(g, LENGTH, SEED);
    const steps = decoded(model, { codec: { kind: 'full' } }, tokens);
    expectSame(steps, forward(model, tokens));
    expect(casesOf(g).length).toBeGreaterThan(3);
  });
});
