/** Files that are dropped on the page: a config.json, or a calibration. Read by the rules of the command line. */
import { UserError } from '../errors.js';
import {
  geometryFromConfig,
  MAX_CONFIG_BYTES,
  nameInConfig,
  neededFields,
  parseConfig,
} from '../geometry/hf-config.js';
import { checkedBy } from '../io/issues.js';
import { parseJson } from '../io/json.js';
import type { NamedCalibration } from '../plan/ask/measured.js';
import type { LinkedModel } from '../report/link.js';
import { calibrationSchema } from '../schema/calibration.js';
import { readCalibration } from '../schema/drift.js';

const MAX_CALIBRATION_BYTES = 64 * 2 ** 20;
const MAX_CALIBRATION_VALUES = 2_000_000;

export type Dropped =
  | { readonly kind: 'model'; readonly model: LinkedModel }
  | { readonly kind: 'calibration'; readonly calibration: NamedCalibration };

/** @throws UserError for what is neither */
export function readDropped(text: string, name: string): Dropped {
  if (text.length > MAX_CALIBRATION_BYTES)
    throw new UserError('the file is larger than any calibration', 'choose another');
  return text.slice(0, 4096).includes('"lla-sim/calibration"')
    ? { kind: 'calibration', calibration: calibrationFrom(text, name) }
    : { kind: 'model', model: modelFrom(text, name) };
}

/** A model from the text of its config.json. @throws UserError as the command line does */
function modelFrom(text: string, file: string): LinkedModel {
  if (text.length > MAX_CONFIG_BYTES)
    throw new UserError('the text is larger than any config.json', 'give the config.json of a Hugging Face model');
  const json = parseConfig(text, 'the config.json');
  // Most files of models are called config.json, which names none.
  const called = file.replace(/\.json$/i, '');
  const name = nameInConfig(json, called === 'config' ? 'model' : called);
  geometryFromConfig(json, name);
  return { name, config: neededFields(json, name) };
}

function calibrationFrom(text: string, name: string): NamedCalibration {
  const hint = 'write one with lla-sim calibrate, or with the measuring page';
  const json = parseJson(text, 'the calibration', { maxValues: MAX_CALIBRATION_VALUES, hint });
  const stored = checkedBy(calibrationSchema, json, 'it is no calibration of this version', hint);
  return { file: name, calibration: readCalibration(stored) };
}
