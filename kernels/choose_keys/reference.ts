/** The float64 reference of choose_keys, and the comparison of its outputs with it. */
import { capacityOf } from '../host/cache-layout.js';
import { dim, dimsOf, type Checker } from '../reference.js';

/** How many cached tokens are chosen, whether the current one is, and which. */
export const reference: Checker = {
  outputs: ['chosen'],
  rows: (shape) => dim(shape, 'rows'),
  row: (s, row) => {
    const { context, kept, width } = dimsOf<'choose_keys'>(s);
    const options = s.options.chooseKeys ?? {};
    const { heads = 1, group = 1, listWords = 1 + kept, firstList = 0 } = options;
    const capacity = capacityOf(options.capacity ?? context + 1);
    const { offset, stride } = options.keys ?? { offset: 0, stride: (heads / group) * width };
    const key = offset + Math.floor(row / heads) * stride + Math.floor((row % heads) / group) * width;
    let dot = 0;
    for (let i = 0; i < width; i++) dot += s.input('queries')(row * width + i) * s.input('newKeys')(key + i);
    const scores = Array.from({ length: context }, (_, t) => s.input('scores')(row * capacity + t));
    scores.push(dot * width ** -0.5 * Math.LOG2E);
    const best = scores
      .map((_, t) => t)
      .sort((a, b) => (scores[b] as number) - (scores[a] as number) || a - b)
      .slice(0, kept)
      .sort((a, b) => a - b);
    const current = best.at(-1) === context;
    const cached = current ? best.slice(0, -1) : best;
    const word = s.outputWords('chosen');
    const at = (firstList + row) * listWords;
    return {
      expected: [cached.length, current ? 1 : 0, ...cached],
      actual: (i) => (i === 0 ? word(at) & 0x7fffffff : i === 1 ? word(at) >>> 31 : word(at + i - 1)),
    };
  },
};
