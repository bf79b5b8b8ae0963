/** A simulation for a terminal: what to act on first, then tables. */
import pc from 'picocolors';
import { meanLoops } from '../../stacks/runtime-pricer.js';
import { EXACT_VALUES } from '../../serving/sketch.js';
import { present } from '../../present.js';
import type { PublishedDepths } from '../../quality/exit-depths.js';
import type { Run, RunFigures, SimulationReport, SustainedRate } from '../../serving/types.js';
import { counted, formatCount, formatDecimalBytes, formatNumber } from '../../numbers/units.js';
import {
  fewWords,
  isJudged,
  jobWords,
  LIMIT_WORDS,
  limitWords,
  longestTokens,
  millis,
  refusedWords,
  replicaWords,
  shownOf,
  tailWords,
  targetWords,
  testedWords,
  unsureWords,
  verdictWords,
  priceWords,
} from '../simulation-words.js';
import { apart, columns, left, right, wrap, type Column } from './text.js';
import { tablesByServer, waysTables, waysWords } from './ways-table.js';

const WIDTH = 100;
const hanging = (text: string): string[] => wrap(text, WIDTH, '  ');

export function simulationTable(r: SimulationReport, options: { colour: boolean }): string {
  const c = pc.createColors(options.colour);
  const lead = r.ways
    ? [...title(r), ...rateTarget(r), ...waysWords(r.ways).flatMap(hanging), ...testedLines(r)]
    : r.candidates
      ? rateLead(r, r.candidates)
      : runLead(r);
  const tables = r.ways
    ? waysTables(r.ways, WIDTH)
    : r.candidates
      ? rateTables(r.candidates)
      : [
          ...runTable(r.runs, isJudged(r)),
          ...percentiles(r.runs[0]),
          ...depthTable(r.runs[0]),
          ...speculationTable(r.runs[0], r.server.maxNumSeqs),
        ];
  return [...lead.slice(0, 1).map(c.bold), ...lead.slice(1), '', ...tables, '', ...trust(r).map(c.dim), ''].join('\n');
}

function title(r: SimulationReport): string[] {
  const { workload: w } = r;
  const gpus = r.gpus > 1 ? `${r.gpus} × ` : '';
  const rate = w.requestsPerSecond === null ? '' : ` at ${formatNumber(w.requestsPerSecond)} a second`;
  const replicas = replicaWords(r.server);
  const { depth } = r.server;
  const leave =
    depth === null
      ? ''
      : `; output tokens take ${formatNumber(meanLoops(depth.probabilities))} of ${depth.probabilities.length} ` +
        `loops, batched by ${depth.batching}, K/V left out: ${depth.skippedKv}`;
  const asked = (r.candidates ?? r.ways) ? w.label : `${counted(w.requests, 'request')}${rate}, ${w.label}`;
  return hanging(
    `${r.model.name} on ${gpus}${r.device.name}, ${formatDecimalBytes(r.device.vramBytes)}: ` +
      `${asked}${replicas === '' ? '' : `; ${replicas}`}${leave}`,
  );
}

function runLead(r: SimulationReport): string[] {
  const runs = r.runs.flatMap((run) => {
    const words = present([
      jobWords(r, run),
      isJudged(r) && verdictWords(run, r),
      `${tailWords(r, run)}, ` +
        `${formatCount(run.estimate.output_throughput)} output tokens a second${priceWords(run)}`,
      limitWords(run, r),
    ]);
    return hanging(`${run.id} (${run.servedBy ?? 'no server runs it'}): ${words.join('; ')}.`);
  });
  const targets = isJudged(r) ? hanging(`Targets: ${targetWords(r)}.`) : [];
  return [...title(r), ...runs, ...targets, ...testedLines(r)];
}

/** How predictions fared that are like these. */
function testedLines(r: SimulationReport): string[] {
  const words = testedWords(r);
  return words === null ? [] : hanging(`Tested: ${words}.`);
}

/** @returns what the first number of a rate holds for, too */
function rateTarget(r: SimulationReport): string[] {
  const unsure = unsureWords(r);
  const holds =
    unsure === null
      ? 'the first number holds with 97.5 % confidence for other draws of these requests, even if every step ' +
        'takes the slow end of its interval:'
      : `the first number is that of the slow end of intervals, but no rate is sure: ${unsure}.`;
  return hanging(`Highest rate with ${targetWords(r)}; ${holds}`);
}

function rateLead(r: SimulationReport, candidates: readonly SustainedRate[]): string[] {
  const today = candidates.find((s) => s.servedBy !== null);
  const attainable = candidates.find((s) => s.servedBy === null);
  const describe = (s: SustainedRate): string => {
    const { low, estimate, high } = s.requestsPerSecond;
    if (s.refused !== null) return `${s.id}: ${s.refused}`;
    const replicas = s.replicasFor;
    const most = replicas?.replicas.high ?? null;
    const apart = (r.server.prefillReplicas * (most ?? 0)) / r.server.replicas;
    const need = replicas
      ? `; ${formatNumber(replicas.requestsPerSecond)} a second need ` +
        `${most ?? `${replicas.replicas.estimate} by the estimate, and no number is surely enough`}` +
        (most === null ? '' : ' of them') +
        (apart > 0 ? ` and ${apart} more that prefill` : '')
      : '';
    const usd = s.usdPerMillionOutputTokens;
    const price =
      usd === null || usd.high === null
        ? ''
        : `, at most $${formatNumber(usd.high)} per million output tokens when so busy`;
    return (
      `${s.id}: ${low === 0 ? 'no rate is sure' : `${formatNumber(low)} requests a second`} (estimate ` +
      `${formatNumber(estimate)}, fast end ${formatNumber(high)})${price}${need}`
    );
  };
  return [
    ...title(r),
    ...rateTarget(r),
    ...hanging(
      today
        ? `Runs today on ${today.servedBy}: ${describe(today)}.`
        : 'No candidate runs today on a server whose kernels were measured on this GPU.',
    ),
    ...(attainable ? hanging(`With kernels as fast as tuned ones are: ${describe(attainable)}.`) : []),
    ...testedLines(r),
  ];
}

/** Waiting may be shorter at the slow end, where fewer requests come at once. */
const ascending = (a: number | null, b: number | null): [number | null, number | null] =>
  a !== null && b !== null && a > b ? [b, a] : [a, b];

/** Both ends in the unit of the longer one. */
const span = (fast: number | null, slow: number | null): string => {
  if (fast === null && slow === null) return '–';
  const inSeconds = millis(fast).endsWith('s') || millis(slow).endsWith('s');
  return inSeconds && fast !== null && slow !== null
    ? `${formatNumber(fast / 1e3)}–${formatNumber(slow / 1e3)}s`
    : `${millis(fast)}–${millis(slow)}`;
};

function runTable(runs: readonly Run[], judged: boolean): string[] {
  const list = present<Column<Run>>([
    left('candidate', (s) => s.id),
    right('req/s', (s) => formatNumber(s.estimate.request_throughput)),
    judged && right('goodput', (s) => formatNumber(s.estimate.request_goodput)),
    right('out tok/s', (s) => formatCount(s.estimate.output_throughput)),
    right('running', (s) => `${formatNumber(s.meanRunning)}/${s.mostRunning}`),
    right(
      'KV used',
      (s) => `${Math.round((100 * s.meanBlocks) / s.kvBlocks)}/${Math.round((100 * s.mostBlocks) / s.kvBlocks)} %`,
    ),
    right('busy', (s) => `${Math.round(100 * s.utilization)} %`),
    right('preempted', (s) => String(s.preemptions)),
    runs.some((s) => s.prefixHitShare !== null) &&
      right('prefix hits', (s) => (s.prefixHitShare === null ? '–' : `${Math.round(100 * s.prefixHitShare)} %`)),
    right('refused', (s) => String(s.rejected)),
  ]);
  return columns(list, runs);
}

const METRICS = [
  ['TTFT', 'ttft'],
  ['TPOT', 'tpot'],
  ['ITL', 'itl'],
  ['E2EL', 'e2el'],
  ['queueing', 'queue'],
] as const;

function percentiles(run: Run | undefined): string[] {
  if (!run) return [];
  const { low, estimate, high } = run;
  type Row = (typeof METRICS)[number];
  const statistics = ['mean', 'median', 'p90', 'p95', 'p99'] as const;
  return [
    '',
    `${run.id}, milliseconds:`,
    ...columns<Row>(
      [
        left('metric', ([name]) => name),
        ...statistics.map((s) => right<Row>(s, ([, key]) => millis(shownOf(estimate, s, key)))),
        right('p99 fast–slow', ([, key]) => span(...ascending(shownOf(low, 'p99', key), shownOf(high, 'p99', key)))),
      ],
      METRICS,
    ),
  ];
}

/** What speculation does to the first candidate. */
function speculationTable(run: Run | undefined, maxNumSeqs: number): string[] {
  const of = run?.speculation;
  if (!of) return [];
  const rows: [string, RunFigures][] = [
    ['one by one', of.without],
    [`in rounds of ${formatNumber(of.tokensPerRound)}`, run.estimate],
  ];
  const proposals = of.draftTokens === 1 ? 'a proposal' : `${of.draftTokens} proposals`;
  const share = (p: number): string => `${formatNumber(100 * p)} %`;
  const from = of.paysFromAcceptance;
  const pays =
    from === null || of.paysUpToSequences === 0
      ? 'It does not pay here.'
      : `It pays from an acceptance of ${share(from)} at this run's mean batch${
          of.paysUpToSequences >= maxNumSeqs
            ? ''
            : `, and with ${share(of.acceptance)} up to ${of.paysUpToSequences} sequences`
        }.`;
  const source = of.acceptanceSource === null ? 'as given' : `published: ${of.acceptanceSource}`;
  return [
    '',
    `${run.id}, ${proposals} a round by the first ${of.draftLoops} loops, by the estimate:`,
    ...figureColumns('tokens come', rows),
    ...wrap(`A proposal after accepted ones is accepted with ${share(of.acceptance)} (${source}). ${pays}`, WIDTH),
    ...wrap('Greedy tokens are those of all loops: nothing is lost.', WIDTH),
  ];
}

const figureColumns = (title: string, rows: readonly (readonly [string, RunFigures])[]): string[] =>
  columns<readonly [string, RunFigures]>(
    [
      left(title, ([name]) => name),
      right('req/s', ([, f]) => formatNumber(f.request_throughput)),
      right('goodput', ([, f]) => formatNumber(f.request_goodput)),
      right('out tok/s', ([, f]) => formatCount(f.output_throughput)),
      right('mean TPOT', ([, f]) => millis(f.mean_tpot_ms)),
      right('p99 TPOT', ([, f]) => millis(shownOf(f, 'p99', 'tpot'))),
      right('p99 TTFT', ([, f]) => millis(shownOf(f, 'p99', 'ttft'))),
      right('preempted', ([, f]) => String(f.preemptions)),
    ],
    [...rows],
  );

/** What early exit does to the first candidate. */
function depthTable(run: Run | undefined): string[] {
  const depth = run?.depth;
  if (!depth) return [];
  const rows: [string, RunFigures][] = [
    [`all ${depth.probabilities.length} loops`, depth.allLoops],
    [`${formatNumber(depth.meanLoops)} loops, by steps`, depth.steps],
    [`${formatNumber(depth.meanLoops)} loops, at loop boundaries`, depth.loops],
  ];
  return [
    '',
    `${run.id}, tokens that leave early (K/V of loops left out: ${depth.skippedKv}), by the estimate:`,
    ...figureColumns('tokens take', rows),
    ...wrap(depthQuality(depth.published), WIDTH),
  ];
}

function rateTables(candidates: readonly SustainedRate[]): string[] {
  const list = present<Column<SustainedRate>>([
    left('candidate', (s) => s.id),
    right('slow req/s', (s) => formatNumber(s.requestsPerSecond.low)),
    right('estimate', (s) => formatNumber(s.requestsPerSecond.estimate)),
    right('fast', (s) => formatNumber(s.requestsPerSecond.high)),
    right('out tok/s', (s) => (s.atEstimate ? formatCount(s.outputTokensPerSecond) : '–')),
    right('p99 TTFT', (s) => millis(s.atEstimate && shownOf(s.atEstimate, 'p99', 'ttft'))),
    right('p99 TPOT', (s) => millis(s.atEstimate && shownOf(s.atEstimate, 'p99', 'tpot'))),
    candidates.some((s) => s.usdPerMillionOutputTokens) &&
      right('$/Mtok', ({ usdPerMillionOutputTokens: usd }) => (usd?.high ? formatNumber(usd.high) : '–')),
    left('limit', missedWords),
  ]);
  const shown = candidates.filter((s) => s.refused === null);
  return apart([
    ...tablesByServer(list, shown, 'Attainable (no server that was measured here runs it):'),
    ...refusedWords(candidates, (s) => s.id).map((words) => wrap(words, WIDTH)),
  ]);
}

/** The target that a higher rate misses, and what requests wait for where it is that of the first token. */
function missedWords({ missedFirst, limitedBy }: SustainedRate): string {
  if (missedFirst === null) return '–';
  if (missedFirst === 'tpot') return 'TPOT';
  return limitedBy === 'nothing' ? 'TTFT' : `TTFT: ${LIMIT_WORDS[limitedBy]}`;
}

/** Runs whose figures the tables have. */
const shownRuns = (r: SimulationReport): RunFigures[] => {
  const rates = r.candidates ?? r.ways;
  return rates
    ? rates.flatMap(({ atEstimate }) => (atEstimate ? [atEstimate] : []))
    : r.runs.flatMap(({ low, estimate, high, depth, speculation }) => [
        ...[low, estimate, high],
        ...(depth ? [depth.allLoops, depth.steps, depth.loops] : []),
        ...(speculation ? [speculation.without] : []),
      ]);
};

/** How exact the percentiles of the tables are. */
function exactnessWords(r: SimulationReport): string {
  const rates = r.candidates ?? r.ways;
  const shown = shownRuns(r);
  const names = METRICS.filter(
    ([, key]) => !(rates && key !== 'ttft' && key !== 'tpot') && shown.some((f) => f.sketched.includes(key)),
  ).map(([name]) => name);
  return names.length === 0
    ? 'percentiles are exact, linear between ranks'
    : `percentiles of more than ${EXACT_VALUES} values (${names.join(', ')}) are within ` +
        `${formatNumber(100 * r.percentileError)} % of the exact ones, the others are exact`;
}

const batchWaitWords = ({ batchWait }: SimulationReport['server']): string =>
  batchWait
    ? `, prompts wait up to ${batchWait.iterations} iterations for ${formatNumber(batchWait.tokens)} tokens`
    : '';

function trust(r: SimulationReport): string[] {
  const { workload: w, server: s } = r;
  const notes = present([
    r.partial && 'partial: it was ended before all was simulated',
    w.skippedLines > 0 && `${w.skippedLines} lines of the trace are wrong and left out`,
    ...r.runs
      .filter((run) => run.rejected > 0)
      .map(
        (run) =>
          `${run.id} refuses ${run.rejected} requests: they are longer than its cache or than --max-model-len ` +
          `${s.maxModelLen}`,
      ),
    `a replica: at most ${s.maxNumSeqs} sequences of ${longestTokens(r)} tokens, ${s.maxNumBatchedTokens} tokens an ` +
      `iteration, blocks of ${s.blockTokens} tokens, ${s.policy}, chunked prefill ` +
      `${s.chunkedPrefill ? 'on' : 'off'}${s.promptsFirst ? ', prompts first' : ''}${batchWaitWords(s)}, ` +
      `${s.watermark > 0 ? `${formatNumber(s.watermark * 100)} % of the cache free when a request begins, ` : ''}` +
      `prefix caching ${s.prefixCaching ? 'on' : 'off'}, scheduling ` +
      (s.asyncScheduling ? 'while the GPU works' : 'between iterations'),
    (r.candidates ?? r.ways)
      ? 'slow, fast: every iteration takes the high, or the low end of its interval; $/Mtok is at ' +
        'the slow end’s rate, other columns at the estimate’s'
      : 'fast–slow: every iteration (and transfer) takes the low, or the high end of its interval, and first tokens ' +
        'with their wait are as far off as published ones were; in parentheses the least and the most of these runs ' +
        'and the estimate',
    r.candidates && 'what each candidate loses in quality lla-sim plan says',
    fewWords(shownRuns(r)),
    `${exactnessWords(r)}; TPOT is (E2EL − TTFT) / (output tokens − 1)`,
    ...r.notes,
  ]);
  return notes.flatMap((note) => hanging(`- ${note}`));
}

function depthQuality(published: PublishedDepths | undefined): string {
  const rest = 'What a policy for K/V of loops left out does to quality is not simulated.';
  if (!published) return `What leaving early costs in quality is not simulated, nor what a policy for K/V does to it.`;
  const { label, quality, source } = published;
  const worth = quality
    ? `${quality.task}: ${quality.right} of ${quality.items} right, ${quality.allLoops} with all loops.`
    : 'Nobody published what answers were worth with it.';
  return `Depths as published: ${label} (${source}). ${worth} ${rest}`;
}
