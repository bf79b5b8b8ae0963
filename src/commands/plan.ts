/** `lla-sim plan`: what fits, how fast, how good. */
import { CODEC_KINDS, type CodecKind } from '../codecs/codec.js';
import { isUncompressed } from '../codecs/registry.js';
import { DEVICES } from '../devices/catalogue.js';
import { EXIT, UserError, show, type ExitCode } from '../errors.js';
import { PRESET_NAMES } from '../geometry/presets.js';
import { prepare, type ModelSource, type Sources } from '../plan/ask/prepare.js';
import { readSources } from '../plan/ask/on-disk.js';
import type { Explained } from '../plan/evaluate/explain.js';
import { present } from '../present.js';
import { hasSolution, makePlan } from '../plan/plan.js';
import { runsOf } from '../plan/ask/runs.js';
import { bringsRequests } from '../plan/ask/settings.js';
import { formatTokens } from '../numbers/units.js';
import type { PlanReport } from '../plan/types.js';
import { noSolutionError } from '../report/no-solution.js';
import { plansJson, type PlanJson, type Sweep } from '../report/plan-json.js';
import { planTable, WIDTH } from '../report/text/plan-table.js';
import { readBounds, settingText } from '../schema/setting-text.js';
import { flagOf, SETTINGS, type Scenario, type Setting, type SettingName } from '../schema/settings.js';
import {
  OUTPUT,
  formatOption,
  option,
  toggle,
  type Args,
  type Command,
  type OptionSpec,
  type OptionTable,
} from './command.js';
import { asJson, hasColour, print, type OutputOptions } from './output.js';

const FORMATS = ['table', 'json', 'csv', 'markdown'] as const;
type Format = (typeof FORMATS)[number];

/** What a shell proposes for settings that also take files or other names. */
const PROPOSALS: { readonly [K in SettingName]?: readonly string[] } = {
  model: PRESET_NAMES,
  device: DEVICES.map((d) => d.id),
};

/** A plan's settings as command-line options. */
export const settingOptions: OptionTable = Object.fromEntries(
  (Object.entries(SETTINGS) as [SettingName, Setting][]).map(([name, setting]): [string, OptionSpec] => [
    flagOf(name),
    {
      type: 'string',
      help: setting.help,
      group: setting.group,
      ...(setting.choices ? (setting.several ? { proposals: setting.choices } : { choices: setting.choices }) : {}),
      ...(PROPOSALS[name] ? { proposals: PROPOSALS[name] } : {}),
      ...(setting.kind === 'list' || setting.kind === 'bounds' ? { multiple: true } : {}),
      ...(setting.flag === undefined ? {} : { alias: name }),
    },
  ]),
);

/** Some of them, by what a command says of them. */
export const settingsSaid = (helps: Readonly<Record<string, string>>): OptionTable =>
  Object.fromEntries(Object.entries(helps).map(([flag, help]) => [flag, { ...settingOptions[flag]!, help }]));

/** The same of a command that plans one device at one context. */
export const singleOptions: OptionTable = {
  ...settingOptions,
  ...settingsSaid({
    ctx: 'tokens of each sequence: 4096, 4k, 1M [4096]',
    device: 'a device of the catalogue (lla-sim models --devices)',
    'usd-per-hour': 'price of one GPU-hour; adds $ per million output tokens',
  }),
};

/** How a plan is printed. */
export const planOutput: OptionTable = {
  ...formatOption(FORMATS),
  all: toggle('show every combination, not one row a codec', 'Output'),
  notes: toggle('explain the columns, and list every note', 'Output'),
  best: toggle('one line a device, context and cache type', 'Output'),
  sweep: toggle('batch against time, rate and price of the plans that the answer names', 'Output'),
  explain: option(
    'why the row of this name takes its time: law, data near it, what was left out to find its width',
    'Output',
  ),
  rank: toggle('all codecs by users within the targets, and which published claims could be repeated', 'Output'),
  ...OUTPUT,
};

export const command: Command = {
  positional: { name: 'scenario', help: 'scenario file (YAML); flags override its fields' },
  options: {
    ...settingOptions,
    ...planOutput,
    link: toggle('print a link to this question and its answer, for the page and lla-sim open', 'Output'),
  },
  shown: ['model', 'ctx', 'device', 'vram', 'gpus', 'users', 'tpot', 'usd-per-hour', 'codec', 'ratio', 'format'],
  examples: [
    ['plan --vram 141GB --ctx 4096', 'everything that fits an H200'],
    ['plan --device h200 --tpot 80ms --min gsm8k=0.75 --usd-per-hour 3.5', 'the fastest that meets targets'],
    ['plan --device h100 --ctx 32k --users 200 --tpot 50ms', 'how many GPUs'],
    ['plan --model ouro-2.6b --device h100,h200,b200 --ctx 8k', 'which GPU'],
    ['plan --model ./mine --fidelity mine.json --device h200 --max-kl 0.05', 'with quality measured on your model'],
    ['plan --device h200 --explain full', 'why the full cache takes its time, and what makes it unsure'],
    ['plan --device h200 --rank --keep 0.95 --tpot 50ms', 'every codec, by users within the targets'],
    ['plan --vram 80GB --ctx 1M --codec lla --eviction streaming:4+1020', 'a million tokens with eviction'],
  ],
  run: async (args) => {
    const { scenario, model } = await readScenario(args);
    if (!args.isSet('link')) return planScenario(scenario, args, model);
    const idle = ['rank', 'explain', 'sweep', 'best', 'all', 'notes', 'format'].find((flag) => args.flags[flag]);
    if (idle !== undefined)
      throw new UserError(`--link prints a link alone, without --${idle}`, 'leave one of them out');
    if (model) throw new UserError('the link has the shape of a model in it', 'name the config.json with --model');
    const { printLink } = await import('./link.js');
    return inFileWords(args, () => printLink(scenario, args.output()));
  },
};

/**
 * Plans a scenario and prints the report to stdout (or --output).
 * @param model where the scenario names none that can be read
 */
export async function planScenario(
  scenario: Scenario,
  args: Args,
  model: ModelSource | null = null,
): Promise<ExitCode> {
  const output = args.output();
  const { text, failure } = await answerTo(scenario, args, terminal(output), model);
  if (text !== null) await print(text, output);
  if (failure) throw failure;
  return EXIT.ok;
}

/** What is printed, where there is something, and why nothing answers. */
export interface PlanAnswer {
  readonly text: string | null;
  readonly failure: UserError | null;
}

/** What a text is wrapped for. */
export interface Terminal {
  /** Columns. */
  readonly width: number;
  readonly colour: boolean;
}

/**
 * Plans a scenario.
 * @param model where the scenario names none that can be read
 * @throws UserError for settings and flags that cannot be
 */
export async function answerTo(
  scenario: Scenario,
  args: Args,
  on: Terminal,
  model: ModelSource | null = null,
): Promise<PlanAnswer> {
  const format = args.choice('format', FORMATS);
  const scenarios = await inFileWords(args, () => Promise.resolve(runsOf(scenario)));
  if (scenario.users !== undefined) {
    const other = ['sweep', 'rank', 'explain'].find(
      (flag) => args.flags[flag] !== undefined && args.flags[flag] !== false,
    );
    if (other !== undefined)
      throw new UserError(`--users and --${other} ask two questions`, `ask --${other} for one replica, with --gpus`);
    const { answerForUsers } = await import('./plan-fleet.js');
    return inFileWords(args, () => answerForUsers(scenarios, args, on, model));
  }
  const rank = args.isSet('rank');
  const [best, sweep] = [args.isSet('best') && '--best', args.isSet('sweep') && '--sweep'];
  const otherFormat = (format === 'csv' || format === 'markdown') && `--format ${format}`;
  const [unranked] = present([otherFormat, best, sweep]);
  if (rank && unranked !== undefined)
    throw new UserError(`--rank prints a ranking as a table or as JSON, not with ${unranked}`, 'leave one of them out');
  const explain = args.text('explain');
  if (explain !== null && (rank || best || otherFormat))
    throw new UserError('--explain is printed below a table or in JSON', 'leave --rank, --best and --format out');
  const [unswept] = present([best, otherFormat]);
  if (sweep && unswept !== undefined)
    throw new UserError(`--sweep is printed below a table or in JSON, not with ${unswept}`, 'leave one of them out');
  if (best !== false && format !== 'table')
    throw new UserError(`--best prints a table only, not --format ${format}`, 'leave one of them out');
  const everyRow = format !== 'table' || args.isSet('all');
  const planned: Planned[] = [];
  for (const one of scenarios) {
    const asked = rank ? (await import('../ranking/ranked.js')).rankedScenario(one) : one;
    planned.push(await inFileWords(args, () => planOne(asked, { everyRow, sweep: sweep !== false, explain }, model)));
  }
  const failure = planned.some(({ report }) => hasSolution(report))
    ? null
    : await noSolutionError(planned as [Planned, ...Planned[]]);
  if (failure && format !== 'json') return { text: null, failure };
  return { text: await (rank ? rankingOf(planned, format, on) : renderAll(planned, format, args, on)), failure };
}

/** All codecs in order, of every plan. */
async function rankingOf(planned: readonly Planned[], format: Format, on: Terminal): Promise<string> {
  const { ranked, rankedText } = await import('../ranking/ranked.js');
  const { claimsOnDisk } = await import('../ranking/claim-rows.js');
  const sources = claimsOnDisk();
  const reports = await Promise.all(planned.map(({ report }) => ranked(report, sources)));
  return format === 'json' ? asJson(plansJson(reports)) : reports.map((r) => rankedText(r, on)).join('\n');
}

/** A report, and its plans by batch and one row's explanation where --sweep and --explain ask for them. */
interface Planned {
  readonly report: PlanReport;
  readonly scenario: Scenario;
  readonly sources: Sources;
  readonly sweeps: readonly Sweep[] | null;
  readonly explained: Explained | null;
}

async function planOne(
  scenario: Scenario,
  { everyRow, sweep, explain }: { everyRow: boolean; sweep: boolean; explain: string | null },
  model: ModelSource | null,
): Promise<Planned> {
  const sources = await readSources(scenario, model);
  const { request, refused } = prepare(scenario, sources);
  const report = makePlan(request, refused, { everyRow });
  const explained =
    explain === null || !hasSolution(report)
      ? null
      : (await import('../plan/evaluate/explain.js')).explainRow(request, report, explain);
  if (!sweep) return { report, scenario, sources, sweeps: null, explained };
  const { sweepOf } = await import('../plan/evaluate/explain.js');
  const { deploy, upside, fallback } = report.answer;
  const named = report.plans.filter((p) => [deploy, upside, fallback].some((c) => c?.planId === p.id));
  const sweeps = named.map((p) => ({ planId: p.id, points: sweepOf(request, p) }));
  return { report, scenario, sources, sweeps, explained };
}

/** The report of a scenario with traffic says that its rows do not count it. */
function withTraffic(report: PlanReport, scenario: Scenario): PlanReport {
  if (!bringsRequests(scenario)) return report;
  const message =
    `rows assume ${formatTokens(report.contextTokens)} tokens a sequence and leave the workload out: simulate, ` +
    'report and --users count it';
  return { ...report, warnings: [...report.warnings, { code: 'input', message }] };
}

const withMore = ({ report, sweeps, explained }: Planned): PlanJson => ({
  ...report,
  ...(sweeps === null ? {} : { sweeps }),
  ...(explained === null ? {} : { explained }),
});

const terminal = (output: OutputOptions): Terminal => ({
  width: widthOf(output),
  colour: hasColour(output.file),
});

/** Columns of the terminal; of a pipe what COLUMNS says, as shells and coreutils take it; 100 where nothing says. */
function widthOf({ file }: OutputOptions): number {
  if (file !== null) return WIDTH;
  const named = Number(process.env['COLUMNS']);
  return (
    (process.stdout.isTTY ? process.stdout.columns : undefined) ??
    (Number.isInteger(named) && named > 0 ? named : WIDTH)
  );
}

async function renderAll(planned: readonly Planned[], format: Format, args: Args, on: Terminal): Promise<string> {
  const reports = planned.map((p) => p.report);
  if (format === 'json') return asJson(plansJson(planned.map(withMore)));
  if (format === 'csv') return (await import('../report/plan-csv.js')).planCsv(...reports);
  const several = reports.length > 1;
  const best = args.isSet('best');
  const compared = several || best ? (await import('../report/text/compare-text.js')).compareText(reports, on) : '';
  if (best) return compared;
  const blocks: string[] = [];
  for (const { report, scenario, sweeps, explained } of planned) {
    blocks.push(
      format === 'markdown'
        ? (await import('../report/plan-csv.js')).planMarkdown(report)
        : planTable(withTraffic(report, scenario), {
            all: args.isSet('all'),
            notes: args.isSet('notes'),
            ...on,
          }),
    );
    if (explained) blocks.push((await import('../report/text/explain-text.js')).explainText(explained, on));
    if (sweeps && format === 'table')
      blocks.push((await import('../report/text/explain-text.js')).sweepText(report, sweeps));
  }
  const parts = several && format === 'table' ? [compared, ...blocks] : blocks;
  return parts.join(several ? `\n${'─'.repeat(format === 'table' ? 60 : 0)}\n` : '\n');
}

/** Runs `work`. Errors of a field that came from the scenario file name the file's field. */
export async function inFileWords<T>(args: Args, work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    if (!(error instanceof UserError) || args.positional === null) throw error;
    const flag = /^--([a-z-]+)/.exec(error.message)?.[1];
    const { FIELDS } = await import('../schema/fields.js');
    const field = [...FIELDS.values()].find((f) => f.flag === `--${flag}`);
    if (flag === undefined || !field || args.flags[flag] !== undefined) throw error;
    const name = field.part === null ? field.name : `${field.part}.${field.name}`;
    throw new UserError(
      `scenario ${show(args.positional)}: ${name}${error.message.slice(2 + flag.length)}`,
      error.hint.replaceAll(field.flag, `${name}:`),
      error.exitCode,
    );
  }
}

/** What is asked; `model`: that of a link, where it has the shape of one in it. */
export interface Asked {
  readonly scenario: Scenario;
  readonly model: ModelSource | null;
}

/** A scenario file's fields, or those of a link. */
async function fieldsOf(named: string): Promise<Asked> {
  if (!/#v[0-9]/.test(named))
    return { scenario: (await import('../schema/scenario.js')).readScenarioFile(named), model: null };
  const { linkedModel, readLink } = await import('../report/link.js');
  const link = readLink(named);
  return { scenario: link.scenario, model: linkedModel(link) };
}

/** What a scenario's name gets where flags change what its file says. */
const WITH = ', with --';
const NAME_CHARACTERS = 200;

/** The scenario file's fields, or a link's, and these overridden by flags; `changed`: flags that change it. */
export async function readScenario(args: Args): Promise<Asked & { readonly changed: string }> {
  const { scenario: fromFile, model }: Asked =
    args.positional === null ? { scenario: {}, model: null } : await fieldsOf(args.positional);
  const flags: Record<string, unknown> = {};
  for (const [name, setting] of Object.entries(SETTINGS) as [SettingName, Setting][]) {
    const value = args.flags[flagOf(name)];
    if (value === undefined) continue;
    flags[name] =
      setting.kind === 'bounds' ? readBounds(value as readonly string[], `--${flagOf(name)}`, setting.example) : value;
  }
  const textOf = (value: unknown): string => (value === undefined ? '' : settingText(value as never));
  const others = (Object.keys(flags) as SettingName[]).filter((name) => textOf(flags[name]) !== textOf(fromFile[name]));
  const changed = others.map((name) => `--${flagOf(name)} ${textOf(flags[name])}`).join(' ');
  const kept = renamed(overridden(fromFile, flags as Scenario), changed);
  return { scenario: { ...kept, ...(flags as Scenario) }, model: flags['model'] === undefined ? model : null, changed };
}

/** A file's words are of its own settings: others are named, and what describes it goes. */
function renamed(fromFile: Scenario, changed: string): Scenario {
  if (changed === '') return fromFile;
  const { description: _description, name, ...rest } = fromFile;
  if (name === undefined) return rest;
  return { ...rest, name: `${name.split(WITH)[0]!}, with ${changed}`.slice(0, NAME_CHARACTERS) };
}

/** What a file says of compressed codecs is overridden where `--codec` names none; ranks and ratios, by each other. */
function overridden(fromFile: Scenario, { codec, ratio, ranks }: Scenario): Scenario {
  const isKind = (word: string | number): word is CodecKind => CODEC_KINDS.some((kind) => kind === word);
  const none = codec?.every((word) => isKind(word) && isUncompressed({ kind: word })) === true;
  const dropped = [
    ...(none ? ['ratio', 'ranks', 'path', 'window', 'constants'] : []),
    ...(ranks === undefined ? [] : ['ratio']),
    ...(ratio === undefined ? [] : ['ranks']),
  ];
  return Object.fromEntries(Object.entries(fromFile).filter(([name]) => !dropped.includes(name)));
}
