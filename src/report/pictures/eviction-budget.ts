/** Eviction: how many tokens stay, against a sequence's cache and the batch that fits. Two pictures, one axis each. */
import { groups as groupBy } from 'd3-array';
import { pathSpec } from '../../codecs/paths.js';
import { codecSpec, isUncompressed } from '../../codecs/registry.js';
import { allocatedTokens, type Eviction } from '../../eviction/policy.js';
import { bytesPerSequence, maxBatch, memoryModel } from '../../cost/memory.js';
import { configurationOf, usableBytes } from '../../plan/evaluate/evaluate.js';
import { formatBytes, formatCount, formatTokens } from '../../numbers/units.js';
import { present } from '../../present.js';
import { type Evaluated, type View, shownPlan } from '../view.js';
import { endLabels, notes } from './marks.js';
import { picture, type Picture } from './picture.js';
import { byteScale, countScale, powersOfTwo, spread, tokenScale } from './scales.js';
import { colourOf, lineStyle, markOf } from './theme.js';

const SMALLEST_BUDGET = 128;
const MOST_LINES = 5;

interface BudgetPoint {
  readonly budget: number;
  readonly bytes: number;
  readonly batch: number;
}

interface BudgetLine {
  readonly uncompressed: boolean;
  readonly label: string;
  readonly points: readonly BudgetPoint[];
}

/** One line a codec: the full cache, the plan that is shown, and the ends of the ratios. */
function rowsOf(view: View): Evaluated[] {
  const byRatio = (a: Evaluated, b: Evaluated): number => a.plan.codec.ratio - b.plan.codec.ratio;
  const plain = view.all.filter((e) => !pathSpec(e.plan.path).restores);
  const ordered = groupBy(plain, (e) => e.plan.codec.label)
    .map(([, [first]]) => first!)
    .sort(byRatio);
  const shown = shownPlan(view)?.codec.label;
  const latent = ordered.filter((e) => codecSpec(e.plan.codec).latentFor === 'one-head');
  const pick = present([
    ordered.find((e) => isUncompressed(e.plan.codec)),
    ordered.find((e) => e.plan.codec.label === shown),
    latent[0],
    latent[Math.floor(latent.length / 2)],
    latent.at(-1),
    latent.length === 0 && ordered.at(-1),
  ]);
  return [...new Set(pick)].slice(0, MOST_LINES).sort(byRatio);
}

/** Budgets are those of a policy without state of its own: StreamingLLM's; H2O keeps one token and its masses more. */
export function budgetLines(view: View): BudgetLine[] {
  const { request, report } = view;
  const powers = powersOfTwo(SMALLEST_BUDGET, report.contextTokens, 99);
  const budgets = [...new Set([...powers, report.contextTokens])].filter((b) => b <= report.contextTokens);
  if (budgets.length < 2) return [];
  const usable = usableBytes(request);
  return rowsOf(view).map((e) => ({
    label: e.plan.codec.label,
    uncompressed: isUncompressed(e.plan.codec),
    points: budgets.map((budget) => {
      const eviction: Eviction = { policy: 'budget', budgetTokens: budget };
      const c = configurationOf(request, { ...e.candidate, eviction });
      const m = memoryModel(c, report.contextTokens, request.pageTokens);
      if (allocatedTokens(eviction, report.contextTokens) !== budget || !(bytesPerSequence(m) > 0))
        throw new Error(`a budget of ${budget} tokens allocates another number`);
      return { budget, bytes: m.kvBytesPerSequence, batch: maxBatch(m, usable, request.server?.more) };
    }),
  }));
}

export function evictionPictures(view: View): Picture[] {
  const lines = budgetLines(view);
  const budgets = lines[0]?.points.map((p) => p.budget) ?? [];
  if (budgets.length < 2) return [];
  const { report } = view;
  const range = { min: budgets[0] as number, max: budgets.at(-1) as number };
  const atSmallest = (text: (p: BudgetPoint) => string): string =>
    lines.map((l) => `${l.label} ${text(l.points[0] as BudgetPoint)}`).join(', ');
  const drawn = [
    {
      id: 'eviction-memory',
      title: 'Eviction budget against cache memory',
      summary:
        `With ${formatTokens(range.min)} tokens a sequence's cache takes: ` +
        `${atSmallest((p) => formatBytes(p.bytes))}. Eviction and codec multiply; published quality holds without ` +
        'eviction only.',
      value: (p: BudgetPoint) => p.bytes,
      label: formatBytes,
      yTitle: 'cache of one sequence, bytes',
      scale: byteScale,
    },
    {
      id: 'eviction-batch',
      title: 'Eviction budget against batch',
      summary:
        `With ${formatTokens(range.min)} tokens the memory holds: ${atSmallest((p) => `${p.batch} sequences`)}. ` +
        'Below that, weights and workspace limit.',
      value: (p: BudgetPoint) => p.batch,
      label: formatCount,
      yTitle: 'sequences that fit (log scale)',
      scale: countScale,
    },
  ];
  return drawn.map(({ value, label, yTitle, scale, ...words }) =>
    picture({
      ...words,
      subtitle:
        `${report.model.name} on ${report.device.name}, sequences of ${formatTokens(report.contextTokens)} tokens ` +
        'of which the budget stays in the cache',
      source: 'memory model of lla-sim; a policy without state of its own (H2O keeps one token and its masses more)',
      evidence: 'exact',
      right: 86,
      draw: (theme) => {
        const shown = lines.map((l) => ({
          label: l.label,
          data: l.points.map((p) => ({ x: p.budget, y: value(p) })).filter((p) => p.y > 0),
        }));
        const values = shown.flatMap((l) => l.data.map((p) => p.y));
        const colour = (i: number): string =>
          lines[i]?.uncompressed ? theme.ink : colourOf(theme, i - (lines[0]?.uncompressed ? 1 : 0));
        return {
          type: 'line',
          data: {
            datasets: shown.map((l, i) => ({
              ...l,
              ...lineStyle(colour(i), 2.2),
              pointRadius: 4.5,
              pointStyle: markOf(i),
            })),
          },
          scales: {
            x: tokenScale(theme, 'budget, tokens that stay', range),
            y: scale(theme, yTitle, spread(values, 1.6)),
          },
          plugins: [
            notes(
              theme,
              shown.flatMap((l) => l.data.slice(0, 1).map((p) => ({ ...p, text: label(p.y) }))),
            ),
            endLabels(
              theme,
              // A line that ends before, as no more fits, has no value there.
              shown.flatMap((l, i) =>
                l.data
                  .slice(-1)
                  .filter((p) => p.x === range.max)
                  .map((p) => ({ y: p.y, text: label(p.y), colour: colour(i) })),
              ),
            ),
          ],
        };
      },
    }),
  );
}
