/**
 * A link is an answer: all settings of a plan as the fragment of an address, `v0.1.0/ctx=4096/device=h200`, which the
 * page and `lla-sim open` read. A field is the flag of a setting of the one table, its value percent-encoded. Nothing
 * in it means anything to a shell. It ends with what the plan answered, so that a later version says what changed.
 */
import { printable, show, UserError } from '../errors.js';
import { geometryFromConfig } from '../geometry/hf-config.js';
import type { ModelSource } from '../plan/ask/prepare.js';
import { isPreset } from '../geometry/presets.js';
import { isObject, parseJson } from '../io/json.js';
import { FIELDS, fieldText, putField, type Field, type OpenScenario } from '../schema/fields.js';
import { isPath, type Scenario } from '../schema/settings.js';
import { VERSION } from '../version.js';

/** Longer addresses are cut by some programs. */
const MAX_LENGTH = 8000;
/** Of one value, as in a scenario file. */
const MAX_VALUE = 4096;
const MAX_CONFIG_VALUES = 1000;

/** A model that is no preset: the fields of its config.json that are needed (`neededFields`), and its name. */
export interface LinkedModel {
  readonly name: string;
  readonly config: Readonly<Record<string, unknown>>;
}

export interface Link {
  readonly scenario: Scenario;
  /** Null where the scenario names a preset. */
  readonly model: LinkedModel | null;
  /** Of the program that made it. */
  readonly version: string;
  /** What it answered (gist.ts); null where the link does not say. */
  readonly was: string | null;
}

/** Beside the settings: what a scenario is called. */
const WORDS = ['name', 'description'] as const;
const isWords = (key: string): key is (typeof WORDS)[number] => (WORDS as readonly string[]).includes(key);

/** Percent-encoded, but for what both an address and a shell take as it is. */
const encoded = (text: string): string =>
  encodeURIComponent(text)
    .replace(/[!'()*~]/g, (c) => `%${c.charCodeAt(0).toString(16).toUpperCase()}`)
    .replace(/%(2C|3A|40|2B|3D)/g, (code) => decodeURIComponent(code));

const bytesOf = (text: string): string => String.fromCharCode(...new TextEncoder().encode(text));

/** base64url of UTF-8. */
const packed = (value: unknown): string =>
  btoa(bytesOf(JSON.stringify(value)))
    .replace(/\+/g, '-')
    .replace(/\//g, '_')
    .replace(/=/g, '');

const isFile = ({ setting }: Field, text: string): boolean =>
  setting.file === 'always' || (setting.file === 'path' && isPath(text) && !isPreset(text));

/**
 * @param model where the scenario's model is no preset
 * @param was what it answers, if that is known
 * @throws UserError, one line, for what a link cannot carry: files, and more than fits into an address
 */
export function linkOf(scenario: Scenario, model: LinkedModel | null, was: string | null): string {
  const parts = [`v${VERSION}`];
  const add = (key: string, text: string): void =>
    void parts.push(`${key}=${encoded(text.replace(/\p{Cs}/gu, printable))}`);
  for (const key of WORDS) if (scenario[key] !== undefined) add(key, scenario[key]);
  for (const field of FIELDS.values()) {
    const text = field.key === 'model' && model ? model.name : fieldText(scenario, field);
    if (text === null) continue;
    if (isFile(field, text))
      throw new UserError(
        `a link carries settings, not files: ${field.flag} ${show(text)} is one`,
        'leave it out, or send the file with the command line',
      );
    add(field.key, text);
  }
  if (model) parts.push(`config=${packed(model.config)}`);
  if (was !== null) parts.push(`was=${encoded(was)}`);
  const link = parts.join('/');
  if (link.length > MAX_LENGTH)
    throw new UserError(
      `the link would have ${link.length} characters, and an address holds about ${MAX_LENGTH}`,
      'shorten the description or the lists, or send the scenario file',
    );
  return link;
}

/** A link to the page as the package has it: whoever publishes it elsewhere puts its address in front. */
export const addressOf = (link: string): string => `plan.html#${link}`;

/** The model that a link carries. @throws UserError as for its config.json; null where it is a preset */
export const linkedModel = ({ model }: Pick<Link, 'model'>): ModelSource | null =>
  model && { geometry: geometryFromConfig(model.config, model.name), publishedAs: null };

/** Whether a fragment is meant as a link: pages have other fragments, too. */
export const isLink = (fragment: string): boolean => /^#?(v[0-9]|.*=)/.test(fragment);

/**
 * Reads a link: an address with a fragment, or the fragment alone.
 * @throws UserError, one line, for everything else
 */
export function readLink(address: string): Link {
  const text = address.trim();
  if (text.length > MAX_LENGTH + 2000)
    throw new UserError(`the link has ${text.length} characters, which no link has`, HINT);
  const [head = '', ...parts] = text.slice(text.indexOf('#') + 1).split('/');
  const version = /^v([0-9]{1,6}\.[0-9]{1,6}\.[0-9]{1,6}(?:-[0-9a-z.]{1,32})?)$/.exec(head)?.[1];
  if (version === undefined)
    throw new UserError(`a link begins with a version, such as v${VERSION}, not with ${show(head)}`, HINT);
  const scenario: OpenScenario = {};
  const seen = new Map<string, string>();
  for (const part of parts) {
    const at = part.indexOf('=');
    const key = at < 0 ? part : part.slice(0, at);
    const value = valueOf(key, at < 0 ? '' : part.slice(at + 1));
    if (seen.has(key)) throw new UserError(`the link has ${show(key)} twice`, HINT);
    seen.set(key, value);
    if (key === 'config' || key === 'was') continue;
    put(scenario, key, value, version);
  }
  const config = seen.get('config');
  const was = seen.get('was') ?? null;
  if (was !== null && !/^[\w.:@+, -]{1,4096}$/.test(was)) throw new UserError(`the link's answer is damaged`, HINT);
  return { scenario, model: config === undefined ? null : modelOf(config, seen), version, was };
}

const HINT = 'make it again with lla-sim plan --link';

function valueOf(key: string, text: string): string {
  let value: string;
  try {
    value = decodeURIComponent(text);
  } catch {
    throw new UserError(`the link's ${show(key)} is damaged: ${show(text)}`, HINT);
  }
  if (value.trim() === '' && !isWords(key)) throw new UserError(`the link gives ${show(key)} no value`, HINT);
  if (key !== 'config' && value.length > MAX_VALUE)
    throw new UserError(`the link's ${show(key)} has more than ${MAX_VALUE} characters`, HINT);
  return value;
}

/** Puts a field into a scenario. @throws UserError for one that this version does not know, and for files */
function put(scenario: OpenScenario, key: string, text: string, version: string): void {
  if (isWords(key)) return void (scenario[key] = text);
  const field = FIELDS.get(key);
  if (!field)
    throw new UserError(
      `the link has ${show(key)}, which lla-sim ${VERSION} does not know`,
      version === VERSION ? HINT : `the link was made by lla-sim ${version}: open it with that version`,
    );
  if (isFile(field, text))
    throw new UserError(`the link names a file, ${field.flag} ${show(text)}, which no link may`, HINT);
  putField(scenario, field, text);
}

/** @throws UserError for what is no base64url of an object in JSON */
function modelOf(text: string, seen: ReadonlyMap<string, string>): LinkedModel {
  const damaged = new UserError('the model in the link is damaged', HINT);
  let json: string;
  try {
    const bytes = Uint8Array.from(atob(text.replace(/-/g, '+').replace(/_/g, '/')), (c) => c.charCodeAt(0));
    json = new TextDecoder('utf-8', { fatal: true }).decode(bytes);
  } catch {
    throw damaged;
  }
  const config = parseJson(json, 'the model in the link', { maxValues: MAX_CONFIG_VALUES, hint: HINT });
  if (!isObject(config)) throw damaged;
  return { name: seen.get('model') ?? 'model', config };
}
