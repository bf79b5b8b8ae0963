/** All pictures of a report, in the order in which they are read. A picture without data is absent. */
import type { View } from '../view.js';
import { batchAgainstRatio } from './batch-against-ratio.js';
import { cacheAgainstContext } from './cache-against-context.js';
import { evictionPictures } from './eviction-budget.js';
import { kernelRoofline } from './kernel-roofline.js';
import { memoryBreakdown } from './memory-breakdown.js';
import type { Picture } from './picture.js';
import { predictedAgainstMeasured } from './predicted-against-measured.js';
import { speedAgainstQuality } from './speed-against-quality.js';
import { timeAgainstContext } from './time-against-context.js';

/** Names of every picture that any report may have: files of these names belong to the report. */
export const PICTURE_IDS = [
  'memory-breakdown',
  'cache-against-context',
  'batch-against-ratio',
  'time-against-context',
  'speed-against-quality',
  'eviction-memory',
  'eviction-batch',
  'predicted-against-measured',
  'kernel-roofline',
] as const;

export function picturesOf(view: View): Picture[] {
  return [
    memoryBreakdown(view),
    cacheAgainstContext(view),
    batchAgainstRatio(view),
    timeAgainstContext(view),
    speedAgainstQuality(view),
    ...evictionPictures(view),
    predictedAgainstMeasured(view),
    kernelRoofline(view),
  ].filter((p) => p !== null);
}
