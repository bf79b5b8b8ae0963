/** Time of a token against context for the plans of the decision, at the batch of the decision. */
import { isEstimate, weaker, type Evidence } from '../../cost/evidence.js';
import { priceStep } from '../../cost/latency.js';
import { maxBatch, memoryModel } from '../../cost/memory.js';
import { configurationOf, usableBytes } from '../../plan/evaluate/evaluate.js';
import { planName } from '../../plan/words/words.js';
import { counted, formatNumber, formatTokens } from '../../numbers/units.js';
import { commonBatch, drawnPlans } from '../decision.js';
import { timeSource, type View } from '../view.js';
import { notes } from './marks.js';
import { devicesOf, picture, type Picture } from './picture.js';
import { numberScale, powersOfTwo, spread, tokenScale } from './scales.js';
import { bandedLine, type BandLine, type BandPoint, type Point } from './theme.js';

const [SHORTEST, LONGEST] = [1024, 2 ** 20];

/** Powers of two, and the context that is asked about. */
const contextsOf = (asked: number): number[] =>
  [...new Set([...powersOfTwo(SHORTEST, LONGEST, 99), asked])].sort((a, b) => a - b);

interface TimeLines {
  readonly batch: number;
  /** Milliseconds a token at each context at which the batch fits. */
  readonly lines: readonly BandLine[];
  readonly crossings: readonly Crossing[];
}

export function timeLines(view: View): TimeLines | null {
  const { request, report } = view;
  const { pricer } = request;
  if (!pricer) return null;
  const batch = commonBatch(report);
  const usable = usableBytes(request);
  const lines = drawnPlans(report).flatMap((plan): BandLine[] => {
    const candidate = view.all.find((e) => e.plan.id === plan.id)?.candidate;
    if (!candidate) return [];
    const c = configurationOf(request, candidate);
    let evidence: Evidence = 'measured';
    const points: BandPoint[] = [];
    for (const x of contextsOf(request.contextTokens)) {
      if (maxBatch(memoryModel(c, x, request.pageTokens), usable, request.server?.more) < batch) continue;
      const step = priceStep(c, pricer, batch, x);
      evidence = weaker(evidence, step.evidence);
      const { estimate, low, high } = step;
      points.push({ x, y: estimate * 1e3, low: low * 1e3, high: high * 1e3, evidence: step.evidence });
    }
    return points.length > 1 ? [{ id: plan.id, label: planName(plan), evidence, points }] : [];
  });
  return lines.length === 0 ? null : { batch, lines, crossings: allCrossings(lines) };
}

const contextWords = (tokens: number): string =>
  tokens >= 2 ** 20 * 0.995
    ? `${formatNumber(tokens / 2 ** 20)}M`
    : tokens >= 10_000
      ? `${Math.round(tokens / 1024)}k`
      : String(Math.round(tokens));

/** `block-absorbed is faster than reconstruct from 12k tokens`. */
const crossingWords = (c: Crossing): string => `${c.lower} is faster than ${c.upper} from ${contextWords(c.x)} tokens`;

export function timeAgainstContext(view: View): Picture | null {
  const data = timeLines(view);
  if (!data) return null;
  const { batch, lines, crossings } = data;
  const points = lines.flatMap((l) => l.points);
  const evidence = lines.reduce<Evidence>((a, l) => weaker(a, l.evidence), 'measured');
  const ends = lines.map((l) => `${l.label} reaches ${formatTokens(l.points.at(-1)?.x ?? 0)} tokens`);
  return picture({
    id: 'time-against-context',
    title: `How long does a token take as the context grows, at ${counted(batch, 'sequence')}?`,
    subtitle:
      `${view.report.model.name} on ${devicesOf(view.report)}; milliseconds, lower is better; bands: 90 % ` +
      'intervals; lines end where memory does',
    evidence,
    source: timeSource(view),
    summary:
      `At ${counted(batch, 'sequence')} ${ends.join(', ')}.` +
      (crossings.length === 0 ? '' : ` By the estimates ${crossings.map(crossingWords).join('; ')}.`),
    draw: (theme) => {
      const [contexts, times] = [points.map((p) => p.x), points.flatMap((p) => [p.low, p.high])];
      return {
        type: 'line',
        data: {
          datasets: lines.flatMap((line, i) => {
            const pointRadius = isEstimate(line.evidence) ? 4 : 5;
            // Lines that end early, where memory ends, lie above those that go on.
            return bandedLine(theme, line, i, { pointRadius, order: line.points.length });
          }),
        },
        scales: {
          x: tokenScale(theme, 'context, tokens a sequence', {
            min: Math.min(...contexts),
            max: Math.max(...contexts),
          }),
          y: numberScale(theme, 'milliseconds a token (log scale)', spread(times, 1.1)),
        },
        plugins: [
          notes(
            theme,
            lines.flatMap((l) => {
              const asked = l.points.find((p) => p.x === view.report.contextTokens);
              return asked
                ? [{ x: asked.x, y: asked.y, text: `${formatNumber(asked.y)} ms`, dot: true, above: true }]
                : [];
            }),
          ),
        ],
      };
    },
  });
}

interface Line {
  readonly label: string;
  readonly points: readonly Point[];
}

interface Crossing {
  readonly x: number;
  /** The line that is lower from here on. */
  readonly lower: string;
  readonly upper: string;
}

/** Crossings of two lines that share their x values, found between neighbours by straight lines in log-log. */
export function crossingsOf(a: Line, b: Line): Crossing[] {
  const found: Crossing[] = [];
  const other = new Map(b.points.map((p) => [p.x, p.y]));
  const shared = a.points
    .filter((p) => other.has(p.x))
    .map((p) => ({ x: p.x, gap: Math.log(p.y / (other.get(p.x) as number)) }));
  // Lines that touch without crossing, or that coincide, do not cross.
  let before: (typeof shared)[number] | undefined;
  for (const at of shared) {
    if (at.gap === 0) continue;
    if (before && Math.sign(before.gap) !== Math.sign(at.gap)) {
      const share = before.gap / (before.gap - at.gap);
      const [lower, upper] = at.gap < 0 ? [a.label, b.label] : [b.label, a.label];
      found.push({ x: Math.exp(Math.log(before.x) + share * Math.log(at.x / before.x)), lower, upper });
    }
    before = at;
  }
  return found;
}

/** All crossings between lines, by their x. */
export function allCrossings(lines: readonly Line[]): Crossing[] {
  return lines.flatMap((a, i) => lines.slice(i + 1).flatMap((b) => crossingsOf(a, b))).sort((p, q) => p.x - q.x);
}
