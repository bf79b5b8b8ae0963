/** How much of the uncompressed model's quality the published figures say is kept. */
import { isUncompressed } from '../codecs/registry.js';
import type { QualityFigure } from '../quality/figure.js';
import { qualityOf, teacherOf, type QualityQuery } from '../quality/quality.js';
import type { Plan } from './types.js';

/**
 * Metrics that are a task's accuracy (or agreement with the uncompressed model), and so can be compared with that
 * model's.
 */
const isAccuracy = (f: QualityFigure): boolean => f.unit === 'fraction' && f.higherIsBetter && f.metric !== 'svd-top-1';

/** Tasks in which the model generates on its own cache, or must find what it holds: where compression shows. */
const GENERATION: readonly string[] = [
  'gsm8k',
  'math500',
  'bbh',
  'humaneval',
  'mbpp',
  'mmlu-pro',
  'passkey',
  'reliable-retrieval',
];

/**
 * The smallest share of the uncompressed model's value among the accuracies published for a plan, at contexts up to the
 * plan's own. Each figure is compared with the uncompressed model in the same table and at the same context; where that
 * table has no such row, with the best that any table has for the metric. Figures of several checkpoints (off- and
 * on-policy) are judged apart, and the best checkpoint counts, since it is the one to deploy. Null when nothing can be
 * compared.
 */
export function keptQuality(
  query: QualityQuery,
  all: readonly QualityFigure[],
  contextTokens: number,
): Plan['qualityKept'] {
  const whole = {
    share: 1,
    metric: 'all',
    value: 1,
    teacher: 1,
    source: 'the uncompressed model itself',
    contextTokens: null,
    generationTasks: GENERATION.length,
  };
  if (isUncompressed({ kind: query.codec })) return query.eviction === null ? whole : null;
  const figures = all.filter((f) => isAccuracy(f) && (f.contextTokens ?? 0) <= contextTokens);
  const variants = new Set(figures.map((f) => f.variant).filter((v) => v !== null));
  const checkpoints =
    variants.size === 0
      ? [figures]
      : [...variants].map((v) => figures.filter((f) => f.variant === null || f.variant === v));
  const worst = checkpoints.map((own) => worstOf(query, own)).filter((w) => w !== null);
  const generationTasks = new Set(
    all
      .filter((f) => GENERATION.includes(f.metric))
      .map((f) => (f.metric === 'reliable-retrieval' ? 'passkey' : f.metric)),
  ).size;
  return worst.length === 0 ? null : { ...worst.reduce((x, y) => (y.share > x.share ? y : x)), generationTasks };
}

function worstOf(
  query: QualityQuery,
  figures: readonly QualityFigure[],
): Omit<NonNullable<Plan['qualityKept']>, 'generationTasks'> | null {
  const teachers = qualityOf({
    model: query.model,
    codec: 'full',
    ratio: 1,
    pathClass: 'uncompressed',
    eviction: null,
  });
  let worst: ReturnType<typeof worstOf> = null;
  for (const f of figures) {
    // Agreement with the uncompressed model's own choice is 1 for that model.
    const teacher =
      f.metric === 'top-1'
        ? 1
        : (teacherOf(f)?.value ??
          Math.max(
            ...teachers.filter((t) => t.metric === f.metric && t.contextTokens === f.contextTokens).map((t) => t.value),
          ));
    if (!(teacher > 0)) continue;
    const share = f.value / teacher;
    if (!worst || share < worst.share)
      worst = {
        share,
        metric: f.metric,
        value: f.value,
        teacher,
        source: f.variant === null ? f.source : `${f.source}, ${f.variant}`,
        contextTokens: f.contextTokens,
      };
  }
  return worst;
}
