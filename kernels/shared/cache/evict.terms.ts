/** Terms that the kernels of eviction share. */
import { field, STORAGES, launchAnd, type KernelSpec } from '../../spec.js';
import { unlisted } from '../../tuned.js';

type Evicting = Pick<KernelSpec, 'variants' | 'dispatches' | 'work' | 'terms' | 'tuned'>;

/** What follows from a kernel's work. One workgroup a row: the last term is its serial loop. */
export const evicting = (work: KernelSpec['work']): Evicting => ({
  variants: STORAGES,
  // The choice, then the copy in each cache: of keys and of values unless given.
  dispatches: ({ evict, evictPrefill, evictChunk }) => 1 + ((evict ?? evictPrefill ?? evictChunk)?.caches?.length ?? 2),
  work,
  terms: (s, v) => [...launchAnd(work(s, v), 'readBytes', 'writeBytes'), field(s, 'context')],
  tuned: (s, v) => {
    const { readBytes, writeBytes } = work(s, v);
    return unlisted('small', readBytes + writeBytes);
  },
});

/** The buffer of the run's rows that a cache takes its own from. */
export const runOf = (cache: string): string => `run ${cache}`;
