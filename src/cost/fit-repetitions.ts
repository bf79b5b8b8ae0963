/** Noise of repetitions, told from the repetitions themselves. */
import type { Sample } from '../schema/calibration.js';
import { correctedSeconds, typicalSeconds } from '../schema/drift.js';
import { median } from './predictor.js';

/** Fewer repetitions have no halves worth comparing. */
const LEAST_REPETITIONS = 4;
/** Fewer samples than this do not tell. */
const LEAST_SAMPLES = 3;
/** Median of the square of a standard normal number. */
const MEDIAN_SQUARE = 0.4549;

/**
 * Variance of the log of one repetition, so that n of them have a typical time of variance / n. The first half of a sample's repetitions
 * is compared with the second: repetitions that follow each other err alike, which their spread would not show. The median over all
 * samples of the variant; 0 where repetitions do not tell.
 */
export function repetitionVarianceOf(variant: string, samples: readonly Sample[]): number {
  const squares = samples.filter((s) => s.variant === variant).flatMap((sample) => {
    const times = correctedSeconds(sample);
    if (times.length < LEAST_REPETITIONS) return [];
    const middle = times.length >> 1;
    const [first, second] = [times.slice(0, middle), times.slice(middle)];
    // Halves of independent repetitions differ by a variance of v (1 / n₁ + 1 / n₂).
    return [Math.log(typicalSeconds(first) / typicalSeconds(second)) ** 2 / (1 / first.length + 1 / second.length)];
  });
  return squares.length < LEAST_SAMPLES ? 0 : median(squares) / MEDIAN_SQUARE;
}
