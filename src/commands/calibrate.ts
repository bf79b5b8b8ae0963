/** `lla-sim calibrate`: measures the kernels on this machine's GPU and fits their predictors. */
import { existsSync, mkdirSync, readFileSync, rmSync } from 'node:fs';
import { dirname, join } from 'node:path';
import type { Anchor } from '../bench/anchors.js';
import { callsOf } from '../bench/lists.js';
import {
  calibrate,
  measureOverheads,
  saveTo,
  writeCalibration,
  type CalibrationProgress,
  type Compiled,
} from '../bench/index.js';
import { compilersFor } from '../bench/compilers.js';
import { describeHost } from '../bench/host.js';
import { staleKernels } from '../bench/tracks.js';
import { representativeCalls } from '../bench/regression/index.js';
import { tune, type Trial } from '../bench/tune.js';
import type { Tuning } from '../../kernels/launch.js';
import { outliers } from '../cost/fit.js';
import { fitting, nextPoints } from '../cost/fit-calibration.js';
import { EXIT, UserError, show, type ExitCode } from '../errors.js';
import { findPreset } from '../geometry/presets.js';
import { openDevice, type Device } from '../gpu/index.js';
import { displayPath } from '../io/files.js';
import { loadCalibration } from '../plan/ask/calibrations.js';
import { Budget } from '../io/budget.js';
import { columns, type Column } from '../report/text/text.js';
import { KERNEL_NAMES, type KernelName } from '../../kernels/registry.js';
import type { Calibration, Predictor } from '../schema/calibration.js';
import { otherMachine } from '../schema/machine.js';
import { DRIFT_CORRECTED } from '../schema/drift.js';
import { median } from '../numbers/statistics.js';
import { formatCount, formatDecimalBytes, formatNumber, parseNumber, parseSeconds } from '../numbers/units.js';
import { textFlag, type Args, type Command } from './command.js';
import { lockFile } from '../io/lock.js';
import { PACKAGE_ROOT } from '../io/root.js';
import { cannotWrite, checkWritable, keepBeside, writeWhole } from '../io/write.js';
import { interruptible, print, progressLine } from './output.js';

export const calibrateCommand: Command = {
  options: {
    budget: { type: 'string', help: 'time to spend measuring: 90s, 5m, 1h [5m]' },
    model: { type: 'string', help: 'model whose shapes are measured [ouro-1.4b]' },
    kernel: { type: 'string', multiple: true, help: 'only these kernels, separated by commas [all]' },
    adapter: { type: 'string', help: 'part of the name of the adapter, where there are several' },
    backend: { type: 'string', help: "Dawn backend: vulkan, metal, d3d12 [the platform's own]" },
    tune: { type: 'boolean', help: 'first search for faster workgroup sizes and the like, in a third of the budget' },
    resume: { type: 'boolean', help: 'continue the output file: keep its points and measure more' },
    seed: { type: 'string', help: 'seed of the random operands [from the clock]' },
    page: { type: 'string', help: 'write the page that measures in a browser to this file, and measure nothing' },
    output: { type: 'string', short: 'o', help: 'calibration file [calibrations/<device>.json]', group: 'Output' },
  },
  examples: [
    ['calibrate', 'measure for five minutes, with nothing else running'],
    ['calibrate --budget 30m --resume', 'continue an earlier calibration'],
    ['calibrate --page measure.html', 'a page that measures the GPU of whoever opens it'],
    ['calibrate --tune --budget 15m', 'tune the kernels for this device, then measure them'],
  ],
  run,
};

async function run(args: Args): Promise<ExitCode> {
  const page = textFlag(args, 'page');
  if (page !== null) return writePage(page, args.flags['quiet'] === true);
  const budgetText = textFlag(args, 'budget') ?? '5m';
  const budgetSeconds = parseSeconds(budgetText, '--budget', true);
  const seed = parseNumber(textFlag(args, 'seed') ?? String(Date.now() % 2 ** 31), '--seed', {
    min: 0,
    max: 2 ** 32 - 1,
    whole: true,
  });
  const model = textFlag(args, 'model');
  findPreset(model ?? 'ouro-1.4b');
  const kernels = readKernels(args);
  const [adapter, backend] = [textFlag(args, 'adapter'), textFlag(args, 'backend')];
  const quiet = args.flags['quiet'] === true;
  const output = textFlag(args, 'output');
  // Errors of the file are reported before a device is opened.
  if (output !== null) checkFile(output, args);
  return interruptible(async (signal) => {
    const options = { ...(adapter === null ? {} : { adapter }), ...(backend === null ? {} : { backend }) };
    const device = await openDevice(options);
    let unlock = (): void => undefined;
    try {
      const file = output ?? join('calibrations', `${slugOf(device.description)}.json`);
      if (output === null) checkFile(file, args);
      unlock = lockFile(file, 'calibration');
      const earlier = existsSync(file) ? await resumed(device, file, quiet) : null;
      if (!quiet)
        process.stderr.write(
          `measuring ${device.description.description}${device.description.software ? ' (a software adapter: its times price no GPU)' : ''}, seed ${seed}\n`,
        );
      const budget = new Budget(budgetSeconds);
      const tuning =
        args.flags['tune'] === true
          ? await tuneKernels(device, budget.part(TUNE_SHARE * budgetSeconds), seed, kernels, quiet, signal)
          : null;
      if (earlier) keepStale(device, file, earlier, tuning, quiet);
      const calls = callsOf(device, model);
      const calibration = await measure(device, {
        budgetSeconds: Math.max(0, budget.left),
        seed,
        kernels,
        earlier,
        file,
        quiet,
        tuning,
        calls,
        compilers: () => compilersFor(device, options),
        signal,
      });
      if (calibration.kernels.every((k) => k.samples.length === 0)) {
        if (!earlier) rmSync(file, { force: true });
        throw nothingMeasured(calibration, signal.aborted);
      }
      if (!quiet && budget.spent > OVERRUN * budgetSeconds)
        process.stderr.write(
          `it took ${formatNumber(budget.spent)} s for --budget ${budgetText}: overheads, ceilings and one point take that long here\n`,
        );
      fit(calibration, quiet);
      writeCalibration(file, calibration);
      await print(summary(calibration, file), { file: null, quiet });
      return EXIT.ok;
    } finally {
      unlock();
      device.close();
    }
  });
}

/** The measuring page, as the build left it. */
const PAGE = join(PACKAGE_ROOT, 'dist/measure.html');

function writePage(file: string, quiet: boolean): ExitCode {
  writeWhole(file, readFileSync(PAGE), 'page');
  if (!quiet)
    process.stderr.write(`written to ${displayPath(file)}: open it in the browser of the machine to measure\n`);
  return EXIT.ok;
}

/** Refuses an existing file without --resume, and a place that cannot be written. */
function checkFile(file: string, args: Args): void {
  if (existsSync(file) && args.flags['resume'] !== true)
    throw new UserError(
      `calibration ${show(displayPath(file))} exists`,
      'add --resume to continue it, or name another file with --output',
    );
  try {
    mkdirSync(dirname(file), { recursive: true });
  } catch (error) {
    throw cannotWrite('calibration', file, error);
  }
  checkWritable(file, 'calibration', true);
}

/** The calibration to resume. */
async function resumed(device: Device, file: string, quiet: boolean): Promise<Calibration> {
  const { calibration, mended } = await loadCalibration(file, true);
  const difference = otherMachine(device.description, describeHost(), calibration);
  if (difference !== null)
    throw new UserError(
      `calibration ${show(displayPath(file))} was measured on another device (${difference})`,
      'name another file with --output: measurements of two devices do not mix',
    );
  if (mended > 0 && !quiet)
    process.stderr.write(
      `${mended} point${mended === 1 ? '' : 's'} of ${displayPath(file)} had a time without its drift, which is left out\n`,
    );
  return calibration;
}

/** Points of kernels that have changed since are measured again; the file that holds their times is kept. */
function keepStale(
  device: Device,
  file: string,
  earlier: Calibration,
  tuning: Partial<Record<KernelName, Tuning>> | null,
  quiet: boolean,
): void {
  const stale = staleKernels(device, earlier, tuning ?? {});
  if (stale.length === 0) return;
  const beside = keepBeside(file);
  if (!quiet)
    process.stderr.write(
      `changed since they were measured: ${stale.join(', ')}; they are measured again, and their earlier times stay in ${displayPath(beside)}\n`,
    );
}

function nothingMeasured(calibration: Calibration, interrupted: boolean): UserError {
  if (interrupted)
    return new UserError(
      'nothing was measured: it ended before the first point',
      'let it run longer',
      EXIT.interrupted,
    );
  const gap = calibration.kernels.flatMap((k) => k.gaps)[0];
  return new UserError(
    `nothing was measured${gap ? `: ${gap.reason}` : ''}`,
    'give it more time with --budget, or other kernels with --kernel',
  );
}

/** Time over the budget from which it is said. */
const OVERRUN = 1.2;
/** Share of the budget that --tune may take. */
const TUNE_SHARE = 1 / 3;

/** Values of tunable constants that are faster here, at the shapes that `bench` compares versions at. */
async function tuneKernels(
  device: Device,
  budget: Budget,
  seed: number,
  kernels: readonly KernelName[] | null,
  quiet: boolean,
  signal: AbortSignal,
): Promise<Partial<Record<KernelName, Tuning>>> {
  const { submitSeconds } = await measureOverheads(device, budget.seconds / 10);
  const calls = representativeCalls(device.description.software).filter((c) => kernels?.includes(c.kernel) ?? true);
  const progress = !quiet && process.stderr.isTTY === true;
  const onTrial = (t: Trial): void => {
    const values = Object.entries(t.tuning)
      .map(([name, value]) => `${name} ${value}`)
      .join(', ');
    if (t.kept && !quiet)
      process.stderr.write(
        `${progress ? '\r\u001b[K' : ''}${t.kernel}: ${values} takes ${t.ratio ? t.ratio.estimate.toFixed(3) : '–'} of the time\n`,
      );
    if (progress)
      process.stderr.write(progressLine(budget.spent, Math.max(0, budget.left), `tuning ${t.kernel}: ${values}`));
  };
  const tuning = await tune(device, {
    calls,
    clock: device.clock,
    submitSeconds,
    budget,
    seed,
    signal,
    onTrial,
  });
  if (progress) process.stderr.write('\r\u001b[K');
  return tuning;
}

interface Measuring {
  tuning: Partial<Record<KernelName, Tuning>> | null;
  budgetSeconds: number;
  seed: number;
  kernels: KernelName[] | null;
  earlier: Calibration | null;
  file: string;
  quiet: boolean;
  calls: readonly (() => readonly Anchor[])[];
  compilers: () => Promise<readonly Device[]>;
  signal: AbortSignal;
}

/** Measures until the budget is spent or Ctrl-C; every repetition is in the file as soon as it has ended. */
async function measure(device: Device, m: Measuring): Promise<Calibration> {
  try {
    return await calibrate({
      device,
      budgetSeconds: m.budgetSeconds,
      seed: m.seed,
      calls: m.calls,
      ...(m.kernels ? { kernels: m.kernels } : {}),
      ...(m.tuning ? { tuning: m.tuning } : {}),
      ...(m.earlier ? { resumeFrom: m.earlier } : {}),
      signal: m.signal,
      save: saveTo(m.file),
      nextPoint: nextPoints(),
      outliers,
      ...(device.description.software ? { compilers: m.compilers } : {}),
      ...(m.quiet || process.stderr.isTTY !== true ? {} : { onProgress: showProgress, onCompiled: showProgress }),
    });
  } finally {
    if (!m.quiet && process.stderr.isTTY === true) process.stderr.write('\n');
  }
}

const showProgress = (p: Compiled & Partial<CalibrationProgress>): void => {
  const done = p.samples === undefined ? 'compiled' : `${p.samples} points`;
  process.stderr.write(progressLine(p.elapsedSeconds, p.secondsLeft, `${p.kernel} ${p.variant}: ${done}`));
};

/** Fits a predictor for every kernel and variant that has samples. */
function fit(calibration: Calibration, quiet: boolean): void {
  const shown = !quiet && process.stderr.isTTY === true;
  for (const { kernel, variant } of fitting(calibration))
    if (shown) process.stderr.write(`\rfitting ${kernel} ${variant}\u001b[K`);
  if (shown) process.stderr.write('\r\u001b[K');
}

function readKernels(args: Args): KernelName[] | null {
  const given = args.flags['kernel'];
  if (!Array.isArray(given)) return null;
  return (given as string[])
    .flatMap((v) => v.split(','))
    .map((name) => {
      if (!(KERNEL_NAMES as string[]).includes(name))
        throw new UserError(`--kernel must be of ${KERNEL_NAMES.join(', ')}, not ${show(name)}`, 'correct the name');
      return name as KernelName;
    });
}

/** `nvidia-h200`, `mesa-llvmpipe`: maker and name of an adapter, as a file name. */
export function slugOf(d: { vendor: string; description: string }): string {
  const name = (d.description.split(':')[0] ?? '').replace(/\(.*?\)/g, ' ');
  const words = `${name.toLowerCase().includes(d.vendor.toLowerCase()) ? '' : d.vendor} ${name}`
    .toLowerCase()
    .match(/[a-z0-9]+/g) ?? ['device'];
  return words.join('-').slice(0, 60);
}

interface FitRow {
  kernel: string;
  variant: string;
  points: number;
  fitted: Predictor | undefined;
}

/** Left out, one of fewer points is predicted from a single one: that says nothing. */
const FEWEST_LEFT_OUT = 3;

const percent = (x: number): string => `${(100 * x).toFixed(1)} %`;

const judged = ({ points, fitted }: FitRow): Predictor | null => (points >= FEWEST_LEFT_OUT ? (fitted ?? null) : null);

const leftOut = (r: FitRow, of: (p: Predictor) => number): string => {
  const fitted = judged(r);
  return fitted ? percent(of(fitted)) : '–';
};

const FIT_COLUMNS: readonly Column<FitRow>[] = [
  { title: 'kernel', align: 'left', cell: (r) => r.kernel },
  { title: 'variant', align: 'left', cell: (r) => r.variant },
  { title: 'points', align: 'right', cell: (r) => String(r.points) },
  { title: 'median error', align: 'right', cell: (r) => leftOut(r, (p) => p.looMedianError) },
  { title: '90th', align: 'right', cell: (r) => leftOut(r, (p) => p.looP90Error) },
  { title: 'covered', align: 'right', cell: (r) => leftOut(r, (p) => p.looCoverage) },
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
  const flagged = samples.filter((s) => s.flag !== undefined).length;
  const range = `${c.probe.lowDrift.toFixed(2)} to ${c.probe.highDrift.toFixed(2)} times its reference over ${c.probe.runs} runs`;
  return [
    `The probe took ${range}. ${corrected} of ${drifts.length} times drifted by more than ${100 * DRIFT_CORRECTED} % and are corrected for it when a predictor is fitted; the file keeps them raw.`,
    ...(flagged > 0
      ? [`${flagged} of ${samples.length} points were measured while the machine was not quiet; they carry a flag.`]
      : []),
  ];
}

const tuningLines = (c: Calibration): string[] =>
  c.kernels.flatMap((k) =>
    k.tuning
      ? [
          `${k.kernel} is tuned: ${Object.entries(k.tuning)
            .map(([name, value]) => `${name} ${value}`)
            .join(', ')}`,
        ]
      : [],
  );

/** What was measured, and how well each kernel is predicted where it was left out. */
function summary(c: Calibration, file: string): string {
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
  return [
    `${c.device.description}: copy ${formatDecimalBytes(c.ceilings.copyBytesPerSecond)}/s, read ${formatDecimalBytes(c.ceilings.readBytesPerSecond)}/s,`,
    `f32 ${formatCount(c.ceilings.f32FlopsPerSecond)}FLOP/s, ${(['f16', 'matrix'] as const).map((name) => optionalRate(c, name)).join(', ')};`,
    `submit ${(c.overheads.submitSeconds * 1e6).toFixed(0)} µs, dispatch ${(c.overheads.dispatchSeconds * 1e6).toFixed(1)} µs${transfers(c)}; clock ${c.clock.kind}`,
    '',
    ...columns(FIT_COLUMNS, rows),
    '',
    ...driftLines(c),
    ...tuningLines(c),
    ...(errors.length > 0
      ? [
          `Leave-one-out errors inside the measured range: each point predicted from the others. Median over kernels ${percent(median(errors))}.`,
        ]
      : []),
    ...(gaps > 0
      ? [`${gaps} gap${gaps === 1 ? '' : 's'}: shapes that this device or budget does not allow; the file says why.`]
      : []),
    `Written to ${displayPath(file)}`,
    '',
  ].join('\n');
}
