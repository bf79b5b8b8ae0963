/** `lla-sim simulate`: what happens when requests arrive. */
import { EXIT, type ExitCode } from '../errors.js';
import { readSources } from '../plan/ask.js';
import {
  SERVER_SETTINGS,
  servingFlag,
  WORKLOAD_SETTINGS,
  type ServerName,
  type WorkloadName,
} from '../schema/serving.js';
import type { Scenario, Setting } from '../schema/settings.js';
import type { Ended } from '../serving/metrics.js';
import type { SimulationReport } from '../serving/types.js';
import { choiceFlag, formatOption, OUTPUT, textFlag, type Args, type Command, type OptionSpec } from './command.js';
import { onInterrupt } from './interrupt.js';
import { print, type OutputOptions } from './output.js';
import { inFileWords, readScenario, settingOptions } from './plan.js';
import { progressLine } from './progress.js';

const FORMATS = ['table', 'json', 'csv'] as const;

const optionsOf = (
  settings: Readonly<Record<string, Omit<Setting, 'group'>>>,
  group: string,
): Record<string, OptionSpec> =>
  Object.fromEntries(
    Object.entries(settings).map(([name, { help, choices }]) => [
      servingFlag(name as WorkloadName | ServerName),
      { type: 'string' as const, help, group, ...(choices ? { choices } : {}) },
    ]),
  );

export const simulateCommand: Command = {
  positional: { name: 'scenario', help: 'scenario file (YAML) with a workload; flags override its fields' },
  options: {
    ...settingOptions,
    ...optionsOf(WORKLOAD_SETTINGS, 'Workload'),
    'skip-bad': {
      type: 'boolean',
      help: 'leave out lines of a trace that are wrong, and count them',
      group: 'Workload',
    },
    ...optionsOf(SERVER_SETTINGS, 'Server'),
    ttft: { ...settingOptions['ttft']!, help: 'longest time to the first token, waiting included [2s]' },
    tpot: { ...settingOptions['tpot']!, help: 'longest mean time between output tokens of a request [80ms]' },
    percentile: { type: 'string', help: 'share of the requests that must meet both, percent [99]', group: 'Targets' },
    'find-rate': {
      type: 'boolean',
      help: 'the highest rate that meets the targets, for every candidate whose quality is kept; --rate is the demand',
      group: 'Targets',
    },
    ...formatOption(FORMATS),
    ...OUTPUT,
  },
  examples: [
    ['simulate --device h200 --codec full --rate 3', 'p99 latencies at three requests a second'],
    ['simulate scenarios/chat-h200.yaml --find-rate', 'which codec, ratio and path serve most users'],
    ['simulate scenarios/chat-h200.yaml --trace requests.csv --speed-up 2', 'twice as fast as they came'],
  ],
  run,
};

async function run(args: Args): Promise<ExitCode> {
  const format = choiceFlag(args, 'format', FORMATS);
  const findRate = args.flags['find-rate'] === true;
  const output: OutputOptions = { file: textFlag(args, 'output'), quiet: args.flags['quiet'] === true };
  const { scenario: plain } = await readScenario(args);
  const asked = given(args, WORKLOAD_SETTINGS);
  const scenario: Scenario = {
    ...plain,
    // A trace replaces the scenario's requests.
    workload: asked['trace'] === undefined ? { ...plain.workload, ...asked } : asked,
    server: { ...plain.server, ...given(args, SERVER_SETTINGS) },
  };
  const { simulate } = await import('../serving/answer.js');
  const lines: string[] = [];
  let stopped = false;
  const release = onInterrupt(() => (stopped = true));
  const begun = performance.now();
  const shows = process.stderr.isTTY === true && !output.quiet;
  let report: SimulationReport;
  try {
    report = await inFileWords(args, async () =>
      simulate(scenario, await readSources(scenario), {
        findRate,
        percentile: textFlag(args, 'percentile'),
        skipBad: args.flags['skip-bad'] === true,
        shard: null,
        progress: (share, doing) => {
          const elapsed = (performance.now() - begun) / 1e3;
          if (shows && share > 0) process.stderr.write(progressLine(elapsed, (elapsed * (1 - share)) / share, doing));
          return stopped;
        },
        ...(format === 'csv' && !findRate ? { onEnd: (ended) => lines.push(csvLine(ended)) } : {}),
      }),
    );
  } finally {
    release();
    if (shows) process.stderr.write('\r\u001b[K');
  }
  await print(await render(report, format, lines, output), output);
  return report.partial ? EXIT.interrupted : EXIT.ok;
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
  if (format === 'json') return `${JSON.stringify(report, null, 2)}\n`;
  if (format === 'csv')
    return report.candidates
      ? (await import('../report/simulation-csv.js')).ratesCsv(report.candidates)
      : `${[CSV_HEADER, ...lines].join('\n')}\n`;
  const { simulationTable } = await import('../report/simulation-table.js');
  return simulationTable(report, {
    colour: output.file === null && process.stdout.isTTY === true && !process.env['NO_COLOR'],
  });
}

const CSV_HEADER = 'request,arrival_s,prompt_tokens,output_tokens,queue_s,ttft_s,tpot_s,e2el_s,preemptions,replica';

const csvLine = (e: Ended): string =>
  [
    e.number,
    e.arrival,
    e.promptTokens,
    e.outputTokens,
    e.queueSeconds,
    e.ttftSeconds,
    e.tpotSeconds ?? '',
    e.e2elSeconds,
    e.preemptions,
    e.replica,
  ].join(',');
