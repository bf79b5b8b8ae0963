/** How much of the uncompressed model's quality the published figures say is kept. */
import type { QualityFigure } from '../quality/figure.js';
import { qualityOf, teacherOf, type QualityQuery } from '../quality/quality.js';
import type { Plan } from './types.js';

/** Metrics that are a task's accuracy (or agreement with the uncompressed model), and so can be compared with that model's. */
const isAccuracy = (f: QualityFigure): boolean => f.unit === 'fraction' && f.higherIsBetter && f.metric !== 'svd-top-1';

/** Tasks in which the model generates on its own cache, or must find what it holds: where compression shows. */
const GENERATION: readonly string[] = ['gsm8k', 'math500', 'bbh', 'humaneval', 'mbpp', 'mmlu-pro', 'passkey', 'reliable-retrieval'];

/**
 * The smallest share of the uncompressed model's value among the accuracies published for a plan. Each figure is
 * compared with the uncompressed model in the same table and at the same context; where that table has no such row,
 * with the best that any table has for the metric. Null when nothing can be compared.
 */
export function keptQuality(query: QualityQuery, figures: readonly QualityFigure[]): Plan['qualityKept'] {
  if (query.codec === 'full') return query.eviction === null ? { share: 1, metric: 'all', value: 1, teacher: 1, source: 'the uncompressed model itself', generationTasks: GENERATION.length } : null;
  const teachers = qualityOf({ model: query.model, codec: 'full', ratio: 1, pathClass: 'uncompressed', eviction: null });
  const generationTasks = new Set(figures.filter((f) => GENERATION.includes(f.metric)).map((f) => (f.metric === 'reliable-retrieval' ? 'passkey' : f.metric))).size;
  let worst: Plan['qualityKept'] = null;
  for (const f of figures) {
    if (!isAccuracy(f)) continue;
    // Agreement with the uncompressed model's own choice is 1 for that model.
    const teacher = f.metric === 'top-1' ? 1 : teacherOf(f)?.value ?? Math.max(...teachers.filter((t) => t.metric === f.metric && t.contextTokens === f.contextTokens).map((t) => t.value));
    if (!(teacher > 0)) continue;
    const share = f.value / teacher;
    if (!worst || share < worst.share) worst = { share, metric: f.metric, value: f.value, teacher, source: f.source, generationTasks };
  }
  return worst;
}
