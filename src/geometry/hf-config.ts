/**
 * Reads the shape of a model from its Hugging Face `config.json`. Only families whose layout was checked against
 * their modelling code are read; everything else is refused, because a wrong number is worse than none.
 */
import { UserError, show } from '../errors.js';
import { isObject, parseJson } from '../io/json.js';
import { Config, CONVENTIONAL, displayName, received } from './config.js';
import type { Family } from './families/fields.js';
import { huginn, PARCAE_CLASS, parcae } from './families/huginn.js';
import { iquestLoop, iquestPlt, lumma, nanbeige, nandi, ouro, PLAIN } from './families/llama.js';
import { hrmText, lds } from './families/stacked.js';
import { type Geometry, parameterCount } from './geometry.js';
import { refuseKnown, refuseLoops, refuseOwnCode, refuseUnsupported } from './refusals.js';

/** A config.json is a few KiB; more is some other file. */
export const MAX_CONFIG_BYTES = 2 ** 20;
const MAX_CONFIG_VALUES = 200_000;
const MAX_PARAMETERS = 1e13;
const HINT = 'give the config.json of a Hugging Face model';

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
      `architectures must name the causal language model of model_type ${show(c.get('model_type'))}, ` +
        `${received(stranger)}`,
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
  if (!isObject(json)) throw new UserError(`config.json of ${shown} must be a JSON object, ${received(json)}`, HINT);
  const c = new Config(json, shown);
  refuseKnown(c);
  const modelType = c.get('model_type');
  const family = familyOf(c);
  if (!family) {
    refuseLoops(c);
    return c.refuse(
      `model_type must be one of ${MODEL_TYPES.join(', ')}, ${received(modelType)}; the layout of others is not ` +
        'known here',
      CONVENTIONAL,
    );
  }
  refuseClasses(c, family);
  refuseUnsupported(c);
  const { loops, about = [] } = family;
  refuseLoops(c, about, loops);
  if (Object.values(PLAIN).includes(family)) refuseOwnCode(c);
  const read = family.read(c, String(modelType));
  const geometry = typeof modelType === 'string' ? { ...read, modelType } : read;
  if (parameterCount(geometry) > MAX_PARAMETERS)
    c.refuse('its fields together make more than 10^13 parameters', 'check the sizes for a typing error');
  return geometry;
}

/**
 * Parses the text of a `config.json`.
 * @param subject what it is, as a message begins
 * @throws UserError when it is not JSON, or holds more than such a file does
 */
export const parseConfig = (text: string, subject: string): unknown =>
  parseJson(text, subject, {
    maxValues: MAX_CONFIG_VALUES,
    hint: HINT,
    byteOrderMark: 'allowed',
  });

/** A model's name: the last part of `_name_or_path`, or else what the file lies in. */
export function nameInConfig(json: unknown, otherwise: string): string {
  const said = isObject(json) ? new Config(json, '').get('_name_or_path') : undefined;
  const last = typeof said === 'string' ? (said.split('/').findLast((part) => part !== '') ?? '') : '';
  return displayName(last !== '' ? last : otherwise);
}

/** The fewest fields of a `config.json` that give the same shape. @throws UserError as `geometryFromConfig` */
export function neededFields(json: unknown, name: string): Record<string, unknown> {
  const shape = JSON.stringify(geometryFromConfig(json, name));
  const isSame = (fields: object): boolean => {
    try {
      return JSON.stringify(geometryFromConfig(fields, name)) === shape;
    } catch (error) {
      if (error instanceof UserError) return false;
      throw error;
    }
  };
  let needed: Record<string, unknown> = { ...(json as Record<string, unknown>) };
  for (const key of Object.keys(needed)) {
    const { [key]: _without, ...rest } = needed;
    if (isSame(rest)) needed = rest;
  }
  return needed;
}
