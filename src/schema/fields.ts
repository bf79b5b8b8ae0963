/** All settings of a scenario by one name each, as links and the page's form have them: `ctx`, `workload.rate`. */
import { readSetting, settingText } from './setting-text.js';
import { SERVER_SETTINGS, servingFlag, WORKLOAD_SETTINGS } from './serving.js';
import { flagOf, SETTINGS, type Scenario, type Setting, type SettingName } from './settings.js';

export interface Field {
  /** `ctx`, `workload.rate`. */
  readonly key: string;
  /** `--ctx`, `--rate`, as messages name it. */
  readonly flag: string;
  readonly setting: Omit<Setting, 'group'>;
  /** Where a scenario holds it, and under which name. */
  readonly part: 'workload' | 'server' | null;
  readonly name: string;
}

const fieldsOf = (
  settings: Readonly<Record<string, Omit<Setting, 'group'>>>,
  part: Field['part'],
  flag: (name: string) => string,
): Field[] =>
  Object.entries(settings).map(([name, setting]) => ({
    key: `${part === null ? '' : `${part}.`}${flag(name)}`,
    flag: `--${flag(name)}`,
    setting,
    part,
    name,
  }));

const serving = (name: string): string => servingFlag(name as keyof typeof WORKLOAD_SETTINGS);

export const FIELDS: ReadonlyMap<string, Field> = new Map(
  [
    ...fieldsOf(SETTINGS, null, (name) => flagOf(name as SettingName)),
    ...fieldsOf(WORKLOAD_SETTINGS, 'workload', serving),
    ...fieldsOf(SERVER_SETTINGS, 'server', serving),
  ].map((field) => [field.key, field]),
);

/** A scenario that is being filled. */
export type OpenScenario = { -readonly [K in keyof Scenario]: Scenario[K] };

/** A field's value as text; null where the scenario does not have it. */
export function fieldText(scenario: Scenario, { part, name }: Field): string | null {
  const holder = (part === null ? scenario : scenario[part]) as Readonly<Record<string, unknown>> | undefined;
  const value = holder?.[name];
  return value === undefined ? null : settingText(value as Parameters<typeof settingText>[0]);
}

/** Puts a field's text into a scenario. @throws UserError for a value that the setting does not take */
export function putField(scenario: OpenScenario, { part, name, flag, setting }: Field, text: string): void {
  const holder = (part === null ? scenario : (scenario[part] ??= {})) as Record<string, unknown>;
  holder[name] = readSetting(text, flag, setting);
}
