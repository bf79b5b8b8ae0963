/** `lla-sim bench`: how close the kernels come to the device's ceilings, and whether they became slower. */
import { asJson, print, ProgressLine } from './output.js';
import { bench, type BenchOptions } from '../bench/regression/bench.js';
import { CASE_GROUPS, type CaseGroup } from '../bench/regression/cases.js';
import { benchMarkdown, benchTable } from '../bench/regression/print.js';
import type { BenchReport } from '../bench/regression/report.js';
import { resolveAgainst } from '../bench/regression/versions.js';
import { readBudget } from '../io/budget.js';
import { deviceOfAdapter } from '../devices/find.js';
import { pricesOn } from '../plan/ask/prepare.js';
import { tunedSources } from '../plan/ask/stacks.js';
import { EXIT, UserError, show, type ExitCode } from '../errors.js';
import { tuningOf } from '../bench/calibrate/tune.js';
import { openDevice, type Device } from '../gpu/index.js';
import { loadCalibration } from '../plan/ask/calibrations.js';
import { KERNEL_NAMES, type KernelName } from '../../kernels/registry.js';
import { formatOption, option, OUTPUT, toggle, type Args, type Command, ADAPTER } from './command.js';
import { checkWritable } from '../io/write.js';

const FORMATS = ['table', 'json', 'markdown'] as const;
const PRINTERS = { table: benchTable, json: (report: BenchReport) => asJson(report, 1), markdown: benchMarkdown };
/** Overheads and ceilings take seconds on a software adapter, and so does a call. */
const LEAST_SECONDS = 10;

export const command: Command = {
  options: {
    against: option('compare with a git revision or a folder of kernels'),
    threshold: option('slowdown that counts: 5%, 0.05 [5%]'),
    kernel: option('only these kernels, separated by commas [all]', null, { multiple: true, choices: KERNEL_NAMES }),
    shapes: option('only these groups of shapes [all]', null, { multiple: true, choices: CASE_GROUPS }),
    all: toggle('also measure kernels whose source is identical'),
    roofline: toggle('share of the ceilings that each kernel reaches, which is what bench prints without --against'),
    calibration: option('take the tuning of this calibration'),
    quick: toggle(
      'with --against: results decide the exit code; times are shown and not judged, as CI machines are noisy',
    ),
    budget: option(`time to spend at most, from ${LEAST_SECONDS}s on: 30s, 2m [2m]`),
    seed: option('seed of operands, order and intervals [1]'),
    ...ADAPTER,
    ...formatOption(FORMATS),
    ...OUTPUT,
  },
  shown: [
    'against',
    'threshold',
    'kernel',
    'shapes',
    'roofline',
    'calibration',
    'budget',
    'adapter',
    'format',
    'output',
    'quiet',
  ],
  examples: [
    ['bench', 'time, achieved rates and share of the ceilings of every kernel'],
    ['bench --against HEAD~1', 'did the last commit slow a kernel down? exit code 4 if so'],
    ['bench --against ../other/kernels --kernel attend,matmul --format markdown', 'a comment for a pull request'],
  ],
  run,
};

async function run(args: Args): Promise<ExitCode> {
  const format = args.choice('format', FORMATS);
  const budget = readBudget(args.text('budget') ?? '2m', LEAST_SECONDS);
  const seed = args.seed('1');
  const threshold = readThreshold(args.text('threshold') ?? '5%');
  const kernels = args.choices<KernelName>('kernel');
  const shapes = args.choices<CaseGroup>('shapes');
  const tuning = await readTuning(args);
  const against = readAgainst(args);
  const quiet = args.isSet('quiet');
  const output = args.text('output');
  if (output !== null) checkWritable(output, '--output');
  const device = await openDevice(args.adapter());
  const line = new ProgressLine(quiet);
  try {
    const options: BenchOptions = {
      against,
      kernels,
      budget,
      threshold,
      seed,
      all: args.isSet('all'),
      timesUnjudged: args.isSet('quick'),
      ...(shapes ? { shapes } : {}),
      ...(tuning ? { tuning } : {}),
      ...(against === null ? { tunedSeconds: tunedOn(device.description) } : {}),
      onProgress: ({ kernel, variant }, done, total) => line.show(`[${done + 1}/${total}] ${kernel} ${variant}`),
      onRound: (rounds, elapsed, total) => line.time(elapsed, Math.max(0, total - elapsed), `round ${rounds}`),
    };
    const report = await bench(device, options);
    line.clear();
    await print(PRINTERS[format](report), { file: output, quiet });
    return report.regressed ? EXIT.regressed : EXIT.ok;
  } finally {
    device.close();
  }
}

/** What tuned kernels take on a GPU of the catalogue; null for another device. */
function tunedOn({ description, software }: Device['description']): NonNullable<BenchOptions['tunedSeconds']> | null {
  const spec = software ? undefined : deviceOfAdapter(description);
  if (!spec) return null;
  const pricer = pricesOn(spec, tunedSources(spec));
  return (call) => pricer.price(call).estimate;
}

/** Tuning by kernel out of a calibration, or null. */
async function readTuning(args: Args): Promise<BenchOptions['tuning'] | null> {
  const file = args.text('calibration');
  if (file === null) return null;
  if (args.text('against') !== null)
    throw new UserError('--calibration and --against exclude each other', 'give one of them');
  return tuningOf((await loadCalibration(file)).calibration);
}

function readAgainst(args: Args): BenchOptions['against'] {
  const name = args.text('against');
  if (name === null) {
    const idle = ['all', 'quick', 'threshold'].find((flag) => args.isSet(flag) || args.text(flag) !== null);
    if (idle === undefined) return null;
    throw new UserError(`--${idle} works only with --against`, `add --against, or leave --${idle} out`);
  }
  if (args.isSet('roofline')) throw new UserError('--roofline and --against exclude each other', 'give one of them');
  return resolveAgainst(name);
}

/** `5%`, `7.5 %` or `0.05`, as a fraction. */
export function readThreshold(text: string): number {
  const percent = /^([0-9.]+)\s*%$/.exec(text.trim());
  const value = percent ? Number(percent[1]) / 100 : Number(text);
  if (!(value >= 0.001 && value <= 1) || (percent === null && !/^[0-9.]+$/.test(text.trim())))
    throw new UserError(`--threshold must be from 0.1% to 100%, not ${show(text)}`, 'write for example --threshold 5%');
  return value;
}
