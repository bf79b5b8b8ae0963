/** How a machine's drift is taken off measured times. Pure: the planner and a browser read samples with it, too. */

/** Drift up to this fraction is the probe's own noise: it is recorded and not corrected. */
export const DRIFT_CORRECTED = 0.05;

/**
 * Times of a sample with the machine's drift taken off, seconds a call.
 * @param sample `seconds`: raw times; `drift`: for each of them the probe's time over its reference, measured beside it.
 *   Samples of older files have none and are taken as they are.
 */
export function correctedSeconds(sample: { readonly seconds: readonly number[]; readonly drift?: readonly number[] | undefined }): number[] {
  const { drift } = sample;
  return sample.seconds.map((seconds, i) => {
    const factor = drift?.[i] ?? 1;
    return Math.abs(factor - 1) > DRIFT_CORRECTED ? seconds / factor : seconds;
  });
}
