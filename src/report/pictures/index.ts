/** All pictures of a report, in the order in which they are read. A picture without data is absent. */
import type { SimulationReport } from '../../serving/types.js';
import { present } from '../../present.js';
import type { View } from '../view.js';
import { evictionPictures } from './eviction-budget.js';
import type { Fidelity } from '../../plan/evaluate/fidelity.js';
import { kernelRoofline } from './kernel-roofline.js';
import { memoryBreakdown } from './memory-breakdown.js';
import type { Picture } from './picture.js';
import { predictedAgainstMeasured } from './predicted-against-measured.js';
import { klAgainstRatio } from './kl-against-ratio.js';
import { qualityByTask } from './quality-by-task.js';
import { servingPercentiles, servingRate, servingTimeline, servingWays } from './serving.js';
import { retrievalMap } from './retrieval-map.js';
import { rolloutAgreement } from './rollout-agreement.js';
import { timeAgainstContext } from './time-against-context.js';
import { usersAgainstSpeed } from './users-against-speed.js';

/** Names of every picture that any report has or had: files of these names belong to the report. */
export const PICTURE_IDS = [
  'users-against-speed',
  'memory-breakdown',
  'time-against-context',
  'quality-by-task',
  'kl-against-ratio',
  'retrieval-by-context',
  'rollout-agreement',
  'eviction-memory',
  'eviction-batch',
  'predicted-against-measured',
  'kernel-roofline',
  'serving-timeline',
  'serving-percentiles',
  'serving-rate',
  'serving-ways',
  // Of earlier versions.
  'cache-against-context',
  'batch-against-ratio',
  'speed-against-quality',
] as const;

/** The picture of the decision; null where nothing is known about speed. It stands on the first page. */
export const decisionPicture = (pictures: readonly Picture[]): Picture | null =>
  pictures.find((p) => p.id === 'users-against-speed') ?? null;

/** What was measured of a model: cost by ratio, retrieval, rollouts. */
export const fidelityPictures = (f: Fidelity): Picture[] =>
  present([klAgainstRatio(f), retrievalMap(f), rolloutAgreement(f)]);

/** What happens when requests arrive: over time, by share of the requests, by their rate, and by ways of serving. */
export const servingPictures = (r: SimulationReport): Picture[] =>
  present([servingTimeline(r), servingPercentiles(r), servingRate(r), servingWays(r)]);

export function picturesOf(view: View): Picture[] {
  return present([
    usersAgainstSpeed(view),
    memoryBreakdown(view),
    timeAgainstContext(view),
    qualityByTask(view),
    ...(view.sources.fidelity ? fidelityPictures(view.sources.fidelity) : []),
    // Only where eviction is asked about.
    ...(view.all.some((e) => e.plan.eviction && !e.plan.beside) ? evictionPictures(view) : []),
    predictedAgainstMeasured(view),
    kernelRoofline(view),
  ]);
}
