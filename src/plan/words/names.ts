/** What a plan is called in a sentence. */
import type { PathChoice } from '../../codecs/codec.js';
import { choiceOf } from '../../codecs/paths.js';
import { codecSpec, hasOwnStorage, isUncompressed } from '../../codecs/registry.js';
import { evictionLabel } from '../../eviction/policy.js';
import type { Plan } from '../types.js';

/** A path as users name it. */
export const pathLabel = (p: Pick<Plan, 'path' | 'variant'>): PathChoice =>
  choiceOf(p.path, p.variant === 'materialised');

/** `full cache`, `lla-4x by block-absorbed`, `lla-4x by reconstruct with streaming:4+256`. */
export function planName(p: Pick<Plan, 'codec' | 'path' | 'variant' | 'eviction' | 'cacheType'>): string {
  const type = ['f16', 'bf16'].includes(p.cacheType) || hasOwnStorage(p.codec) ? '' : ` in ${p.cacheType}`;
  // A codec with one way to be read has no path to name.
  const path = codecSpec(p.codec).paths.length === 1 ? '' : ` by ${pathLabel(p)}`;
  const eviction = p.eviction ? ` with ${evictionLabel(p.eviction)}` : '';
  return `${isUncompressed(p.codec) ? 'full cache' : p.codec.label}${type}${path}${eviction}`;
}
