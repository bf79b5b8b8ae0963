/** Bytes against what they cost in quality, and what they bring in speed, as one picture. */
import type { ChartDataset, PointStyle } from 'chart.js';
import type { CodecKind } from '../codecs/codec.js';
import { isUncompressed } from '../codecs/registry.js';
import { klNumber } from '../plan/evaluate/fidelity.js';
import { shownDecode } from '../plan/words/words.js';
import { present } from '../present.js';
import { picture, type Picture } from '../report/pictures/picture.js';
import { numberScale, spread } from '../report/pictures/scales.js';
import { colourOf, type Theme } from '../report/pictures/theme.js';
import { best } from '../numbers/best.js';
import { formatCount, formatNumber } from '../numbers/units.js';
import type { Here } from './measured.js';
import type { PageModel } from './page-data.js';

interface Mark {
  readonly kind: CodecKind;
  /** Percent of the full cache's bytes. */
  readonly x: number;
  readonly y: number;
}

/** Marks that can be filled or hollow; another one where colours begin again. */
const FILLED: readonly PointStyle[] = ['circle', 'triangle', 'rect', 'rectRot', 'rectRounded'];
const markAt = ({ series }: Theme, index: number): PointStyle =>
  FILLED[(index + Math.floor(index / series.length)) % FILLED.length] as PointStyle;

/** KL of each codec by its best path, on the last of the measured models. */
function klMarks(here: Here | undefined): Mark[] {
  const least = new Map<string, Mark>();
  for (const { label, share, measured } of here?.rows ?? []) {
    if (isUncompressed(measured.codec) || !measured.kl || label.includes('@')) continue;
    const known = least.get(label);
    if (!known || measured.kl.estimate < known.y)
      least.set(label, { kind: measured.codec.kind, x: 100 * share, y: measured.kl.estimate });
  }
  return [...least.values()];
}

function speedMarks({ rows }: PageModel): Mark[] {
  const full = rows.find(({ plan }) => isUncompressed(plan.codec))?.plan.memory.kvBytesPerSequence;
  return rows.flatMap(({ plan }) => {
    const rate = shownDecode(plan).tokensPerSecond;
    return rate && full
      ? [{ kind: plan.codec.kind, x: (100 * plan.memory.kvBytesPerSequence) / full, y: rate.estimate }]
      : [];
  });
}

/** @param here measured models; the last one is drawn */
export function codecsPicture(model: PageModel, here: readonly Here[]): Picture {
  const shown = here.at(-1);
  const kl = klMarks(shown);
  const speed = speedMarks(model).filter((m) => isUncompressed(m) || kl.some(({ kind }) => kind === m.kind));
  const { report } = model;
  const kinds = [...new Set([...kl, ...speed].map((m) => m.kind))];
  const least = best(kl, (m) => -m.y);
  const fastest = best(speed, (m) => m.y);
  return picture({
    id: 'codecs',
    title: 'What do a codec’s bytes cost, and what do they bring?',
    subtitle:
      `filled: KL on ${shown?.model ?? 'no model'}, left; hollow: tok/s of ${report.model.name} on ` +
      `${report.device.name} at the operating batch, right`,
    source: `${shown?.file ?? ''}; lla-sim plan --device ${report.device.id ?? ''}`,
    evidence: 'attainable',
    evidenceWords: 'KL measured by lla-sim fidelity; speeds are estimates',
    summary: present([
      least &&
        shown &&
        `On ${shown.model} the least KL is that of ${least.kind}: ${klNumber(least.y)} at ${formatNumber(least.x)} % ` +
          `of the full cache's bytes.`,
      fastest &&
        `The most tokens a second are those of ${fastest.kind}: ${formatCount(fastest.y)} at ` +
          `${formatNumber(fastest.x)} %.`,
      'Speeds of codecs are estimates of tuned kernels.',
    ]).join(' '),
    draw: (theme) => {
      const set = (kind: CodecKind, marks: readonly Mark[], hollow: boolean): ChartDataset[] => {
        const own = marks.filter((m) => m.kind === kind);
        if (own.length === 0) return [];
        const index = kinds.indexOf(kind);
        const colour = colourOf(theme, index);
        const named = !hollow || !kl.some((m) => m.kind === kind);
        return [
          {
            label: named ? kind : '',
            yAxisID: hollow ? 'speed' : 'y',
            data: own.map(({ x, y }) => ({ x, y })),
            showLine: false,
            borderColor: colour,
            backgroundColor: hollow ? theme.paper : colour,
            borderWidth: 1.5,
            pointStyle: markAt(theme, index),
            pointRadius: 6,
          },
        ];
      };
      const bytes = spread([...kl, ...speed].map((m) => m.x));
      const range = (marks: readonly Mark[], margin: number) =>
        spread(
          marks.map((m) => m.y),
          margin,
        );
      return {
        type: 'line',
        data: { datasets: kinds.flatMap((kind) => [...set(kind, kl, false), ...set(kind, speed, true)]) },
        scales: {
          x: numberScale(theme, 'bytes of a sequence, percent of the full cache (log)', bytes),
          y: numberScale(theme, 'KL, nats a token (log)', range(kl, 1.5)),
          speed: {
            ...numberScale(theme, 'tokens a second (log)', range(speed, 1.2)),
            position: 'right',
            grid: { drawOnChartArea: false },
          },
        },
      };
    },
  });
}
