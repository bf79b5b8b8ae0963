/**
 * What a tuned kernel of a class reaches on a GPU: the price of operations that no serving stack has a kernel for.
 * Three laws a class: few measured kernels are faster than the first, half are slower than the second, few are slower
 * than the third. `scripts/attainable.ts` fits them to the stack files (calibrations/attainable.json).
 */
import type { Rates } from '../kernels/op-class.js';
import type { TunedCall, TunedClass } from '../kernels/tuned.js';
import { lawSeconds, type Law } from '../cost/law.js';

export interface Bracket {
  readonly fast: Law;
  readonly middle: Law;
  readonly slow: Law;
}

/** Laws of a GPU, and of all GPUs together for classes that were not measured on it. */
export interface AttainableLaws {
  /** Classes whose laws were fitted to kernels of this GPU. */
  readonly own: Readonly<Partial<Record<TunedClass, Bracket>>>;
  readonly pooled: Readonly<Record<TunedClass, Bracket>>;
}

/** All of calibrations/attainable.json. */
export interface AttainableFile {
  readonly schema: 'lla-sim/attainable';
  readonly schemaVersion: 1;
  /** Stack files that the laws were fitted to. */
  readonly from: readonly string[];
  readonly pooled: Readonly<Record<TunedClass, Bracket>>;
  /** By id of the catalogue. */
  readonly devices: Readonly<Record<string, AttainableLaws['own']>>;
}

export const lawsOf = (file: AttainableFile, device: string | null): AttainableLaws => ({
  own: (device === null ? undefined : file.devices[device]) ?? {},
  pooled: file.pooled,
});

/** Seconds of a call between the fast and the slow law. */
export function attainableSeconds(
  laws: AttainableLaws,
  call: TunedCall,
  rates: Rates,
): { estimate: number; low: number; high: number } {
  const bracket = laws.own[call.class] ?? laws.pooled[call.class];
  const by = (law: Law): number => lawSeconds(call.inside ? { ...law, floorSeconds: 0 } : law, call.work, rates);
  const estimate = by(bracket.middle);
  return { estimate, low: Math.min(estimate, by(bracket.fast)), high: Math.max(estimate, by(bracket.slow)) };
}
