/** What a picture is: numbers from the planner, and a chart.js configuration that draws them on any canvas. */
import type { ChartConfiguration } from 'chart.js';
import type { Evidence } from '../../cost/evidence.js';
import type { Theme } from './theme.js';

/** How a picture's numbers are known: sizes are counted exactly, scores are others', times carry their evidence. */
export type PictureEvidence = 'exact' | 'published' | 'measured-here' | Evidence;

export interface Picture {
  /** Also the name of its PNG. */
  readonly id: string;
  readonly title: string;
  /** Units of both axes and what is held fixed. */
  readonly subtitle: string;
  /** The picture's message in words: for those who cannot see it, and below it for all. */
  readonly summary: string;
  readonly evidence: PictureEvidence;
  readonly source: string;
  readonly chart: (theme: Theme) => ChartConfiguration;
}

export const EVIDENCE_WORDS: Readonly<Record<PictureEvidence, string>> = {
  exact: 'exact: counted from the cache layout',
  published: 'published by others, not measured here',
  'measured-here': 'measured on this model by lla-sim fidelity',
  measured: 'measured on this device',
  interpolated: 'between measured shapes',
  extrapolated: 'outside the measured shapes',
  attainable:
    'what tuned kernels reach on this GPU, as a kernel that matters was not measured; shown dashed and hollow',
  roofline: 'roofline estimate, as a kernel that matters was not measured; shown dashed and hollow',
};
