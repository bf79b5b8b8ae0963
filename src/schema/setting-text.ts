/** A setting's value as one line of text, and back: in the fields of a page and in links. Flags are read alike. */
import { requireOneOf, show, UserError } from '../errors.js';
import type { Setting } from './settings.js';

type Value = string | number | readonly (string | number)[] | Readonly<Record<string, number>>;

/** Values of a list are divided by commas; bounds are `gsm8k=0.75,math500=0.6`. */
export function settingText(value: Value): string {
  if (typeof value !== 'object') return String(value);
  if (Array.isArray(value)) return value.join(',');
  return Object.entries(value)
    .map(([metric, least]) => `${metric}=${least}`)
    .join(',');
}

/**
 * @param flag how the setting is called, as a message begins
 * @throws UserError for bounds that are none, and for a value that is not among the setting's choices
 */
export function readSetting(text: string, flag: string, setting: Omit<Setting, 'group'>): Value {
  const { kind, choices, several, example } = setting;
  if (kind === 'list') return text.split(',').map((word) => word.trim());
  if (kind === 'bounds') return readBounds(text.split(','), flag, example);
  const value = text.trim();
  if (kind === 'text' && choices && !several) requireOneOf(flag, value, choices);
  return value;
}

/** `METRIC=VALUE` pairs. @throws UserError for what is no such pair, and for a metric that is bounded twice */
export function readBounds(pairs: readonly string[], flag: string, example?: string): Record<string, number> {
  const [form, shown] = example === undefined ? ['METRIC', 'gsm8k=0.75'] : ['NAME', example];
  const bounds: Record<string, number> = Object.create(null) as Record<string, number>;
  for (const pair of pairs) {
    const match = /^([^=]+)=(.+)$/.exec(pair.trim());
    const value = match ? Number(match[2]) : NaN;
    if (!match || !Number.isFinite(value))
      throw new UserError(`${flag} must be ${form}=VALUE, not ${show(pair)}`, `write for example ${flag} ${shown}`);
    const metric = (match[1] as string).trim().toLowerCase();
    if (metric in bounds) throw new UserError(`${flag} has ${show(metric)} twice`, 'give each once');
    bounds[metric] = value;
  }
  return bounds;
}
