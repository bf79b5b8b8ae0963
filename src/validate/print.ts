/** A validation as a page for a terminal or as Markdown: the verdict first, then its evidence. */
import { OUT_OF_TIME } from '../io/budget.js';
import { markdownText } from '../report/tables.js';
import { columns, left, right, wrap, type Column } from '../report/text/text.js';
import { counted, formatBytes, formatDecimalBytes, formatNumber, formatTokens } from '../numbers/units.js';
import { present } from '../present.js';
import { KERNELS as KERNEL_SPECS } from '../../kernels/registry.js';
import { capacityHolds, type CapacityRow } from './memory/capacity.js';
import type { ControlRow } from './controls.js';
import type { NotRun } from './decoding.js';
import type { MeasuredRow, StepRow } from './latency.js';
import { differing, type KindBytes, type MemoryRow } from './memory/memory.js';
import type { PromptRow } from './prefill.js';
import { overheadOf, percent, type Check, type KernelSummary, type ValidationReport, signed } from './report.js';
import { verdict } from './verdict.js';
import { SERVING_TOLERANCES, type ServingRow } from './serving.js';
import { covered, signedError } from './statistics.js';

const WIDTH = 100;
/** Rows of a table of differences; the JSON has all. */
const MOST_ROWS = 12;

interface Block {
  readonly title: string;
  readonly paragraphs?: readonly string[];
  readonly table?: {
    readonly spec: readonly Column<readonly string[]>[];
    readonly rows: readonly (readonly string[])[];
  };
}

/** A table of any rows as one of texts. */
const table = <T>(spec: readonly Column<T>[], rows: readonly T[]): NonNullable<Block['table']> => ({
  spec: spec.map(({ title, align }, i) => ({ title, align, cell: (row) => row[i] as string })),
  rows: rows.map((row) => spec.map((c) => c.cell(row))),
});

const milliseconds = (seconds: number): string => formatNumber(seconds * 1e3);

const STATUS: Readonly<Record<Check['status'], string>> = {
  holds: 'holds',
  failed: 'OUTSIDE',
  'not-checked': 'not checked',
};
const CHECKS: readonly Column<Check>[] = [
  left('check', (c) => c.name),
  left('', (c) => `${STATUS[c.status]}${c.status === 'failed' && !c.strict ? ' (not judged)' : ''}`),
  left('found', (c) => c.found),
  left('tolerance', (c) => c.tolerance),
];

const COMPARED: readonly Column<MeasuredRow>[] = [
  right('measured ms', (r) => milliseconds(r.measuredSeconds)),
  right('predicted', (r) => milliseconds(r.predicted.estimate)),
  right('90 % interval', (r) => `${milliseconds(r.predicted.low)}–${milliseconds(r.predicted.high)}`),
  right('error', (r) => signed(signedError(r))),
  left('inside', (r) => (covered(r) ? 'yes' : 'no')),
  left('evidence', (r) => r.evidence),
];

const STEPS: readonly Column<StepRow>[] = [
  left('step', (s) => s.id),
  right('batch', (s) => String(s.batch)),
  right('context', (s) => String(s.contextTokens)),
  ...COMPARED,
  right('overhead', (s) => signed(overheadOf(s))),
];

const PROMPTS: readonly Column<PromptRow>[] = [
  left('prompt', (p) => p.id),
  left('prefill', (p) => p.method),
  right('tokens', (p) => String(p.promptTokens)),
  right('chunk', (p) => String(p.chunkTokens)),
  ...COMPARED,
];

const CONTROLS: readonly Column<ControlRow>[] = [
  left('kernel', (c) => c.kernel),
  left('variant', (c) => c.variant),
  left('shape', ({ kernel, shape }) => KERNEL_SPECS[kernel].dims.map((dim) => `${dim} ${shape[dim]}`).join(', ')),
  right('calibrated ms', (c) => milliseconds(c.calibratedSeconds)),
  right('now', (c) => milliseconds(c.measuredSeconds)),
  right('ratio', (c) => (c.measuredSeconds / c.calibratedSeconds).toFixed(2)),
  right('times', (c) => String(c.repetitions)),
];

const KERNELS: readonly Column<KernelSummary>[] = [
  left('kernel', (k) => k.kernel),
  right('calls', (k) => String(k.calls)),
  right('share', (k) => percent(k.share)),
  right('measured ms', (k) => milliseconds(k.measuredSeconds)),
  right('predicted', (k) => milliseconds(k.predictedSeconds)),
  right('bias', (k) => signed(k.predictedSeconds / k.measuredSeconds - 1)),
  right('median error', (k) => percent(k.errors.medianError)),
  right('inside', (k) => percent(k.errors.coverage)),
];

const CAPACITY: readonly Column<CapacityRow>[] = [
  left('cache', (r) => r.id),
  right('context', (r) => formatTokens(r.contextTokens)),
  right('predicted', (r) => String(r.predicted.exact)),
  right('reached', (r) => String(r.reached.exact)),
  right('failed at', (r) => String(r.reached.failedAt)),
  right('on the grid', (r) => `${r.predicted.onGrid} / ${r.reached.onGrid}`),
  right('error', (r) => signed(r.error)),
  left('', (r) => (capacityHolds(r) ? 'holds' : 'OUTSIDE')),
];

interface Difference extends KindBytes {
  readonly row: MemoryRow;
}

const DIFFERENCES: readonly Column<Difference>[] = [
  left('model', (d) => d.row.model),
  left('configuration', (d) => d.row.id),
  right('batch', (d) => String(d.row.batch)),
  left('kind', (d) => d.kind),
  right('allocated', (d) => String(d.allocatedBytes)),
  right('predicted', (d) => String(d.predictedBytes)),
  right('difference', (d) => String(d.allocatedBytes - d.predictedBytes)),
];

const beside = ({ measured, simulated }: { measured: number; simulated: number }): string =>
  `${milliseconds(measured)} / ${milliseconds(simulated)} (${signed(simulated / measured - 1)})`;

const arrivals = ({ load }: ServingRow): string => (load === null ? 'at once' : `at ${percent(load)} load`);

const SERVING: readonly Column<ServingRow>[] = [
  left('cache', (r) => r.id),
  left('requests', (r) => `${r.requests} ${arrivals(r)}${r.chunkedPrefill ? '' : ', whole prompts'}`),
  right('iterations', (r) => `${r.iterations.measured} / ${r.iterations.simulated}`),
  right(
    'tokens each',
    (r) => `${r.tokensPerIteration.measured.toFixed(2)} / ${r.tokensPerIteration.simulated.toFixed(2)}`,
  ),
  right('preempted', (r) => `${r.preemptions.measured} / ${r.preemptions.simulated}`),
  right('mean TPOT ms', (r) => beside(r.meanTpotSeconds)),
  right('mean TTFT ms', (r) => beside(r.meanTtftSeconds)),
  right('p90 E2EL ms', (r) => beside(r.p90E2elSeconds)),
  right('order', (r) => `${r.inverted} of ${r.pairs}`),
];

const errorOf = ({ measured, priced }: { measured: number; priced: number }): string => signed(priced / measured - 1);
const errorOfBoth = ({ steps, chunks }: ServingRow['prices'], price: 'priced' | 'calibrated'): string =>
  errorOf({ measured: steps.measured + chunks.measured, priced: steps[price] + chunks[price] });

/** Where an error of the simulation comes from. */
const SERVING_ERRORS: readonly Column<ServingRow>[] = [
  left('cache', (r) => r.id),
  left('requests', arrivals),
  right('calibration', (r) => errorOfBoth(r.prices, 'calibrated')),
  right('rehearsed', (r) => errorOfBoth(r.prices, 'priced')),
  right('steps', (r) => `${errorOf(r.prices.steps)} of ${r.prices.steps.count}`),
  right('chunks', (r) => `${errorOf(r.prices.chunks)} of ${r.prices.chunks.count}`),
  right('schedule: TPOT', (r) => signed(r.replay.meanTpotSeconds.simulated / r.replay.meanTpotSeconds.measured - 1)),
  right('E2EL', (r) => signed(r.replay.p90E2elSeconds.simulated / r.replay.p90E2elSeconds.measured - 1)),
  right('same iterations', (r) => `${r.replay.iterations} of ${r.iterations.measured}`),
  right('wall / device', (r) => (r.wallSeconds / r.deviceSeconds).toFixed(2)),
];

function servingBlock({ serving }: ValidationReport): Block[] {
  if (!serving) return [];
  const notRun = serving.notRun.map((n) => `Not run: ${n.id}: ${n.reason}.`);
  if (serving.rows.length === 0) return [{ title: 'Serving', paragraphs: notRun }];
  const drift = serving.rows.map((r) => r.drift);
  return [
    {
      title: 'Serving',
      paragraphs: [
        `${serving.model}: requests on the decoder's clock, in its continuous-batching loop and in the ` +
          'simulation (measured / simulated). Order: pairs of requests that ended in another order than ' +
          'simulated, of those whose order the schedule decides: it stays the same when prices are off by ' +
          `${percent(SERVING_TOLERANCES.e2el)} and iterations differ as in the rehearsal. The machine ran ` +
          `at ${(1 / Math.max(...drift)).toFixed(2)} to ${(1 / Math.min(...drift)).toFixed(2)} times its ` +
          'speed at calibration; times are corrected for it.',
        ...notRun,
      ],
      table: table(SERVING, serving.rows),
    },
    {
      title: 'Serving: errors of prices and of the schedule',
      paragraphs: [
        'Prices of the iterations that ran against their times: by the calibration, and as the rehearsal ' +
          "corrects it, which serves other requests before; then decode steps and prompts' chunks apart. " +
          'Schedule: the simulation with the times that were measured.',
      ],
      table: table(SERVING_ERRORS, serving.rows),
    },
  ];
}

function memoryBlock({ memory }: ValidationReport): Block[] {
  if (!memory) return [];
  const differences = memory.mismatches.flatMap((row) => differing(row).map((k): Difference => ({ row, ...k })));
  const reasons = [...new Set(memory.notRun.map((n) => n.reason))];
  return [
    {
      title: 'Memory',
      paragraphs: present([
        `${memory.rows.length} configurations of made-up models were opened; weights, codec, cache, ` +
          'in-flight latents, eviction state, workspace and the peaks of prefill were compared one by one.',
        differences.length > MOST_ROWS && `${differences.length} figures differ; the first ${MOST_ROWS}:`,
        ...reasons.map((reason) => {
          const n = memory.notRun.filter((x) => x.reason === reason).length;
          return `Not executed by the decoder: ${n} configurations (${reason}).`;
        }),
      ]),
      ...(differences.length > 0 ? { table: table(DIFFERENCES, differences.slice(0, MOST_ROWS)) } : {}),
    },
  ];
}

/** A line for what there was no time for, and one each for the rest. */
function notMeasured(notRun: readonly NotRun[], what: string): string[] {
  const late = notRun.filter((n) => n.reason === OUT_OF_TIME).length;
  return present([
    late > 0 && `${counted(late, what)} ${late === 1 ? 'was' : 'were'} not measured: ${OUT_OF_TIME}.`,
    ...notRun.filter((n) => n.reason !== OUT_OF_TIME).map((n) => `Not measured: ${n.id}: ${n.reason}.`),
  ]);
}

function latencyBlocks({ latency }: ValidationReport): Block[] {
  if (!latency) return [];
  const { summary, shapes } = latency;
  const about = summary
    ? `${summary.count} steps of ${latency.model}: median error ${percent(summary.medianError)}, 90th ` +
      `percentile ${percent(summary.p90Error)}, bias ${signed(summary.bias)}, ` +
      `${percent(summary.coverage)} inside their interval. ${shapes.unmeasured} of the ${shapes.all} ` +
      'distinct kernel calls are not in the calibration.'
    : 'No step was measured.';
  return [
    {
      title: 'Steps',
      paragraphs: [about, ...notMeasured(latency.notRun, 'step')],
      table: table(STEPS, latency.steps),
    },
    {
      title: 'Operations',
      paragraphs: ['Every operation of these steps by itself, summed by kernel: where an error comes from.'],
      table: table(KERNELS, latency.kernels),
    },
  ];
}

function controlsBlock({ latency }: ValidationReport): Block[] {
  if (!latency || latency.controls.length === 0) return [];
  const about =
    'Points of the calibration that were measured again beside steps and prompts: seconds a call, ' +
    'corrected for the probe. Where a ratio is not 1, a kernel drifted more or less than the machine ' +
    'as a whole, and measured times above are corrected for it.';
  return [{ title: 'Control points', paragraphs: [about], table: table(CONTROLS, latency.controls) }];
}

function prefillBlock({ latency }: ValidationReport): Block[] {
  if (!latency) return [];
  const { rows, notRun, summary } = latency.prefill;
  const about = summary
    ? `${counted(summary.count, 'prompt')} of ${latency.model}: median error ` +
      `${percent(summary.medianError)}, bias ${signed(summary.bias)}, ${percent(summary.coverage)} ` +
      'inside their interval. Prompts are reported and not judged.'
    : 'No prompt was measured.';
  return [{ title: 'Prefill', paragraphs: [about, ...notMeasured(notRun, 'prompt')], table: table(PROMPTS, rows) }];
}

function longContextBlock({ longContext }: ValidationReport): Block[] {
  if (!longContext) return [];
  const { measured, atMillion } = longContext;
  const { secondsPerStep: t } = atMillion;
  const checked = measured
    ? `A step over ${formatTokens(measured.contextTokens)} tokens, the longest context that ` +
      `${longContext.boundedBy === 'time' ? 'the budget allows' : 'fits'}, took ` +
      `${milliseconds(measured.measuredSeconds)} ms and was predicted at ` +
      `${milliseconds(measured.predicted.estimate)} ` +
      `(${milliseconds(measured.predicted.low)}–${milliseconds(measured.predicted.high)}, ` +
      `${measured.evidence}): error ${signed(signedError(measured))}.`
    : `No long step was measured: ${longContext.reason ?? 'it was interrupted'}.`;
  const million =
    `At ${formatTokens(atMillion.contextTokens)} tokens ${longContext.id} would keep ` +
    `${formatBytes(atMillion.cacheBytes)} of cache (${formatBytes(atMillion.totalBytes)} in all) and ` +
    `take ${milliseconds(t.estimate)} ms a step (${milliseconds(t.low)}–${milliseconds(t.high)}, ` +
    `${atMillion.evidence}, ${atMillion.octavesOutside.toFixed(1)} octaves outside what was ` +
    'measured).';
  return [{ title: 'Long context', paragraphs: [checked, million] }];
}

function blocksOf(r: ValidationReport): Block[] {
  const device =
    `${r.device.description}${r.device.software ? ' (a software adapter: its times say nothing about a GPU)' : ''}, ` +
    `clock ${r.device.clock}`;
  const calibration = r.calibration ? `calibration ${r.calibration.file}` : 'no calibration';
  return present<Block>([
    {
      title: 'Verdict',
      paragraphs: [
        ...verdict(r),
        `${r.program}${r.quick ? ' validate --quick' : ' validate'}, ${device}; ${calibration}; seed ` +
          `${r.seed}; ${Math.round(r.elapsedSeconds)} s.`,
      ],
      table: table(CHECKS, r.checks),
    },
    ...memoryBlock(r),
    ...latencyBlocks(r),
    ...prefillBlock(r),
    ...controlsBlock(r),
    r.capacity && {
      title: 'Capacity',
      paragraphs: [
        `${r.capacity.model}, ${formatDecimalBytes(r.capacity.memoryBytes)} for the decoder: the largest batch that ` +
          'decoded a step over a full, made-up cache.',
        ...r.capacity.notRun.map((n) => `Not checked: ${n.id}: ${n.reason}.`),
      ],
      table: table(CAPACITY, r.capacity.rows),
    },
    ...longContextBlock(r),
    ...servingBlock(r),
    r.notes.length > 0 && { title: 'Notes', paragraphs: r.notes.map((n) => `${n}.`) },
  ]);
}

/** For a terminal. */
export const validationTable = (r: ValidationReport): string =>
  `${blocksOf(r)
    .map(({ title, paragraphs = [], table: t }) =>
      [title, ...paragraphs.flatMap((p) => wrap(p, WIDTH)), ...(t ? ['', ...columns(t.spec, t.rows)] : [])].join('\n'),
    )
    .join('\n\n')}\n`;

/** A path as the target of a Markdown link. */
const target = (path: string): string => encodeURI(path).replace(/[()]/g, (c) => `%${c.charCodeAt(0).toString(16)}`);

/** As Markdown. @param picture path of the scatter of predicted against measured, where there is one */
export function validationMarkdown(r: ValidationReport, picture: string | null = null): string {
  const parts = blocksOf(r).map(({ title, paragraphs = [], table: t }) =>
    [
      `${title === 'Verdict' ? '# Validation' : `## ${title}`}`,
      ...paragraphs.flatMap((p) => ['', markdownText(p)]),
      ...(t
        ? [
            '',
            `| ${t.spec.map(({ title: name }) => markdownText(name)).join(' | ')} |`,
            `| ${t.spec.map(({ align }) => (align === 'right' ? '--:' : ':--')).join(' | ')} |`,
            ...t.rows.map((row) => `| ${row.map(markdownText).join(' | ')} |`),
          ]
        : []),
      ...(title === 'Steps' && picture !== null
        ? ['', `![predicted against measured step times](${target(picture)})`]
        : []),
    ].join('\n'),
  );
  return `${parts.join('\n\n')}\n`;
}
