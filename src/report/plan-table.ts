/** A plan report for a terminal, at most 100 columns wide. */
import pc from 'picocolors';
import { shortName } from '../codecs/paths.js';
import type { Plan, PlanReport } from '../plan/types.js';
import { evictionLabel } from '../eviction/policy.js';
import { formatBytes, formatDecimalBytes, formatNumber, formatTokens } from '../units.js';
import { noRecommendation, trust } from './plan-notes.js';
import {
  breakEvenLabel,
  kernelsLabel,
  LIMIT_LABEL,
  pathLabel,
  qualityLabel,
  rateLabel,
  shortList,
  shownDecode,
  shownMetric,
  timeLabel,
} from './plan-rows.js';
import { columns, wrap, type Column } from './text.js';

export const WIDTH = 100;
/** Longer reports are shortened to one row a codec unless all are asked for. */
const SHORT_TABLE_ROWS = 12;

export function planTable(report: PlanReport, options: { all: boolean; colour: boolean }): string {
  const c = pc.createColors(options.colour);
  const shown = options.all || report.plans.length <= SHORT_TABLE_ROWS ? report.plans : shortList(report.plans);
  const lines = [...title(report).map(c.bold), ...header(report).map((l, i) => (i === 0 ? c.bold(l) : c.dim(l))), ''];
  const body = fittingTable(report, shown);
  body.forEach((line, i) => {
    const plan = shown[i - 1];
    if (!plan) lines.push(c.bold(line));
    else
      lines.push(
        plan.id === report.recommendation?.planId ? c.green(line) : plan.maxBatch.exact < 1 ? c.dim(line) : line,
      );
  });
  lines.push('', ...legend(report, shown).map((l) => c.dim(l)));
  if (report.recommendation) {
    lines.push('', ...wrap(`Recommended: ${report.recommendation.text}`, WIDTH, '  ').map((l) => c.green(l)));
    if (report.recommendation.alternative)
      lines.push(...wrap(`Larger: ${report.recommendation.alternative.text}`, WIDTH, '  '));
    if (report.recommendation.deployable)
      lines.push(...wrap(`Runs today: ${report.recommendation.deployable.text}`, WIDTH, '  '));
  } else {
    lines.push('', ...wrap(noRecommendation(report), WIDTH, '  '));
  }
  lines.push(
    '',
    ...trust(report, shown)
      .flatMap((t) => wrap(`- ${t}`, WIDTH, '  '))
      .map((l) => c.dim(l)),
  );
  return `${lines.join('\n')}\n`;
}

/** The scenario's name and description. */
function title(r: PlanReport): string[] {
  const { name, description } = r.scenario;
  const words = [name, description].filter((w) => w !== null).join(': ');
  return words === '' ? [] : [...wrap(words, WIDTH), ''];
}

function header(r: PlanReport): string[] {
  const gpus = r.settings.gpus > 1 ? `${r.settings.gpus} × ` : '';
  const first = `${r.model.name} on ${gpus}${r.device.name}, ${formatDecimalBytes(r.device.vramBytes)}: ${formatTokens(r.contextTokens)} tokens a sequence`;
  const m = r.model;
  const blocks =
    m.preludeLayers + m.codaLayers > 0
      ? `${m.preludeLayers} + ${m.layers} × ${m.loops} + ${m.codaLayers}`
      : `${m.layers} × ${m.loops}`;
  const perGpu = r.plans[0]?.memory.weightsBytes ?? m.weightsBytes;
  return [
    first,
    `${blocks} layers × loops, ${m.kvHeads} KV heads × ${m.headDim}; weights ${formatDecimalBytes(perGpu)}${gpus && ' a GPU'}, reserve ${formatBytes(r.plans[0]?.memory.reservedBytes ?? r.settings.reserveBytes)}, cache ${r.settings.cacheType}`,
  ];
}

/** How far a table is shortened to fit the width: names first, then columns that --format json carries. */
interface Squeeze {
  readonly shortNames: boolean;
  readonly without: readonly string[];
}

const DROPPED_IN_TURN = ['limit', 'KV/token', 'pays at', 'KV at 1M', 'tok/s', '$/Mtok'];
const SQUEEZES: readonly Squeeze[] = [
  { shortNames: false, without: [] },
  ...Array.from({ length: DROPPED_IN_TURN.length + 1 }, (_, n) => ({
    shortNames: true,
    without: DROPPED_IN_TURN.slice(0, n),
  })),
];

function fittingTable(r: PlanReport, shown: readonly Plan[]): string[] {
  let lines: string[] = [];
  for (const squeeze of SQUEEZES) {
    lines = columns(tableColumns(r, squeeze), shown);
    if (lines.every((l) => l.length <= WIDTH)) break;
  }
  return lines;
}

function tableColumns(r: PlanReport, squeeze: Squeeze): Column<Plan>[] {
  const metric = shownMetric(r);
  const evicting = r.plans.some((p) => p.eviction);
  const each = r.settings.gpus > 1 ? '/GPU' : '';
  const list: Column<Plan>[] = [
    { title: ' ', align: 'left', cell: (p) => (p.id === r.recommendation?.planId ? '>' : p.pareto ? '*' : ' ') },
    { title: 'codec', align: 'left', cell: (p) => p.id.split('/')[0] as string },
    {
      title: 'path',
      align: 'left',
      cell: (p) => (squeeze.shortNames ? shortName(pathLabel(p)) : pathLabel(p)),
    },
    ...(evicting
      ? [
          {
            title: 'eviction',
            align: 'left' as const,
            cell: (p: Plan) =>
              squeeze.shortNames ? evictionLabel(p.eviction).replace('streaming', 'str') : evictionLabel(p.eviction),
          },
        ]
      : []),
    { title: `KV/token${each}`, align: 'right', cell: (p) => formatBytes(p.memory.kvBytesPerToken) },
    { title: `KV at 1M${each}`, align: 'right', cell: (p) => formatBytes(p.memory.kvBytesAt1M) },
    {
      title: 'batch',
      align: 'right',
      cell: (p) =>
        p.atTarget
          ? `${p.atTarget.batch}/${p.maxBatch.exact}`
          : r.settings.batch !== null
            ? `${p.decode.batch}/${p.maxBatch.exact}`
            : String(p.maxBatch.exact),
    },
    { title: 'ms/token', align: 'right', cell: (p) => timeLabel(shownDecode(p).secondsPerStep) },
    { title: 'tok/s', align: 'right', cell: (p) => rateLabel(shownDecode(p)) },
    ...(r.settings.usdPerHour === null
      ? []
      : [{ title: '$/Mtok', align: 'right' as const, cell: (p: Plan) => usdLabel(p) }]),
    ...(r.plans.some((p) => p.decode.pricedBy)
      ? [{ title: 'kernels', align: 'left' as const, cell: (p: Plan) => kernelsLabel(p) }]
      : []),
    ...(r.plans.some((p) => p.breakEven)
      ? [{ title: 'pays at', align: 'right' as const, cell: (p: Plan) => breakEvenLabel(p) }]
      : []),
    { title: metric, align: 'right', cell: (p) => qualityLabel(p, metric, r.contextTokens) },
    { title: 'limit', align: 'left', cell: (p) => LIMIT_LABEL[p.limitedBy] },
  ];
  return list.filter((c) => !squeeze.without.includes(c.title.replace(/\/GPU$/, '')));
}

const usdLabel = (p: Plan): string => {
  const usd = shownDecode(p).usdPerMillionTokens;
  return usd ? formatNumber(usd.estimate) : '–';
};

/** What the columns `kernels` and `pays at` say. */
function kernelsLegend(shown: readonly Plan[]): string {
  const attainable = shown.some((p) => kernelsLabel(p) === 'attainable')
    ? ' attainable: no measurement of such kernels is known; the time is what tuned kernels of their class reach.'
    : '';
  const borrowed = shown.some((p) => kernelsLabel(p).startsWith('('))
    ? ' In parentheses: kernels of a stack that does not run this plan.'
    : '';
  const pays = shown.some((p) => p.breakEven)
    ? ' pays at: the row beats the full cache in tokens per second once its kernels reach this share of the speed of tuned ones.'
    : '';
  return `${attainable}${borrowed}${pays}`;
}

function legend(r: PlanReport, shown: readonly Plan[]): string[] {
  const batch =
    r.settings.targets.secondsPerToken !== null
      ? 'batch: largest that meets --tpot / largest that fits.'
      : r.settings.batch !== null
        ? 'batch: as asked / largest that fits.'
        : 'batch: largest that fits.';
  const hidden = r.plans.length - shown.length;
  const rest =
    hidden > 0 ? ` Of each codec the fastest faithful path is shown; --all adds ${hidden} combinations.` : '';
  return wrap(
    `> recommended, * Pareto-optimal in batch, speed and quality. ${batch} ms/token: a decode step at that batch, with its 90 % interval.${kernelsLegend(shown)}${rest}`,
    WIDTH,
  );
}
