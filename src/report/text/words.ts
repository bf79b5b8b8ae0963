/** Words that reports use in full where the terminal's table abbreviates. */
import type { Geometry } from '../../geometry/geometry.js';
import type { LimitedBy } from '../../plan/types.js';

export const LIMIT_WORDS: Record<LimitedBy, string> = {
  'kv-cache': 'KV cache',
  workspace: 'workspace',
  'in-flight': 'state of sequences',
  weights: 'weights',
  'codec-parameters': 'codec parameters',
  prefill: 'prefill',
};

type Blocks = Pick<Geometry, 'preludeLayers' | 'layers' | 'codaLayers' | 'loops' | 'stacks' | 'loopsInRow'>;

/** Layers × loops: `24 × 4`, `2 + 4 × 32 + 2`, `(16 × 3 + 16) × 2`, `16 × 2 in a row`. */
export function layersTimesLoops({ preludeLayers, layers, codaLayers, loops, stacks, loopsInRow }: Blocks): string {
  const pass = stacks
    ? `(${stacks.map((s) => (s.runs === 1 ? String(s.layers) : `${s.layers} × ${s.runs}`)).join(' + ')})`
    : String(layers);
  const core = `${pass} × ${loops}${loopsInRow ? ' in a row' : ''}`;
  return preludeLayers + codaLayers > 0 ? `${preludeLayers} + ${core} + ${codaLayers}` : core;
}
