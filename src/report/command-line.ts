/** The command that gives the same answer as a page, whole: it needs no file that the reader does not have. */
import { flagOf, SETTINGS, type Scenario, type SettingName } from '../schema/settings.js';

/** A word as a POSIX shell takes it. */
export const shellWord = (text: string): string =>
  /^[A-Za-z0-9_@%+=:,./-]+$/.test(text) ? text : `'${text.replace(/'/g, "'\\''")}'`;

function flagsOf(name: SettingName, value: unknown): string[] {
  const flag = `--${flagOf(name)}`;
  if (Array.isArray(value)) return [flag, value.join(',')];
  if (typeof value === 'object' && value !== null)
    return Object.entries(value).flatMap(([metric, least]) => [flag, `${metric}=${String(least)}`]);
  return [flag, String(value)];
}

/** `lla-sim plan --flags` with a flag for each field of the scenario. */
export function commandLine(scenario: Scenario): string {
  const words = ['lla-sim', 'plan'];
  for (const name of Object.keys(SETTINGS) as SettingName[]) {
    const value = scenario[name];
    if (value !== undefined) words.push(...flagsOf(name, value));
  }
  return words.map(shellWord).join(' ');
}
