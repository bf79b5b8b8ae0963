/** How much of the uncompressed model's quality the published scores of a plan say is kept, checkpoint by checkpoint. */
import { hasOwnStorage, isUncompressed } from '../codecs/registry.js';
import type { QualityFigure } from '../quality/figure.js';
import { qualityOf, teacherOf, type QualityQuery } from '../quality/quality.js';
import type { QualityKept, Score } from './types.js';

/** A task's accuracy, or agreement with the uncompressed model: what can be compared with that model's. */
const isScore = (f: QualityFigure): boolean => f.unit === 'fraction' && f.higherIsBetter && f.metric !== 'svd-top-1';

/** Tasks in which the model generates on its own cache, or must find what it holds: where compression shows. */
const GENERATION: readonly string[] = ['gsm8k', 'math500', 'bbh', 'humaneval', 'mbpp', 'mmlu-pro', 'passkey'];

/** Tables that score one checkpoint; others score one of their own (or one for each variant). */
const SAME_CHECKPOINT: Readonly<Record<string, string>> = {
  'Table tier4': 'Tables tier4 and broadsuite',
  'Table broadsuite': 'Tables tier4 and broadsuite',
};

/** Where no checkpoint is named (retrieval, the text) a score counts for each of them. */
const ofEach = ({ source }: QualityFigure): boolean => source === 'Table passkey' || !source.startsWith('Table ');

const checkpointOf = (f: QualityFigure): string =>
  f.variant === null ? (SAME_CHECKPOINT[f.source] ?? f.source) : `${f.source}, ${f.variant}`;

/**
 * The scores that count at a context: those without one, and of those with one the cell at the smallest context that is
 * at least the asked one. Beyond the longest cell that cell counts where it shows a loss: more is hardly kept over a
 * longer context.
 */
function scoresAt(figures: readonly QualityFigure[], contextTokens: number): QualityFigure[] {
  const contexts = figures.flatMap((f) => f.contextTokens ?? []);
  const next = Math.min(...contexts.filter((t) => t >= contextTokens));
  const longest = Math.max(...contexts);
  return figures.filter(
    (f) =>
      f.contextTokens === null ||
      f.contextTokens === next ||
      (next === Infinity && f.contextTokens === longest && f.value < 1),
  );
}

/**
 * The checkpoint that keeps most, by its worst score: each score as a share of the uncompressed model's in the same
 * table (where that has none, of the best that any table has). Null when no score is published.
 */
export function keptQuality(
  query: QualityQuery,
  all: readonly QualityFigure[],
  contextTokens: number,
): QualityKept | null {
  if (isUncompressed({ kind: query.codec })) return query.eviction === null ? WHOLE : null;
  const figures = scoresAt(all.filter(isScore), contextTokens);
  const names = new Set(figures.filter((f) => !ofEach(f)).map(checkpointOf));
  const judged = [...(names.size === 0 ? [null] : names)].map((name) =>
    judge(
      query,
      name,
      figures.filter((f) => ofEach(f) || checkpointOf(f) === name),
      contextTokens,
    ),
  );
  const best = judged.reduce<QualityKept | null>((a, b) => (b === null || (a && a.share >= b.share) ? a : b), null);
  const others = judged.flatMap((j) => (j === null || j === best ? [] : j.scores));
  const known = new Set(best?.scores.map(keyOf));
  return best && { ...best, otherScores: others.filter((s) => !known.has(keyOf(s))) };
}

const keyOf = (s: Score): string => `${s.source} ${s.metric} ${s.contextTokens} ${s.value}`;

/** Of the uncompressed model itself. */
export const WHOLE: QualityKept = {
  share: 1,
  metric: 'all',
  value: 1,
  teacher: 1,
  source: 'the uncompressed model itself',
  contextTokens: null,
  generationTasks: GENERATION.length,
  checkpoint: null,
  scores: [],
  otherScores: [],
  retrievalKnown: true,
};

function judge(
  query: QualityQuery,
  checkpoint: string | null,
  figures: readonly QualityFigure[],
  contextTokens: number,
): QualityKept | null {
  const scores = figures
    .flatMap((f) => scoreOf(query, f, contextTokens))
    .sort((a, b) => a.share - b.share || (a.metric < b.metric ? -1 : 1));
  const [worst] = scores;
  if (!worst) return null;
  const known = scores.filter((s) => !s.atMost);
  return {
    ...worst,
    generationTasks: new Set(known.map((s) => s.metric).filter((m) => GENERATION.includes(m))).size,
    // Stored numbers of fewer bits need no checkpoint of their own.
    checkpoint: hasOwnStorage({ kind: query.codec }) ? null : checkpoint,
    scores,
    otherScores: [],
    retrievalKnown: known.some((s) => s.metric === 'passkey'),
  };
}

function scoreOf({ model }: QualityQuery, f: QualityFigure, contextTokens: number): Score[] {
  // Agreement with the uncompressed model's own choice is 1 for that model.
  const teacher = f.metric === 'top-1' ? 1 : (teacherOf(f)?.value ?? bestTeacher(model, f));
  if (!(teacher > 0)) return [];
  return [
    {
      share: f.value / teacher,
      metric: f.metric,
      value: f.value,
      teacher,
      source: f.variant === null ? f.source : `${f.source}, ${f.variant}`,
      contextTokens: f.contextTokens,
      ...(f.contextTokens !== null && f.contextTokens < contextTokens ? { atMost: true } : {}),
    },
  ];
}

/** The uncompressed model's best value of a metric at a context, over all tables; -Infinity without one. */
function bestTeacher(model: string, f: QualityFigure): number {
  const teachers = qualityOf({ model, codec: 'full', ratio: 1, pathClass: 'uncompressed', eviction: null });
  const alike = teachers.filter((t) => t.metric === f.metric && t.contextTokens === f.contextTokens);
  return Math.max(...alike.map((t) => t.value));
}
