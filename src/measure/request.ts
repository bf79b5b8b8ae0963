/** What the page's address asks for after its `#`: `#seconds=60&kernels=attend,matmul&seed=1&calls=first`. */
import type { Anchor } from '../bench/calibrate/anchors.js';

type Lists = readonly (() => readonly Anchor[])[];

export interface PageRequest {
  /** Time to measure, in place of the choice on the page. */
  readonly seconds: number | null;
  readonly seed: number | null;
  /** The calls asked for: of some kernels, or only those of the first list, which takes no time to make. */
  calls(lists: Lists): Lists;
}

const MOST_SECONDS = 3600;

export function readRequest(hash: string): PageRequest {
  const asked = new URLSearchParams(hash.replace(/^#/, ''));
  const number = (name: string, most: number): number | null => {
    const value = Number(asked.get(name) ?? NaN);
    return value > 0 && value <= most ? value : null;
  };
  const kernels = asked.get('kernels')?.split(',') ?? null;
  return {
    seconds: number('seconds', MOST_SECONDS),
    seed: number('seed', 2 ** 31),
    calls: (lists) =>
      (asked.get('calls') === 'first' ? lists.slice(0, 1) : lists).map(
        (list) => () => list().filter(({ kernel }) => kernels?.includes(kernel) ?? true),
      ),
  };
}
