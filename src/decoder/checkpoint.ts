/**
 * A published model on disk: a folder with config.json and model.safetensors, or the shards that
 * model.safetensors.index.json names. Tensors are matched against the geometry by Ouro's names (Llama's, where there is
 * no loop), or by those of their class (published.ts, raven.ts).
 */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { UserError, show } from '../errors.js';
import { displayPath, readTextFile } from '../io/files.js';
import type { Geometry } from '../geometry/geometry.js';
import { readModelFile } from '../geometry/model-file.js';
import { isObject, parseJson } from '../io/json.js';
import { decodedAs } from './decodable.js';
import { repeatedKey } from './json-keys.js';
import { hrmLayout, ldsLayout, pltLayout, publishedTensors, type Layout } from './published.js';
import { ravenLayout, refuseRavenOptions } from './raven.js';
import { SafetensorsFile } from './safetensors.js';
import { HEAD, modelTensors, refuseOthers, requireTensors, type TensorSpec } from './tensors.js';
import type { TensorSource } from './weights.js';

/** Of a model of 140,000 tensors (the most that are published) the index takes about 20 MB. */
const MAX_INDEX_BYTES = 32 * 2 ** 20;
const MAX_VALUES = 500_000;
const MAX_CONFIG_BYTES = 2 ** 20;
/** Open files at once; published models have a few dozen. */
const MAX_SHARDS = 512;
/** ε of RMSNorm where a config.json does not say, as in most classes of the models that the decoder runs. */
const DEFAULT_EPSILON = 1e-6;

/** Tensors of one or several files. Close it when done. */
export interface OpenTensors extends TensorSource {
  close(): void;
}

export interface Checkpoint {
  readonly folder: string;
  readonly geometry: Geometry;
  readonly normEpsilon: number;
  readonly tensors: OpenTensors;
  /** What is decoded otherwise than the publishers' own code does; nothing in most models. */
  readonly warnings: readonly string[];
  /** tokenizer.json, where the folder has one. */
  readonly tokenizerFile?: string;
}

function readObject(path: string, subject: string, maxBytes: number): Record<string, unknown> {
  const text = readTextFile(path, subject, maxBytes).replace(/^\ufeff/, '');
  const [file, hint] = [`${subject} ${displayPath(path)}`, 'download it again'];
  const json = parseJson(text, file, { maxValues: MAX_VALUES, hint });
  if (!isObject(json)) throw new UserError(`${file} must be a JSON object`, hint);
  const repeated = repeatedKey(text);
  if (repeated !== undefined) throw new UserError(`${file} names ${show(repeated)} twice`, hint);
  return json;
}

/**
 * Opens the shards that an index names. They must lie beside it, and hold exactly the tensors that the index says.
 * @throws UserError naming the file and the tensor
 */
export function openSharded(indexPath: string): OpenTensors {
  const index = displayPath(indexPath);
  const map = readObject(indexPath, 'weights index', MAX_INDEX_BYTES)['weight_map'];
  if (!isObject(map)) throw new UserError(`weights index ${index} has no weight_map`, 'download it again');
  const shardOf = new Map<string, string>();
  for (const [tensor, file] of Object.entries(map)) {
    // A plain name only: a path could lead anywhere on the machine.
    if (typeof file !== 'string' || !/^[A-Za-z0-9_][A-Za-z0-9._-]*\.safetensors$/.test(file)) {
      throw new UserError(
        `weights index ${index} says that ${show(tensor)} lies in ${show(file)}, which is not a plain name of a ` +
          `.safetensors file`,
        'correct the index or download it again',
      );
    }
    shardOf.set(tensor, file);
  }
  const names = [...new Set(shardOf.values())];
  if (names.length === 0) throw new UserError(`weights index ${index} names no tensor`, 'download it again');
  if (names.length > MAX_SHARDS)
    throw new UserError(
      `weights index ${index} names ${names.length} files, more than ${MAX_SHARDS}`,
      'merge the files',
    );
  const shards = new Map<string, SafetensorsFile>();
  const close = (): void => {
    for (const shard of shards.values()) shard.close();
  };
  const shapes = new Map<string, readonly number[]>();
  try {
    for (const name of names) {
      const shard = new SafetensorsFile(join(indexPath, '..', name));
      shards.set(name, shard);
      const stranger = [...shard.shapes.keys()].find((tensor) => shardOf.get(tensor) !== name);
      if (stranger !== undefined)
        throw new UserError(
          `${shard.file} holds ${show(stranger)}, which weights index ${index} places ` +
            `${shardOf.has(stranger) ? `in ${show(shardOf.get(stranger))}` : 'nowhere'}`,
          'download both again',
        );
    }
    for (const [tensor, name] of shardOf) {
      const shape = shards.get(name)?.shapes.get(tensor);
      if (!shape)
        throw new UserError(
          `${shards.get(name)?.file} lacks ${show(tensor)}, which weights index ${index} places there`,
          'download both again',
        );
      shapes.set(tensor, shape);
    }
  } catch (error) {
    close();
    throw error;
  }
  return {
    shapes,
    read(name, from, count) {
      const shard = shards.get(shardOf.get(name) ?? '');
      if (!shard) throw new RangeError(`no tensor ${name}`);
      return shard.read(name, from, count);
    },
    close,
  };
}

/** Tables of angles that checkpoints carry along; and the head, where it is tied to the embedding. */
const isIgnored = (g: Geometry, name: string): boolean =>
  name.endsWith('.rotary_emb.inv_freq') || name === 'freqs_cis' || (g.tiedEmbeddings && name === HEAD);

/**
 * Checks that tensors are those of a model, neither more nor less.
 * @throws UserError naming what is missing, of another shape, or unknown
 */
export function checkTensors(
  g: Geometry,
  shapes: TensorSource['shapes'],
  where: string,
  specs: readonly TensorSpec[] = modelTensors(g),
): void {
  requireTensors(specs, shapes, where);
  refuseOthers(specs, new Map([...shapes].filter(([name]) => !isIgnored(g, name))), where);
}

/** What a class writes otherwise than Ouro's does. */
interface Writing {
  /** Where its file keeps the base's fields. */
  readonly within?: string;
  readonly epsilonKey?: string;
  readonly epsilon?: number;
  readonly activationKey?: string;
  /** @throws UserError for a file that is decoded otherwise than its own code does */
  readonly refuse?: (g: Geometry, config: Readonly<Record<string, unknown>>, where: string) => void;
  readonly layout?: (g: Geometry, config: Readonly<Record<string, unknown>>, where: string) => Layout;
  readonly warning?: string;
}

const CLASSES: Readonly<Record<string, Writing>> = {
  huginn_raven: {
    epsilonKey: 'norm_eps',
    activationKey: 'nonlin_name',
    refuse: refuseRavenOptions,
    layout: ravenLayout,
    warning:
      "the recurrent state begins at zero, as where Huginn's own code wants the same text again; by default it is " +
      'drawn at random',
  },
  hrm_text: {
    layout: hrmLayout,
    warning:
      'prompts are read causally, as by its own code without token_type_ids; it was trained to read them in both ' +
      'directions',
  },
  lds: {
    within: 'base_config_dict',
    layout: ldsLayout,
    warning: 'all loops run; its own code may stop before',
  },
  nandi: { epsilon: 1e-5 },
  iquestloopcoder: { epsilon: 1e-5 },
  iquestpltcoder: { epsilon: 1e-5, layout: pltLayout },
};

interface DecodingFacts extends Pick<Writing, 'warning'> {
  readonly normEpsilon: number;
  /** Where tensors have other names than the decoder's. */
  readonly layout?: Layout | undefined;
}

function decodingFacts(g: Geometry, path: string): DecodingFacts {
  const file = readObject(path, 'model file', MAX_CONFIG_BYTES);
  const where = displayPath(path);
  const written = CLASSES[String(file['model_type'])] ?? {};
  const { within, epsilonKey = 'rms_norm_eps', activationKey = 'hidden_act' } = written;
  const config = within === undefined ? file : (file[within] as Record<string, unknown>);
  const epsilon = config[epsilonKey] ?? written.epsilon ?? DEFAULT_EPSILON;
  if (typeof epsilon !== 'number' || !(epsilon > 0 && epsilon < 1))
    throw new UserError(
      `${where}: ${epsilonKey} must be a number between 0 and 1, not ${show(epsilon)}`,
      `correct ${epsilonKey}`,
    );
  const scaling = config['rope_scaling'] ?? config['rope_parameters'];
  const kind =
    typeof scaling === 'object' && scaling !== null
      ? ((scaling as Record<string, unknown>)['rope_type'] ?? (scaling as Record<string, unknown>)['type'] ?? 'default')
      : (scaling ?? 'default');
  if (kind !== 'default')
    throw new UserError(
      `${where}: rotary scaling of type ${show(kind)} is not decoded`,
      'choose a model without rope_scaling',
    );
  const activation = config[activationKey] ?? 'silu';
  if (typeof activation !== 'string' || activation.toLowerCase() !== 'silu')
    throw new UserError(
      `${where}: ${activationKey} must be silu, not ${show(activation)}`,
      'choose a model with SwiGLU',
    );
  written.refuse?.(g, config, where);
  return { ...written, normEpsilon: epsilon, layout: written.layout?.(g, config, where) };
}

/**
 * Opens a model folder: geometry from config.json, weights beside it, checked against each other.
 * @throws UserError when a file is missing, damaged or of another model, and for models that the decoder cannot run
 */
export function openCheckpoint(folder: string): Checkpoint {
  const config = join(folder, 'config.json');
  const geometry = decodedAs(readModelFile(config));
  const { normEpsilon, layout, warning } = decodingFacts(geometry, config);
  const [single, index, tokenizer] = ['model.safetensors', 'model.safetensors.index.json', 'tokenizer.json'].map(
    (name) => join(folder, name),
  ) as [string, string, string];
  // As Hugging Face: shards only where there is no single file.
  const sharded = !existsSync(single) && existsSync(index);
  const tensors = sharded ? openSharded(index) : new SafetensorsFile(single);
  try {
    const where = displayPath(sharded ? index : single);
    checkTensors(geometry, tensors.shapes, where, layout?.published);
  } catch (error) {
    tensors.close();
    throw error;
  }
  return {
    folder,
    geometry,
    normEpsilon,
    tensors: layout ? publishedTensors(geometry, layout, tensors) : tensors,
    warnings: warning === undefined ? [] : [warning],
    ...(existsSync(tokenizer) ? { tokenizerFile: tokenizer } : {}),
  };
}
