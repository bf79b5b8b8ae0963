/** Maps of rotated latents that lose nothing: orthogonal mixtures of all keys and of all values of the loops. */
import type { Codec } from '../../src/codecs/codec.js';
import type { Model } from '../../src/decoder/reference/model.js';
import { codecTensors, hybridTensor } from '../../src/decoder/tensors.js';
import type { TensorSource } from '../../src/decoder/weights.js';
import type { Random } from '../gpu/random.js';
import { BRANCH } from './models.js';

/** A random orthogonal matrix, row-major: Gram and Schmidt. */
function orthogonal(n: number, random: Random): number[][] {
  const rows: number[][] = [];
  while (rows.length < n) {
    let row = Array.from({ length: n }, () => random.whole(-1000, 1000) / 1000);
    for (const other of rows) {
      const inner = row.reduce((sum, x, i) => sum + x * other[i]!, 0);
      row = row.map((x, i) => x - inner * other[i]!);
    }
    const size = Math.hypot(...row);
    if (size > 0.1) rows.push(row.map((x) => x / size));
  }
  return rows;
}

/** Components of pair f of a head. */
const pair = (f: number, d: number, pairing: string): [number, number] =>
  pairing === 'adjacent' ? [2 * f, 2 * f + 1] : [f, f + d / 2];

/** E, A and B at full ranks, where every loop and head is a KV head of its own: key pairs are mixed by frequency. */
export function exactMaps(model: Model, codec: Codec, random: Random): TensorSource {
  const g = model.geometry;
  const { headDim: d, hidden, kvHeads, loops, rope } = g;
  const tensors = new Map<string, Float32Array>();
  for (let layer = 0; layer < g.layers; layer++) {
    for (const part of ['first', 'shared'] as const) {
      const count = (part === 'first' ? 1 : loops - 1) * kvHeads;
      const rank = count * d;
      const rows = part === 'first' ? 1 : loops - 1;
      const encode = new Float32Array(rows * hidden * 2 * rank);
      const [key, value] = [new Float32Array(rank * rank), new Float32Array(rank * rank)];
      const { key: keys, value: values } = model.layers[layer]!;
      const mixtures = Array.from({ length: d / 2 }, () => orthogonal(count, random));
      const whole = orthogonal(rank, random);
      for (let n = 0; n < count; n++) {
        const [loop, head] = [Math.floor(n / kvHeads), n % kvHeads];
        for (let f = 0; f < d / 2; f++)
          for (const [from, to] of pair(f, d, rope.pairing).map((c) => [c, c] as const))
            for (let m = 0; m < count; m++) {
              const share = mixtures[f]![m]![n]!;
              key[(n * d + from) * rank + m * d + to] = share;
              for (let j = 0; j < hidden; j++) {
                const at = (loop * hidden + j) * 2 * rank + m * d + to;
                encode[at] = encode[at]! + share * keys.data[(head * d + from) * hidden + j]!;
              }
            }
        for (let i = 0; i < d; i++)
          for (let r = 0; r < rank; r++) {
            const share = whole[r]![n * d + i]!;
            value[(n * d + i) * rank + r] = share;
            for (let j = 0; j < hidden; j++) {
              const at = (loop * hidden + j) * 2 * rank + rank + r;
              encode[at] = encode[at]! + share * values.data[(head * d + i) * hidden + j]!;
            }
          }
      }
      tensors.set(hybridTensor(layer, part, 'encode'), encode);
      tensors.set(hybridTensor(layer, part, 'key'), key);
      tensors.set(hybridTensor(layer, part, 'value'), value);
    }
  }
  const shapes = new Map(codecTensors(g, codec, 'rotated', BRANCH).map(({ name, shape }) => [name, shape]));
  return {
    shapes,
    read: (name, from = 0, count) => {
      const values = tensors.get(name)!;
      return values.slice(from, from + (count ?? values.length - from));
    },
  };
}
