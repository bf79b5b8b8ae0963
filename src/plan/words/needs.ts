/** What a plan needs before it runs. */
import { codecSpec, isUncompressed } from '../../codecs/registry.js';
import type { Plan } from '../types.js';

/** What somebody needs before a codec runs: `nothing`, `kernels`, `training, kernels`. */
export function needsOf(p: Plan): string {
  const spec = codecSpec(p.codec);
  const needs = [
    ...(spec.windowsLoops ? ['a model trained so'] : spec.untrained || isUncompressed(p.codec) ? [] : ['training']),
    ...(p.servedBy === null ? ['kernels'] : []),
  ];
  return needs.length === 0 ? 'nothing' : needs.join(', ');
}
