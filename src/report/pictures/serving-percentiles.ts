/** How many of a simulated server's requests are served within which time: TTFT, TPOT and E2EL. */
import type { SimulationReport } from '../../serving/types.js';
import { machineWords } from '../simulation-words.js';
import { formatNumber } from '../../numbers/units.js';
import { picture, type Picture } from './picture.js';
import { numberScale, spread } from './scales.js';
import { axis, colourOf } from './theme.js';

const CURVES = [
  ['TTFT', 'ttft'],
  ['TPOT', 'tpot'],
  ['E2EL', 'e2el'],
] as const;

/** Null where nothing was simulated. */
export function servingPercentiles(r: SimulationReport): Picture | null {
  const run = r.runs[0];
  if (!run || run.completed === 0) return null;
  const rate = r.workload.requestsPerSecond;
  const evidence = run.evidence ?? 'roofline';
  const { percentiles } = run;
  const at = (key: 'ttft' | 'tpot'): string => formatNumber(run.estimate[`p99_${key}_ms`] ?? 0);
  return picture({
    id: 'serving-percentiles',
    title: 'Requests by their latency',
    subtitle: `${run.id} of ${r.model.name} on ${machineWords(r)}: ${run.completed} requests${rate === null ? '' : ` at ${formatNumber(rate)} a second`}`,
    source: `lla-sim simulate, the estimate; prices of ${r.device.pricing}`,
    evidence,
    summary: `The 99th percentile of TTFT is ${at('ttft')} ms, that of TPOT ${at('tpot')} ms.`,
    draw: (theme) => {
      const seconds = CURVES.flatMap(([, key]) => percentiles[key].map((ms) => ms / 1e3));
      return {
        type: 'line',
        data: {
          datasets: CURVES.map(([label, key], i) => ({
            label,
            data: percentiles[key].map((ms, j) => ({ x: ms / 1e3, y: percentiles.percent[j]! })),
            borderColor: colourOf(theme, i),
            backgroundColor: colourOf(theme, i),
            borderWidth: 2,
            pointRadius: 0,
            pointStyle: 'line' as const,
          })),
        },
        scales: {
          x: numberScale(theme, 'at most so many seconds', spread(seconds)),
          y: { ...axis(theme, 'share of the requests, %'), type: 'linear', min: 0, max: 100 },
        },
      };
    },
  });
}
