/**
 * The numbers that the statistics of the cost model assume, in one table: each with its unit, what it means, and where
 * it is from. `chosen` numbers are rules of the method. `judged` ones were set by what left-out cases showed, on data
 * that judges nothing (docs/experiments.md). Sizes of samples and tolerances of searches stand where they are used.
 */
interface Constant {
  readonly value: number;
  readonly unit: string;
  readonly meaning: string;
  readonly source: string;
}

const of = (value: number, unit: string, meaning: string, source: string): Constant => ({
  value,
  unit,
  meaning,
  source,
});

export const CONSTANTS = {
  level: of(0.9, 'share', 'of times that an interval covers', 'chosen'),
  normal90: of(1.645, 'deviations', 'two-sided 90 % of a normal distribution', 'tables of the normal distribution'),
  fewestForQuantile: of(10, 'scores', 'that have a 90 % quantile', '⌈0.9 (n + 1)⌉ ≤ n from n = 9 on; chosen'),
  perOctaveUntested: of(Math.LN2, 'log s an octave', 'widening where none was tested', 'chosen: a factor of two'),
  perOctaveLeast: of(0.02, 'log s an octave', 'least widening outside', 'errors of 3 to 15 % at 4 times, H200 tables'),
  perOctaveInside: of(
    0.15,
    'log s an octave',
    'widening inside a table, beyond all that it measured on every axis',
    'judged: tables of B200 and L40S without their largest calls',
  ),
  leastDeviation: of(0.05, 'log s', 'between a kernel alone and inside a step', 'repetitions of one shape'),
  fewestRepetitions: of(3, 'repetitions', 'in half of a visit', 'chosen'),
  variantPrior: of(
    0.35,
    'log s',
    'median deviation of a variant from its class, before data',
    'two machines, all classes',
  ),
  unmeasured: of(
    1,
    'log s',
    'deviation of a kernel from its law before any call of it is measured',
    '90 % of variants that were left out whole within 5.2 times: the carried calibration',
  ),
  termPrior: of(0.2, 'log s', 'median deviation of a term of a kernel, before data', 'as of the residual'),
  mostOfTerm: of(
    3,
    'times',
    'its share in measured calls that a term counts for',
    'a product of one column: 2.7 million times its law',
  ),
  signalPrior: of(0.2, 'log s', 'median deviation of the residual, before data', 'H200 tables'),
  noisePrior: of(0.05, 'log s', 'median deviation of a measurement, before data', 'repetitions of one shape'),
  lengthPrior: of(3, 'octaves', 'median length scale, before data', 'H200 tables'),
  priorSpread: of(1, 'log', 'deviation of the logarithm of each of the five', 'chosen'),
  outlierDeviations: of(4, 'deviations', 'beyond which a time is measured again', 'H200 tables: a lone 150 ×'),
  outlierLeast: of(Math.log(1.5), 'log s', 'least residual of an outlier', 'chosen'),
  outlierShare: of(0.2, 'share', 'of outliers, beyond which a law is wrong instead', 'chosen'),
  peakMargin: of(1.05, 'share', 'of the peak that clocks above the stated one reach', 'clocks of stacks’ tables'),
  fewestConfigurations: of(4, 'configurations', 'of which leaving one out tells anything', 'chosen'),
  fewestOfTime: of(60, 'points', 'in a group of call times with its own width', 'chosen'),
  neighbours: of(24, 'points', 'that a value is interpolated from', 'judged: tables of B200 and L40S'),
  otherMachine: of(
    5.6,
    'factor',
    'either way, on another machine with such an adapter',
    '90 % of 61 shapes on a second machine with llvmpipe',
  ),
  scores: of(1.15, 'factor', 'either way, for attention that also writes its scores', '0 to 15 % measured, H2O'),
  negligible: of(0.1, 'share', 'of a time whose weaker evidence gives no name', 'chosen'),
  mostLaunchGap: of(
    1.3e-6,
    's',
    'between two kernels of a CUDA graph: 0 to this, half of it the estimate',
    'a kernel that does nothing, H100 (hazyresearch.stanford.edu/blog/2025-05-27-no-bubbles)',
  ),
  reachedMemory: of(
    0.8,
    'share',
    'of the bandwidth, where memory keeps a kernel busy: what another card of its chip changes',
    'tables of H100 and H200, as median errors fall little beyond it',
  ),
  reachedCompute: of(0.7, 'share', 'the same of the matrix rate', 'tables of H100 and H200'),
  otherCard: of(0.05, 'log s', 'least widening on another card of a chip', 'tables of H100 and H200, either way'),
  otherCardMove: of(0.5, 'share', 'of how far a time is moved to another card of its chip', 'the same'),
  unequalLoss: of(0.188, 'share', 'lost a round and unit of inequality', 'LLMServingSim’s skew.csv, 396 batches'),
  tileShare: of(
    0.6,
    'share',
    'of the matrix rate that attention’s tiles reach',
    'LLMServingSim’s attention.csv, RTX PRO 6000',
  ),
  tileShareHalved: of(0.8, 'share', 'the same where that rate is halved', 'LLMServingSim’s attention.csv, RTX 4090'),
  unequalRounds: of(2, 'rounds', 'below which nothing is lost', 'LLMServingSim’s skew.csv, 396 batches'),
} as const satisfies Record<string, Constant>;
