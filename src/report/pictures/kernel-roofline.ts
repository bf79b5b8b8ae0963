/**
 * Roofline of the measured kernels: the rates of each beside the device's measured ceilings, and beside what tuned
 * kernels reach where that is known of the device. Only with a calibration.
 */
import type { ChartDataset } from 'chart.js';
import type { Pricer } from '../../cost/latency.js';
import { measuredPoints } from '../../cost/predictor.js';
import { KERNELS, workOf, type KernelName } from '../../../kernels/registry.js';
import { median } from '../../numbers/statistics.js';
import { present } from '../../present.js';
import { formatCount, formatNumber } from '../../numbers/units.js';
import type { View } from '../view.js';
import { picture, type Picture } from './picture.js';
import { countScale, numberScale, spread } from './scales.js';
import { colourOf, faded, lineStyle, markStyle, type Point } from './theme.js';

type Measured = NonNullable<View['sources']['calibration']>;

interface KernelPoints {
  readonly kernel: string;
  /** The kernel's source has changed since: planning does not use these times. */
  readonly stale: boolean;
  /** Operations a byte, and operations a second. */
  readonly points: readonly Point[];
  /** The same calls at the rate of tuned kernels; none where it is not known, or where a neighbour does the call. */
  readonly tuned: readonly Point[];
  /** Median share of the attainable rate; null without one. */
  readonly attainableShare: number | null;
}

/**
 * Every measured shape of every kernel that computes.
 * @param tuned prices of tuned kernels on this device; null where nothing is known of them
 */
export function kernelPoints(calibration: Measured, tuned: Pricer | null = null): KernelPoints[] {
  return calibration.content.kernels
    .map((k) => {
      const kernel = k.kernel as KernelName;
      const stale = calibration.stale.includes(kernel);
      const dims = KERNELS[kernel].dims;
      const usable = k.samples.filter(
        (s) => KERNELS[kernel].variants.includes(s.variant) && dims.every((d) => s.shape[d] !== undefined),
      );
      const points = [...new Set(usable.map((s) => s.variant))].flatMap((variant) =>
        measuredPoints(kernel, variant, usable).map((p) => {
          const call = { kernel, variant, shape: p.shape };
          const work = workOf(call);
          const tunedSeconds = tuned?.price(call).estimate ?? 0;
          return {
            x: work.flops / (work.readBytes + work.writeBytes),
            y: work.flops / p.seconds,
            attainable: tunedSeconds > 0 ? work.flops / tunedSeconds : null,
          };
        }),
      );
      const computing = points.filter((p) => p.x > 0 && Number.isFinite(p.x) && p.y > 0);
      const both = computing.flatMap(({ x, y, attainable }) => (attainable === null ? [] : [{ x, y, attainable }]));
      return {
        kernel,
        stale,
        points: computing.map(({ x, y }) => ({ x, y })),
        tuned: both.map(({ x, attainable }) => ({ x, y: attainable })),
        attainableShare: both.length > 0 ? median(both.map(({ y, attainable }) => y / attainable)) : null,
      };
    })
    .filter((k) => k.points.length > 0);
}

export const kernelRoofline = ({ sources: { calibration }, request }: View): Picture | null =>
  calibration === null ? null : rooflineOf(calibration, request.attainable ?? null);

const share = ({ attainableShare }: KernelPoints): string => formatNumber((attainableShare ?? 0) * 100);

/** The same of a calibration alone, while it is measured. */
export function rooflineOf(calibration: Measured, attainable: Pricer | null = null): Picture | null {
  const kernels = kernelPoints(calibration, attainable);
  if (kernels.length === 0) return null;
  const { readBytesPerSecond: bandwidth, f32FlopsPerSecond: flops } = calibration.content.ceilings;
  const source = calibration.file;
  const best = kernels
    .map((k) => ({ kernel: k.kernel, best: Math.max(...k.points.map((p) => p.y / Math.min(flops, p.x * bandwidth))) }))
    .sort((a, b) => b.best - a.best);
  const shares = kernels.flatMap((k) => (k.attainableShare === null ? [] : [`${k.kernel} ${share(k)} %`]));
  const reached =
    shares.length === 0 ? '' : ` Median share of what tuned kernels reach on this GPU: ${shares.join(', ')}.`;
  const staleNames = kernels.filter((k) => k.stale).map((k) => k.kernel);
  return picture({
    id: 'kernel-roofline',
    title: 'Roofline of the measured kernels',
    subtitle:
      `${calibration.content.device.description}; ceilings: ${formatCount(bandwidth / 1e9)} GB/s streaming read, ` +
      `${formatCount(flops / 1e9)} GFLOP/s in f32`,
    source,
    evidence: 'measured',
    summary:
      `Best share of its ceiling: ${best.map((b) => `${b.kernel} ${formatNumber(b.best * 100)} %`).join(', ')} ` +
      `(over 100 %: small shapes that stay in the processor's ` +
      `caches).${reached}` +
      (staleNames.length > 0
        ? ` Hollow: the source has changed since (${staleNames.join(', ')}), so planning does not use these times.`
        : ''),
    draw: (theme) => {
      const tuned = kernels.flatMap((k) => k.tuned);
      const all = [...kernels.flatMap((k) => k.points), ...tuned];
      const x = spread([...all.map((p) => p.x), flops / bandwidth], 2);
      const roof = [x.min, flops / bandwidth, x.max].map((i) => ({ x: i, y: Math.min(flops, i * bandwidth) }));
      return {
        type: 'scatter',
        data: {
          datasets: present<ChartDataset>([
            { label: 'ceiling', data: roof, showLine: true, ...lineStyle(theme.ink) },
            tuned.length > 0 && {
              label: 'tuned kernels; %: median share of their rate',
              data: tuned,
              ...markStyle(0, theme.ink, 4.5, 1.5),
              pointStyle: 'dash',
            },
            ...kernels.map((k, i) => ({
              label: present([
                k.kernel,
                k.stale && '(older source)',
                k.attainableShare !== null && `${share(k)} %`,
              ]).join(' '),
              data: [...k.points],
              ...markStyle(i, colourOf(theme, i), 4.5, 1.5),
              pointBackgroundColor: k.stale ? theme.paper : faded(colourOf(theme, i), 0.7),
              backgroundColor: k.stale ? theme.paper : colourOf(theme, i),
            })),
          ]),
        },
        scales: {
          x: numberScale(theme, 'operations a byte (log scale)', x),
          y: countScale(theme, 'operations a second (log scale)', spread([...all.map((p) => p.y), flops], 2)),
        },
      };
    },
  });
}
