/** `lla-sim calibrate`: measures the kernels on this machine's GPU and fits their predictors. */
import type { Tuning } from '../../kernels/options.js';
import { interruptible, print, ProgressLine, say } from './output.js';
import { existsSync, readFileSync, rmSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { callsOf } from '../bench/calibrate/lists.js';
import { calibrate, type CalibrationProgress, type Compiled } from '../bench/calibrate/calibrate.js';
import { measureOverheads } from '../bench/ceilings.js';
import { saveTo, writeCalibration } from '../bench/calibrate/save.js';
import { compilersFor } from '../bench/calibrate/compilers.js';
import { describeHost } from '../bench/host.js';
import { staleKernels } from '../bench/calibrate/tracks.js';
import { representativeCalls } from '../bench/regression/cases.js';
import { tune, type Trial, type TuneOptions } from '../bench/calibrate/tune.js';
import { fitting, outliers } from '../cost/fit/fit.js';
import { EXIT, UserError, show, type ExitCode } from '../errors.js';
import { findPreset, isPreset } from '../geometry/presets.js';
import { openDevice, type Device } from '../gpu/index.js';
import { displayPath } from '../io/files.js';
import { loadCalibration } from '../plan/ask/calibrations.js';
import { Budget } from '../io/budget.js';
import { KERNEL_NAMES, type KernelName } from '../../kernels/registry.js';
import type { Calibration } from '../schema/calibration.js';
import { otherMachine } from '../schema/machine.js';
import { summary } from '../bench/calibrate/summary.js';
import { readCalibration } from '../schema/drift.js';
import { formatNumber, parseSeconds } from '../numbers/units.js';
import { type Args, type Command, ADAPTER, option, toggle } from './command.js';
import { lockFile } from '../io/lock.js';
import { PACKAGE_ROOT } from '../io/root.js';
import { checkWritable, keepBeside, makeFolder, writeWhole } from '../io/write.js';

export const command: Command = {
  options: {
    budget: option('time to spend measuring: 90s, 5m, 1h [5m]'),
    model: option('model whose shapes are measured [ouro-1.4b]'),
    kernel: option('only these kernels, separated by commas [all]', null, { multiple: true, choices: KERNEL_NAMES }),
    ...ADAPTER,
    tune: toggle('first search for faster workgroup sizes and the like, in a third of the budget'),
    resume: toggle('continue the output file: keep its points and measure more'),
    seed: option('seed of the random operands [from the clock]'),
    page: option('write the page that measures in a browser to this file, and measure nothing'),
    output: option('calibration file [calibrations/<device>.json]', 'Output', { short: 'o' }),
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
  const page = args.text('page');
  const idle = page === null ? undefined : ['budget', 'resume', 'output', 'tune'].find((flag) => args.flags[flag]);
  if (idle !== undefined)
    throw new UserError(
      `--${idle} has no effect with --page: the page asks for it in the browser`,
      `leave --${idle} out`,
    );
  if (page !== null) return writePage(page, args.isSet('quiet'));
  const budgetText = args.text('budget') ?? '5m';
  const budgetSeconds = parseSeconds(budgetText, '--budget', true);
  const seed = args.seed(String(Date.now() % 2 ** 31));
  const model = args.text('model');
  if (model !== null && !isPreset(model) && existsSync(model))
    throw new UserError(
      `calibrate measures the shapes of a model that has a name, not of ${show(model)}`,
      'lla-sim models lists them',
    );
  findPreset(model ?? 'ouro-1.4b');
  const kernels = args.choices<KernelName>('kernel');
  const quiet = args.isSet('quiet');
  const output = args.text('output');
  // Errors of the file are reported before a device is opened.
  if (output !== null) checkFile(output, args);
  return interruptible(async (signal) => {
    const options = args.adapter();
    const device = await openDevice(options);
    const line = new ProgressLine(quiet);
    let unlock = (): void => undefined;
    try {
      const file = output ?? (await placeFor(device));
      if (output === null) checkFile(file, args);
      unlock = lockFile(file, 'calibration');
      const earlier = existsSync(file) ? await resumed(device, file) : null;
      const { description, software } = device.description;
      const kind = software ? ' (a software adapter: its times price no GPU)' : '';
      say(quiet, `measuring ${description}${kind}, seed ${seed}`);
      const budget = new Budget(budgetSeconds);
      const tuning = args.isSet('tune')
        ? await tuneKernels(device, { budget: budget.part(TUNE_SHARE * budgetSeconds), seed, signal }, kernels, quiet)
        : null;
      if (earlier) keepStale(device, file, earlier, tuning, quiet);
      // Until the budget is spent or Ctrl-C; every repetition is in the file as soon as it has ended.
      const onProgress = (p: Compiled & Partial<CalibrationProgress>): void => {
        const done = p.samples === undefined ? 'compiled' : `${p.samples} points`;
        line.time(p.elapsedSeconds, p.secondsLeft, `${p.kernel} ${p.variant}: ${done}`);
      };
      const calibration = await calibrate({
        device,
        host: describeHost(),
        budgetSeconds: Math.max(0, budget.left),
        seed,
        calls: callsOf(device, model),
        ...(kernels ? { kernels } : {}),
        ...(tuning ? { tuning } : {}),
        ...(earlier ? { resumeFrom: earlier } : {}),
        signal,
        save: saveTo(file),
        outliers,
        ...(software ? { compilers: () => compilersFor(device, options) } : {}),
        onProgress,
        onCompiled: onProgress,
      }).finally(() => line.isShown && process.stderr.write('\n'));
      if (calibration.kernels.every((k) => k.samples.length === 0)) {
        if (!earlier) rmSync(file, { force: true });
        throw nothingMeasured(calibration, signal.aborted);
      }
      if (budget.spent > OVERRUN * budgetSeconds)
        say(
          quiet,
          `it took ${formatNumber(budget.spent)} s for --budget ${budgetText}: overheads, ceilings and one point ` +
            'take that long here',
        );
      for (const { kernel, variant } of fitting(calibration)) line.show(`fitting ${kernel} ${variant}`);
      line.clear();
      writeCalibration(file, calibration);
      await print(summary(readCalibration(calibration), file), { file: null, quiet });
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
  say(quiet, `written to ${displayPath(file)}: open it in the browser of the machine to measure`);
  return EXIT.ok;
}

/** Refuses an existing file without --resume, and a place that cannot be written. */
function checkFile(file: string, args: Args): void {
  if (existsSync(file) && !args.isSet('resume'))
    throw new UserError(
      `calibration ${show(displayPath(file))} exists`,
      'add --resume to continue it, or name another file with --output',
    );
  makeFolder(dirname(file), 'calibration');
  checkWritable(file, 'calibration', true);
}

/** `calibrations/<adapter>.json`; with `-2`, `-3` where these files are other machines' with such an adapter. */
async function placeFor({ description }: Device): Promise<string> {
  const host = describeHost();
  for (let n = 1; ; n++) {
    const file = join('calibrations', `${slugOf(description)}${n === 1 ? '' : `-${n}`}.json`);
    if (!existsSync(file)) return file;
    if (otherMachine(description, host, (await loadCalibration(file)).stored) === null) return file;
  }
}

/** The calibration to resume. */
async function resumed(device: Device, file: string): Promise<Calibration> {
  const { stored: calibration } = await loadCalibration(file);
  const difference = otherMachine(device.description, describeHost(), calibration);
  if (difference !== null)
    throw new UserError(
      `calibration ${show(displayPath(file))} was measured on another device (${difference})`,
      'name another file with --output: measurements of two devices do not mix',
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
  const beside = displayPath(keepBeside(file));
  say(
    quiet,
    `changed since they were measured: ${stale.join(', ')}; they are measured again, and their earlier times stay in ` +
      beside,
  );
}

/** Why a calibration without any point ended. */
export function nothingMeasured(calibration: Pick<Calibration, 'kernels'>, interrupted: boolean): UserError {
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
  rules: Pick<TuneOptions, 'budget' | 'seed' | 'signal'>,
  kernels: readonly KernelName[] | null,
  quiet: boolean,
): Promise<Partial<Record<KernelName, Tuning>>> {
  const { submitSeconds } = await measureOverheads(device, rules.budget.seconds / 10);
  const calls = representativeCalls(device.description.software).filter((c) => kernels?.includes(c.kernel) ?? true);
  const line = new ProgressLine(quiet);
  const onTrial = ({ kernel, tuning, kept, ratio }: Trial): void => {
    const values = Object.entries(tuning)
      .map(([name, value]) => `${name} ${value}`)
      .join(', ');
    if (kept && !quiet) {
      line.clear();
      process.stderr.write(`${kernel}: ${values} takes ${ratio ? ratio.estimate.toFixed(3) : '–'} of the time\n`);
    } else line.show(`tuning ${kernel}: ${values}`);
  };
  const tuning = await tune(device, { ...rules, calls, clock: device.clock, submitSeconds, onTrial });
  line.clear();
  return tuning;
}

/** `nvidia-h200`, `mesa-llvmpipe`: maker and name of an adapter, as a file name. */
export function slugOf(d: { vendor: string; description: string }): string {
  const name = (d.description.split(':')[0] ?? '').replace(/\(.*?\)/g, ' ');
  const words = `${name.toLowerCase().includes(d.vendor.toLowerCase()) ? '' : d.vendor} ${name}`
    .toLowerCase()
    .match(/[a-z0-9]+/g) ?? ['device'];
  return words.join('-').slice(0, 60);
}
