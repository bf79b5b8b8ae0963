/** What a picture is: numbers from the planner, and a chart.js configuration that draws them on any canvas. */
import type { ChartConfiguration, Plugin } from 'chart.js';
import type { Evidence } from '../../cost/evidence.js';
import type { PlanReport } from '../../plan/types.js';
import { frame } from './marks.js';
import { common, type Theme } from './theme.js';

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

/** What a picture draws with the colours of a theme; the rest of its configuration is that of all pictures. */
interface Drawn {
  readonly type: 'line' | 'bar' | 'scatter';
  readonly data: ChartConfiguration['data'];
  readonly scales: object;
  readonly options?: object;
  /** Over the paper, the evidence and the source. */
  readonly plugins?: readonly Plugin[];
}

/** What a picture is made of. */
interface Made extends Omit<Picture, 'chart'> {
  readonly draw: (theme: Theme) => Drawn;
  /** Pixels kept free on the right, for words beside the last points. */
  readonly right?: number;
  /** Where those of its evidence do not say it. */
  readonly evidenceWords?: string;
}

/** The GPUs that share the model. */
export const devicesOf = ({ settings, device }: Pick<PlanReport, 'settings' | 'device'>): string =>
  `${settings.gpus > 1 ? `${settings.gpus} × ` : ''}${device.name}`;

export const picture = ({ draw, right, evidenceWords, ...words }: Made): Picture => ({
  ...words,
  chart: (theme) => {
    const { type, data, scales, options, plugins = [] } = draw(theme);
    const evidence = evidenceWords ?? EVIDENCE_WORDS[words.evidence];
    return {
      type,
      data,
      options: { ...common(theme, words, right), ...options, scales },
      plugins: [frame(theme, { evidence, source: words.source }), ...plugins],
    } as ChartConfiguration;
  },
});

export const EVIDENCE_WORDS: Readonly<Record<PictureEvidence, string>> = {
  exact: 'exact: counted from the cache layout',
  published: 'published by others, not measured here',
  'measured-here': 'measured on this model by lla-sim fidelity',
  measured: 'measured on this device',
  interpolated: 'between measured shapes',
  extrapolated: 'in part outside the measured shapes, or on another card with this chip',
  attainable:
    'what tuned kernels reach on this GPU, as a kernel that matters was not measured; shown dashed and hollow',
  roofline: 'roofline estimate, as a kernel that matters was not measured; shown dashed and hollow',
};
