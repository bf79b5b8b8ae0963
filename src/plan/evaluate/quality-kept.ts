/**
 * How much of the uncompressed model's quality the published scores of a plan say is kept, checkpoint by checkpoint.
 */
import { isUncompressed } from '../../codecs/registry.js';
import type { Geometry } from '../../geometry/geometry.js';
import { PASSES_OF_DECODERS, showsLoss, type QualityFigure } from '../../quality/figure.js';
import { byCheckpoint } from '../../quality/checkpoints.js';
import { scoresWithLoops } from '../../quality/loop-scores.js';
import { isTable, qualityOf, teacherOf, type QualityQuery } from '../../quality/quality.js';
import type { MinimumTarget, QualityKept, Score } from '../types.js';

/**
 * A task's accuracy, or agreement with the uncompressed model: what can be compared with that model's. An error that is
 * said to be many times another codec's is no score, and says that quality is lost.
 */
const isScore = (f: QualityFigure): boolean =>
  (f.unit === 'fraction' && f.higherIsBetter && f.metric !== 'svd-top-1') || showsLoss(f);

/** Tasks in which the model generates on its own cache, or must find what it holds: where compression shows. */
const GENERATION: readonly string[] = ['gsm8k', 'math500', 'bbh', 'humaneval', 'mbpp', 'mmlu-pro', 'passkey', 'ruler'];

/**
 * The scores that count at a context: those without one, and of those with one the cell at the smallest context that is
 * at least the asked one. Beyond the longest cell that cell counts where it shows a loss: more is hardly kept over a
 * longer context.
 */
function scoresAt(figures: readonly QualityFigure[], contextTokens: number): QualityFigure[] {
  return figures.filter((f) => {
    if (f.contextTokens === null) return true;
    const contexts = figures.flatMap((g) =>
      g.metric === f.metric && g.source === f.source ? (g.contextTokens ?? []) : [],
    );
    const next = Math.min(...contexts.filter((t) => t >= contextTokens));
    return (
      f.contextTokens === next ||
      (next === Infinity && f.contextTokens === Math.max(...contexts) && f.value < (teacherOf(f)?.value ?? 1))
    );
  });
}

/**
 * How much published scores keep, each as a share of the uncompressed model's in the same table (where that has none,
 * of the best that any table has). A trained codec may have several checkpoints: the one whose worst score keeps most
 * is named, the others stand beside it. What is not trained has none to choose from: all its scores count. Null when no
 * score is published.
 * @param minimums scores that are asked for: a checkpoint that has them is named before one of which they are unknown
 */
export function keptQuality(
  query: QualityQuery,
  all: readonly QualityFigure[],
  contextTokens: number,
  minimums: readonly MinimumTarget[] = [],
): QualityKept | null {
  if (isUncompressed({ kind: query.codec })) return query.eviction === null ? WHOLE : null;
  const figures = scoresAt(all.filter(isScore), contextTokens);
  const judged = [...byCheckpoint(figures)].flatMap(([name, own]) => {
    const scores = own.flatMap((f) => scoreOf(query, f, contextTokens));
    return keptOf(name, scores) ?? [];
  });
  const known = ({ scores }: QualityKept): number =>
    minimums.filter(({ metric, table }) =>
      scores.some((s) => s.metric === metric && (table === undefined || isTable(s.source.split(', ')[0] ?? '', table))),
    ).length;
  const [best, ...others] = judged.sort(
    (a, b) => known(b) - known(a) || b.share - a.share || b.scores.length - a.scores.length,
  );
  if (!best) return null;
  const named = others.flatMap(({ checkpoint, share, scores }) =>
    checkpoint === null ? [] : [{ checkpoint, share, scores }],
  );
  return { ...best, others: named.sort((a, b) => a.share - b.share) };
}

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
  others: [],
  retrievalKnown: true,
};

/** What a model keeps that runs other loops than it was trained with, uncompressed; null where nobody published it. */
export function keptWithLoops({ trained, loops }: Pick<Geometry, 'trained' | 'loops'>): QualityKept | null {
  if (!trained) return null;
  const scores = scoresWithLoops(trained.model, loops, trained.loops).map(
    ({ metric, value, allLoops, source }): Score => ({
      // Published to four digits: 0.72 of 0.8 is 0.9.
      share: Math.round((1e9 * value) / allLoops) / 1e9,
      metric,
      value,
      teacher: allLoops,
      source,
      contextTokens: null,
    }),
  );
  return keptOf(null, scores);
}

/** The worst of a checkpoint's scores, and all of them; null without any. */
function keptOf(checkpoint: string | null, unsorted: readonly Score[]): QualityKept | null {
  const scores = unsorted.toSorted((a, b) => a.share - b.share || (a.metric < b.metric ? -1 : 1));
  const [worst] = scores;
  if (!worst) return null;
  const known = scores.filter((s) => !s.atMost);
  return {
    ...worst,
    generationTasks: new Set(known.map((s) => s.metric).filter((m) => GENERATION.includes(m))).size,
    checkpoint,
    scores,
    others: [],
    retrievalKnown: known.some((s) => s.metric === 'passkey' || s.metric === 'ruler'),
  };
}

function scoreOf({ model }: QualityQuery, f: QualityFigure, contextTokens: number): Score[] {
  const source = f.variant === null ? f.source : `${f.source}, ${f.variant}`;
  if (showsLoss(f))
    return [
      { share: 1 / f.value, metric: f.metric, value: f.value, teacher: 1, source, contextTokens: null, times: true },
    ];
  // Agreement with the uncompressed model's own choice is 1 for that model; so is finding every key.
  const known = teacherOf(f)?.value ?? bestTeacher(model, f);
  const teacher = f.metric === 'top-1' || (f.metric === 'passkey' && !(known > 0)) ? 1 : known;
  if (!(teacher > 0)) return [];
  return [
    {
      share: f.value / teacher,
      metric: f.metric,
      value: f.value,
      teacher,
      source,
      contextTokens: f.contextTokens,
      ...(f.contextTokens !== null && f.contextTokens < contextTokens ? { atMost: true } : {}),
      ...(f.decoder !== null && PASSES_OF_DECODERS[f.decoder] === 2 ? { twoPasses: true } : {}),
    },
  ];
}

/** The uncompressed model's best value of a metric at a context, over all tables; -Infinity without one. */
function bestTeacher(model: string, f: QualityFigure): number {
  const teachers = qualityOf({ model, codec: 'full', ratio: 1, pathClass: 'uncompressed', eviction: null });
  const alike = teachers.filter((t) => t.metric === f.metric && t.contextTokens === f.contextTokens);
  return Math.max(...alike.map((t) => t.value));
}
