/** The exact rows of a run's last tokens, which steps read beside latents. */
import type { Op } from './configuration.js';
import { windowOf } from './eviction-ops.js';
import type { Chunk, Pass } from './prefill-pass.js';
import { appendOp, AXES, kvHeadsOf } from './prefill-rows.js';

/** Writing of those of a chunk, in pass 1, which has exact keys and values. */
export function recentOps({ c, block, batch, run, again }: Pass, chunk: Chunk): Op[] {
  const from = Math.max(chunk.from, run.tokens - windowOf(c, block));
  const tokens = chunk.from + chunk.tokens - from;
  if (again || tokens <= 0 || windowOf(c, block) === 0) return [];
  return AXES.map((axis) => ({
    ...appendOp(c, `append-recent-${axis}`, batch * tokens, kvHeadsOf(c), c.geometry.headDim, 'always'),
    from,
  }));
}
