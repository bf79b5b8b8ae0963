/** `lla-sim import`: kernel times that others measured become a stack file that plans are priced from. */
import { readFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { findDevice } from '../devices/find.js';
import { EXIT, show, UserError, type ExitCode } from '../errors.js';
import { MAX_STACK_BYTES, type StackFile } from '../stacks/stack-schema.js';
import { AIC_GPUS, aicTables, compareVersions } from '../stacks/import/aic.js';
import { isStack, STACK_CHOICES, STACKS, type Stack } from '../stacks/serving.js';
import { csvTable } from '../stacks/import/csv-table.js';
import { ratesOf } from '../stacks/fit/gpus.js';
import { LLMSERVINGSIM_GPUS, llmServingSimTables } from '../stacks/import/llmservingsim.js';
import { selectTables, type TableVersions } from '../stacks/import/select.js';
import { makeStackFile, type PassedTable } from '../stacks/fit/stack-file.js';
import { formatNumber } from '../numbers/units.js';
import { present } from '../present.js';
import { option, toggle, type Args, type Command } from './command.js';
import { print, say } from './output.js';

const SOURCES = ['aic', 'llmservingsim', 'csv'] as const;
type Source = (typeof SOURCES)[number];
/** A calibration is judged, not turned into a stack file. */
const CALIBRATION = 'calibration';

export const command: Command = {
  positional: { name: 'source', help: `where the tables come from: ${SOURCES.join(', ')}; or ${CALIBRATION}` },
  secondPositional: { name: 'path', help: 'folder of a checkout, the CSV file, or the calibration' },
  options: {
    gpu: option("the checkout's name of the GPU: h200_sxm, RTX4090, a100, ..."),
    stack: option(`whose kernels: ${STACKS.join(', ')}, or any name for CSV`),
    version: option('only this version of the stack [the latest that passes the physical limits]'),
    device: option('CSV: the device that was measured, as in models --devices'),
    check: toggle('calibration: judge the file, and write nothing'),
    commit: option("the checkout's commit, where its folder does not record it"),
    output: option('the stack file to write', 'Output', { short: 'o' }),
  },
  examples: [
    ['import aic ./aiconfigurator --gpu h200_sxm --stack vllm -o h200-vllm.json', 'newer tables than those carried'],
    ['import llmservingsim ./LLMServingSim --gpu RTX4090 -o rtx-4090-vllm.json', 'a profile of vLLM, layer by layer'],
    ['import csv times.csv --device h100 --stack ours -o ours.json', 'columns op, seconds and the sizes of each op'],
    ['import calibration mine.json --check', 'whether a calibration can be taken into calibrations/'],
  ],
  run,
};

async function run(args: Args): Promise<ExitCode> {
  if (args.positional === CALIBRATION) return checkCalibration(args);
  const source = args.positional as Source | null;
  if (source === null || !SOURCES.includes(source))
    throw new UserError(
      source === null ? 'the source of the tables is not given' : `import knows no source ${show(source)}`,
      `write lla-sim import with one of ${SOURCES.join(', ')}, ${CALIBRATION}`,
    );
  const asked = `write lla-sim import ${source} ${source === 'csv' ? 'FILE' : 'DIR'}`;
  const path = needed(args.secondPositional, 'the tables to import are', asked);
  const output = needed(args.text('output'), 'the file to write is', 'add --output FILE');
  const { stack, device, version, kinds } = find(source, path, args);
  const rates = ratesOf(device);
  const selected = await selectTables(kinds, rates);
  const { tables } = selected;
  const notes = [...selected.notes, ...(source === 'csv' ? doubts(tables) : [])];
  const quiet = args.isSet('quiet');
  const isEmpty = tables.every((table) => table.rows.length < FEWEST);
  for (const note of isEmpty ? notes.slice(1) : notes) say(quiet, note);
  if (isEmpty) {
    const [why, remedy] = notes[0]
      ? [notes[0], 'correct these rows']
      : [`fewer than ${FEWEST} shapes of each class`, `measure at least ${FEWEST} shapes of a class`];
    throw new UserError(
      `${show(path)} holds no table that can be used: ${why}`,
      source === 'csv' ? remedy : 'choose another version, stack or GPU',
    );
  }
  const newest = tables
    .map((table) => table.source.version)
    .sort(compareVersions)
    .at(-1)!;
  const file = makeStackFile({ stack, device, version: version ?? newest }, tables, rates, notes, (op, rows) => {
    if (process.stderr.isTTY) say(quiet, `${op}: ${rows} shapes`);
  });
  await print(serialise(file), { file: output, quiet });
  return EXIT.ok;
}

/** Of a shape's repetitions the slowest over the fastest, beyond which something else than noise sets them apart. */
const MOST_APART = 1.5;

/** What a user's file leaves out or contradicts itself in. */
const doubts = (tables: readonly PassedTable[]): string[] =>
  tables.flatMap(({ op, fixed, rows, apart, source: { path } }) => {
    const sizesOf = (sizes: Readonly<Record<string, number>>): string =>
      Object.entries(sizes)
        .map(([name, size]) => `${name} ${size}`)
        .join(', ');
    const table = `${path}: ${[op, sizesOf(fixed)].join(' ').trim()}`;
    return present([
      rows.length < FEWEST && `${table} has ${rows.length} of at least ${FEWEST} shapes; table not used`,
      apart.ratio > MOST_APART &&
        `${table}: times of ${sizesOf(apart.shape)} are up to ${formatNumber(apart.ratio)} times apart; of such rows ` +
          'the median is taken',
    ]);
  });

const VERDICTS = { good: 'good ', wrong: 'WRONG', note: 'note ' } as const;

/** Prints what speaks for and against a calibration; exit code 5 where something is wrong. */
async function checkCalibration(args: Args): Promise<ExitCode> {
  const path = needed(args.secondPositional, 'the calibration is', 'write lla-sim import calibration FILE --check');
  if (!args.isSet('check'))
    throw new UserError(
      'a calibration is judged only: plans read it with --calibration FILE',
      'add --check; calibrations/CONTRIBUTING.md says how to add it to the package',
    );
  const [{ judge }, { calibrationFiles, loadCalibration }] = await Promise.all([
    import('../plan/ask/judge.js'),
    import('../plan/ask/calibrations.js'),
  ]);
  const { calibration } = await loadCalibration(path);
  const others: string[] = [];
  for (const file of calibrationFiles().filter((other) => resolve(other) !== resolve(path)))
    await loadCalibration(file).then(
      (other) => others.push(other.calibration.device.description),
      // Files of other kinds lie there too.
      () => undefined,
    );
  const findings = judge(calibration, others);
  const lines = findings.map(({ verdict, text }) => `${VERDICTS[verdict]}  ${text}\n`);
  await print(lines.join(''), args.output());
  return findings.some(({ verdict }) => verdict === 'wrong') ? EXIT.outsideTolerance : EXIT.ok;
}

/** Fewest shapes of a class. */
const FEWEST = 12;

interface Found {
  readonly stack: string;
  /** Id in the catalogue. */
  readonly device: string;
  /** Null: the newest of the tables. */
  readonly version: string | null;
  readonly kinds: readonly TableVersions[];
}

function find(source: Source, path: string, args: Args): Found {
  const version = args.text('version');
  const neededFlag = (flag: string, hint: string): string => needed(args.text(flag), `--${flag} is`, hint);
  if (source === 'csv') {
    refuseIdle(args, source, ['gpu', 'commit']);
    const stack = neededFlag('stack', 'name whose kernels they are');
    if (!isStack(stack) && (STACK_CHOICES as readonly string[]).includes(stack))
      throw new UserError(
        `--stack ${stack} is not the name of a table: plan --stack ${stack} prices otherwise`,
        `write one of ${STACKS.join(', ')}, or a name of your own`,
      );
    if (isStack(stack)) neededFlag('version', `name the version of ${stack} that was measured`);
    const device = findDevice(neededFlag('device', 'name the device that was measured')).id;
    return { stack, device, version: version ?? 'unknown', kinds: [csvTable(path, stack, version ?? 'unknown')] };
  }
  const known = { aic: AIC_GPUS, llmservingsim: LLMSERVINGSIM_GPUS }[source];
  const gpu = neededFlag('gpu', `write --gpu with one of ${Object.keys(known).join(', ')}`);
  const commit = args.text('commit') ?? commitOf(path);
  if (source === 'aic') {
    refuseIdle(args, source, ['device']);
    const stack = neededFlag('stack', `write --stack with one of ${STACKS.join(', ')}`);
    if (!STACKS.includes(stack as Stack))
      throw new UserError(`--stack must be one of ${STACKS.join(', ')}, not ${show(stack)}`, 'correct --stack');
    const kinds = aicTables(path, { gpu, stack: stack as Stack, version, commit });
    return { stack, device: known[gpu]!, version, kinds };
  }
  refuseIdle(args, source, ['version', 'stack', 'device']);
  const { kinds, version: profiled } = llmServingSimTables(path, { gpu, commit });
  return { stack: 'vllm', device: known[gpu]!, version: profiled, kinds };
}

/** @throws UserError for a flag that changes nothing of this source */
function refuseIdle(args: Args, source: Source, flags: readonly string[]): void {
  const idle = args.isSet('check') ? 'check' : flags.find((flag) => args.text(flag) !== null);
  if (idle !== undefined) throw new UserError(`--${idle} does not apply to import ${source}`, `leave --${idle} out`);
}

/** @param what `the file to write is` */
function needed(value: string | null, what: string, hint: string): string {
  if (value === null) throw new UserError(`${what} not given`, hint);
  return value;
}

/** The commit that a checkout is at, or `unknown` for an unpacked archive. */
function commitOf(checkout: string): string {
  const read = (...names: string[]): string | null => {
    try {
      return readFileSync(join(checkout, '.git', ...names), 'utf8').trim();
    } catch {
      return null;
    }
  };
  const head = read('HEAD');
  const ref = head?.startsWith('ref: ') ? head.slice(5) : null;
  const packed =
    ref === null
      ? null
      : read('packed-refs')
          ?.split('\n')
          .find((line) => line.endsWith(` ${ref}`));
  const found = ref === null ? head : (read(ref) ?? packed?.split(' ')[0] ?? null);
  return found !== null && /^[0-9a-f]{40,64}$/.test(found) ? found : 'unknown';
}

/** A line a table, so that two imports can be compared. */
function serialise(file: StackFile): string {
  const { tables, sources, dropped, ...head } = file;
  const list = (name: string, items: readonly unknown[]): string =>
    `"${name}": [${items.length > 0 ? `\n${items.map((item) => JSON.stringify(item)).join(',\n')}\n` : ''}]`;
  const lists = [list('sources', sources), list('dropped', dropped), list('tables', tables)];
  const text = `${JSON.stringify(head).slice(0, -1)},\n${lists.join(',\n')}}\n`;
  if (text.length > MAX_STACK_BYTES)
    throw new UserError(
      `the stack file would have ${text.length} bytes, more than ${MAX_STACK_BYTES}`,
      'import fewer classes or head widths',
    );
  return text;
}
