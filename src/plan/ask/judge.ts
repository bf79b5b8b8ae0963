/**
 * Judges a calibration that somebody else measured: whether its numbers can be, whether they repeat, and what they add.
 * The schema has accepted it before.
 */
import { group } from 'd3-array';
import { measuredPoints } from '../../cost/predictor.js';
import { deviceOfAdapter } from '../../devices/find.js';
import { KERNELS, workOf, type KernelName } from '../../../kernels/registry.js';
import type { Shape } from '../../../kernels/spec.js';
import { correctedSeconds, driftExponentOf } from '../../schema/drift.js';
import type { Calibration, Sample } from '../../schema/calibration.js';
import { median } from '../../numbers/statistics.js';
import { formatShare } from '../../numbers/units.js';
import { staleKernels } from './stale.js';

export interface Finding {
  /** `wrong`: the file is not taken as it is. */
  readonly verdict: 'good' | 'wrong' | 'note';
  readonly text: string;
}

const MIB = 2 ** 20;
/** Largest last-level caches: operands within may come faster than from memory. */
const CACHE_BYTES = { software: 512 * MIB, hardware: 256 * MIB };
/** Rates beyond a ceiling by this factor are noise of the ceiling. */
const CEILING_FACTOR = 1.15;
/** A call with this much more work, in every size of its shape, is not twice as fast. */
const MUCH_MORE_WORK = 8;
const MUCH_LESS_TIME = 0.5;
/** Halves of the repetitions agree within this factor … */
const HALVES_FACTOR = 1.25;
/** … for this share of the points; other rules may be broken by one point in fifty: outliers are real. */
const HALVES_SHARE = 0.85;
const OUTLIERS_SHARE = 0.02;
const LEAST_REPETITIONS = 4;

/** @param others adapters of which there are calibrations already */
export function judge(c: Calibration, others: readonly string[] = []): Finding[] {
  const samples = c.kernels.flatMap((k) => k.samples.map((sample) => ({ kernel: k.kernel as KernelName, sample })));
  if (samples.length === 0) return [{ verdict: 'wrong', text: 'it holds no measured shape' }];
  return [ceilings(c, samples), monotone(c), halves(c), ...hashes(c), adds(c, samples.length, others)];
}

function ceilings(c: Calibration, samples: readonly { kernel: KernelName; sample: Sample }[]): Finding {
  const { copyBytesPerSecond, readBytesPerSecond, f32FlopsPerSecond, f16FlopsPerSecond, matrixFlopsPerSecond } =
    c.ceilings;
  const cache = CACHE_BYTES[c.device.software ? 'software' : 'hardware'];
  const bytesPerSecond = CEILING_FACTOR * Math.max(copyBytesPerSecond, readBytesPerSecond);
  const flopsPerSecond =
    CEILING_FACTOR * Math.max(f32FlopsPerSecond, f16FlopsPerSecond ?? 0, matrixFlopsPerSecond ?? 0);
  const over = samples.filter(({ kernel, sample }) => {
    const work = workOf({ kernel, variant: sample.variant, shape: sample.shape });
    const bytes = work.readBytes + work.writeBytes;
    const seconds = median(sample.seconds);
    return (bytes > cache && bytes / seconds > bytesPerSecond) || work.flops / seconds > flopsPerSecond;
  });
  return rule(over, samples.length, 'above the ceilings of the device');
}

function rule(wrong: readonly { kernel: string; sample: Sample }[], of: number, what: string): Finding {
  const [first] = wrong;
  if (!first) return { verdict: 'good', text: `none of ${of} points is ${what}` };
  const { kernel, sample } = first;
  return {
    verdict: wrong.length > OUTLIERS_SHARE * of ? 'wrong' : 'note',
    text:
      `${wrong.length} of ${of} points are ${what}, such as ${kernel} ${sample.variant} ` +
      `${JSON.stringify(sample.shape)} in ${median(sample.seconds).toPrecision(3)} s`,
  };
}

/** Points that are much faster than a much smaller shape of the same kernel. */
function monotone(c: Calibration): Finding {
  const wrong: { kernel: string; sample: Sample }[] = [];
  let points = 0;
  for (const k of c.kernels) {
    const kernel = k.kernel as KernelName;
    for (const variant of new Set(k.samples.map((s) => s.variant))) {
      const measured = measuredPoints(kernel, variant, k.samples);
      points += measured.length;
      for (const large of measured)
        if (
          measured.some(
            (small) =>
              within(kernel, small.shape, large.shape) &&
              workRatio(kernel, variant, small.shape, large.shape) >= MUCH_MORE_WORK &&
              large.seconds < MUCH_LESS_TIME * small.seconds,
          )
        )
          wrong.push({ kernel, sample: k.samples[large.sampleIndices[0]!]! });
    }
  }
  return rule(wrong, points, 'twice as fast as a shape with an eighth of the work');
}

const within = (kernel: KernelName, small: Shape, large: Shape): boolean =>
  KERNELS[kernel].dims.every((d) => (small[d] ?? 0) <= (large[d] ?? 0));

/** Work of the larger over that of the smaller, bytes or operations, whichever grew less. */
function workRatio(kernel: KernelName, variant: string, small: Shape, large: Shape): number {
  const [a, b] = [workOf({ kernel, variant, shape: small }), workOf({ kernel, variant, shape: large })];
  const bytes = (b.readBytes + b.writeBytes) / (a.readBytes + a.writeBytes);
  return a.flops > 0 ? Math.min(bytes, b.flops / a.flops) : bytes;
}

/** Whether the first and the second half of a point's repetitions tell the same time. */
function halves(c: Calibration): Finding {
  const ratios = c.kernels.flatMap(({ samples }) =>
    [...group(samples, (s) => s.variant).values()].flatMap((own) => {
      const exponent = driftExponentOf(own);
      return own.flatMap((sample) => {
        const seconds = correctedSeconds(sample, exponent);
        if (seconds.length < LEAST_REPETITIONS) return [];
        const middle = seconds.length >> 1;
        return [Math.abs(Math.log(median(seconds.slice(0, middle)) / median(seconds.slice(middle))))];
      });
    }),
  );
  if (ratios.length === 0)
    return { verdict: 'wrong', text: `no point has ${LEAST_REPETITIONS} repetitions: measure for longer` };
  const share = ratios.filter((r) => r <= Math.log(HALVES_FACTOR)).length / ratios.length;
  return {
    verdict: share >= HALVES_SHARE ? 'good' : 'wrong',
    text:
      `the two halves of the repetitions agree within ${formatShare(HALVES_FACTOR - 1)} for ${formatShare(share)} of ` +
      `${ratios.length} points; ${formatShare(HALVES_SHARE)} are wanted`,
  };
}

function hashes(c: Calibration): Finding[] {
  const measured = c.kernels.filter((k) => k.samples.length > 0).map((k) => k.kernel);
  const stale = staleKernels(c).filter((kernel) => measured.includes(kernel));
  if (stale.length === 0)
    return [{ verdict: 'good', text: `all ${measured.length} kernels are those of this version of lla-sim` }];
  return [
    {
      verdict: stale.length === measured.length ? 'wrong' : 'note',
      text:
        `${stale.length} of ${measured.length} kernels have changed since: ${stale.join(', ')}; their times are not ` +
        'used',
    },
  ];
}

function adds(c: Calibration, points: number, others: readonly string[]): Finding {
  const { description, software } = c.device;
  const known = software ? null : (deviceOfAdapter(description)?.name ?? null);
  const measured = c.kernels.filter((k) => k.samples.length > 0).length;
  const browser = c.host.browser ? `, in ${c.host.browser.name} ${c.host.browser.version}` : '';
  const device = software
    ? 'a software adapter, which prices no GPU'
    : known === null
      ? 'a GPU that the catalogue does not name: a plan has to state its memory'
      : `${known} of the catalogue`;
  const again = others.includes(description) ? '; there is a calibration of this adapter already' : '';
  return {
    verdict: 'note',
    text: `it adds ${points} points of ${measured} kernels on ${description}${browser}: ${device}${again}`,
  };
}
