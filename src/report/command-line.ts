/** The command that gives the same answer as a page whose controls were changed. */
import { flagOf, SETTINGS, type Scenario, type SettingName } from '../schema/settings.js';

/** Where a scenario came from: a file and its fields, or flags alone. */
export interface Origin {
  readonly file: string | null;
  readonly fields: Scenario;
}

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

/** `lla-sim plan FILE --flags` for a scenario, with a flag for each field that the file does not have so. */
export function commandLine(
  origin: Origin,
  scenario: Scenario,
): { command: string; /** Fields of the file that no flag can take away. */ without: string[] } {
  const words = ['lla-sim', 'plan', ...(origin.file === null ? [] : [origin.file])];
  const without: string[] = [];
  for (const name of Object.keys(SETTINGS) as SettingName[]) {
    const [before, now] = [origin.fields[name], scenario[name]];
    if (JSON.stringify(before) === JSON.stringify(now)) continue;
    if (now === undefined) without.push(name);
    else words.push(...flagsOf(name, now));
  }
  return { command: words.map(shellWord).join(' '), without };
}
