/** Cases, one after the other, as far as there is time. */
import { OUT_OF_TIME, type Budget } from '../io/budget.js';
import { GpuError } from '../../kernels/host/errors.js';
import { mix } from '../numbers/hash.js';

/** A case that has no result. */
interface NotRun<T> {
  readonly one: T;
  /** The device's words, or OUT_OF_TIME. */
  readonly reason: string;
}

interface InTimeRules<T> {
  /** Without one there is time for all. */
  readonly budget?: Budget | undefined;
  /** Kinds of the pieces that a case takes. */
  readonly kinds: readonly string[];
  /** The kind under which the budget is told how long a case took; unless given, the case does so itself. */
  readonly piece?: string;
  /** Whether the next case ends in time; unless given, whether its pieces fit. */
  readonly fits?: (done: number) => boolean;
  /** The order is drawn from it, so that those that are reached are a sample of all; unless given, it is theirs. */
  readonly seed?: number;
  readonly stopped?: (() => boolean) | undefined;
  readonly onCase?: (one: T, done: number, total: number) => void;
  /** Whether such an error is the case's own, and the next one is tried. */
  readonly refuses?: (error: GpuError) => boolean;
}

/** What a device cannot do with a case; other failures are its own. */
const isUnsupported = ({ fault }: GpuError): boolean => fault === 'unsupported';

/**
 * Works through cases as long as the next ends in time. Of a kind that was never done nothing is known: one is tried
 * while there is any time.
 * @returns results and what has none, both in the order of the cases; without those behind a stop
 */
export async function inTime<T, R>(
  cases: readonly T[],
  rules: InTimeRules<T>,
  work: (one: T, done: number) => Promise<R>,
): Promise<{ readonly results: { readonly one: T; readonly result: R }[]; readonly notRun: NotRun<T>[] }> {
  const { budget, kinds, piece, seed, refuses = isUnsupported } = rules;
  const fits = rules.fits ?? ((): boolean => budget?.fits(...kinds) ?? true);
  const order = [...cases.keys()];
  if (seed !== undefined) order.sort((a, b) => mix(seed + a) - mix(seed + b));
  const found = new Map<number, { one: T; result: R } | NotRun<T>>();
  let late = false;
  for (const [done, i] of order.entries()) {
    if (rules.stopped?.()) break;
    const one = cases[i] as T;
    // In a drawn order the first that does not fit ends it: shorter ones behind it would be no sample of all.
    late = (seed !== undefined && late) || !fits(done);
    if (late) {
      found.set(i, { one, reason: OUT_OF_TIME });
      continue;
    }
    rules.onCase?.(one, done, cases.length);
    try {
      const own = (): Promise<R> => work(one, done);
      found.set(i, { one, result: budget && piece !== undefined ? await budget.piece(piece, own) : await own() });
    } catch (error) {
      if (!(error instanceof GpuError) || !refuses(error)) throw error;
      found.set(i, { one, reason: error.message });
    }
  }
  const all = [...found].sort(([a], [b]) => a - b).map(([, of]) => of);
  return { results: all.filter((of) => 'result' in of), notRun: all.filter((of) => 'reason' in of) };
}

/** What was refused, and how many cases there was no time for. */
export function lateApart<T>(notRun: readonly NotRun<T>[]): { refused: NotRun<T>[]; notReached: number } {
  const refused = notRun.filter(({ reason }) => reason !== OUT_OF_TIME);
  return { refused, notReached: notRun.length - refused.length };
}
