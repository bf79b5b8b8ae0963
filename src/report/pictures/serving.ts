/** What happens when requests arrive: over time, by share of the requests, by their rate, by ways of serving. */
import type { Run, SimulationReport, SustainedRate, WayRow } from '../../serving/types.js';
import { present } from '../../present.js';
import { machineWords, shownOf } from '../simulation-words.js';
import { counted, formatNumber } from '../../numbers/units.js';
import { shareText } from '../text/text.js';
import { picture, type Picture } from './picture.js';
import { numberScale, spread } from './scales.js';
import { axis, colourOf, lineStyle, markStyle } from './theme.js';
import type { TimelinePoint } from '../../serving/timeline.js';
import { notes, whiskers } from './marks.js';

/** Null where no candidate has a curve. */
export function servingRate(r: SimulationReport): Picture | null {
  const has = (s: SustainedRate): boolean => (s.curve ?? []).length > 1;
  const all = r.candidates ?? [];
  const shown = present([
    all.find((s) => s.servedBy !== null && has(s)),
    all.find((s) => s.servedBy === null && has(s)),
  ]);
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
          `${s.id} meets both targets for ${formatNumber(percentile)} % of the requests up to ` +
          `${formatNumber(s.requestsPerSecond.estimate)} a second; up to ${formatNumber(s.requestsPerSecond.low)} ` +
          'even if every step takes the slow end of its interval.',
      )
      .join(' '),
    draw: (theme) => {
      const rates = shown.flatMap((s) => s.curve!.map((p) => p.requestsPerSecond));
      const [least, most] = [Math.min(...rates), Math.max(...rates)];
      const seconds = shown.flatMap((s) => s.curve!.flatMap((p) => [p.p99_ttft_ms / 1e3, p.p99_tpot_ms / 1e3]));
      const line = (label: string, colour: string, data: { x: number; y: number }[], dash: number[], points = 3) => ({
        label,
        data,
        ...lineStyle(colour),
        borderDash: dash,
        pointRadius: points,
      });
      // In the colour of the latency that it bounds.
      const target = (label: string, index: number, y: number) => {
        const ends = [least, most].map((x) => ({ x, y }));
        return line(label, colourOf(theme, index), ends, [2, 4], 0);
      };
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
            target(`TTFT target, dotted: ${formatNumber(ttftSeconds)} s`, 0, ttftSeconds),
            target(`TPOT target, dotted: ${formatNumber(tpotSeconds)} s`, 1, tpotSeconds),
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

const CURVES = [
  ['TTFT', 'ttft'],
  ['TPOT', 'tpot'],
  ['E2EL', 'e2el'],
] as const;

/** Which requests of which run a picture is of. */
function runWords(r: SimulationReport, { id, completed }: Run): string {
  const rate = r.workload.requestsPerSecond;
  const at = rate === null ? '' : ` at ${formatNumber(rate)} a second`;
  return `${id} of ${r.model.name} on ${machineWords(r)}: ${counted(completed, 'request')}${at}`;
}

/** Null where nothing was simulated. */
export function servingPercentiles(r: SimulationReport): Picture | null {
  const run = r.runs[0];
  if (!run || run.completed === 0) return null;
  const { percentiles } = run;
  const at = (metric: 'ttft' | 'tpot'): string => {
    const ms = shownOf(run.estimate, 'p99', metric);
    return ms === null ? 'unknown of so few requests' : `${formatNumber(ms)} ms`;
  };
  return picture({
    id: 'serving-percentiles',
    title: 'Requests by their latency',
    subtitle: runWords(r, run),
    source: `lla-sim simulate, the estimate; prices of ${r.device.pricing}`,
    evidence: run.evidence ?? 'roofline',
    summary: `The 99th percentile of TTFT is ${at('ttft')}, that of TPOT ${at('tpot')}.`,
    draw: (theme) => {
      const seconds = CURVES.flatMap(([, key]) => percentiles[key].map((ms) => ms / 1e3));
      return {
        type: 'line',
        data: {
          datasets: CURVES.map(([label, key], i) => ({
            label,
            data: percentiles[key].map((ms, j) => ({ x: ms / 1e3, y: percentiles.percent[j]! })),
            ...lineStyle(colourOf(theme, i)),
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

/** Null where nothing was simulated. */
export function servingTimeline(r: SimulationReport): Picture | null {
  const run = r.runs[0];
  if (!run || run.timeline.length < 2) return null;
  const begin = run.timeline[0]!.time;
  const most = Math.max(...run.timeline.map((p) => p.running));
  return picture({
    id: 'serving-timeline',
    title: 'Sequences and cache over time',
    subtitle: `${runWords(r, run)}; means over intervals`,
    source: `lla-sim simulate, the estimate; prices of ${r.device.pricing}`,
    evidence: run.evidence ?? 'roofline',
    summary:
      `Means over intervals reach ${formatNumber(most)} running sequences and ` +
      `${formatNumber(Math.max(...run.timeline.map((p) => p.waiting)))} waiting requests; the cache is at most ` +
      `${Math.round((100 * run.mostBlocks) / run.kvBlocks)} % full.`,
    draw: (theme) => {
      const line = (i: number, label: string, of: (p: TimelinePoint) => number, yAxisID: string) => ({
        label,
        yAxisID,
        data: run.timeline.map((p) => ({ x: p.time - begin, y: of(p) })),
        ...lineStyle(colourOf(theme, i)),
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

const percentKept = ({ quality }: WayRow): number => 100 * (quality.share ?? 0);
const cacheOf = ({ id }: WayRow): string => id.split('/')[0] as string;

/** Null without `--ways`, and where nobody scored what serves. */
export function servingWays(r: SimulationReport): Picture | null {
  const serving = (r.ways ?? []).filter((row) => row.requestsPerSecond.low > 0);
  const rows = serving.filter((row) => row.quality.share !== null);
  if (rows.length === 0) return null;
  const unscored = serving.length - rows.length;
  const ways = [...new Set(rows.map((row) => row.way))];
  const evidence = rows.some((row) => row.servedBy === null) ? 'attainable' : 'extrapolated';
  return picture({
    id: 'serving-ways',
    title: 'Early exit, speculation, compression: which serves most, and what does each keep?',
    subtitle:
      `highest rate of ${r.model.name} within the targets on ${machineWords(r)}; bars: from the slow end of the ` +
      'prices to the estimate; filled: runs today',
    source: `lla-sim simulate --find-rate --ways; prices of ${r.device.pricing}`,
    evidence,
    summary:
      rows
        .filter((row) => row.onFront || row.servedBy !== null)
        .map(
          (row) =>
            `${row.way} with ${cacheOf(row)}: ${formatNumber(row.requestsPerSecond.low)} to ` +
            `${formatNumber(row.requestsPerSecond.estimate)} requests a second, keeps ` +
            `${shareText(row.quality.share ?? 0)}${row.servedBy === null ? '' : ', runs today'}.`,
        )
        .join(' ') + (unscored > 0 ? ` Not drawn, as nobody scored them: ${unscored}.` : ''),
    draw: (theme) => {
      const most = Math.max(...rows.map((row) => row.requestsPerSecond.estimate));
      const kept = rows.map(percentKept);
      const of = (row: WayRow) => ({ x: percentKept(row), y: row.requestsPerSecond.low });
      return {
        type: 'line',
        data: {
          datasets: ways.map((way, i) => {
            const own = rows.filter((row) => row.way === way);
            const colour = colourOf(theme, i);
            return {
              label: way,
              data: own.map(of),
              showLine: false,
              ...markStyle(i, colour, 7, 2),
              pointBackgroundColor: own.map((row) => (row.servedBy === null ? theme.paper : colour)),
            };
          }),
        },
        scales: {
          x: {
            ...axis(theme, 'worst published score kept, % of all loops with the full cache'),
            type: 'linear',
            min: Math.floor(Math.min(...kept) - 2),
            max: Math.ceil(Math.max(...kept) + 2),
          },
          y: {
            ...axis(theme, 'requests a second within the targets'),
            type: 'linear',
            min: 0,
            max: Math.ceil(most * 1.1),
          },
        },
        plugins: [
          whiskers(
            rows.map((row) => ({
              x: percentKept(row),
              low: row.requestsPerSecond.low,
              high: row.requestsPerSecond.estimate,
              colour: colourOf(theme, ways.indexOf(row.way)),
            })),
          ),
          notes(
            theme,
            rows.map((row) => ({ ...of(row), text: cacheOf(row) })),
          ),
        ],
      };
    },
  });
}
