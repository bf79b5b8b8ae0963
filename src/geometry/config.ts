/** Reading single fields of a Hugging Face `config.json`, with the checks that every family needs. */
import { UserError, show } from '../errors.js';
import { isObject } from '../io/json.js';

/** Sanity limits: beyond them a typing error is likelier than a model. */
export const LIMITS = {
  layers: 1000,
  loops: 1024,
  heads: 1024,
  headDim: 1024,
  hidden: 2 ** 17,
  mlp: 2 ** 20,
  vocab: 2 ** 24,
  positions: 2 ** 30,
} as const;

/** Next action where a model cannot be expressed. */
export const CONVENTIONAL =
  'give the config.json of a model with conventional dense attention, or name one of the built-in models';

/** Text of arbitrary origin as a display name of at most 64 plain characters. */
export function displayName(text: string): string {
  const clean = text
    .slice(0, 512)
    .replace(/[^A-Za-z0-9._-]+/g, '-')
    .replace(/^[-.]+/, '')
    .slice(0, 64)
    .replace(/[-.]+$/, '');
  return clean === '' ? 'model' : clean;
}

/** A received value for an error message. Never calls a method of the value. */
export function received(value: unknown): string {
  if (value === undefined) return 'missing';
  if (value === null || typeof value !== 'object') return `not ${show(value)}`;
  return Array.isArray(value) ? 'not a list' : 'not an object';
}

/** One config; each failure names the file, the key, the rule and the value. */
export class Config {
  constructor(
    private readonly fields: object,
    readonly name: string,
  ) {}

  get keys(): readonly string[] {
    return Object.keys(this.fields);
  }

  /** True for a key that is there, whatever its value. */
  has(key: string): boolean {
    return Object.hasOwn(this.fields, key);
  }

  /** The value of an own key; `null` counts as absent, as Hugging Face writes it. */
  get(key: string): unknown {
    const value: unknown = this.has(key) ? (this.fields as Record<string, unknown>)[key] : undefined;
    return value === null ? undefined : value;
  }

  refuse(what: string, hint: string): never {
    throw new UserError(`config.json of ${this.name}: ${what}`, hint);
  }

  /** A whole number from `min` to `max` under the first key that is present; `fallback` when none is. */
  integer(keys: string | readonly string[], max: number, fallback?: number, min = 1): number {
    const all = typeof keys === 'string' ? [keys] : keys;
    const key = all.find((k) => this.get(k) !== undefined) ?? (all[0] as string);
    const value = this.get(key) ?? fallback;
    if (typeof value === 'number' && Number.isInteger(value) && value >= min && value <= max) return value;
    return this.refuse(
      `${key} must be a whole number from ${min} to ${max}, ${received(value)}`,
      `correct ${key}, or name one of the built-in models`,
    );
  }

  boolean(key: string, fallback: boolean): boolean {
    const value = this.get(key) ?? fallback;
    if (typeof value === 'boolean') return value;
    return this.refuse(`${key} must be true or false, ${received(value)}`, `correct ${key}`);
  }

  /** Fields within a field. */
  object(key: string): Config {
    const value = this.get(key);
    if (isObject(value)) return new Config(value, this.name);
    return this.refuse(`${key} must be an object, ${received(value)}`, `correct ${key}`);
  }

  /** True where a feature that we do not model is switched on: anything but absent, false, 0, "", [] or {}. */
  on(key: string): boolean {
    const value = this.get(key);
    if (value === undefined || value === false || value === 0 || value === '') return false;
    return typeof value !== 'object' || Object.keys(value as object).length > 0;
  }
}
