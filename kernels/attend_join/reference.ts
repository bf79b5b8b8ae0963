/** The float64 reference of attend_join, and the comparison of its outputs with it. */
import type { CurrentOptions } from '../attention-options.js';
import { dim, type Checker } from '../reference.js';
import { attended, mergeSplits } from '../shared/attention/merge.reference.js';

export const reference: Checker = {
  outputs: ['output', 'stats'],
  rows: (shape) => dim(shape, 'rows'),
  row: (s, row) => {
    const width = dim(s.call.shape, 'width');
    const { heads, group }: CurrentOptions = s.options.current ?? { heads: 1, group: 1 };
    const kvHead = Math.floor((row % heads) / group);
    const part = (output: string, stats: string, mean: (i: number) => number) => {
      const [m, l] = [s.input(stats)(2 * row), s.input(stats)(2 * row + 1)];
      return { o: Array.from({ length: width }, (_, i) => l * (s.input(output)(row * width + i) + mean(i))), m, l };
    };
    const exact = part('output', 'stats', () => 0);
    const latent = part('latent', 'latentStats', (i) => s.input('valueMeans')(kvHead * width + i));
    return attended(s, row, mergeSplits([exact, latent], width));
  },
};
