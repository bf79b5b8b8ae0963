/** Cache of one sequence against its context to a million tokens, by codec, with the device's memory as a line. */
import { chosenId } from '../answer-text.js';
import { configurationOf } from '../../plan/evaluate.js';
import type { Plan } from '../../plan/types.js';
import { pathSpec } from '../../codecs/paths.js';
import { coreRatio, isUncompressed } from '../../codecs/registry.js';
import { memoryModel } from '../../cost/memory.js';
import { formatBytes, formatDecimalBytes, formatTokens } from '../../units.js';
import { representative, type View, type Evaluated } from '../view.js';
import { endLabels, frame } from './marks.js';
import { EVIDENCE_WORDS, type Picture } from './picture.js';
import { byteScale, powersOfTwo, spread, tokenScale } from './scales.js';
import { between, colourOf, common, markOf, type Theme } from './theme.js';

const CONTEXTS = powersOfTwo(1024, 2 ** 20, 99);
/** Lines that a reader can still tell apart. */
const MOST_LINES = 8;

export interface CacheLine {
  readonly label: string;
  readonly ratio: number;
  /** Bytes of one sequence's cache at each context. */
  readonly points: readonly { readonly x: number; readonly y: number }[];
}

/**
 * The codec whose ratios are drawn beside the full cache: the recommended one where it has several, else the one with
 * most.
 */
function family(view: View): Evaluated[] {
  const rows = view.all.filter((e) => !pathSpec(e.plan.path).restores);
  const kinds = [...new Set(rows.map((e) => e.plan.codec.kind))].filter((kind) => !isUncompressed({ kind }));
  const labels = (kind: Plan['codec']['kind']): number =>
    new Set(rows.filter((e) => e.plan.codec.kind === kind).map((e) => e.plan.codec.label)).size;
  const recommended = view.report.plans.find((p) => p.id === chosenId(view.report))?.codec.kind;
  const order = kinds.sort(
    (a, b) =>
      Number(b === recommended && labels(b) > 1) - Number(a === recommended && labels(a) > 1) || labels(b) - labels(a),
  );
  const kind = order[0];
  const byCache = new Map<string, Evaluated>();
  for (const e of rows) {
    if (!isUncompressed(e.plan.codec) && e.plan.codec.kind !== kind) continue;
    const key = `${e.plan.codec.label} ${JSON.stringify(e.plan.eviction)}`;
    const known = byCache.get(key);
    if (!known || e.plan.memory.kvBytesPerToken < known.plan.memory.kvBytesPerToken) byCache.set(key, e);
  }
  return [...byCache.values()].sort((a, b) => a.plan.codec.ratio - b.plan.codec.ratio);
}

export function cacheLines(view: View): CacheLine[] {
  const rows = family(view);
  // Too many ratios: the ends and an even choice between them.
  const chosen =
    rows.length <= MOST_LINES
      ? rows
      : Array.from(
          { length: MOST_LINES },
          (_, i) => rows[Math.round((i * (rows.length - 1)) / (MOST_LINES - 1))] as Evaluated,
        );
  return chosen.map((e) => {
    const c = configurationOf(view.request, e.candidate);
    return {
      label: representative(e.plan),
      ratio: coreRatio(view.request.geometry, e.candidate.codec),
      points: CONTEXTS.map((x) => ({ x, y: memoryModel(c, x, view.request.pageTokens).kvBytesPerSequence })),
    };
  });
}

export function cacheAgainstContext(view: View): Picture | null {
  const lines = cacheLines(view);
  if (lines.length === 0) return null;
  const { report } = view;
  const vram = report.device.vramBytes;
  const last = CONTEXTS.at(-1) as number;
  const ends = lines.map((l) => `${l.label} ${formatBytes(l.points.at(-1)?.y ?? 0)}`).join(', ');
  const subtitle = `${report.model.name}, one sequence, cache in ${report.settings.cacheType}; both axes in powers of two${report.settings.gpus > 1 ? '; of one of the GPUs' : ''}`;
  const title = 'Cache of one sequence against its context';
  const source = `cache layout of lla-sim; memory of ${report.device.name}: ${formatDecimalBytes(vram)}`;
  const values = [...lines.flatMap((l) => l.points.map((p) => p.y)), vram];
  return {
    id: 'cache-against-context',
    title,
    subtitle,
    evidence: 'exact',
    source,
    summary: `At ${formatTokens(last)} tokens one sequence's cache takes: ${ends}. The device has ${formatDecimalBytes(vram)} for weights and all sequences together.`,
    chart: (theme) => {
      const words = { title, subtitle, source, evidence: EVIDENCE_WORDS.exact };
      return {
        type: 'line',
        data: {
          datasets: [
            ...lines.map((l, i) => {
              const colour = lineColour(theme, i, lines.length);
              return {
                label: l.label,
                data: [...l.points],
                borderColor: colour,
                backgroundColor: colour,
                pointBackgroundColor: colour,
                borderWidth: 2.2,
                pointStyle: markOf(i),
                pointRadius: l.points.map((_, k) => (k % 2 === 0 ? 4 : 0)),
              };
            }),
            {
              label: `memory of ${report.device.name}`,
              data: [
                { x: CONTEXTS[0] as number, y: vram },
                { x: last, y: vram },
              ],
              borderColor: theme.ink,
              borderWidth: 2,
              borderDash: [2, 3],
              pointRadius: 0,
              pointStyle: 'line' as const,
            },
          ],
        },
        options: {
          ...common(theme, words, 86),
          scales: {
            x: tokenScale(theme, 'context, tokens a sequence', { min: CONTEXTS[0] as number, max: last }),
            y: byteScale(theme, 'cache, bytes', spread(values, 1.5)),
          },
        },
        plugins: [
          frame(theme, words),
          endLabels(
            theme,
            lines.map((l, i) => ({
              y: l.points.at(-1)?.y ?? 1,
              text: formatBytes(l.points.at(-1)?.y ?? 0),
              colour: lineColour(theme, i, lines.length),
            })),
          ),
        ],
      };
    },
  };
}

/** Full cache in ink, ratios along one hue range, so that order shows. */
const lineColour = (theme: Theme, index: number, count: number): string =>
  index === 0 ? theme.ink : between(colourOf(theme, 0), colourOf(theme, 4), count <= 2 ? 0 : (index - 1) / (count - 2));
