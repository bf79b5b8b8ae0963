/** Hyperparameters of the smooth residual: maximum a posteriori, and leave-one-out in closed form. */
import { CONSTANTS } from '../constants.js';
import { covarianceFactor, type Hyperparameters } from '../covariance.js';
import { descend } from '../descend.js';
import { dot, inverseFromFactor, solveLower } from '../linear.js';

/** Log-normal priors: median and deviation of the logarithm. Deviations of the log time, lengths in octaves. */
const PRIOR = {
  signalDeviation: { median: CONSTANTS.signalPrior.value, spread: CONSTANTS.priorSpread.value },
  noiseDeviation: { median: CONSTANTS.noisePrior.value, spread: CONSTANTS.priorSpread.value },
  lengthScale: { median: CONSTANTS.lengthPrior.value, spread: CONSTANTS.priorSpread.value },
} as const;
type Prior = (typeof PRIOR)[keyof typeof PRIOR];

/** Log hyperparameters stay within this of the logarithm of their prior's median. */
const MAX_LOG_SHIFT = 5;
/** Log hyperparameters are found to this. */
const FINEST = 0.03;
/** First step of a search that starts at a fit to nearly the same points. */
const WARM_STEP = 0.25;

/** Points of a process: coordinates row by row (n × d), d axes. */
export interface Points {
  x: Float64Array;
  n: number;
  d: number;
}

/** Hyperparameters as the search sees them: [log σ_f, log σ_n, log ℓ_1, ..., log ℓ_d]. */
const priorOf = (index: number): Prior =>
  index === 0 ? PRIOR.signalDeviation : index === 1 ? PRIOR.noiseDeviation : PRIOR.lengthScale;

const toLog = (hyper: Hyperparameters): number[] => [
  Math.log(hyper.signalVariance) / 2,
  Math.log(hyper.noiseVariance) / 2,
  ...hyper.lengthScales.map(Math.log),
];

const fromLog = ([signal, noise, ...lengths]: readonly number[]): Hyperparameters => ({
  signalVariance: Math.exp(2 * signal!),
  noiseVariance: Math.exp(2 * noise!),
  lengthScales: lengths.map(Math.exp),
});

const priorLog = (d: number): number[] => Array.from({ length: d + 2 }, (_, i) => Math.log(priorOf(i).median));

/** Inverse covariance (nugget included) of points. */
export function precision({ x, n }: Points, hyper: Hyperparameters): Float64Array {
  return inverseFromFactor(covarianceFactor(x, n, hyper), n);
}

/** Negative log posterior density of hyperparameters, up to a constant. Rasmussen & Williams eq. 5.8. */
export function negativeLogPosterior({ x, n }: Points, y: Float64Array, hyper: Hyperparameters): number {
  const factor = covarianceFactor(x, n, hyper);
  const white = solveLower(factor, n, y.slice());
  let value = dot(white, white) / 2;
  for (let i = 0; i < n; i++) value += Math.log(factor[i * n + i]!);
  return toLog(hyper).reduce(
    (sum, log, i) => sum + ((log - Math.log(priorOf(i).median)) / priorOf(i).spread) ** 2 / 2,
    value,
  );
}

/**
 * MAP hyperparameters: the better of two searches, from the prior's medians and from short and noisy, or one from
 * `warm`.
 */
export function fitHyperparameters(points: Points, y: Float64Array, warm?: Hyperparameters): Hyperparameters {
  const prior = priorLog(points.d);
  const bounds = prior.map((centre) => [centre - MAX_LOG_SHIFT, centre + MAX_LOG_SHIFT] as const);
  const cost = (log: readonly number[]): number => negativeLogPosterior(points, y, fromLog(log));
  const search = (start: readonly number[], first?: number) => descend(start, bounds, FINEST, cost, first);
  if (warm) return fromLog(search(toLog(warm), WARM_STEP));
  const shortAndNoisy = prior.map((v, i) => (i === 0 ? v : i === 1 ? v + 1.5 : v - 1.5));
  const [a, b] = [search(prior), search(shortAndNoisy)];
  return fromLog(cost(b) < cost(a) ? b : a);
}

/**
 * What the process with precision `q` mispredicts at point i when it is left out: y_i − μ_{−i} = (Q y)_i / Q_ii, with
 * deviation 1/√Q_ii (eq. 5.12). It holds for any y, hence also for residuals of a mean refitted without point i.
 */
export const looResidual = (q: Float64Array, y: Float64Array, n: number, i: number): number =>
  dot(q.subarray(i * n, i * n + n), y) / q[i * n + i]!;

export const looDeviation = (q: Float64Array, n: number, i: number): number => 1 / Math.sqrt(q[i * n + i]!);
