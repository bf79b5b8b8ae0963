/**
 * Reads the shape of a model from its Hugging Face `config.json`. Only families whose layout was checked against
 * their modelling code are read; everything else is refused, because a wrong number is worse than none.
 */
import { existsSync, statSync } from 'node:fs';
import { basename, dirname, join, resolve } from 'node:path';
import { UserError, show } from '../errors.js';
import { readTextFile } from '../files.js';
import { parseJson } from '../json.js';
import { Config, CONVENTIONAL, displayName, received } from './config.js';
import type { Family } from './families/fields.js';
import { huginn, PARCAE_CLASS, parcae } from './families/huginn.js';
import { iquestLoop, iquestPlt, lumma, nanbeige, nandi, ouro, PLAIN } from './families/llama.js';
import { hrmText, lds } from './families/stacked.js';
import { type Geometry, parameterCount } from './geometry.js';
import { refuseKnown, refuseLoops, refuseOwnCode, refuseUnsupported } from './refusals.js';

/** A config.json is a few KiB; more is some other file. */
const MAX_CONFIG_BYTES = 2 ** 20;
const MAX_CONFIG_VALUES = 200_000;
const MAX_PARAMETERS = 1e13;

/** Lies beside the config.json of TaH models (arXiv 2609.35748), which itself is that of their base. */
const TAH_FILE = 'tah_config.json';

/** `owner/name` as Hugging Face has it. */
const HUB_ID = /^[a-z0-9][\w.-]{0,95}\/[a-z0-9](?!.*\.json$)[\w.-]{0,95}$/i;

/** Families that are read, by `model_type`. Parcae's files have none. */
const FAMILIES: Readonly<Record<string, Family>> = {
  ...PLAIN,
  ouro,
  nanbeige,
  huginn_raven: huginn,
  hrm_text: hrmText,
  iquestloopcoder: iquestLoop,
  iquestpltcoder: iquestPlt,
  nandi,
  lumma,
  lds,
};

/** Values of `model_type` that are read. */
export const MODEL_TYPES: readonly string[] = Object.keys(FAMILIES);

function familyOf(c: Config): Family | undefined {
  const modelType = c.get('model_type');
  if (modelType === undefined && c.get('_class_name') === PARCAE_CLASS) return parcae;
  return typeof modelType === 'string' && Object.hasOwn(FAMILIES, modelType) ? FAMILIES[modelType] : undefined;
}

/** Classes other than the causal language model of a family have other weights. */
function refuseClasses(c: Config, { architecture }: Family): void {
  const architectures = c.get('architectures');
  if (architectures === undefined) return;
  const list: unknown[] = Array.isArray(architectures) ? architectures : [architectures];
  const stranger = list.find(
    (a) => typeof a !== 'string' || (architecture !== null && !(architecture.test(a) && a.endsWith('ForCausalLM'))),
  );
  if (stranger !== undefined)
    c.refuse(
      `architectures must name the causal language model of model_type ${show(c.get('model_type'))}, ${received(stranger)}`,
      CONVENTIONAL,
    );
}

/**
 * The shape that a parsed `config.json` describes.
 * @param json what `JSON.parse` gave
 * @param name of the model, for messages and reports; sanitised here
 * @throws UserError (exit code 2) for every field that is missing, ill-typed or absurd, and for every architecture not
 * modelled
 */
export function geometryFromConfig(json: unknown, name: string): Geometry {
  const shown = displayName(name);
  if (typeof json !== 'object' || json === null || Array.isArray(json)) {
    throw new UserError(
      `config.json of ${shown} must be a JSON object, ${received(json)}`,
      'give the config.json of a Hugging Face model',
    );
  }
  const c = new Config(json, shown);
  refuseKnown(c);
  const modelType = c.get('model_type');
  const family = familyOf(c);
  if (!family) {
    refuseLoops(c);
    return c.refuse(
      `model_type must be one of ${MODEL_TYPES.join(', ')}, ${received(modelType)}; the layout of others is not known here`,
      CONVENTIONAL,
    );
  }
  refuseClasses(c, family);
  refuseUnsupported(c);
  const { loops, about = [] } = family;
  refuseLoops(c, [...(loops === null ? [] : [loops]), ...about], loops === null ? undefined : c.get(loops));
  if (Object.values(PLAIN).includes(family)) refuseOwnCode(c);
  const geometry = family.read(c, String(modelType));
  if (parameterCount(geometry) > MAX_PARAMETERS)
    c.refuse('its fields together make more than 10^13 parameters', 'check the sizes for a typing error');
  return geometry;
}

function isFolder(path: string): boolean {
  try {
    return statSync(path).isDirectory();
  } catch {
    return false;
  }
}

/**
 * Reads a model from a `config.json`, or from the folder that holds one. Its name is the last part of
 * `_name_or_path`, or else the folder's.
 * @throws UserError when the path is no such file, is larger than 1 MiB or is not JSON, and as `geometryFromConfig`
 */
export function readModelFile(path: string): Geometry {
  if (path === '-' || path === '')
    throw new UserError(`the model must be a file, not ${show(path)}`, 'write the config to a file and give its path');
  const file = isFolder(path) ? join(path, 'config.json') : path;
  if (HUB_ID.test(path) && !existsSync(path))
    throw new UserError(
      `${show(path)} is no preset and no file here`,
      `if it is a Hugging Face model, download huggingface.co/${path}/resolve/main/config.json and give its path`,
    );
  const json = parseJson(readTextFile(file, 'model file', MAX_CONFIG_BYTES), `model file ${show(file)}`, {
    maxValues: MAX_CONFIG_VALUES,
    hint: 'give the config.json of a Hugging Face model',
    byteOrderMark: 'allowed',
  });
  const name = nameOf(json, file);
  if (existsSync(join(dirname(file), TAH_FILE)))
    throw new UserError(
      `${TAH_FILE} beside ${show(file)} says that ${name} runs some of its tokens again, each with rows of its own; how many is not in the file, and such a cache is not planned`,
      `plan the model without it: give a copy of config.json from a folder without ${TAH_FILE}`,
    );
  return geometryFromConfig(json, name);
}

/** The last part of `_name_or_path`, or else the name of the file's folder. */
function nameOf(json: unknown, file: string): string {
  const said: unknown =
    typeof json === 'object' && json !== null && Object.hasOwn(json, '_name_or_path')
      ? (json as Record<string, unknown>)['_name_or_path']
      : undefined;
  const last = typeof said === 'string' ? basename(said) : '';
  return displayName(last !== '' ? last : basename(dirname(resolve(file))));
}
