/** Words that reports use in full where the terminal's table abbreviates. */
import type { LimitedBy } from '../plan/types.js';

export const LIMIT_WORDS: Record<LimitedBy, string> = {
  'kv-cache': 'KV cache',
  workspace: 'workspace',
  'in-flight': 'state of sequences',
  weights: 'weights',
  'codec-parameters': 'codec parameters',
  prefill: 'prefill',
};
