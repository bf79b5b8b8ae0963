/** The command that gives the same answer as a page, whole: it needs no file that the reader does not have. */
import { FIELDS } from '../schema/fields.js';
import { PLANNED_ONLY, type Scenario } from '../schema/settings.js';

/** A word as a POSIX shell takes it. */
export const shellWord = (text: string): string =>
  /^[A-Za-z0-9_@%+=:,./-]+$/.test(text) ? text : `'${text.replace(/'/g, "'\\''")}'`;

function flagsOf(flag: string, value: unknown): string[] {
  if (Array.isArray(value)) return [flag, value.join(',')];
  if (typeof value === 'object' && value !== null)
    return Object.entries(value).flatMap(([metric, least]) => [flag, `${metric}=${String(least)}`]);
  return [flag, String(value)];
}

/** `lla-sim plan --flags` with a flag for each field of the scenario; `simulate` takes those that it knows. */
export function commandLine(scenario: Scenario, command: 'plan' | 'simulate' = 'plan'): string {
  const words = ['lla-sim', command];
  for (const { key, flag, part, name } of FIELDS.values()) {
    if (command === 'plan' ? part !== null : key in PLANNED_ONLY) continue;
    const holder = (part === null ? scenario : scenario[part]) as Readonly<Record<string, unknown>> | undefined;
    const value = holder?.[name];
    if (value !== undefined) words.push(...flagsOf(flag, value));
  }
  return words.map(shellWord).join(' ');
}
