/** Why a question has no answer, and what would help. */
import { groups as groupBy } from 'd3-array';
import { EXIT, UserError } from '../errors.js';
import { best } from '../numbers/best.js';
import type { Sources } from '../plan/ask/prepare.js';
import type { Plan, PlanReport } from '../plan/types.js';
import type { Scenario } from '../schema/settings.js';
import { present } from '../present.js';
import { formatDecimalBytes } from '../numbers/units.js';

/** A plan without an answer, and what it was asked. */
export interface Unsolved {
  readonly report: PlanReport;
  readonly scenario: Scenario;
  readonly sources: Sources;
}

/** Targets that are a model's and a codec's, whatever runs them. */
const IS_QUALITY = /^--(min|max-kl)/;

const RELAX = 'relax a target, or take a larger GPU or a shorter context';

/** Why a question has no answer, and what would help; of several devices, contexts or cache types, why none has. */
export async function noSolutionError(unsolved: readonly [Unsolved, ...Unsolved[]]): Promise<UserError> {
  const [first] = unsolved;
  if (unsolved.length === 1) return new UserError(noSolution(first.report), await hintOf(first), EXIT.noSolution);
  const lines = await Promise.all(unsolved.map(async (one) => `${nameIn(unsolved, one)}: ${await oneLine(one)}`));
  const targets = unsolved.some(({ report }) => report.removed.length > 0);
  return targets
    ? new UserError(
        'no plan meets the targets',
        `what comes closest on each:\n  ${lines.join('\n  ')}`,
        EXIT.noSolution,
      )
    : new UserError('nothing fits', `what each lacks:\n  ${lines.join('\n  ')}`, EXIT.noSolution);
}

async function hintOf({ report, scenario, sources }: Unsolved): Promise<string> {
  if (report.removed.length > 0)
    return report.removed.every(({ target }) => IS_QUALITY.test(target))
      ? 'lower the target: no GPU changes what was published'
      : RELAX;
  const remedies = (await import('../plan/decide/remedies.js')).remedyWords(scenario, sources);
  return keptTooMuch(report) ? `${remedies}; or keep less: --utilization 1 with less --reserve` : remedies;
}

/** A device, with what else tells it from the others. */
function nameIn(all: readonly Unsolved[], { report }: Unsolved): string {
  const differ = (of: (r: PlanReport) => unknown): boolean => new Set(all.map((one) => of(one.report))).size > 1;
  return present([
    report.device.name,
    differ((r) => r.contextTokens) && `${report.contextTokens} tokens`,
    differ((r) => r.settings.cacheType) && report.settings.cacheType,
  ]).join(', ');
}

/** Why this one has no answer: what comes closest, or what does not fit and what would. */
async function oneLine(one: Unsolved): Promise<string> {
  const { report } = one;
  if (report.removed.length === 0) return `${shortfall(report)}; ${await hintOf(one)}`;
  const near = report.nearest?.text.split('\n').map((line) => line.trim());
  return near
    ? `${near[0]?.replace('closest: ', '')}; ${near.at(-1)}`
    : `${report.removed[0]?.target}: ${report.removed[0]?.reason}`;
}

/** The largest part of memory when not one sequence fits. */
function shortfall(report: PlanReport): string {
  const rows = report.plans.filter((p) => !p.beside);
  const smallest = best(rows, (p) => -need(p))!;
  const { memory } = smallest;
  const have =
    formatDecimalBytes(report.device.vramBytes) +
    (memory.reservedBytes > 0 ? ` less ${formatDecimalBytes(memory.reservedBytes)} reserve` : '');
  const parts = [
    `weights ${formatDecimalBytes(memory.weightsBytes)}`,
    `codec ${formatDecimalBytes(memory.codecBytes)}`,
    `one sequence ${formatDecimalBytes(memory.kvBytesPerSequence + memory.workspaceBytesPerSequence)}`,
  ];
  return (
    `${have} cannot hold even ${smallest.id} with one sequence of ${report.contextTokens} tokens ` +
    `(${parts.join(', ')})`
  );
}

/** Whether what is kept leaves no room for weights, and without it a sequence would fit. */
const keptTooMuch = ({ plans, device }: PlanReport): boolean =>
  plans.every(({ memory }) => memory.usableBytes < memory.weightsBytes) &&
  plans.some(({ beside, memory }) => !beside && memory.totalBytes - memory.reservedBytes <= device.vramBytes);

const need = ({ memory }: Plan): number =>
  memory.weightsBytes + memory.codecBytes + memory.kvBytesPerSequence + memory.workspaceBytesPerSequence;

/** Why no plan is left: nothing fits, or which target removed how many rows. */
function noSolution(report: PlanReport): string {
  if (report.removed.length === 0) return `nothing fits: ${shortfall(report)}`;
  const rowsOf = (removed: PlanReport['removed']): number => new Set(removed.map((r) => r.id)).size;
  const all = rowsOf(report.removed);
  const lines = groupBy(report.removed, (r) => r.target).map(([target, own]) => {
    const example = own[0]!;
    return `  ${target} removed ${rowsOf(own)} of ${all}, such as ${example.id}: ${example.reason}`;
  });
  if (report.nearest) lines.push(report.nearest.text);
  return `no plan meets the targets\n${lines.join('\n')}`;
}
