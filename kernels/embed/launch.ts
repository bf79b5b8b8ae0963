/** Token embedding: embed.wgsl. */
import { oneStep, stored, u32 } from '../host/plan.js';
import { bytesOfPairs, elementOf, requireEven, shapeOf } from '../host/shape.js';
import { DEFAULTS, type Launch } from '../launch.js';
import { rowsOf, strided } from '../shared/dense/rows.launch.js';

/**
 * Buffers: tokens, embedding, output. The call does not say how long the table is.
 * With `embeddingColumns` it lies [width][vocabulary, padded to even], as the weights of a tied output projection do.
 */
const plan: Launch['plan'] = (
  call,
  { vocabulary = DEFAULTS.vocabulary, placement: { output } = {}, embeddingColumns: columns = false },
) => {
  const s = shapeOf<'embed'>({ ...call, variant: 'f16' });
  requireEven(call, s, 'width');
  const element = elementOf(call);
  const count = (s.rows * s.width) / 2;
  const to = rowsOf(call, 'output', 'output', s.rows, s.width, output);
  return oneStep({
    buffers: [
      u32('tokens', 'input', s.rows, { below: vocabulary }),
      stored(
        'embedding',
        'input',
        element,
        (columns ? s.width * Math.ceil(vocabulary / 2) : vocabulary * (s.width / 2)) * bytesOfPairs(element),
      ),
      to.buffer,
    ],
    source: 'embed',
    element,
    uniforms: { count, pairs: s.width / 2, ...to.at, column_pairs: columns ? Math.ceil(vocabulary / 2) : 0 },
    ...strided(call, count, 128),
  });
};

export const launch: Launch = { plan };
