/** Time of a token against context for every path of a codec, with intervals, and where paths overtake each other. */
import { chosenId } from '../answer-text.js';
import type { ChartDataset, DefaultDataPoint } from 'chart.js';
import { isUncompressed } from '../../codecs/registry.js';
import { isEstimate, weaker, type Evidence } from '../../cost/evidence.js';
import { priceStep } from '../../cost/latency.js';
import { maxBatch, memoryModel } from '../../cost/memory.js';
import { configurationOf, usableBytes } from '../../plan/evaluate.js';
import { formatNumber } from '../../units.js';
import { pathLabel } from '../../plan/names.js';
import { representative, timeSource, type Evaluated, type View } from '../view.js';
import { allCrossings, type Crossing } from './crossings.js';
import { corner, frame, notes } from './marks.js';
import { EVIDENCE_WORDS, type Picture } from './picture.js';
import { numberScale, powersOfTwo, spread, tokenScale } from './scales.js';
import { colourOf, common, evidenceStyle, faded, markOf, type Theme } from './theme.js';

const CONTEXTS = powersOfTwo(1024, 2 ** 20, 99);

/** Crossings that are named in the picture; all are named below it. */
const MOST_NAMED = 7;

export interface TimeLine {
  readonly label: string;
  readonly evidence: Evidence;
  /** Milliseconds a token at each context at which the batch fits. */
  readonly points: readonly { readonly x: number; readonly y: number; readonly low: number; readonly high: number }[];
}

export interface TimeLines {
  readonly codec: string;
  readonly batch: number;
  readonly lines: readonly TimeLine[];
  readonly crossings: readonly Crossing[];
}

/**
 * The codec with most paths among those planned; the recommended one where several have as many. Full cache beside it.
 */
function rowsOf(view: View): Evaluated[] {
  const groups = new Map<string, Evaluated[]>();
  for (const e of view.all) groups.set(representative(e.plan), [...(groups.get(representative(e.plan)) ?? []), e]);
  const recommended = view.report.plans.find((p) => p.id === chosenId(view.report));
  const name = recommended && representative(recommended);
  const codecs = [...groups.values()].filter(([e]) => e && !isUncompressed(e.plan.codec));
  const best = codecs.reduce<Evaluated[] | undefined>((a, b) => {
    const better =
      a === undefined ||
      b.length > a.length ||
      (b.length === a.length && representative((b[0] as Evaluated).plan) === name);
    return better ? b : a;
  }, undefined);
  const full = view.all.filter(
    (e) =>
      isUncompressed(e.plan.codec) &&
      JSON.stringify(e.plan.eviction) === JSON.stringify(best?.[0]?.plan.eviction ?? null),
  );
  return [...full, ...(best ?? [])];
}

export function timeLines(view: View): TimeLines | null {
  const { request } = view;
  const pricer = request.pricer;
  const rows = rowsOf(view);
  if (!pricer || rows.length === 0) return null;
  const batch = request.batch ?? 1;
  const usable = usableBytes(request);
  const lines = rows
    .map((e): TimeLine => {
      const c = configurationOf(request, e.candidate);
      let evidence: Evidence = 'measured';
      const points: TimeLine['points'][number][] = [];
      for (const x of CONTEXTS) {
        if (maxBatch(memoryModel(c, x, request.pageTokens), usable) < batch) continue;
        const step = priceStep(c, pricer, batch, x);
        evidence = weaker(evidence, step.evidence);
        points.push({ x, y: step.estimate * 1e3, low: step.low * 1e3, high: step.high * 1e3 });
      }
      return { label: isUncompressed(e.plan.codec) ? 'full cache' : pathLabel(e.plan), evidence, points };
    })
    .filter((l) => l.points.length > 1);
  if (lines.length === 0) return null;
  return { codec: representative((rows.at(-1) as Evaluated).plan), batch, lines, crossings: allCrossings(lines) };
}

const contextWords = (tokens: number): string =>
  tokens >= 2 ** 20 * 0.995
    ? `${formatNumber(tokens / 2 ** 20)}M`
    : tokens >= 10_000
      ? `${Math.round(tokens / 1024)}k`
      : String(Math.round(tokens));

/** `block-absorbed is faster than reconstruct from 12k tokens`. */
export const crossingWords = (c: Crossing): string =>
  `${c.lower} is faster than ${c.upper} from ${contextWords(c.x)} tokens`;

export function timeAgainstContext(view: View): Picture | null {
  const data = timeLines(view);
  if (!data) return null;
  const { codec, batch, lines, crossings } = data;
  const evidence = lines.reduce<Evidence>((a, l) => weaker(a, l.evidence), 'measured');
  const title = `Time of a token against context: paths of ${codec}`;
  const subtitle = `${view.report.model.name} on ${view.report.device.name}, batch ${batch}; milliseconds, lower is better; bands: 90 % intervals; lines end where memory does`;
  const source = timeSource(view);
  const named = crossings.map(crossingWords);
  return {
    id: 'time-against-context',
    title,
    subtitle,
    evidence,
    source,
    summary: `${named.length === 0 ? 'No path overtakes another in this range.' : `By the estimates ${named.map((words, i) => `(${i + 1}) ${words}`).join('; ')}.`}${isEstimate(evidence) ? ' The intervals overlap: what real kernels reach decides.' : ''}`,
    chart: (theme) => {
      const words = { title, subtitle, source, evidence: EVIDENCE_WORDS[evidence] };
      return {
        type: 'line',
        data: { datasets: lines.flatMap((l, i) => datasets(theme, l, i, lines.length)) },
        options: {
          ...common(theme, words),
          scales: {
            x: tokenScale(theme, 'context, tokens a sequence', {
              min: CONTEXTS[0] as number,
              max: CONTEXTS.at(-1) as number,
            }),
            y: numberScale(
              theme,
              'milliseconds a token (log scale)',
              spread(
                lines.flatMap((l) => l.points.flatMap((p) => [p.low, p.high])),
                1.1,
              ),
            ),
          },
        },
        plugins: [
          frame(theme, words),
          notes(
            theme,
            crossings.map((c, i) => ({ x: c.x, y: c.y, text: String(i + 1), dot: true, side: 'above' as const })),
          ),
          corner(
            theme,
            named.slice(0, MOST_NAMED).map((words, i) => `${i + 1}  ${words}`),
          ),
        ],
      };
    },
  };
}

/** The line of the estimates, and the edges of its band, of which the second is filled down to the first. */
function datasets(
  theme: Theme,
  line: TimeLine,
  index: number,
  count: number,
): ChartDataset<'line', DefaultDataPoint<'line'>>[] {
  const colour = index === 0 && line.label === 'full cache' ? theme.ink : colourOf(theme, index - 1);
  const style = evidenceStyle(line.evidence, colour, theme.paper);
  const edge = {
    borderWidth: isEstimate(line.evidence) ? 0.6 : 0,
    borderColor: faded(colour, 0.5),
    borderDash: [1, 3],
    pointRadius: 0,
    label: '',
    pointStyle: 'line' as const,
  };
  const band = faded(colour, count > 4 || isEstimate(line.evidence) ? 0.06 : 0.16);
  return [
    { ...edge, data: line.points.map((p) => ({ x: p.x, y: p.low })), fill: false },
    { ...edge, data: line.points.map((p) => ({ x: p.x, y: p.high })), fill: '-1', backgroundColor: band },
    // The full cache is drawn first and wider, so that an equally fast path is visible on it.
    {
      ...style,
      // Lines that end early, where memory ends, are drawn above those that go on.
      ...(index === 0 ? { order: 1, borderWidth: style.borderWidth + 1.5 } : { order: -index }),
      label: line.label,
      data: line.points.map((p) => ({ x: p.x, y: p.y })),
      pointStyle: markOf(index),
      pointRadius: index === 0 ? 6 : 4,
      backgroundColor: colour,
      fill: false,
    },
  ];
}
