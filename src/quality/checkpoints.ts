/**
 * Which trained codec a published score belongs to. Tables count as one checkpoint unless the paper says that they are
 * two. Where it does not say which of two a table scores, its scores count for both. Lines are those of the paper's
 * TeX.
 */
import { codecSpec } from '../codecs/registry.js';
import type { Metric, QualityFigure } from './figure.js';
import { HLA_SOURCE } from './tables/others.js';

const COLD_START = 'Tables tier4 and broadsuite';
const ISO_CACHE = 'Table isocache';
const SCALE = 'Tables scale and scale_mc';

interface TableOf {
  readonly source: string;
  /** Of the table's variants this one only. */
  readonly variant?: string;
  /** Of the table's columns these only. */
  readonly metrics?: readonly Metric[];
  /** The checkpoint's name. Where `oneOf` is given: that of scores which go with none of those. */
  readonly checkpoint: string;
  /** Checkpoints that the table may have scored: its scores count for each of them. */
  readonly oneOf?: readonly string[];
  /** A codec that was made for this table: no score of another source counts for it. */
  readonly alone?: true;
}

/** Sources that are not listed name no checkpoint (passkey, text): their scores count for every one. */
const TABLES: readonly TableOf[] = [
  // "Table tier4 is a separate cold-start rank sweep", the LLA rows of isocache are "the checkpoint selected under the
  // iso-cache protocol" (l. 628 and 629; l. 27 calls the former "six cold-start LLA codecs"). So these are two.
  { source: 'Table tier4', checkpoint: COLD_START },
  { source: 'Table isocache', checkpoint: ISO_CACHE },
  // Nothing says that broadsuite differs from tier4: the same six ratios with the same GSM8K scores, and the text reads
  // both as parts of one figure (l. 622) and one appendix (l. 703 to 717).
  { source: 'Table broadsuite', checkpoint: COLD_START },
  // "no-eviction reference in Table isocache", "both rows fall from ≈ 0.79" (l. 220): that is 0.800, not tier4's 0.590.
  { source: 'Table evict', checkpoint: ISO_CACHE },
  // The full-RoPE reference: its KL of 0.059 is that of isocache's 4×; tier4's is 0.016.
  { source: 'Table decoupled_char', checkpoint: ISO_CACHE },
  // On-policy training is "an optional second stage after the off-policy fit" that updates the codec (l. 593): another
  // checkpoint than every codec that was fitted by the common recipe.
  { source: 'Table onpolicy', variant: 'on-policy', checkpoint: 'Table onpolicy, on-policy' },
  // The off-policy fit is the common recipe (l. 583 to 590). Which sweep's codecs these are is not said.
  {
    source: 'Table onpolicy',
    variant: 'off-policy',
    checkpoint: 'Table onpolicy, off-policy',
    oneOf: [COLD_START, ISO_CACHE],
  },
  // "The advantage also holds across commonsense and knowledge tasks", of the same results (l. 635): one.
  { source: 'Table scale', checkpoint: SCALE },
  { source: 'Table scale_mc', checkpoint: SCALE },
  // Another group's training (its source says so): the paper's own scores say nothing of it.
  { source: HLA_SOURCE, checkpoint: HLA_SOURCE, alone: true },
  // "A training-free SVD codec", "short KL distillation recovers" (l. 177): two, and two columns of each ratio.
  { source: 'Table huginn', metrics: ['svd-kl', 'svd-top-1'], checkpoint: 'Table huginn, SVD' },
  { source: 'Table huginn', checkpoint: 'Table huginn' },
];

/** Sources whose every variant is a codec of its own: 300 steps of training (l. 419), a query adapter (l. 772). */
const OWN_VARIANTS: readonly string[] = ['Table ablations', 'Table decoupled_char'];

const tableOf = (f: QualityFigure): TableOf | null => {
  if (codecSpec({ kind: f.codec }).untrained) return null;
  const source = f.source.replace('caption, ', '');
  if (f.variant !== null && OWN_VARIANTS.includes(source))
    return { source, checkpoint: `${source}, ${f.variant}`, alone: true };
  return (
    TABLES.find(
      (t) =>
        t.source === source &&
        (t.variant === undefined || t.variant === f.variant) &&
        (t.metrics === undefined || t.metrics.includes(f.metric)),
    ) ?? null
  );
};

/**
 * The checkpoint that a figure's table scores; null where nothing is trained (full, kv-quant, final-loop) or the source
 * names none. A figure of a table that may have scored several has the name that it has on its own.
 */
export const checkpointOf = (figure: QualityFigure): string | null => tableOf(figure)?.checkpoint ?? null;

/**
 * Figures by the checkpoint that they count for, in the order of the figures. A figure whose source names no
 * checkpoint, or one of several, counts for each of them, but for codecs that one table made for itself. The name is
 * null where no figure has one.
 * @param figures of one configuration: one model, codec, ratio, path class and eviction
 */
export function byCheckpoint(figures: readonly QualityFigure[]): Map<string | null, QualityFigure[]> {
  const sure = new Set(figures.flatMap((f) => (tableOf(f)?.oneOf ? [] : (checkpointOf(f) ?? []))));
  const namesOf = (f: QualityFigure): readonly string[] | null => {
    const table = tableOf(f);
    if (table === null) return null;
    const several = table.oneOf?.filter((name) => sure.has(name)) ?? [];
    return several.length > 0 ? several : [table.checkpoint];
  };
  const names = new Set<string | null>(figures.flatMap((f) => namesOf(f) ?? []));
  const alone = new Set(figures.flatMap((f) => (tableOf(f)?.alone ? checkpointOf(f) : [])));
  if (figures.some((f) => namesOf(f) === null) && [...names].every((name) => alone.has(name))) names.add(null);
  return new Map(
    [...names].map((name) => [
      name,
      figures.filter((f) => {
        const own = namesOf(f);
        return own === null ? !alone.has(name) : own.some((n) => n === name);
      }),
    ]),
  );
}
