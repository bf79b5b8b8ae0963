/** Latency against the rate of requests: the best candidate that runs today, and the best whose kernels do not exist. */
import type { SimulationReport, SustainedRate } from '../../serving/types.js';
import { machineWords } from '../simulation-words.js';
import { formatNumber } from '../../numbers/units.js';
import { picture, type Picture } from './picture.js';
import { numberScale, spread } from './scales.js';
import { colourOf } from './theme.js';

/** Null where no candidate has a curve. */
export function servingRate(r: SimulationReport): Picture | null {
  const has = (s: SustainedRate): boolean => (s.curve ?? []).length > 1;
  const all = r.candidates ?? [];
  const shown = [
    all.find((s) => s.servedBy !== null && has(s)),
    all.find((s) => s.servedBy === null && has(s)),
  ].flatMap((s) => (s ? [s] : []));
  const first = shown[0];
  if (!first) return null;
  const { ttftSeconds, tpotSeconds, percentile } = r.targets;
  const evidence = shown.some((s) => s.servedBy === null) ? 'attainable' : 'extrapolated';
  return picture({
    id: 'serving-rate',
    title: 'Latency against the rate of requests',
    subtitle: `p99 of ${r.model.name} on ${machineWords(r)}, ${r.workload.label}`,
    source: `lla-sim simulate --find-rate, the estimate; prices of ${r.device.pricing}`,
    evidence,
    summary: shown
      .map(
        (s) =>
          `${s.id} meets both targets for ${formatNumber(percentile)} % of the requests up to ${formatNumber(s.requestsPerSecond.estimate)} a second; up to ${formatNumber(s.requestsPerSecond.low)} even if every step takes the slow end of its interval.`,
      )
      .join(' '),
    draw: (theme) => {
      const rates = shown.flatMap((s) => s.curve!.map((p) => p.requestsPerSecond));
      const [least, most] = [Math.min(...rates), Math.max(...rates)];
      const seconds = shown.flatMap((s) => s.curve!.flatMap((p) => [p.p99_ttft_ms / 1e3, p.p99_tpot_ms / 1e3]));
      const line = (label: string, colour: string, data: { x: number; y: number }[], dash: number[], points = 3) => ({
        label,
        data,
        borderColor: colour,
        backgroundColor: colour,
        borderWidth: 2,
        borderDash: dash,
        pointRadius: points,
        pointStyle: 'line' as const,
      });
      const target = (label: string, y: number) =>
        line(
          label,
          theme.muted,
          [
            { x: least, y },
            { x: most, y },
          ],
          [2, 4],
          0,
        );
      return {
        type: 'line',
        data: {
          datasets: [
            ...shown.flatMap((s, i) => {
              const dash = s.servedBy === null ? [6, 4] : [];
              const of = (key: 'p99_ttft_ms' | 'p99_tpot_ms') =>
                s.curve!.map((p) => ({ x: p.requestsPerSecond, y: p[key] / 1e3 }));
              return [
                line(`TTFT, ${s.id}`, colourOf(theme, 2 * i), of('p99_ttft_ms'), dash),
                line(`TPOT, ${s.id}`, colourOf(theme, 2 * i + 1), of('p99_tpot_ms'), dash),
              ];
            }),
            target(`target of TTFT: ${formatNumber(ttftSeconds)} s`, ttftSeconds),
            target(`target of TPOT: ${formatNumber(tpotSeconds)} s`, tpotSeconds),
          ],
        },
        scales: {
          x: numberScale(theme, 'requests a second', spread(rates)),
          y: numberScale(theme, 'p99, seconds', spread([...seconds, ttftSeconds, tpotSeconds])),
        },
      };
    },
  });
}
