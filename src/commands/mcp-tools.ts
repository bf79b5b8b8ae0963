/**
 * What `lla-sim mcp` offers: each tool's input by our own schemas, and its answer in the words or bytes of a command.
 */
import { z } from 'zod';
import { show, UserError } from '../errors.js';
import { issueWords } from '../io/issues.js';
import { onDisk, readSources } from '../plan/ask/on-disk.js';
import { answersTo } from '../planner/answer.js';
import type { PlanReport } from '../plan/types.js';
import { present } from '../present.js';
import { plansJson } from '../report/plan-json.js';
import { compareText } from '../report/text/compare-text.js';
import { WIDTH } from '../report/text/plan-table.js';
import { checkScenario, scenarioSchema } from '../schema/scenario.js';
import { settingText } from '../schema/setting-text.js';
import type { Scenario } from '../schema/settings.js';
import { Args } from './command.js';
import { listing, modelText } from './models.js';
import { asJson } from './output.js';
import { answerTo } from './plan.js';

/** Called with the share that is done; true ends the work early. */
export type Progress = (share: number, doing: string) => boolean;

export interface ToolAnswer {
  readonly text: string;
  /** Nothing answers: the text says why. */
  readonly isError: boolean;
}

export interface Tool {
  readonly name: string;
  readonly description: string;
  /** Of its arguments. */
  readonly input: z.ZodObject;
  /** @throws UserError for what is asked wrongly, and where nothing answers in words */
  run(input: Readonly<Record<string, unknown>>, progress: Progress): Promise<string | ToolAnswer>;
}

const MOST_COMPARED = 8;
/** A terminal that shows text alone. */
const PLAIN = { width: WIDTH, colour: false };

const format = z
  .enum(['text', 'json'])
  .optional()
  .describe('text: the words and the table of the command; json: everything, as --format json prints it [text]');

/** A scenario's fields, beside a tool's own. */
const scenarioFields = scenarioSchema.extend({ format });

const scenarioIn = ({ format: _format, findRate: _find, ...fields }: Readonly<Record<string, unknown>>): Scenario =>
  checkScenario(fields, 'the scenario');

const plan: Tool = {
  name: 'plan',
  description:
    'How many users a GPU serves with a looped language model, how fast and at what price; what compressing its ' +
    'cache would bring and lose. With users: how many GPUs.',
  input: scenarioFields,
  async run(input) {
    const args = new Args({ format: input['format'] === 'json' ? 'json' : 'table', quiet: true });
    const { text, failure } = await answerTo(scenarioIn(input), args, PLAIN);
    if (text === null && failure) throw failure;
    return { text: text ?? '', isError: failure !== null };
  },
};

/** Fields of a plan: requests have lengths, users and limits of their own. */
const PLANNED_ALONE = { context: true, batch: true, users: true } as const;

const simulate: Tool = {
  name: 'simulate',
  description:
    'What happens when requests arrive (workload, server): latencies and throughput; with findRate the highest ' +
    'rate that meets the targets ttft and tpot, for every candidate. Lengths, users and limits are those of workload ' +
    'and server.',
  input: scenarioFields
    .omit(PLANNED_ALONE)
    .extend({ findRate: z.boolean().optional().describe('search the highest rate [false]') }),
  async run(input, progress) {
    const scenario = scenarioIn(input);
    const served = { ...scenario, workload: scenario.workload ?? {} };
    const { simulate: simulated } = await import('../serving/answer.js');
    const report = await simulated(served, await readSources(served), {
      findRate: input['findRate'] === true,
      skipBad: false,
      shard: null,
      progress,
    });
    if (input['format'] === 'json') return asJson(report);
    return (await import('../report/text/simulation-table.js')).simulationTable(report, { colour: false });
  },
};

/** Settings that no row's label names: they have a column of their own, or change no plan. */
const HAVE_COLUMNS = ['name', 'description', 'model', 'device', 'gpus', 'context', 'cacheType'];

/** What tells scenarios apart beside those columns: their names, and the settings in which they differ. */
function labelsOf(scenarios: readonly Scenario[]): string[] {
  const settings = scenarios.map(({ workload: _workload, server, ...own }) =>
    Object.entries({ ...server, ...own }).flatMap(([name, value]) =>
      HAVE_COLUMNS.includes(name) ? [] : `${name} ${settingText(value)}`,
    ),
  );
  return scenarios.map(({ name }, i) => {
    const own = settings[i]!.filter((setting) => !settings.every((other) => other.includes(setting)));
    return present([name, own.length > 0 && own.join(', ')]).join(': ');
  });
}

const compare: Tool = {
  name: 'compare',
  description:
    'Plans two to eight scenarios and puts them side by side, the best first; with format json in the order given.',
  input: z.strictObject({
    scenarios: z.array(scenarioSchema).min(2).max(MOST_COMPARED).describe('fields of scenarios, as of plan'),
    format,
  }),
  async run({ scenarios: given, format: wanted }) {
    const scenarios = (given as unknown[]).map((fields) => checkScenario(fields, 'a scenario'));
    const labels = labelsOf(scenarios);
    const planned = new Map<PlanReport, string>();
    for (const [i, scenario] of scenarios.entries()) {
      if (scenario.users !== undefined)
        throw new UserError('compare puts plans side by side, not users', 'call plan with users for each');
      for (const { view } of await answersTo(scenario, null, onDisk, wanted === 'json'))
        planned.set(view.report, labels[i]!);
    }
    const reports = [...planned.keys()];
    return wanted === 'json' ? asJson(plansJson(reports)) : compareText(reports, PLAIN, planned);
  },
};

const models: Tool = {
  name: 'models',
  description: 'Models and devices that have names; with name all that is known and published of one model.',
  input: z.strictObject({
    name: z.string().min(1).max(4096).optional().describe('a model, or the path of its config.json'),
    devices: z.boolean().optional().describe('devices instead of models [false]'),
    format,
  }),
  run: async ({ name, devices, format: wanted }) => {
    const as = wanted === 'json' ? 'json' : 'table';
    return typeof name === 'string' ? modelText(name, as) : listing(devices === true ? 'devices' : 'models', as);
  },
};

const accuracy: Tool = {
  name: 'accuracy',
  description:
    'Predictions beside what others measured on real servers: how far to trust a plan. All rows take half a ' +
    'minute; only narrows them.',
  input: z.strictObject({
    only: z
      .string()
      .min(1)
      .max(200)
      .optional()
      .describe('rows whose source, campaign, id, server, GPU or model contains this text'),
    format,
  }),
  async run({ only, format: wanted }, progress) {
    const { accuracy: judged, ownLedger } = await import('../accuracy/report.js');
    const report = await judged(ownLedger(), typeof only === 'string' ? only : null, (share) =>
      progress(share, 'rows of the ledger'),
    );
    if (wanted === 'json') return asJson(report);
    return (await import('../accuracy/print.js')).accuracyTable(report, WIDTH);
  },
};

export const TOOLS: readonly Tool[] = [plan, simulate, compare, models, accuracy];

/** JSON Schema of a tool's arguments. */
export const inputSchemaOf = ({ input }: Tool): { type: 'object'; [key: string]: unknown } => ({
  ...z.toJSONSchema(input, { target: 'draft-7', io: 'input' }),
  type: 'object',
});

/**
 * Runs a tool by its name. Fields of a scenario are checked by the words of a scenario file.
 * @throws UserError for an unknown tool and for arguments that are wrong
 */
export async function callTool(name: string, input: unknown, progress: Progress): Promise<ToolAnswer> {
  const tool = TOOLS.find((t) => t.name === name);
  if (!tool) throw new UserError(`there is no tool ${show(name)}`, `call ${TOOLS.map((t) => t.name).join(', ')}`);
  const given = (input ?? {}) as Readonly<Record<string, unknown>>;
  const own = tool.input.safeParse(given);
  if (!own.success) {
    // A scenario's own words say more than a schema's.
    if (tool.input === plan.input || tool.input === simulate.input) scenarioIn(given);
    throw new UserError(`${name}: ${issueWords(own.error.issues[0], given, 'arguments')}`, 'correct the argument');
  }
  const answer = await tool.run(given, progress);
  return typeof answer === 'string' ? { text: answer, isError: false } : answer;
}
