/** `lla-sim simulate`: what happens when requests arrive. */
import { spawn } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { availableParallelism, tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { EXIT, show, UserError, type ExitCode } from '../errors.js';
import { readSources } from '../plan/ask/on-disk.js';
import {
  SERVER_SETTINGS,
  servingFlag,
  WORKLOAD_SETTINGS,
  type ServerName,
  type Workload,
  type WorkloadName,
} from '../schema/serving.js';
import { PLANNED_ONLY, type Setting } from '../schema/settings.js';
import type { Ended } from '../serving/metrics.js';
import type { SimulationReport } from '../serving/types.js';
import { checkWritable, makeFolder } from '../io/write.js';
import { formatOption, OUTPUT, type Args, type Command, type OptionTable, option, toggle } from './command.js';
import { asJson, hasColour, print, progressing, say, writePicture, type OutputOptions } from './output.js';
import { inFileWords, readScenario, settingsSaid, singleOptions, type Asked } from './plan.js';

const FORMATS = ['table', 'json', 'csv'] as const;

const optionsOf = (settings: Readonly<Record<string, Omit<Setting, 'group'>>>, group: string): OptionTable =>
  Object.fromEntries(
    Object.entries(settings).map(([name, { help, choices }]) => [
      servingFlag(name as WorkloadName | ServerName),
      option(help, group, choices ? { choices } : {}),
    ]),
  );

const PLANNED: OptionTable = Object.fromEntries(
  Object.entries(PLANNED_ONLY).map(([flag, refused]) => [flag, { ...singleOptions[flag]!, refused }]),
);

export const command: Command = {
  positional: {
    name: 'scenario',
    help: 'scenario file (YAML) with a workload, or a link; flags override its fields. Or merge, to join shards',
  },
  secondPositional: { name: 'folder', help: 'after merge: the folder of the shards' },
  options: {
    ...singleOptions,
    ...PLANNED,
    ...optionsOf(WORKLOAD_SETTINGS, 'Workload'),
    'skip-bad': toggle('leave out lines of a trace that are wrong, and count them', 'Workload'),
    ...optionsOf(SERVER_SETTINGS, 'Server'),
    ...settingsSaid({
      ttft: 'longest time to the first token, waiting included [2s]',
      tpot: 'longest mean time between output tokens of a request [80ms]',
    }),
    'find-rate': toggle(
      'the highest rate that meets the targets, for every candidate that meets --min and the like, or else keeps ' +
        'quality; --rate is the demand',
      'Targets',
    ),
    ways: toggle(
      'with --find-rate: tokens one by one, early exit and speculation, each with the full cache and the best ' +
        'plan of each codec, against quality kept',
      'Targets',
    ),
    shard: option('with --find-rate: only part i of n of the candidates, such as 2/8', 'Output'),
    cores: option('with --find-rate: processes that share the candidates [all cores]', 'Output'),
    picture: option(
      'write sequences and cache of the first candidate over time to this file (PNG), and its percentiles beside ' +
        'it, as FILE-percentiles.png; with --find-rate latency against the rate',
      'Output',
    ),
    ...formatOption(FORMATS),
    ...OUTPUT,
  },
  shown: [
    'model',
    'device',
    'codec',
    'trace',
    'rate',
    'prompt-tokens',
    'output-tokens',
    'tpot',
    'ttft',
    'find-rate',
    'format',
  ],
  examples: [
    ['simulate --device h200 --codec full --rate 3', 'p99 latencies at three requests a second'],
    ['simulate scenarios/chat-h200.yaml --find-rate', 'which codec, ratio and path serve most users'],
    [
      'simulate --device b300 --stack vllm-rlt --attention flash-attn-4 --max-num-seqs 64 ' +
        '--max-num-batched-tokens 2048 --find-rate --ways',
      'early exit, speculation and compression side by side',
    ],
    ['simulate scenarios/chat-h200.yaml --trace requests.csv --speed-up 2', 'twice as fast as they came'],
    ['simulate merge results', 'joins the files that --shard 1/8 to 8/8 wrote to results/'],
  ],
  run,
};

async function run(args: Args): Promise<ExitCode> {
  const format = args.choice('format', FORMATS);
  const findRate = args.isSet('find-rate');
  const output = args.output();
  const picture = args.text('picture');
  if (picture !== null) checkWritable(picture, '--picture');
  if (args.positional === 'merge') return mergeShards(args, format, output, picture);
  if (args.secondPositional !== null)
    throw new UserError(
      `${show(args.secondPositional)} is one word too many`,
      'lla-sim simulate takes one scenario, or merge and a folder',
    );
  const ways = args.isSet('ways');
  if (ways && (!findRate || format === 'csv' || args.text('shard') !== null))
    throw new UserError(
      '--ways needs --find-rate, and goes with neither --shard nor --format csv',
      'write simulate SCENARIO --find-rate --ways',
    );
  if (args.text('cores') !== null && !findRate)
    throw new UserError('--cores is for --find-rate: one run takes one core', 'add --find-rate, or leave it out');
  const shard = readShard(args.text('shard'));
  if (shard && (!findRate || format !== 'json'))
    throw new UserError(
      '--shard needs --find-rate and --format json',
      'add them; lla-sim simulate merge joins the files',
    );
  if (shard && output.file !== null) makeFolder(dirname(output.file), '--output');
  const cores = args.number('cores', String(availableParallelism()), { min: 1, max: 1024, whole: true });
  const { scenario, model } = await readServed(args);
  const program = process.argv[1] ?? '';
  const parallel = findRate && !ways && shard === null && cores > 1 && /[/\\]cli\.m?js$/.test(program);
  const lines: string[] = [];
  const report = await progressing(output.quiet, 'simulating', (progress) => {
    if (parallel) return inProcesses(program, cores, progress);
    const how = { skipBad: args.isSet('skip-bad'), progress };
    return inFileWords(args, async () => {
      const sources = await readSources(scenario, model);
      if (ways) return (await import('../serving/ways.js')).compareWays(scenario, sources, how);
      const onEnd = (ended: Ended): unknown => format === 'csv' && !findRate && lines.push(csvLine(ended));
      const { simulate } = await import('../serving/answer.js');
      return simulate(scenario, sources, { ...how, findRate, curve: picture !== null, shard, onEnd });
    });
  });
  // Shards are drawn together, by the process that joins them.
  if (picture !== null && shard === null) await draw(report, picture);
  await print(await render(report, format, lines, output), output);
  return codeOf(report);
}

/** A search that finds no rate for any candidate has no solution; a shard does not know. */
function codeOf({ partial, shard, candidates, ways }: SimulationReport): ExitCode {
  const none = (candidates ?? ways)?.every((one) => one.requestsPerSecond.estimate === 0) === true && !shard;
  return partial ? EXIT.interrupted : none ? EXIT.noSolution : EXIT.ok;
}

/** The scenario with what flags say of requests and server. */
async function readServed(args: Args): Promise<Asked> {
  const { scenario, model } = await readScenario(args);
  const asked = given(args, WORKLOAD_SETTINGS);
  const { depth, ...requests } = scenario.workload ?? {};
  // A trace replaces the scenario's requests, but not how deep tokens go. Users who wait replace its rate.
  const { rate, ...others } = requests;
  const kept =
    asked['trace'] !== undefined ? {} : asked['arrivals'] === 'closed' || rate === undefined ? others : requests;
  const workload: Workload = { ...(depth === undefined ? {} : { depth }), ...kept, ...asked };
  refuseIdle(asked, workload);
  if (args.isSet('skip-bad') && workload.trace === undefined)
    throw new UserError('--skip-bad is about lines of a trace', 'name one with --trace, or leave it out');
  const server = { ...scenario.server, ...given(args, SERVER_SETTINGS) };
  const alone = Number(server.replicas ?? 1) === 1 && Number(server.prefillReplicas ?? 0) === 0;
  if (alone && args.flags['router'] !== undefined && scenario.users === undefined)
    say(args.isSet('quiet'), '--router changes nothing: there is one replica');
  return { scenario: { ...scenario, workload, server }, model };
}

/** @throws UserError for a flag that the other settings of the workload leave without a meaning */
function refuseIdle(asked: Readonly<Record<string, string>>, w: Workload): void {
  const rules: readonly (readonly [WorkloadName, boolean, string])[] = [
    ['users', w.arrivals === 'closed', 'add --arrivals closed'],
    ['burstiness', w.arrivals === 'gamma', 'add --arrivals gamma'],
    ['think', w.arrivals === 'closed' || Number(w.turns ?? 1) > 1, 'add --arrivals closed or --turns'],
    ['ramp', w.arrivals === 'closed', 'add --arrivals closed'],
  ];
  if (w.trace !== undefined) return;
  for (const [name, means, cure] of rules)
    if (asked[name] !== undefined && !means)
      throw new UserError(`--${servingFlag(name)} means nothing for these requests`, `${cure}, or leave it out`);
}

/** @throws UserError where nothing was simulated long enough to draw */
async function draw(report: SimulationReport, file: string): Promise<void> {
  const { servingPercentiles, servingRate, servingTimeline, servingWays } =
    await import('../report/pictures/serving.js');
  const pictures = report.ways
    ? ([[file, servingWays(report)]] as const)
    : report.candidates
      ? ([[file, servingRate(report)]] as const)
      : ([
          [file, servingTimeline(report)],
          [file.replace(/(\.png)?$/i, '-percentiles.png'), servingPercentiles(report)],
        ] as const);
  if (pictures[0][1] === null)
    throw (report.candidates ?? report.ways)
      ? new UserError('no candidate meets the targets at any rate: there is nothing to draw', 'relax a target')
      : new UserError('the run is too short for a picture: it has one interval', 'simulate more requests');
  for (const [path, picture] of pictures) if (picture) await writePicture(path, picture);
}

async function mergeShards(
  args: Args,
  format: (typeof FORMATS)[number],
  output: OutputOptions,
  picture: string | null,
): Promise<ExitCode> {
  if (args.secondPositional === null)
    throw new UserError('the folder of the shards is not given', 'write lla-sim simulate merge FOLDER');
  const report = (await import('../serving/merge.js')).mergeFolder(args.secondPositional);
  if (picture !== null) {
    if (!report.candidates?.some((c) => c.curve))
      throw new UserError('the shards hold no latency against the rate', 'run every shard with --picture FILE too');
    await draw(report, picture);
  }
  await print(await render(report, format, [], output), output);
  return codeOf(report);
}

/** Reads `2/8`. */
function readShard(text: string | null): { index: number; of: number } | null {
  if (text === null) return null;
  const [index, of] = (/^([0-9]{1,6})\/([0-9]{1,6})$/.exec(text)?.slice(1) ?? []).map(Number) as (number | undefined)[];
  if (index === undefined || of === undefined || index < 1 || index > of)
    throw new UserError(`--shard must be i/n with i from 1 to n, not ${show(text)}`, 'write for example --shard 2/8');
  return { index, of };
}

/** More shards than processes, so that none waits long for the others. */
const SHARDS_A_CORE = 3;

/** The same command line in several processes, each with a part of the candidates. */
async function inProcesses(
  program: string,
  cores: number,
  progress: (share: number, doing: string) => boolean,
): Promise<SimulationReport> {
  const of = SHARDS_A_CORE * cores;
  const folder = mkdtempSync(join(tmpdir(), 'lla-sim-shards-'));
  const asked = withoutOutput(process.argv.slice(2));
  let next = 1;
  let failed: UserError | null = null;
  let done = 0;
  const worker = async (): Promise<void> => {
    while (next <= of && failed === null && !progress(done / of, `${done} of ${of} shards`)) {
      const index = next++;
      const file = join(folder, `${index}.json`);
      const own = ['--shard', `${index}/${of}`, '--format', 'json', '--output', file, '--quiet'];
      const { code, text } = await finished(program, [...asked, ...own]);
      if (code !== EXIT.ok && code !== EXIT.interrupted) failed ??= errorOf(code, text);
      done++;
    }
  };
  try {
    await Promise.all(Array.from({ length: cores }, worker));
    if (failed) throw failed as UserError;
    const stopped = progress(1, 'joining');
    return (await import('../serving/merge.js')).mergeFolder(folder, stopped);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

/** A command line without what says where and how to print. */
function withoutOutput(argv: readonly string[]): string[] {
  const kept: string[] = [];
  for (let i = 0; i < argv.length; i++) {
    const word = argv[i]!;
    if (/^(--(format|output|cores)|-o)$/.test(word)) i++;
    else if (!/^(--(format|output|cores)=|-o=|--quiet$)/.test(word)) kept.push(word);
  }
  return kept;
}

const finished = (program: string, argv: readonly string[]): Promise<{ code: number; text: string }> =>
  new Promise((resolve, reject) => {
    const child = spawn(process.execPath, [program, ...argv], { stdio: ['ignore', 'ignore', 'pipe'] });
    let text = '';
    child.stderr.on('data', (piece: Buffer) => (text += piece.toString()));
    child.on('error', reject);
    child.on('close', (code) => resolve({ code: code ?? EXIT.defect, text }));
  });

/** A child's error as this program's own. */
function errorOf(code: number, text: string): UserError {
  const [message = text, hint = ''] = text
    .trim()
    .replace(/^error: /, '')
    .split(/; (?=[^;]*$)/);
  if (code !== EXIT.badInput && code !== EXIT.noSolution) throw new Error(`a shard ended with ${code}: ${text}`);
  return new UserError(message, hint, code);
}

/** Settings that flags give. */
function given(args: Args, settings: Readonly<Record<string, unknown>>): Record<string, string> {
  const found: Record<string, string> = {};
  for (const name of Object.keys(settings)) {
    const value = args.flags[servingFlag(name as WorkloadName)];
    if (typeof value === 'string') found[name] = value;
  }
  return found;
}

async function render(
  report: SimulationReport,
  format: (typeof FORMATS)[number],
  lines: readonly string[],
  output: OutputOptions,
): Promise<string> {
  if (format === 'json') return asJson(report);
  if (format === 'csv')
    return report.candidates
      ? (await import('../report/plan-csv.js')).ratesCsv(report.candidates)
      : `${[CSV_HEADER, ...lines].join('\n')}\n`;
  const { simulationTable } = await import('../report/text/simulation-table.js');
  return simulationTable(report, { colour: hasColour(output.file) });
}

const CSV_HEADER = 'request,arrival_s,prompt_tokens,output_tokens,queue_s,ttft_s,tpot_s,e2el_s,preemptions,replica';

const csvLine = (e: Ended): string =>
  `${e.number},${e.arrival},${e.promptTokens},${e.outputTokens},${e.queueSeconds},${e.ttftSeconds},` +
  `${e.tpotSeconds ?? ''},${e.e2elSeconds},${e.preemptions},${e.replica}`;
