/** Why a question has no answer, and what would help. */
import { EXIT, UserError } from '../errors.js';
import type { Sources } from '../plan/ask/prepare.js';
import type { Plan, PlanReport } from '../plan/types.js';
import type { Scenario } from '../schema/settings.js';
import { formatDecimalBytes } from '../numbers/units.js';

/** Why a question has no answer, and what would help. */
export async function noSolutionError(report: PlanReport, scenario: Scenario, sources: Sources): Promise<UserError> {
  const hint =
    report.removed.length > 0
      ? 'relax a target, or take a larger GPU or a shorter context'
      : keptTooMuch(report)
        ? 'lower --reserve, raise --utilization, or take a larger GPU'
        : (await import('../plan/decide/remedies.js')).remedyWords(scenario, sources);
  return new UserError(noSolution(report), hint, EXIT.noSolution);
}

/** The largest part of memory when not one sequence fits. */
function nothingFits(report: PlanReport): string {
  const smallest = report.plans.filter((p) => !p.beside).reduce((a, b) => (need(b) < need(a) ? b : a));
  const { memory } = smallest;
  const have =
    `${formatDecimalBytes(report.device.vramBytes)}` +
    (memory.reservedBytes > 0 ? ` less ${formatDecimalBytes(memory.reservedBytes)} reserve` : '');
  const parts = [
    `weights ${formatDecimalBytes(memory.weightsBytes)}`,
    `codec ${formatDecimalBytes(memory.codecBytes)}`,
    `one sequence ${formatDecimalBytes(memory.kvBytesPerSequence + memory.workspaceBytesPerSequence)}`,
  ];
  return (
    `nothing fits: ${have} cannot hold even ${smallest.id} with one sequence of ${report.contextTokens} tokens ` +
    `(${parts.join(', ')})`
  );
}

/** Whether the weights would fit without what is kept from them. */
const keptTooMuch = ({ plans }: PlanReport): boolean =>
  plans.every(
    ({ memory }) =>
      memory.usableBytes < memory.weightsBytes && memory.usableBytes + memory.reservedBytes > memory.weightsBytes,
  );

const need = ({ memory }: Plan): number =>
  memory.weightsBytes + memory.codecBytes + memory.kvBytesPerSequence + memory.workspaceBytesPerSequence;

/** Why no plan is left: nothing fits, or which target removed how many rows. */
function noSolution(report: PlanReport): string {
  if (report.removed.length === 0) return nothingFits(report);
  const byTarget = new Map<string, Set<string>>();
  for (const r of report.removed) byTarget.set(r.target, (byTarget.get(r.target) ?? new Set()).add(r.id));
  const all = new Set(report.removed.map((r) => r.id)).size;
  const lines = [...byTarget].map(([target, ids]) => {
    const example = report.removed.find((r) => r.target === target);
    return `  ${target} removed ${ids.size} of ${all}, such as ${example?.id}: ${example?.reason}`;
  });
  if (report.nearest) lines.push(report.nearest.text);
  return `no plan meets the targets\n${lines.join('\n')}`;
}
