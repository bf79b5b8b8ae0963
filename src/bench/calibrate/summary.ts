/** What a calibration measured, in words for a terminal. */
import { displayPath } from '../../io/files.js';
import { columns, left, right, type Column } from '../../report/text/text.js';
import type { Calibration, Predictor } from '../../schema/calibration.js';
import { DRIFT_CORRECTED } from '../../schema/drift.js';
import { median } from '../../numbers/statistics.js';
import { counted, formatCount, formatDecimalBytes, formatShare } from '../../numbers/units.js';
import { present } from '../../present.js';
import { DRIFT_RETRIED, isBeyond } from './repetitions.js';

interface FitRow {
  kernel: string;
  variant: string;
  points: number;
  fitted: Predictor | undefined;
}

/** Left out, one of fewer points is predicted from a single one: that says nothing. */
const FEWEST_LEFT_OUT = 3;

const judged = ({ points, fitted }: FitRow): Predictor | null => (points >= FEWEST_LEFT_OUT ? (fitted ?? null) : null);

const leftOut = (r: FitRow, of: (p: Predictor) => number): string => {
  const fitted = judged(r);
  return fitted ? formatShare(of(fitted)) : '–';
};

const FIT_COLUMNS: readonly Column<FitRow>[] = [
  left('kernel', (r) => r.kernel),
  left('variant', (r) => r.variant),
  right('points', (r) => String(r.points)),
  right('median error', (r) => leftOut(r, (p) => p.looMedianError)),
  right('90th', (r) => leftOut(r, (p) => p.looP90Error)),
  right('covered', (r) => leftOut(r, (p) => p.looCoverage)),
];

function optionalRate(c: Calibration, name: 'f16' | 'matrix'): string {
  const key = `${name}FlopsPerSecond` as const;
  const value = c.ceilings[key];
  return value === null
    ? `no ${name} ceiling (${c.ceilings.reasons?.[key] ?? 'not measured'})`
    : `${name} ${formatCount(value)}FLOP/s`;
}

function transfers(c: Calibration): string {
  const { upload, readback } = c.overheads;
  const text = (name: string, t: typeof upload): string =>
    t ? `, ${name} ${(t.seconds * 1e6).toFixed(0)} µs and ${formatDecimalBytes(t.bytesPerSecond)}/s` : '';
  return text('upload', upload) + text('read-back', readback);
}

/** How far the machine drifted, and how times were corrected. */
function driftLines(c: Calibration): string[] {
  if (!c.probe) return [];
  const samples = c.kernels.flatMap((k) => k.samples);
  const drifts = samples.flatMap((s) => s.drift ?? []);
  const corrected = drifts.filter((d) => Math.abs(d - 1) > DRIFT_CORRECTED).length;
  const retried = c.clock.kind === 'processor' ? DRIFT_RETRIED.processor : DRIFT_RETRIED.usual;
  const restless = samples.filter((s) => s.drift && isBeyond(median(s.drift), retried)).length;
  const range =
    `${c.probe.lowDrift.toFixed(2)} to ${c.probe.highDrift.toFixed(2)} times its reference over ` +
    `${c.probe.runs} runs`;
  return [
    `The probe took ${range}. ${corrected} of ${drifts.length} times drifted by more than ` +
      `${100 * DRIFT_CORRECTED} % and are corrected for it when a predictor is fitted; the file keeps ` +
      'them raw.',
    ...(restless > 0 ? [`${restless} of ${samples.length} points were measured while the machine was not quiet.`] : []),
  ];
}

const tuningLines = (c: Calibration): string[] =>
  c.kernels.flatMap(({ kernel, tuning }) => {
    const values = Object.entries(tuning ?? {}).map(([name, value]) => `${name} ${value}`);
    return tuning ? [`${kernel} is tuned: ${values.join(', ')}`] : [];
  });

/** What was measured, and how well each kernel is predicted where it was left out. */
export function summary(c: Calibration, file: string): string {
  const rows = c.kernels.flatMap((k) =>
    [...new Set(k.samples.map((s) => s.variant))].map((variant): FitRow => ({
      kernel: k.kernel,
      variant,
      points: k.samples.filter((s) => s.variant === variant).length,
      fitted: k.predictors[variant],
    })),
  );
  const gaps = c.kernels.reduce((sum, k) => sum + k.gaps.length, 0);
  const errors = rows.flatMap((r) => judged(r)?.looMedianError ?? []);
  return present([
    `${c.device.description}: copy ${formatDecimalBytes(c.ceilings.copyBytesPerSecond)}/s, read ` +
      `${formatDecimalBytes(c.ceilings.readBytesPerSecond)}/s,`,
    `f32 ${formatCount(c.ceilings.f32FlopsPerSecond)}FLOP/s, ` +
      `${(['f16', 'matrix'] as const).map((name) => optionalRate(c, name)).join(', ')};`,
    `submit ${(c.overheads.submitSeconds * 1e6).toFixed(0)} µs, dispatch ` +
      `${(c.overheads.dispatchSeconds * 1e6).toFixed(1)} µs${transfers(c)}; clock ${c.clock.kind}`,
    '',
    ...columns(FIT_COLUMNS, rows),
    '',
    ...driftLines(c),
    ...tuningLines(c),
    errors.length > 0 &&
      'Leave-one-out errors inside the measured range: each point predicted from the others. Median over kernels ' +
        `${formatShare(median(errors))}.`,
    gaps > 0 && `${counted(gaps, 'gap')}: shapes that this device or budget does not allow; the file says why.`,
    `Written to ${displayPath(file)}`,
    '',
  ]).join('\n');
}
