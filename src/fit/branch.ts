/**
 * A rotary branch for the absorbed path, without training: its pairs take the model's own query and key rows of the
 * same rotary frequency; one key for all heads is the mean over the heads. Content is scored without positions beside
 * it, which the model was not trained for, so this is a beginning for training, and a lower bound without it.
 */
import { range } from 'd3-array';
import type { Branch } from '../codecs/codec.js';
import { branchTensor, layerTensor } from '../decoder/tensors.js';
import type { NamedTensor, TensorSource } from '../decoder/index.js';
import type { Geometry } from '../geometry/geometry.js';

/** Component `half` (0 or 1) of rotary pair `pair` in a vector of this width. */
export const component = (pairing: 'half-split' | 'adjacent', width: number, pair: number, half: number): number =>
  pairing === 'adjacent' ? 2 * pair + half : pair + (half * width) / 2;

/** Gives zero rows small random values of the others' size: a key that queries can learn to use. */
function fillZeroRows(matrix: Float32Array, width: number, random: () => number): void {
  const rows = matrix.length / width;
  const used = matrix.reduce((count, x) => count + (x === 0 ? 0 : 1), 0);
  const size = Math.sqrt(matrix.reduce((sum, x) => sum + x * x, 0) / Math.max(1, used));
  for (let row = 0; row < rows; row++) {
    const own = matrix.subarray(row * width, (row + 1) * width);
    if (own.every((x) => x === 0)) own.forEach((_, i) => (own[i] = size * Math.sqrt(3) * (2 * random() - 1)));
  }
}

/**
 * The branch's tensors. A pair j of a branch of width w rotates as pair j·d/w of a head of width d; where that is no
 * whole number its query is zero, and it scores nothing.
 * @param model tensors of the model
 * @param random draws for the keys of such pairs, without which training could not begin to use them; zero unless given
 */
export function branchTensors(g: Geometry, branch: Branch, model: TensorSource, random?: () => number): NamedTensor[] {
  const { headDim: d, hidden, heads, kvHeads } = g;
  const { pairing } = g.rope;
  const { width, perHead } = branch;
  const alone = (count: number): number[][] => range(count).map((head) => [head]);
  const out: NamedTensor[] = [];
  for (let layer = 0; layer < g.layers; layer++) {
    /** Rows of a projection for each slot: the mean over its heads. */
    const rowsOf = (letter: 'q' | 'k', slots: readonly (readonly number[])[]): Float32Array => {
      const from = model.read(layerTensor(g.preludeLayers + layer, `self_attn.${letter}_proj.weight`));
      const to = new Float32Array(slots.length * width * hidden);
      for (const [slot, of] of slots.entries())
        for (let j = 0; j < width / 2; j++) {
          const pair = (j * d) / width;
          if (!Number.isInteger(pair)) continue;
          for (const half of [0, 1]) {
            const target = (slot * width + component(pairing, width, j, half)) * hidden;
            for (const head of of) {
              const source = (head * d + component(pairing, d, pair, half)) * hidden;
              for (let i = 0; i < hidden; i++) to[target + i]! += from[source + i]! / of.length;
            }
          }
        }
      return to;
    };
    const keySlots = perHead ? alone(kvHeads) : [range(kvHeads)];
    const query = rowsOf('q', alone(heads));
    const key = rowsOf('k', keySlots);
    if (random) fillZeroRows(key, hidden, random);
    out.push(
      { name: branchTensor(layer, 'query'), shape: [heads * width, hidden], values: query },
      { name: branchTensor(layer, 'key'), shape: [keySlots.length * width, hidden], values: key },
    );
  }
  return out;
}
