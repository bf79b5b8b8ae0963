/**
 * What decode steps and prompts have in common when a server works on both at once: operations whose rows are tokens,
 * whoever's they are. Their weights are read once for all rows, so a mixed batch costs less than its parts.
 */
import { blocksOf } from '../geometry/geometry.js';
import type { Configuration } from './configuration.js';
import { attentionOut, layerAround, mlpOps, queryKeyValue } from './dense.js';
import { adapterOps, embeddingOps, headOps, loopChange, loopNorm, loopState } from './network.js';
import { exchanges, type Schedule } from './schedule.js';

/** One pass of `rows` tokens through all layers and loops, without attention, the cache and the head. */
export function sharedSchedule(c: Configuration, rows: number): Schedule {
  return {
    stages: [
      { kind: 'once', ops: embeddingOps(c, rows) },
      ...blocksOf(c.geometry).map((block) => ({
        kind: 'stack' as const,
        block,
        loopStart: [...adapterOps(c, block, rows), ...loopState(c, block, rows)],
        layer: layerAround(c, rows, [...queryKeyValue(c, block, rows), ...attentionOut(c, rows)], mlpOps(c, rows)),
        loopEnd: [...loopChange(c, block, rows), ...loopNorm(c, block, rows)],
      })),
    ],
    collectives: exchanges(c, { rows, logits: 0, mass: 0, passes: 1 }).filter(
      ({ label }) => label !== 'logits' && label !== 'encode',
    ),
  };
}

/** Logits and choice of the next token of `rows` sequences. */
export const headSchedule = (c: Configuration, rows: number): Schedule => ({
  stages: [{ kind: 'once', ops: headOps(c, rows, 'greedy') }],
  collectives: exchanges(c, { rows: 0, logits: rows, mass: 0, passes: 0 }).filter(({ label }) => label === 'logits'),
});

/** Labels of a schedule's operations and exchanges. */
export function labelsOf(s: Schedule): ReadonlySet<string> {
  const labels = new Set(s.collectives.map(({ label }) => label));
  for (const stage of s.stages)
    for (const { label } of stage.kind === 'once' ? stage.ops : [...stage.loopStart, ...stage.layer, ...stage.loopEnd])
      labels.add(label);
  return labels;
}
