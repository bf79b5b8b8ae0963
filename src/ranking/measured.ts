/** What `lla-sim fidelity` measured of bundled models, by the bytes that each codec keeps there. */
import { join } from 'node:path';
import { bytesPerToken, windowBytes } from '../codecs/layout.js';
import { pathOf, pathSpec } from '../codecs/paths.js';
import { codecLabel, codecSpec, isUncompressed, layoutOf } from '../codecs/registry.js';
import { readModelFile } from '../geometry/model-file.js';
import { JUDGED_BRANCH, type MeasuredRow } from '../plan/evaluate/fidelity.js';
import { fidelityFrom } from '../plan/ask/read-fidelity.js';
import { PACKAGE_ROOT } from '../io/root.js';
import { readFidelity } from '../schema/fidelity.js';
import { best } from '../numbers/best.js';
import { bootstrap, type Interval } from '../numbers/statistics.js';
import { GROUP_SIZE } from '../../kernels/spec.js';

/** Folders of bundled models; each holds `fidelity.json`, made by `lla-sim fidelity`. A line adds one. */
const MEASURED_MODELS: readonly string[] = ['models/lla-tiny', 'models/lla-small'];

/** One configuration of a measured model. */
export interface HereRow {
  /** Without the path: unique but for the paths of one codec. */
  readonly label: string;
  readonly measured: MeasuredRow;
  readonly bytesPerToken: number;
  /** Of the longest sequence that was decoded, exact windows included. */
  readonly bytes: number;
  /** These over those of the full cache in 16 bits. */
  readonly share: number;
  /** LLA that decides, by a path without a branch that nobody trained; null for LLA itself. */
  readonly lla: { readonly row: HereRow; readonly verdict: 'better' | 'worse' | 'not decided' } | null;
}

export interface Here {
  readonly model: string;
  readonly file: string;
  /** Tokens of the longest sequence. */
  readonly contextTokens: number;
  /** Items by kind, the same for all rows. */
  readonly items: Readonly<Record<string, number>>;
  /** Most bytes first. */
  readonly rows: readonly HereRow[];
}

/**
 * Reads what was measured of each bundled model. Rows that evict tokens are left out: their bytes are chosen freely.
 */
export const measuredModels = (): Here[] => MEASURED_MODELS.map(hereOf);

function hereOf(folder: string): Here {
  const name = `${folder}/fidelity.json`;
  const file = readFidelity(join(PACKAGE_ROOT, name));
  const { rows, contextTokens, model } = fidelityFrom(file, name);
  const g = readModelFile(join(PACKAGE_ROOT, folder, 'config.json'));
  const sized = rows
    .filter((row) => row.eviction === null)
    .map((row) => {
      const { codec, storage } = row;
      const layout = layoutOf(g, codec, pathOf(row.path).path, { storage, groupSize: GROUP_SIZE }, JUDGED_BRANCH);
      const perToken = bytesPerToken(layout);
      const type = storage === 'f16' ? '' : storage === 'q8' ? '@int8' : '@int4';
      return {
        label: `${codecLabel(g, codec)}${type}`,
        measured: row,
        bytesPerToken: perToken,
        bytes: perToken * contextTokens + windowBytes(layout, contextTokens),
      };
    });
  const full = sized.find(({ measured: { codec, storage } }) => isUncompressed(codec) && storage === 'f16');
  if (!full) throw new Error(`${name} has no row of the full cache`);
  const shares = sized
    .map((row): HereRow => ({ ...row, share: row.bytes / full.bytes, lla: null }))
    .sort((a, b) => b.bytes - a.bytes || (a.measured.id < b.measured.id ? -1 : 1));
  const texts = new Map(
    file.rows.map((row) => [row.id, row.items.flatMap((i) => (i.kind === 'text' ? [i.kl ?? 0] : []))] as const),
  );
  const items: Record<string, number> = {};
  for (const { kind } of file.rows[0]?.items ?? []) items[kind] = (items[kind] ?? 0) + 1;
  return {
    model: model.name,
    file: name,
    contextTokens,
    items,
    rows: shares.map((row) => besideLla(row, shares, texts)),
  };
}

/** Bytes count as equal up to this, as ranks are whole numbers. */
const EQUAL = 1.02;
const SEED = 1;
/** Below this a divergence is rounding, nats. */
const LEAST_KL = 1e-9;

/**
 * Compares a codec with LLA: better where LLA of at least its bytes has more KL, worse where LLA of at most its bytes
 * has less. The 95 % bootstrap interval, over texts, of the ratio of both KLs decides.
 * @param texts KL of each text by row
 */
function besideLla(row: HereRow, all: readonly HereRow[], texts: ReadonlyMap<string, readonly number[]>): HereRow {
  const own = row.measured;
  if (!own.kl || isLla(own) || isUncompressed(own.codec)) return row;
  const ratioTo = (lla: HereRow): Interval => {
    const [mine, its] = [texts.get(own.id) ?? [], texts.get(lla.measured.id) ?? []];
    return bootstrap((items) => Math.log10(sum(mine, items) / sum(its, items)), mine.length, SEED);
  };
  const rows = all.filter(({ measured: m }) => isLla(m) && m.kl !== null && !pathSpec(pathOf(m.path).path).branch);
  const nearest = (rows: readonly HereRow[]): HereRow | undefined => best(rows, (other) => -distance(other, row));
  const more = nearest(rows.filter(({ bytes }) => bytes * EQUAL >= row.bytes));
  const fewer = nearest(rows.filter(({ bytes }) => bytes <= row.bytes * EQUAL));
  if (more && ratioTo(more).high < 0) return { ...row, lla: { row: more, verdict: 'better' } };
  if (fewer && ratioTo(fewer).low > 0) return { ...row, lla: { row: fewer, verdict: 'worse' } };
  const shown = more ?? fewer;
  return shown ? { ...row, lla: { row: shown, verdict: 'not decided' } } : row;
}

/** The paper's codec: latents of each head, with weights of their own. */
const isLla = ({ codec }: MeasuredRow): boolean =>
  codecSpec(codec).latentFor === 'one-head' && codecSpec(codec).weightsOf === undefined;

/** How far apart two rows are in bytes, as a ratio; of paths of one codec the first. */
const distance = (a: HereRow, b: HereRow): number => Math.abs(Math.log(a.bytes / b.bytes));

/** KL of these texts together. */
const sum = (kl: readonly number[], items: readonly number[]): number =>
  Math.max(
    LEAST_KL * items.length,
    items.reduce((total, i) => total + (kl[i] as number), 0),
  );

/** The measured row of a plan's codec: its label, or its kind at its ratio; null without one. */
export function hereFor(here: Here, label: string, kind: string, ratio: number): HereRow | null {
  const f16 = here.rows.filter((r) => r.measured.kl !== null && !r.label.includes('@'));
  const same = f16.filter((r) => r.label === label);
  const alike = same.length > 0 ? same : f16.filter((r) => sameCodec(r, kind, ratio));
  return best(alike, (r) => -r.measured.kl!.estimate) ?? null;
}

/** Codecs with settings beside their ratio are the same by label alone. */
const sameCodec = ({ measured: { codec, ratio: own }, label }: HereRow, kind: string, ratio: number): boolean =>
  codec.kind === kind && Math.abs(own / ratio - 1) < 0.02 && /-[\d.]+x$/.test(label) && !('windowTokens' in codec);
