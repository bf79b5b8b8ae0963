/** Batch, waiting requests and cache of a simulated server over time. */
import type { TimelinePoint } from '../../serving/timeline.js';
import type { SimulationReport } from '../../serving/types.js';
import { machineWords } from '../simulation-words.js';
import { formatNumber } from '../../numbers/units.js';
import { picture, type Picture } from './picture.js';
import { axis, colourOf } from './theme.js';

/** Null where nothing was simulated. */
export function servingTimeline(r: SimulationReport): Picture | null {
  const run = r.runs[0];
  if (!run || run.timeline.length < 2) return null;
  const rate = r.workload.requestsPerSecond;
  const evidence = run.evidence ?? 'roofline';
  const begin = run.timeline[0]!.time;
  const most = Math.max(...run.timeline.map((p) => p.running));
  return picture({
    id: 'serving-timeline',
    title: 'Sequences and cache over time',
    subtitle: `${run.id} of ${r.model.name} on ${machineWords(r)}: ${run.completed} requests${rate === null ? '' : ` at ${formatNumber(rate)} a second`}; means over intervals`,
    source: `lla-sim simulate, the estimate; prices of ${r.device.pricing}`,
    evidence,
    summary: `At most ${formatNumber(most)} sequences run at once, and ${formatNumber(Math.max(...run.timeline.map((p) => p.waiting)))} requests wait; the cache is at most ${Math.round((100 * run.mostBlocks) / run.kvBlocks)} % full.`,
    draw: (theme) => {
      const line = (i: number, label: string, of: (p: TimelinePoint) => number, yAxisID: string) => ({
        label,
        yAxisID,
        data: run.timeline.map((p) => ({ x: p.time - begin, y: of(p) })),
        borderColor: colourOf(theme, i),
        backgroundColor: colourOf(theme, i),
        borderWidth: 2,
        pointRadius: 0,
        pointStyle: 'line' as const,
      });
      return {
        type: 'line',
        data: {
          datasets: [
            line(0, 'running', (p) => p.running, 'y'),
            line(1, 'waiting', (p) => p.waiting, 'y'),
            line(2, 'KV blocks used, % (right)', (p) => (100 * p.usedBlocks) / run.kvBlocks, 'share'),
          ],
        },
        scales: {
          x: { ...axis(theme, 'time, seconds'), type: 'linear' },
          y: { ...axis(theme, 'sequences'), type: 'linear', min: 0 },
          share: { ...axis(theme, 'KV blocks used, %'), type: 'linear', position: 'right', min: 0, max: 100 },
        },
      };
    },
  });
}
