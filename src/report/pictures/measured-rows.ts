/** Rows of a fidelity file as pictures take them. */
import { isUncompressed, LATENT_KINDS } from '../../codecs/registry.js';
import { ratioLabel } from '../../codecs/ranks.js';
import type { Fidelity, MeasuredRow } from '../../plan/evaluate/fidelity.js';

/** The source that a picture names. */
export const sourceOf = (f: Fidelity): string => `${f.file}: lla-sim fidelity on ${f.device}`;

/** Rows that differ in codec, ratio and path alone; of several initialisations the one with the least KL. */
export function plainRows(f: Fidelity): MeasuredRow[] {
  const best = new Map<string, MeasuredRow>();
  for (const row of f.rows) {
    if (row.storage !== 'f16' || row.eviction !== null) continue;
    const key = `${JSON.stringify(row.codec)} ${row.path}`;
    const known = best.get(key);
    if (!known || (row.kl?.estimate ?? Infinity) < (known.kl?.estimate ?? Infinity)) best.set(key, row);
  }
  return [...best.values()].sort((a, b) => a.ratio - b.ratio);
}

/** One row a codec and ratio, by its first path: the uncompressed cache, then latents, then the others. */
export function rowsByCodec(f: Fidelity): MeasuredRow[] {
  const first = new Map<string, MeasuredRow>();
  const order = (row: MeasuredRow): number => f.rows.indexOf(row);
  for (const row of plainRows(f).sort((a, b) => order(a) - order(b))) {
    const key = JSON.stringify(row.codec);
    if (!first.has(key)) first.set(key, row);
  }
  const place = ({ codec }: MeasuredRow): number => {
    const latent = LATENT_KINDS.indexOf(codec.kind);
    return isUncompressed(codec) ? -1 : latent >= 0 ? latent : LATENT_KINDS.length;
  };
  return [...first.values()].sort(
    (a, b) =>
      place(a) - place(b) ||
      (a.codec.kind < b.codec.kind ? -1 : a.codec.kind > b.codec.kind ? 1 : 0) ||
      a.ratio - b.ratio,
  );
}

/** `lla 4×`, `full`: a codec and its ratio. */
export const nameOf = ({ codec, ratio }: MeasuredRow): string =>
  isUncompressed(codec) ? codec.kind : `${codec.kind} ${ratioLabel(ratio)}×`;
