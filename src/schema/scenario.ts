/** Scenario files: the settings of a plan in YAML, checked by a schema that editors can use too. */
import { LineCounter, parseDocument } from 'yaml';
import { z } from 'zod';
import { UserError, show } from '../errors.js';
import { nearestName } from '../nearest.js';
import { readTextFile } from '../io/files.js';
import { issueWords } from '../io/issues.js';
import { isObject } from '../io/json.js';
import { SERVER_SETTINGS, WORKLOAD_SETTINGS } from './serving.js';
import { readBounds } from './setting-text.js';
import { flagOf, SETTINGS, type Scenario, type Setting, type SettingName } from './settings.js';

/** A scenario takes a few hundred bytes. The parser's time grows with the square of the number of keys and tags. */
const MAX_FILE_BYTES = 2 ** 15;

/** Characters of a word. */
const LONGEST_WORD = 4096;

const word = z.string().min(1).max(LONGEST_WORD);
const number = z.number();

const received = (input: unknown): string => `not ${show(input)}`;

/** What a field must be; of a word that is too long the schema's own message says so. */
const must =
  (be: string) =>
  ({ input }: { readonly input?: unknown }): string | undefined =>
    typeof input === 'string' && input.length > LONGEST_WORD ? undefined : `must be ${be}, ${received(input)}`;

const textOf = (be: string) =>
  z
    .string({ error: must(be) })
    .min(1)
    .max(LONGEST_WORD);

const FIELD: Record<Setting['kind'], z.ZodType> = {
  text: textOf('text'),
  amount: z.union([word, number], { error: must('a number or text with a unit') }),
  time: textOf('a time with its unit, such as 80ms'),
  number: z.union([number, word], { error: must('a number') }),
  list: z.union(
    [
      z
        .array(z.union([word, number]))
        .min(1)
        .max(64),
      word,
      number,
    ],
    { error: must('a list of words or numbers') },
  ),
  bounds: z.record(z.string().max(100), number, { error: must('a map of metrics to numbers') }),
};

/** A help's pairs (`gsm8k=0.75`) as the map that a field takes. */
const pairsAsMap = (help: string): string =>
  help.replace(/[\w@-]+=[\d.]+(,[\w@-]+=[\d.]+)*/g, (pairs) => JSON.stringify(readBounds(pairs.split(','), 'help')));

function fieldOf(setting: Omit<Setting, 'group'>): z.ZodType {
  const type =
    setting.choices && setting.kind === 'text' && setting.several !== true
      ? z.enum(setting.choices as [string, ...string[]], {
          error: (i) => `must be one of ${setting.choices?.join(', ')}, ${received(i.input)}`,
        })
      : FIELD[setting.kind];
  return type.describe(setting.kind === 'bounds' ? pairsAsMap(setting.help) : setting.help).optional();
}

/** A plan does not read these, and would not say what is wrong with them. */
const servedFieldOf: typeof fieldOf = (setting) =>
  setting.kind !== 'number'
    ? fieldOf(setting)
    : fieldOf(setting).refine((value) => value === undefined || Number(value) >= 0 || value === setting.unlimited, {
        error: (i) => `must be a number of at least 0, ${received(i.input)}`,
      });

const fieldsOf = <K extends string>(
  settings: Readonly<Record<K, Omit<Setting, 'group'>>>,
  field = fieldOf,
): Record<K, z.ZodType> =>
  Object.fromEntries(Object.entries<Omit<Setting, 'group'>>(settings).map(([n, s]) => [n, field(s)])) as Record<
    K,
    z.ZodType
  >;

/** The schema of a scenario file. */
export const scenarioSchema = z.strictObject({
  name: z.string().max(200).describe('shown in reports').optional(),
  description: z.string().max(4000).describe('what the scenario stands for').optional(),
  ...fieldsOf<SettingName>(SETTINGS),
  workload: z
    .strictObject(fieldsOf(WORKLOAD_SETTINGS, servedFieldOf))
    .describe('requests that lla-sim simulate serves')
    .optional(),
  server: z
    .strictObject(fieldsOf(SERVER_SETTINGS, servedFieldOf))
    .describe('how lla-sim simulate serves them')
    .optional(),
});

/** JSON Schema of a scenario file, for editors (`schemas/scenario.schema.json`). */
export function scenarioJsonSchema(): unknown {
  return {
    $id: 'lla-sim/scenario',
    title: 'lla-sim scenario',
    ...z.toJSONSchema(scenarioSchema, { target: 'draft-7' }),
  };
}

/**
 * Reads a scenario file.
 * @throws UserError naming the field that is wrong
 */
export function readScenarioFile(path: string): Scenario {
  const text = readTextFile(path, 'scenario', MAX_FILE_BYTES);
  const subject = `scenario ${show(path)}`;
  return checkScenario(parseYaml(text, subject), subject);
}

/**
 * Checks a scenario from anywhere: a file, or a caller of the library.
 * @param subject what it is, as a message begins
 * @throws UserError naming the field that is wrong
 */
export function checkScenario(content: unknown, subject: string): Scenario {
  try {
    const reserved = keysOf(content, subject).find((k) => RESERVED.includes(k));
    if (reserved !== undefined)
      throw new UserError(`${subject} has an unknown field ${show(reserved)}`, 'leave it out');
    const parsed = scenarioSchema.safeParse(content);
    if (!parsed.success) throw explain(parsed.error.issues[0], content, subject);
    return toScenario(parsed.data);
  } catch (error) {
    if (error instanceof UserError) throw error;
    // A caller's own getter or proxy threw.
    throw new UserError(`${subject} cannot be read: ${show((error as Error | null)?.message)}`, 'give plain values');
  }
}

/** Keys that JavaScript gives a meaning of its own. */
const RESERVED = ['__proto__', 'constructor', 'prototype'];

/** Keys of a scenario and of the maps in it. */
function keysOf(content: unknown, subject: string): string[] {
  if (!isObject(content))
    throw new UserError(`${subject} must be a map of fields, not ${show(content)}`, 'write for example vram: 141GB');
  return [content, ...Object.values(content).filter(isObject)].flatMap((map) => Object.keys(map));
}

function parseYaml(text: string, subject: string): unknown {
  const lines = new LineCounter();
  // The library's own prettyErrors take time by the square of the errors.
  const document = parseDocument(text, { uniqueKeys: true, version: '1.2', prettyErrors: false, lineCounter: lines });
  const problem = document.errors[0];
  if (problem?.code === 'MULTIPLE_DOCS')
    throw new UserError(`${subject} holds several YAML documents`, 'write one scenario a file');
  if (problem) {
    const { line, col } = lines.linePos(problem.pos[0]);
    throw new UserError(
      `${subject} is not YAML: ${firstLine(problem)} at line ${line}, column ${col}`,
      'correct that line',
    );
  }
  let content: unknown;
  try {
    content = document.toJS({ maxAliasCount: 20 });
  } catch (error) {
    throw new UserError(`${subject} cannot be read: ${firstLine(error)}`, 'leave YAML aliases out');
  }
  if (content === null || content === undefined)
    throw new UserError(`${subject} is empty`, 'write at least vram: 141GB');
  return content;
}

const firstLine = (error: unknown): string =>
  String((error as Error).message)
    .slice(0, 300)
    .split('\n')[0] as string;

/** Characters of a list that are written as they should be. */
const LONGEST_HINT = 80;

/** A field that the schema refuses, in one line. */
function explain(issue: z.core.$ZodIssue | undefined, content: unknown, subject: string): UserError {
  if (issue?.code === 'unrecognized_keys') {
    const key = issue.keys[0] as string;
    const within = issue.path[0];
    const known =
      within === 'workload'
        ? Object.keys(WORKLOAD_SETTINGS)
        : within === 'server'
          ? Object.keys(SERVER_SETTINGS)
          : ['name', 'description', ...Object.keys(SETTINGS), 'workload', 'server'];
    const byFlag = (Object.keys(SETTINGS) as SettingName[]).find((n) => flagOf(n) === key);
    const guess = (within === undefined ? byFlag : undefined) ?? nearestName(key, known);
    return new UserError(
      `${subject} has an unknown field ${show(within === undefined ? key : `${String(within)}.${key}`)}`,
      guess === undefined ? `known fields: ${known.join(', ')}` : `did you mean ${guess}?`,
    );
  }
  const field = issue?.path.map(String) ?? [];
  const given = field.reduce<unknown>((of, key) => (isObject(of) ? of[key] : undefined), content);
  const isList = Array.isArray(given) && given.length > 0 && given.every((one) => typeof one !== 'object');
  const several = isList && given.join(',').length <= LONGEST_HINT;
  return new UserError(
    `${subject}: ${issueWords(issue, content, 'the file')}`,
    several ? `a command that takes several reads ${field.at(-1)}: ${given.join(',')}` : 'correct the field',
  );
}

/** A list may be written as one word, and as words with commas between, as flags have it. */
function toScenario(data: Record<string, unknown>): Scenario {
  const scenario: Record<string, unknown> = {};
  for (const [key, value] of Object.entries(data)) {
    if (value === undefined) continue;
    const setting: Setting | undefined = Object.hasOwn(SETTINGS, key) ? SETTINGS[key as SettingName] : undefined;
    const several = typeof value === 'string' ? value.split(',').map((one) => one.trim()) : [value];
    scenario[key] = setting?.kind === 'list' && !Array.isArray(value) ? several : value;
  }
  return scenario;
}
