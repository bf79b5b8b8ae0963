/** `lla-sim calibrate`: measures the kernels on this machine's GPU and fits their predictors. */
import { existsSync } from 'node:fs';
import { mkdir } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { anchorCalls } from '../bench/anchors.js';
import { calibrate, saveTo, type CalibrationProgress } from '../bench/index.js';
import { activeSelector, fitPredictor, outliers } from '../cost/fit.js';
import { EXIT, UserError, show, type ExitCode } from '../errors.js';
import { findPreset } from '../geometry/presets.js';
import { openDevice, type Device } from '../gpu/index.js';
import { displayPath } from '../files.js';
import { loadCalibration } from '../plan/calibrations.js';
import { DEFAULT_TARGET_WORKGROUPS } from '../plan/request.js';
import { columns, type Column } from '../report/text.js';
import { KERNEL_NAMES, type KernelName, type Shape } from '../schedule/kernels.js';
import type { Calibration, Predictor, Sample } from '../schema/calibration.js';
import { formatCount, formatDecimalBytes, parseNumber, parseSeconds } from '../units.js';
import { textFlag, type Args, type Command } from './command.js';
import { print } from './output.js';

export const calibrateCommand: Command = {
  options: {
    budget: { type: 'string', help: 'time to spend measuring: 90s, 5m, 1h [5m]' },
    model: { type: 'string', help: 'model whose shapes are measured [ouro-1.4b]' },
    kernel: { type: 'string', multiple: true, help: 'only these kernels, separated by commas [all]' },
    adapter: { type: 'string', help: 'part of the name of the adapter, where there are several' },
    backend: { type: 'string', help: 'Dawn backend: vulkan, metal, d3d12 [the platform\'s own]' },
    resume: { type: 'boolean', help: 'keep the points that the output file has already' },
    seed: { type: 'string', help: 'seed of the random operands [from the clock]' },
    output: { type: 'string', short: 'o', help: 'calibration file [calibrations/<device>.json]', group: 'Output' },
  },
  examples: [
    ['calibrate', 'measure for five minutes'],
    ['calibrate --budget 30m --resume', 'go on with what was measured before'],
  ],
  run,
};

/** Contexts and batches whose shapes are measured, as far as memory and budget allow. */
const CONTEXTS = [256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072, 262144];
const BATCHES = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024];

async function run(args: Args): Promise<ExitCode> {
  const budgetSeconds = parseSeconds(textFlag(args, 'budget') ?? '5m', '--budget', true);
  const seed = parseNumber(textFlag(args, 'seed') ?? String(Date.now() % 2 ** 31), '--seed', { min: 0, max: 2 ** 32 - 1, whole: true });
  const geometry = findPreset(textFlag(args, 'model') ?? 'ouro-1.4b');
  const kernels = readKernels(args);
  const [adapter, backend] = [textFlag(args, 'adapter'), textFlag(args, 'backend')];
  const quiet = args.flags['quiet'] === true;
  const device = await openDevice({ ...(adapter === null ? {} : { adapter }), ...(backend === null ? {} : { backend }) });
  try {
    const file = textFlag(args, 'output') ?? join('calibrations', `${slugOf(device.description)}.json`);
    const earlier = args.flags['resume'] === true && existsSync(file) ? (await loadCalibration(file)).calibration : null;
    if (existsSync(file) && !earlier && textFlag(args, 'output') === null) {
      throw new UserError(`${show(displayPath(file))} exists`, 'add --resume to go on with it, or name another file with --output');
    }
    await mkdir(dirname(file), { recursive: true });
    if (!quiet) process.stderr.write(`measuring ${device.description.description}${device.description.software ? ' (a software adapter: its times price no GPU)' : ''}, seed ${seed}\n`);
    const calibration = await measure(device, { budgetSeconds, seed, kernels, earlier, file, quiet, calls: anchorCalls(geometry, { contexts: CONTEXTS, batches: BATCHES, targetWorkgroups: DEFAULT_TARGET_WORKGROUPS, bindingBytes: device.limits.maxStorageBufferBindingSize }) });
    fit(calibration, quiet);
    await saveTo(file)(calibration);
    await print(summary(calibration, file), { file: null, quiet });
    return EXIT.ok;
  } finally {
    device.close();
  }
}

interface Measuring {
  budgetSeconds: number;
  seed: number;
  kernels: KernelName[] | null;
  earlier: Calibration | null;
  file: string;
  quiet: boolean;
  calls: ReturnType<typeof anchorCalls>;
}

/** Measures until the budget is spent or Ctrl-C; every point is in the file as soon as it exists. */
async function measure(device: Device, m: Measuring): Promise<Calibration> {
  const abort = new AbortController();
  const stop = (): void => abort.abort();
  process.once('SIGINT', stop);
  const selectors = new Map<string, (samples: readonly Sample[], candidates: readonly Shape[]) => number>();
  const selector = (kernel: KernelName, variant: string): ((samples: readonly Sample[], candidates: readonly Shape[]) => number) => {
    const key = `${kernel}/${variant}`;
    const known = selectors.get(key) ?? activeSelector(kernel, variant);
    selectors.set(key, known);
    return known;
  };
  try {
    return await calibrate({
      device,
      budgetSeconds: m.budgetSeconds,
      seed: m.seed,
      calls: m.calls,
      ...(m.kernels ? { kernels: m.kernels } : {}),
      ...(m.earlier ? { resumeFrom: m.earlier } : {}),
      signal: abort.signal,
      save: saveTo(m.file),
      nextPoint: (kernel, variant, samples, candidates) => selector(kernel, variant)(samples, candidates),
      outliers: (kernel, variant, samples) => outliers(kernel, variant, samples),
      onProgress: m.quiet || process.stderr.isTTY !== true ? () => undefined : showProgress,
    });
  } finally {
    process.removeListener('SIGINT', stop);
    if (!m.quiet && process.stderr.isTTY === true) process.stderr.write('\n');
  }
}

function showProgress(p: CalibrationProgress): void {
  const share = Math.min(1, p.elapsedSeconds / p.budgetSeconds);
  const bar = '#'.repeat(Math.round(share * 30)).padEnd(30, '.');
  const left = Math.max(0, Math.round(p.budgetSeconds - p.elapsedSeconds));
  process.stderr.write(`\r[${bar}] ${left} s left  ${p.kernel} ${p.variant}: ${p.samples} points\u001b[K`);
}

/** Fits a predictor for every kernel and variant that has samples. */
function fit(calibration: Calibration, quiet: boolean): void {
  for (const k of calibration.kernels) {
    for (const variant of new Set(k.samples.map((s) => s.variant))) {
      if (!quiet && process.stderr.isTTY === true) process.stderr.write(`\rfitting ${k.kernel} ${variant}\u001b[K`);
      k.predictors[variant] = fitPredictor(k.kernel as KernelName, variant, k.samples);
    }
  }
  if (!quiet && process.stderr.isTTY === true) process.stderr.write('\r\u001b[K');
}

function readKernels(args: Args): KernelName[] | null {
  const given = args.flags['kernel'];
  if (!Array.isArray(given)) return null;
  return (given as string[]).flatMap((v) => v.split(',')).map((name) => {
    if (!(KERNEL_NAMES as string[]).includes(name)) throw new UserError(`--kernel must be of ${KERNEL_NAMES.join(', ')}, not ${show(name)}`, 'correct the name');
    return name as KernelName;
  });
}

/** `nvidia-h200`, `mesa-llvmpipe`: maker and name of an adapter, as a file name. */
export function slugOf(d: { vendor: string; description: string }): string {
  const name = (d.description.split(':')[0] ?? '').replace(/\(.*?\)/g, ' ');
  const words = `${name.toLowerCase().includes(d.vendor.toLowerCase()) ? '' : d.vendor} ${name}`.toLowerCase().match(/[a-z0-9]+/g) ?? ['device'];
  return words.join('-').slice(0, 60);
}

interface FitRow {
  kernel: string;
  variant: string;
  points: number;
  fitted: Predictor | undefined;
}

const percent = (x: number | undefined): string => (x === undefined ? '–' : `${(100 * x).toFixed(1)} %`);

const FIT_COLUMNS: readonly Column<FitRow>[] = [
  { title: 'kernel', align: 'left', cell: (r) => r.kernel },
  { title: 'variant', align: 'left', cell: (r) => r.variant },
  { title: 'points', align: 'right', cell: (r) => String(r.points) },
  { title: 'median error', align: 'right', cell: (r) => percent(r.fitted?.looMedianError) },
  { title: '90th', align: 'right', cell: (r) => percent(r.fitted?.looP90Error) },
  { title: 'covered', align: 'right', cell: (r) => percent(r.fitted?.looCoverage) },
];

/** What was measured, and how well each kernel is predicted where it was left out. */
function summary(c: Calibration, file: string): string {
  const rows = c.kernels.flatMap((k) => [...new Set(k.samples.map((s) => s.variant))].map((variant): FitRow => ({ kernel: k.kernel, variant, points: k.samples.filter((s) => s.variant === variant).length, fitted: k.predictors[variant] })));
  const gaps = c.kernels.reduce((sum, k) => sum + k.gaps.length, 0);
  const errors = rows.map((r) => r.fitted?.looMedianError).filter((e) => e !== undefined).sort((a, b) => a - b);
  return [
    `${c.device.description}: copy ${formatDecimalBytes(c.ceilings.copyBytesPerSecond)}/s, read ${formatDecimalBytes(c.ceilings.readBytesPerSecond)}/s, f32 ${formatCount(c.ceilings.f32FlopsPerSecond)}FLOP/s;`,
    `submit ${(c.overheads.submitSeconds * 1e6).toFixed(0)} µs, dispatch ${(c.overheads.dispatchSeconds * 1e6).toFixed(1)} µs; clock ${c.clock.kind}`,
    '',
    ...columns(FIT_COLUMNS, rows),
    '',
    `Leave-one-out errors inside the measured range: each point predicted from the others. Median over kernels ${percent(errors[Math.floor(errors.length / 2)])}.`,
    ...(gaps > 0 ? [`${gaps} gap${gaps === 1 ? '' : 's'}: shapes that this device or budget does not allow; the file says why.`] : []),
    `Written to ${displayPath(file)}`,
    '',
  ].join('\n');
}
