/** How a machine's drift is taken off measured times. Pure: the planner and a browser read samples with it, too. */

/** Drift up to this fraction is the probe's own noise: it is recorded and not corrected. */
export const DRIFT_CORRECTED = 0.05;

/**
 * Kernels slow down by this power of what the probe does, half of which is memory's time. Measured over nine kernels on a shared
 * machine (DESIGN.md): 0.6 to 0.8.
 */
const DRIFT_EXPONENT = 0.7;

/** Time of a kernel over its time on a machine at its reference, where the probe's is `drift`. */
export const slowdownOf = (drift: number): number => drift ** DRIFT_EXPONENT;

/**
 * Repetitions that drifted by less than this are taken alone where there are a few of them. Beyond, kernels slow down differently: one
 * workgroup hardly minds that the machine lost a core, which doubles the probe's time.
 */
const DRIFT_TRUSTED = 0.5;
const FEW = 3;
/** Share of the fastest and of the slowest repetitions that a typical time leaves out. */
const TRIMMED_SHARE = 1 / 8;

/**
 * Times of a sample with the machine's drift taken off, seconds a call; without those that drifted far where there are others.
 * @param sample `seconds`: raw times; `drift`: for each of them the probe's time over its reference, measured beside it.
 *   Samples of older files have none and are taken as they are.
 */
export function correctedSeconds(sample: { readonly seconds: readonly number[]; readonly drift?: readonly number[] | undefined }): number[] {
  const { seconds, drift } = sample;
  const away = seconds.map((_, i) => Math.abs((drift?.[i] ?? 1) - 1));
  const enough = away.filter((d) => d <= DRIFT_TRUSTED).length >= FEW;
  return seconds.flatMap((time, i) => {
    const own = away[i] as number;
    if (enough && own > DRIFT_TRUSTED) return [];
    return [own > DRIFT_CORRECTED ? time / slowdownOf(drift?.[i] ?? 1) : time];
  });
}

/**
 * The typical time among `seconds`, not empty: the geometric mean without the fastest and the slowest eighth. Of a few repetitions on a
 * noisy machine it is a fifth to a third closer to the mean of many than the median is.
 */
export function typicalSeconds(seconds: readonly number[]): number {
  const trimmed = Math.floor(TRIMMED_SHARE * seconds.length);
  const middle = [...seconds].sort((a, b) => a - b).slice(trimmed, seconds.length - trimmed);
  return Math.exp(middle.reduce((sum, each) => sum + Math.log(each), 0) / middle.length);
}
