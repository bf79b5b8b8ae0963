/** Scenario files: the settings of a plan in YAML, checked by a schema that editors can use too. */
import { parseDocument } from 'yaml';
import { z } from 'zod';
import { UserError, show } from '../errors.js';
import { readTextFile } from '../plan/calibrations.js';
import { SETTINGS, type Scenario, type Setting, type SettingName } from './settings.js';

const MAX_FILE_BYTES = 2 ** 20;

const word = z.string().min(1).max(4096);
const number = z.number();

const FIELD: Record<Setting['kind'], z.ZodType> = {
  text: word,
  amount: z.union([word, number]),
  number: z.union([number, word]),
  list: z.union([z.array(z.union([word, number])).min(1).max(64), word, number]),
  bounds: z.record(z.string().max(100), number),
};

function fieldOf(name: SettingName): z.ZodType {
  const setting: Setting = SETTINGS[name];
  const type = setting.choices ? z.enum(setting.choices as [string, ...string[]]) : FIELD[setting.kind];
  return type.describe(setting.help).optional();
}

/** The schema of a scenario file. */
export const scenarioSchema = z.strictObject({
  name: z.string().max(200).describe('shown in reports').optional(),
  description: z.string().max(4000).describe('what the scenario stands for').optional(),
  ...(Object.fromEntries((Object.keys(SETTINGS) as SettingName[]).map((n) => [n, fieldOf(n)])) as Record<SettingName, z.ZodType>),
});

/** JSON Schema of a scenario file, for editors (`schemas/scenario.schema.json`). */
export function scenarioJsonSchema(): unknown {
  return { $id: 'lla-sim/scenario', title: 'lla-sim scenario', ...z.toJSONSchema(scenarioSchema, { target: 'draft-7' }) };
}

/**
 * Reads a scenario file.
 * @throws UserError naming the field that is wrong
 */
export function readScenarioFile(path: string): Scenario {
  const text = readTextFile(path, 'scenario', MAX_FILE_BYTES);
  const document = parseDocument(text, { uniqueKeys: true, version: '1.2' });
  const problem = document.errors[0];
  if (problem) throw new UserError(`scenario ${show(path)} is not YAML: ${problem.message.split('\n')[0]}`, 'correct that line');
  let content: unknown;
  try {
    content = document.toJS({ maxAliasCount: 20 });
  } catch (error) {
    throw new UserError(`scenario ${show(path)} cannot be read: ${String((error as Error).message).split('\n')[0]}`, 'leave YAML aliases out');
  }
  const parsed = scenarioSchema.safeParse(content);
  if (!parsed.success) {
    const issue = parsed.error.issues[0];
    const where = issue && issue.path.length > 0 ? show(issue.path.join('.')) : 'the file';
    const unknown = issue?.code === 'unrecognized_keys' ? `; known fields: name, description, ${Object.keys(SETTINGS).join(', ')}` : '';
    throw new UserError(`scenario ${show(path)}: ${where}: ${issue?.message ?? 'is wrong'}`, `correct the field${unknown}`);
  }
  return toScenario(parsed.data);
}

/** A list may be written as one word. */
function toScenario(data: Record<string, unknown>): Scenario {
  const scenario: Record<string, unknown> = {};
  for (const [key, value] of Object.entries(data)) {
    if (value === undefined) continue;
    const setting: Setting | undefined = Object.hasOwn(SETTINGS, key) ? SETTINGS[key as SettingName] : undefined;
    scenario[key] = setting?.kind === 'list' && !Array.isArray(value) ? [value] : value;
  }
  return scenario;
}

