/** A codec's matrices and means of a layer and loop, as the kernels read them: which elements, in which order. */
import { latentOfLoop, ranksOfLoops } from '../../codecs/hla.js';
import { CODECS } from '../../codecs/registry.js';
import type { CodecMatrixRef, CodecVectorRef } from '../../schedule/bind/refs.js';
import { latentsOf, type Configuration } from '../../schedule/configuration.js';
import { codecTensor, hybridTensor, latentGroups, type CodecAxis, type LatentGroups } from '../tensors.js';
import type { TensorSource } from '../weights.js';
import { boxOf, type Box } from './place.js';

/** Elements of one tensor, in the order in which they lie on the device. */
export interface CodecMatrix {
  readonly label: string;
  readonly tensor: string;
  readonly box: Box;
}

type HybridMap = Extract<CodecMatrixRef, { weights: 'map' }>;

export class CodecWeights {
  private readonly groups: LatentGroups;

  /** @param matrices values as the device has them, rounded to halves @param means values on the host */
  constructor(
    private readonly c: Configuration,
    private readonly matrices: TensorSource,
    private readonly means: TensorSource,
  ) {
    this.groups = latentGroups(c.geometry, c.codec);
  }

  matrix(ref: CodecMatrixRef): CodecMatrix {
    if (ref.weights === 'map') return this.hybridMap(ref);
    const { weights, layer, loop, axis } = ref;
    const { headDim, kvHeads } = this.c.geometry;
    const rank = this.rank(axis);
    const tensor = codecTensor(layer, axis, weights === 'down' ? 'down' : 'up');
    const { at, group } = this.headRows(axis, loop);
    const of = (part: string, box: Box): CodecMatrix => ({ label: `${tensor} ${part}`, tensor, box });
    const byRow = { at, group, row: rank, column: 1 };
    switch (weights) {
      // [KV head][component or rank][rank or component]; where one latent is all heads', `down` is one matrix.
      case 'down': {
        const [groups, rows] = this.groups.heads === 1 ? [kvHeads, headDim] : [1, kvHeads * headDim];
        return of(`loop ${loop}`, boxOf(groups, rows, rank, byRow));
      }
      case 'up-rows':
        return of(`loop ${loop}`, boxOf(kvHeads, headDim, rank, byRow));
      case 'up-columns':
        return of(`loop ${loop}, transposed`, boxOf(kvHeads, rank, headDim, { at, group, row: 1, column: rank }));
      // Of a whole latent, [rank][stacked width]: what `fast` reconstructs where one latent serves all heads.
      case 'up-stacked': {
        const { width } = this.groups;
        const latent = this.stackedAt(loop, 0).group;
        const source = { at: latent * width * rank, group: 0, row: 1, column: rank };
        return of(`latent ${latent}, transposed`, boxOf(1, rank, width, source));
      }
    }
  }

  vector(ref: CodecVectorRef): { readonly label: string; readonly values: () => Iterable<number> } {
    const { layer, axis } = ref;
    const tensor = codecTensor(layer, axis, 'mean');
    switch (ref.weights) {
      case 'mean':
        return { label: `${tensor} loop ${ref.loop}`, values: () => this.meanOf(layer, ref.loop, axis) };
      case 'centre': {
        const own = CODECS[this.c.codec.kind].loopAxis ? '' : ` loop ${ref.loop}`;
        return { label: `${tensor} encoded${own}`, values: () => this.centreOf(layer, ref.loop, axis) };
      }
      case 'restored-means':
        return {
          label: `${tensor} of loops ${ref.loops.join()}, reconstructed`,
          values: () => ref.loops.flatMap((loop) => [...this.restoredMean(layer, loop, axis)]),
        };
    }
  }

  private rank(axis: CodecAxis): number {
    return (axis === 'key' ? this.c.codec.rankK : this.c.codec.rankV) as number;
  }

  /** The latent of a loop and KV head, and the head's first row among those of all stacked vectors. */
  private stackedAt(loop: number, head: number): { group: number; row: number } {
    const { loops, heads, width } = this.groups;
    const { kvHeads, headDim } = this.c.geometry;
    const group = Math.floor(loop / loops) * (kvHeads / heads) + Math.floor(head / heads);
    return { group, row: group * width + ((loop % loops) * heads + (head % heads)) * headDim };
  }

  /** A loop's rows of a matrix [latent][stacked width][rank]: (KV head, i) at `at + head * group + i * rank`. */
  private headRows(axis: CodecAxis, loop: number): { at: number; group: number } {
    const rank = this.rank(axis);
    const { width, heads } = this.groups;
    const { row } = this.stackedAt(loop, 0);
    return { at: row * rank, group: (heads === 1 ? width : this.c.geometry.headDim) * rank };
  }

  /** A map of rotated latents: E [hidden][r_k + r_v], A [KV head][component][r_k], or B [KV head][r_v][component]. */
  private hybridMap({ layer, loop, map }: HybridMap): CodecMatrix {
    const { hidden, headDim, kvHeads } = this.c.geometry;
    const part = latentOfLoop(loop);
    const { rankK, rankV } = ranksOfLoops(this.c.codec)[part];
    const rank = { encode: rankK + rankV, key: rankK, value: rankV }[map];
    const [groups, rows] = map === 'encode' ? [1, hidden] : [kvHeads, headDim];
    const tensor = hybridTensor(layer, part, map);
    const [at, group] = [Math.max(0, loop - 1) * groups * rows * rank, rows * rank];
    const box =
      map === 'value'
        ? boxOf(groups, rank, rows, { at, group, row: 1, column: rank })
        : boxOf(groups, rows, rank, { at, group, row: rank, column: 1 });
    return { label: `${tensor} loop ${loop}`, tensor, box };
  }

  /** mu of a loop, [KV head][component]. */
  private meanOf(layer: number, loop: number, axis: CodecAxis): Float64Array {
    const { headDim, kvHeads } = this.c.geometry;
    const mean = this.means.read(codecTensor(layer, axis, 'mean'));
    const out = new Float64Array(kvHeads * headDim);
    for (let head = 0; head < kvHeads; head++) {
      const { row } = this.stackedAt(loop, head);
      out.set(mean.subarray(row, row + headDim), head * headDim);
    }
    return out;
  }

  /** −mu W_down of a layer's latents (of one loop, where each has its own), [latent][rank]: the centre. */
  private centreOf(layer: number, loop: number, axis: CodecAxis): Float64Array {
    const rank = this.rank(axis);
    const { width, count } = this.groups;
    const [first, latents] = CODECS[this.c.codec.kind].loopAxis ? [0, count] : [this.stackedAt(loop, 0).group, 1];
    const [from, rows] = [first * width, latents * width];
    const down = this.matrices.read(codecTensor(layer, axis, 'down'), from * rank, rows * rank);
    const mean = this.means.read(codecTensor(layer, axis, 'mean'), from, rows);
    const out = new Float64Array(latents * rank);
    for (let row = 0; row < rows; row++) {
      const to = Math.floor(row / width) * rank;
      for (let r = 0; r < rank; r++)
        out[to + r] = (out[to + r] as number) - (mean[row] as number) * (down[row * rank + r] as number);
    }
    return out;
  }

  /** Terms of restored rows, [KV head][component]: mu, and what centring the latent would have subtracted. */
  private restoredMean(layer: number, loop: number, axis: CodecAxis): Float64Array {
    const { kvHeads, headDim } = this.c.geometry;
    const rank = this.rank(axis);
    const out = this.meanOf(layer, loop, axis);
    const centre = this.centreOf(layer, loop, axis);
    for (let head = 0; head < kvHeads; head++) {
      // [component][rank]
      const first = this.stackedAt(loop, head).row * rank;
      const up = this.matrices.read(codecTensor(layer, axis, 'up'), first, headDim * rank);
      const latent = latentsOf(this.c) === 1 ? 0 : head * rank;
      for (let i = 0; i < headDim; i++) {
        for (let r = 0; r < rank; r++)
          out[head * headDim + i] =
            (out[head * headDim + i] as number) + (up[i * rank + r] as number) * (centre[latent + r] as number);
      }
    }
    return out;
  }
}
