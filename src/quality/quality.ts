/**
 * Published quality of a model under a codec. A configuration that was not measured has no figures: nothing is
 * inherited from another ratio, path class or eviction policy, and unknown does not meet a target.
 */
import { group } from 'd3-array';
import type { CodecKind, Sharing } from '../codecs/codec.js';
import { sharingOf } from '../codecs/registry.js';
import type { Eviction } from '../eviction/policy.js';
import type { Metric, PathClass, QualityFigure, QualityModel } from './figure.js';
import { AXES_FIGURES } from './tables/axes.js';
import { GENERATION_FIGURES } from './tables/generation.js';
import { OTHERS_FIGURES } from './tables/others.js';
import { PASSKEY_FIGURES } from './tables/passkey.js';
import { RESIDUAL_QUANT_FIGURES } from './tables/residual-quant.js';
import { TEXT_FIGURES } from './tables/text.js';

/** Every figure of the paper, in the order of its tables. */
export const FIGURES_OF_THE_PAPER: readonly QualityFigure[] = [
  ...GENERATION_FIGURES,
  ...AXES_FIGURES,
  ...PASSKEY_FIGURES,
  ...TEXT_FIGURES,
];

/** The same, then those of other groups. */
export const FIGURES: readonly QualityFigure[] = [
  ...FIGURES_OF_THE_PAPER,
  ...OTHERS_FIGURES,
  ...RESIDUAL_QUANT_FIGURES,
];

/**
 * Printed ratios are rounded (21.3, 21.33, 64/3): this much apart they are the same. Measured ratios differ by 9 % or
 * more.
 */
const RATIO_TOLERANCE = 0.01;
/** The paper's own line for reliable retrieval. */
export const RELIABLE_RETRIEVAL = 0.9;

/**
 * What is asked about. `model` is a preset's name or alias; `ratio` is that of the looped core, nominal for kv-quant.
 */
export interface QualityQuery {
  readonly model: string;
  readonly codec: CodecKind;
  /** When loops share rows, of a codec whose loops do; its usual way unless given. */
  readonly shared?: Sharing | null | undefined;
  /** Exact tokens beside latents, of a codec that keeps some. */
  readonly windowTokens?: number | undefined;
  readonly ratio: number;
  readonly pathClass: PathClass;
  readonly eviction: Eviction | null;
}

/** Other names of the measured models. Ouro-1.4B-Thinking is another checkpoint, which was not measured. */
const MODELS: Readonly<Record<string, QualityModel>> = {
  'ouro-1.4b': 'ouro-1.4b',
  'ouro-2.6b': 'ouro-2.6b',
  'ouro-2.6b-thinking': 'ouro-2.6b',
  'huginn-3.5b': 'huginn-3.5b',
  'huginn-0125': 'huginn-3.5b',
};

/** A policy with its numbers, in whatever order they are written. */
const evictionKey = (eviction: Eviction | null): string =>
  Object.entries(eviction ?? {})
    .sort(([a], [b]) => (a < b ? -1 : 1))
    .join();

const key = (
  model: string,
  q: Pick<QualityQuery, 'codec' | 'shared' | 'windowTokens' | 'pathClass' | 'eviction'>,
): string => {
  const shared = sharingOf({ kind: q.codec, ...(q.shared ? { shared: q.shared } : {}) });
  return `${model}|${q.codec}|${shared ?? ''}|${q.windowTokens ?? ''}|${q.pathClass}|${evictionKey(q.eviction)}`;
};

const INDEX = group(FIGURES, (f) => key(f.model, f));

function measuredModel(name: string): QualityModel | undefined {
  const known = name.toLowerCase();
  return Object.hasOwn(MODELS, known) ? MODELS[known] : undefined;
}

/** Every figure of a model, under any codec, in the order of the tables. @param model a preset's name or alias */
export function publishedFor(model: string): QualityFigure[] {
  const measured = measuredModel(model);
  return FIGURES.filter((f) => f.model === measured);
}

/**
 * The figures of exactly this configuration, in the order of the tables, and those that are stated of it and all larger
 * ratios; empty when it was not measured.
 */
export function qualityOf(query: QualityQuery): QualityFigure[] {
  const model = measuredModel(query.model);
  if (model === undefined) return [];
  return (INDEX.get(key(model, query)) ?? []).filter(
    (f) => Math.abs(f.ratio - query.ratio) <= RATIO_TOLERANCE * f.ratio || (f.andAbove && query.ratio > f.ratio),
  );
}

/** Tables without a teacher whose caption refers to that of another table. */
const REFERENCE: Readonly<Record<string, string>> = { 'Table evict': 'Table isocache' };

/** One key for figures of the same table, model, metric and context. */
const teacherKey = (f: QualityFigure): string =>
  `${REFERENCE[f.source] ?? f.source}|${f.model}|${f.metric}|${f.contextTokens}`;

const TEACHERS = new Map<string, QualityFigure>();
for (const f of FIGURES) {
  const key = teacherKey(f);
  if (f.isTeacher && !TEACHERS.has(key)) TEACHERS.set(key, f);
}

/**
 * The uncompressed model's figure of the same table (or of the one that its caption refers to), metric and context;
 * null where there is none.
 */
export const teacherOf = (figure: QualityFigure): QualityFigure | null => TEACHERS.get(teacherKey(figure)) ?? null;

/** A published figure with the uncompressed model's value beside it; null where there is none. */
export interface ComparedFigure extends QualityFigure {
  readonly teacher: number | null;
}

/** Figures with the uncompressed model's values beside them. */
export const withTeachers = (figures: readonly QualityFigure[]): ComparedFigure[] =>
  figures.map((f) => ({ ...f, teacher: teacherOf(f)?.value ?? null }));

/** True when a figure's source is the table that a user means: `isocache`, `Table isocache`. */
export const isTable = (source: string, wanted: string): boolean =>
  source.toLowerCase().replace(/^table /, '') ===
  wanted
    .trim()
    .toLowerCase()
    .replace(/^table /, '');

/** Sources that have a metric, in the order of the tables. */
export const tablesOf = (metric: Metric): string[] => [
  ...new Set(FIGURES.filter((f) => f.metric === metric).map((f) => f.source)),
];

/** The longest context at which anything is published about a model; null where no figure names one. */
export function longestContext(name: string | null): number | null {
  const model = name === null ? undefined : measuredModel(name);
  const contexts = FIGURES.filter((f) => f.model === model).flatMap((f) => f.contextTokens ?? []);
  return contexts.length === 0 ? null : Math.max(...contexts);
}

/** How far back a key can be found. */
export interface ReliableRetrieval {
  /** Longest measured context up to which every measured cell reaches 0.9; 0 when the shortest already fails. */
  readonly tokens: number;
  readonly source: string;
  /** What limits or contradicts the figure. */
  readonly note: string;
}

const SHORT = (tokens: number): string => `${tokens / 1024}k`;

/**
 * Reliable-retrieval length of a configuration: from the measured cells where there is a table, from the text where
 * there is not, null where retrieval was not measured.
 */
export function reliableRetrieval(query: QualityQuery): ReliableRetrieval | null {
  const figures = qualityOf(query);
  const stated = figures.find((f) => f.metric === 'reliable-retrieval');
  const of = (metric: Metric): QualityFigure[] =>
    figures.filter((f) => f.metric === metric && f.source.startsWith('Table'));
  const cells = of('passkey').sort((a, b) => (a.contextTokens ?? 0) - (b.contextTokens ?? 0));
  if (cells.length === 0)
    return stated === undefined ? null : { tokens: stated.value, source: stated.source, note: stated.protocol };
  const failing = cells.findIndex((f) => f.value < RELIABLE_RETRIEVAL);
  const last = cells[(failing === -1 ? cells.length : failing) - 1];
  const tokens = last?.contextTokens ?? 0;
  const limit = cells[failing];
  const reason =
    limit === undefined
      ? 'no longer context was measured'
      : `${limit.value.toFixed(2)} at ${SHORT(limit.contextTokens ?? 0)}, below 0.9`;
  const contradiction = stated !== undefined && stated.value !== tokens ? `; the text says ${SHORT(stated.value)}` : '';
  return { tokens, source: cells[0]?.source ?? 'Table passkey', note: `${reason}${contradiction}` };
}
