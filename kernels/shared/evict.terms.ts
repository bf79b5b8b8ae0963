/** Terms that the kernels of eviction share. */
import { field, STORAGES, type KernelSpec } from '../spec.js';
import { unlisted } from '../tuned.js';

/** What follows from a kernel's work. One workgroup a row: the last term is its serial loop. */
export const evicting = (work: KernelSpec['work']): Pick<KernelSpec, 'variants' | 'work' | 'terms' | 'tuned'> => ({
  variants: STORAGES,
  work,
  terms: (s, v) => {
    const w = work(s, v);
    return [1, w.readBytes, w.writeBytes, field(s, 'context')];
  },
  tuned: (s, v) => {
    const { readBytes, writeBytes } = work(s, v);
    return unlisted('small', readBytes + writeBytes);
  },
});

/** The buffer of the run's rows that a cache takes its own from. */
export const runOf = (cache: string): string => `run ${cache}`;
