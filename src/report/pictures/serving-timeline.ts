/** Batch, waiting requests and cache of a simulated server over time. */
import type { TimelinePoint } from '../../serving/timeline.js';
import type { SimulationReport } from '../../serving/types.js';
import { machineWords } from '../simulation-words.js';
import { formatNumber } from '../../numbers/units.js';
import { frame } from './marks.js';
import { EVIDENCE_WORDS, type Picture } from './picture.js';
import { axis, colourOf, common } from './theme.js';

/** Null where nothing was simulated. */
export function servingTimeline(r: SimulationReport): Picture | null {
  const run = r.runs[0];
  if (!run || run.timeline.length < 2) return null;
  const rate = r.workload.requestsPerSecond;
  const title = 'Sequences and cache over time';
  const subtitle = `${run.id} of ${r.model.name} on ${machineWords(r)}: ${run.completed} requests${rate === null ? '' : ` at ${formatNumber(rate)} a second`}; means over intervals`;
  const evidence = run.evidence ?? 'roofline';
  const source = `lla-sim simulate, the estimate; prices of ${r.device.pricing}`;
  const begin = run.timeline[0]!.time;
  const most = Math.max(...run.timeline.map((p) => p.running));
  return {
    id: 'serving-timeline',
    title,
    subtitle,
    source,
    evidence,
    summary: `At most ${formatNumber(most)} sequences run at once, and ${formatNumber(Math.max(...run.timeline.map((p) => p.waiting)))} requests wait; the cache is at most ${Math.round((100 * run.mostBlocks) / run.kvBlocks)} % full.`,
    chart: (theme) => {
      const words = { title, subtitle, source, evidence: EVIDENCE_WORDS[evidence] };
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
        options: {
          ...common(theme, words),
          scales: {
            x: { ...axis(theme, 'time, seconds'), type: 'linear' },
            y: { ...axis(theme, 'sequences'), type: 'linear', min: 0 },
            share: { ...axis(theme, 'KV blocks used, %'), type: 'linear', position: 'right', min: 0, max: 100 },
          },
        },
        plugins: [frame(theme, words)],
      };
    },
  };
}
