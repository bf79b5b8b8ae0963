/** Reads a model from a file: its `config.json`, or the folder that holds one. */
import { existsSync, statSync } from 'node:fs';
import { basename, dirname, join, resolve } from 'node:path';
import { UserError, show } from '../errors.js';
import { readTextFile } from '../io/files.js';
import { PACKAGE_ROOT } from '../io/root.js';
import type { Geometry } from './geometry.js';
import { geometryFromConfig, MAX_CONFIG_BYTES, nameInConfig, parseConfig } from './hf-config.js';
import { isBundled, type BundledName } from './presets.js';

/** Lies beside the config.json of TaH models (arXiv 2609.35748), which itself is that of their base. */
const TAH_FILE = 'tah_config.json';

/** What a LoRA adapter's folder has in place of a config.json. */
const ADAPTER_FILE = 'adapter_config.json';

/** The folder of a bundled model, with config.json, model.safetensors, tokenizer.json and the model card. */
export const bundledFolder = (name: BundledName): string => join(PACKAGE_ROOT, 'models', name);

/** `owner/name` as Hugging Face has it. */
const HUB_ID = /^[a-z0-9][\w.-]{0,95}\/[a-z0-9](?!.*\.json$)[\w.-]{0,95}$/i;

function isFolder(path: string): boolean {
  try {
    return statSync(path).isDirectory();
  } catch {
    return false;
  }
}

/**
 * Reads a model from a `config.json`, from the folder that holds one, or a bundled one by name. Its name is the last
 * part of `_name_or_path`, or else the folder's; that of the file where it is not called config.json.
 * @throws UserError when the path is no such file, is larger than 1 MiB or is not JSON, and as `geometryFromConfig`
 */
export function readModelFile(path: string): Geometry {
  const { json, name } = readConfig(path);
  return geometryFromConfig(json, name);
}

/** The fields of a `config.json` and the model's name. @throws UserError as `readModelFile` does of the file */
export function readConfig(path: string): { readonly json: unknown; readonly name: string } {
  if (path === '-' || path === '')
    throw new UserError(`the model must be a file, not ${show(path)}`, 'write the config to a file and give its path');
  const place = isBundled(path) ? bundledFolder(path) : path;
  const file = isFolder(place) ? join(place, 'config.json') : place;
  if (HUB_ID.test(path) && !existsSync(path))
    throw new UserError(
      `${show(path)} is no preset and no file here`,
      `if it is a Hugging Face model, download huggingface.co/${path}/resolve/main/config.json and give its path`,
    );
  if (!existsSync(file) && existsSync(join(place, ADAPTER_FILE)))
    throw new UserError(
      `${show(path)} is an adapter (${ADAPTER_FILE}), not a model`,
      'merge it into its base model, and give the folder of the merged one',
    );
  const json = parseConfig(readTextFile(file, 'model file', MAX_CONFIG_BYTES), `model file ${show(file)}`);
  const own = basename(file, '.json');
  const name = nameInConfig(json, own === 'config' ? basename(dirname(resolve(file))) : own);
  if (existsSync(join(dirname(file), TAH_FILE)))
    throw new UserError(
      `${TAH_FILE} beside ${show(file)} says that ${name} runs some of its tokens again, each with rows of its ` +
        'own; how many is not in the file, and such a cache is not planned',
      `plan the model without it: give a copy of config.json from a folder without ${TAH_FILE}`,
    );
  return { json, name };
}
