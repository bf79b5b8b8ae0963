/**
 * The identity of a model: SHA-256 of its config.json and of every byte of its tensors. What was fitted to a model, or
 * measured on it, names it by this.
 */
import { createHash } from 'node:crypto';
import { closeSync, existsSync, openSync, readdirSync, readFileSync, readSync } from 'node:fs';
import { join } from 'node:path';
import { UserError, show } from '../errors.js';
import type { Geometry } from '../geometry/geometry.js';

const PIECE_BYTES = 2 ** 20;

/** The files that an index names: others may lie beside them, such as a codec that was fitted to the model. */
function shardsOf(folder: string): string[] | null {
  const index = join(folder, 'model.safetensors.index.json');
  if (!existsSync(index)) return null;
  const { weight_map: map } = JSON.parse(readFileSync(index, 'utf8').replace(/^\ufeff/, '')) as {
    weight_map?: Record<string, string>;
  };
  const names = [...new Set(Object.values(map ?? {}))];
  const strange = names.find((name) => !/^[A-Za-z0-9_][A-Za-z0-9._-]*$/.test(name));
  if (strange !== undefined)
    throw new UserError(`${show(index)} names the file ${show(strange)}`, 'correct the index or download it again');
  return names;
}

/**
 * Of a folder with config.json and weights: the one file model.safetensors, else all shards that the index names, in
 * the order of their names; where there is no index, all of the folder. Reads every byte: about a second a gigabyte.
 * @returns 64 hexadecimal digits
 * @throws UserError when a file cannot be read
 */
export function fingerprintOfFolder(folder: string): string {
  const hash = createHash('sha256');
  const piece = new Uint8Array(PIECE_BYTES);
  try {
    const single = 'model.safetensors';
    const weights = existsSync(join(folder, single))
      ? [single]
      : (shardsOf(folder) ?? readdirSync(folder).filter((name) => name.endsWith('.safetensors'))).sort();
    if (weights.length === 0) throw new UserError(`${show(folder)} holds no weights`, 'name a folder with safetensors');
    for (const name of ['config.json', ...weights]) {
      hash.update(`${name}\n`);
      const file = openSync(join(folder, name), 'r');
      try {
        for (let count = readSync(file, piece); count > 0; count = readSync(file, piece))
          hash.update(piece.subarray(0, count));
      } finally {
        closeSync(file);
      }
    }
  } catch (error) {
    if (error instanceof UserError) throw error;
    const code = (error as NodeJS.ErrnoException).code ?? 'unreadable';
    throw new UserError(`the weights of ${show(folder)} cannot be read (${code})`, 'check the path');
  }
  return hash.digest('hex');
}

/** Of a model with fabricated weights: its shape and seed decide every value. @returns 64 hexadecimal digits */
export function fingerprintOfSeed(g: Geometry, seed: number): string {
  const { name: _name, source: _source, ...shape } = g;
  const sorted = Object.fromEntries(Object.entries(shape).sort(([a], [b]) => (a < b ? -1 : 1)));
  return createHash('sha256')
    .update(JSON.stringify({ fabricated: sorted, seed }))
    .digest('hex');
}
