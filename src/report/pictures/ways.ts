/** Ways of serving a looped model: rate within the targets against quality kept, what runs today filled. */
import type { SimulationReport, WayRow } from '../../serving/types.js';
import { formatNumber } from '../../numbers/units.js';
import { machineWords } from '../simulation-words.js';
import { notes, whiskers } from './marks.js';
import { picture, type Picture } from './picture.js';
import { axis, colourOf, markOf } from './theme.js';

const percentKept = ({ quality }: WayRow): number => 100 * (quality.share ?? 0);
const cacheOf = ({ id }: WayRow): string => id.split('/')[0] as string;

/** Null without `--ways`, and where nobody scored what serves. */
export function servingWays(r: SimulationReport): Picture | null {
  const rows = (r.ways ?? []).filter((row) => row.quality.share !== null && row.requestsPerSecond.low > 0);
  if (rows.length === 0) return null;
  const unscored = (r.ways ?? []).filter((row) => row.quality.share === null && row.requestsPerSecond.low > 0);
  const ways = [...new Set(rows.map((row) => row.way))];
  const evidence = rows.some((row) => row.servedBy === null) ? 'attainable' : 'extrapolated';
  return picture({
    id: 'serving-ways',
    title: 'Early exit, speculation, compression: which serves most, and what does each keep?',
    subtitle: `highest rate of ${r.model.name} within the targets on ${machineWords(r)}; bars: from the slow end of the prices to the estimate; filled: runs today`,
    source: `lla-sim simulate --find-rate --ways; prices of ${r.device.pricing}`,
    evidence,
    summary: `${rows
      .filter((row) => row.onFront || row.servedBy !== null)
      .map(
        (row) =>
          `${row.way} with ${cacheOf(row)}: ${formatNumber(row.requestsPerSecond.low)} to ${formatNumber(row.requestsPerSecond.estimate)} requests a second, keeps ${formatNumber(Math.round(percentKept(row)))} %${row.servedBy === null ? '' : ', runs today'}.`,
      )
      .join(' ')}${unscored.length > 0 ? ` Not drawn, as nobody scored them: ${unscored.length}.` : ''}`,
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
              pointStyle: markOf(i),
              pointRadius: 7,
              pointBorderWidth: 2,
              pointBackgroundColor: own.map((row) => (row.servedBy === null ? theme.paper : colour)),
              pointBorderColor: colour,
              borderColor: colour,
              backgroundColor: colour,
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
