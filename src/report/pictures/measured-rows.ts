/** Rows of a fidelity file as pictures take them. */
import { ascending, groups as groupBy, least } from 'd3-array';
import { isUncompressed, LATENT_KINDS } from '../../codecs/registry.js';
import { ratioLabel } from '../../codecs/ranks.js';
import type { Fidelity, MeasuredRow } from '../../plan/evaluate/fidelity.js';

/** The source that a picture names. */
export const sourceOf = (f: Fidelity): string => `${f.file}: lla-sim fidelity on ${f.device}`;

/** Rows that differ in codec, ratio and path alone; of several initialisations the one with the least KL. */
export function plainRows(f: Fidelity): MeasuredRow[] {
  const plain = f.rows.filter((row) => row.storage === 'f16' && row.eviction === null);
  return groupBy(plain, (row) => `${JSON.stringify(row.codec)} ${row.path}`)
    .map(([, rows]) => least(rows, (row) => row.kl?.estimate ?? Infinity)!)
    .sort((a, b) => a.ratio - b.ratio);
}

/** One row a codec and ratio, by its first path: the uncompressed cache, then latents, then the others. */
export function rowsByCodec(f: Fidelity): MeasuredRow[] {
  const order = (row: MeasuredRow): number => f.rows.indexOf(row);
  const rows = plainRows(f).sort((a, b) => order(a) - order(b));
  const place = ({ codec }: MeasuredRow): number => {
    const latent = LATENT_KINDS.indexOf(codec.kind);
    return isUncompressed(codec) ? -1 : latent >= 0 ? latent : LATENT_KINDS.length;
  };
  return groupBy(rows, (row) => JSON.stringify(row.codec))
    .map(([, [first]]) => first!)
    .sort((a, b) => place(a) - place(b) || ascending(a.codec.kind, b.codec.kind) || a.ratio - b.ratio);
}

/** `lla 4×`, `full`: a codec and its ratio. */
export const nameOf = ({ codec, ratio }: MeasuredRow): string =>
  isUncompressed(codec) ? codec.kind : `${codec.kind} ${ratioLabel(ratio)}×`;
