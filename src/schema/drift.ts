/**
 * Correction of measured times for a machine's drift. Pure functions: the planner and a browser read samples with them
 * too.
 */

/** Drift up to this fraction is the probe's own noise: it is recorded and not corrected. */
export const DRIFT_CORRECTED = 0.05;

/**
 * A kernel's time follows a power of the probe's time. This power is used while the kernel has too few repetitions for
 * a fit of its own. Measured over nine kernels on a shared machine (docs/experiments.md): 0.4 for one that computes, 0.9
 * for one that streams weights.
 */
const DRIFT_EXPONENT = 0.7;
/** Squared log drift, summed over repetitions, that makes a kernel's own exponent weigh as much as that one. */
const EXPONENT_PRIOR = 0.5;
const MOST_EXPONENT = 1.2;
/** Log drifts and times beyond this far from those of their sample count as this far. */
const FARTHEST_LOG = 0.5;

/** Time of a kernel over its time on a machine at its reference, where the probe's is `drift`. */
export const slowdownOf = (drift: number, exponent = DRIFT_EXPONENT): number => drift ** exponent;

/** The exponent with which the times of these samples follow the probe's time, each relative to its sample's mean. */
export function driftExponentOf(samples: readonly Drifted[]): number {
  let [products, squares] = [DRIFT_EXPONENT * EXPONENT_PRIOR, EXPONENT_PRIOR];
  for (const { seconds, drift } of samples) {
    if (!drift || seconds.length < FEW) continue;
    const [x, y] = [centred(drift), centred(seconds)];
    x.forEach((each, i) => {
      products += each * (y[i] as number);
      squares += each ** 2;
    });
  }
  return Math.min(MOST_EXPONENT, Math.max(0, products / squares));
}

/** Logarithms around their mean. */
function centred(values: readonly number[]): number[] {
  const logs = values.map(Math.log);
  const mean = logs.reduce((sum, each) => sum + each, 0) / logs.length;
  return logs.map((each) => Math.min(FARTHEST_LOG, Math.max(-FARTHEST_LOG, each - mean)));
}

/**
 * Repetitions that drifted by less than this are taken alone where there are a few of them. Beyond, kernels slow down
 * differently: a lost core doubles the probe's time and hardly slows a kernel of one workgroup.
 */
const DRIFT_TRUSTED = 0.5;
const FEW = 3;
/** Share of the fastest and of the slowest repetitions that a typical time leaves out. */
const TRIMMED_SHARE = 1 / 8;

/**
 * Raw times, seconds a call, and for each of them the probe's time over its reference, measured beside it; samples of
 * older files have none.
 */
export interface Drifted {
  readonly seconds: readonly number[];
  readonly drift?: readonly number[] | undefined;
}

/**
 * Times of a sample, corrected for the machine's drift, seconds a call; without those that drifted far where there are
 * others. Samples without drift are not corrected.
 * @param exponent of the kernel (driftExponentOf)
 */
export function correctedSeconds(sample: Drifted, exponent = DRIFT_EXPONENT): number[] {
  const { seconds, drift } = sample;
  const away = seconds.map((_, i) => Math.abs((drift?.[i] ?? 1) - 1));
  const enough = away.filter((d) => d <= DRIFT_TRUSTED).length >= FEW;
  return seconds.flatMap((time, i) => {
    const own = away[i] as number;
    if (enough && own > DRIFT_TRUSTED) return [];
    return [own > DRIFT_CORRECTED ? time / slowdownOf(drift?.[i] ?? 1, exponent) : time];
  });
}

/**
 * The typical time among `seconds`, not empty: the geometric mean without the fastest and the slowest eighth. Of a few
 * repetitions on a noisy machine it is a fifth to a third closer to the mean of many than the median is.
 */
export function typicalSeconds(seconds: readonly number[]): number {
  const trimmed = Math.floor(TRIMMED_SHARE * seconds.length);
  const middle = [...seconds].sort((a, b) => a - b).slice(trimmed, seconds.length - trimmed);
  return Math.exp(middle.reduce((sum, each) => sum + Math.log(each), 0) / middle.length);
}
