/** What a report is drawn from: the answer, and the request that can price and size more shapes for its pictures. */
import { type Sources, prepare } from '../plan/ask/prepare.js';
import { best } from '../numbers/best.js';
import { noSolutionError } from './no-solution.js';
import { chosenId } from './text/answer-text.js';
import { evaluate } from '../plan/evaluate/evaluate.js';
import {
  planFleet,
  readUsers,
  reportOfReplica,
  type Fleet,
  type FleetRow,
  type PlannedFleet,
} from '../plan/decide/fleet.js';
import type { ServingMost } from '../plan/decide/decide.js';
import { served } from '../plan/decide/served.js';
import { candidateId } from '../plan/ask/candidates.js';
import { decidedAgain, hasSolution, makePlan, type Rows } from '../plan/plan.js';
import type { Candidate, Plan, PlanReport, PlanRequest } from '../plan/types.js';
import type { Scenario } from '../schema/settings.js';
import type { Validation } from '../schema/validation.js';
import type { ReportedServer, SimulatedFleet } from '../serving/types.js';

/** A combination with its figures. */
export interface Evaluated {
  readonly candidate: Candidate;
  readonly plan: Plan;
  /** False where a target removed it from the answer. */
  readonly kept: boolean;
}

export interface View {
  readonly report: PlanReport;
  readonly request: PlanRequest;
  readonly sources: Sources;
  /** How many GPUs serve the users, where users are asked for; the report is then of one replica. */
  readonly fleet: PlannedFleet | null;
  /** Predictions compared with a real decoder, where a file of them was given. */
  readonly validation: Validation | null;
  /** Why nothing answers, and what would help. */
  readonly failure?: string;
  /** Every combination that can exist, also those that miss a target; of a short view those alone that answer. */
  readonly all: readonly Evaluated[];
}

/**
 * Plans a scenario and keeps what its pictures need.
 * @param rows a short view plans in a third of the time
 * @throws UserError for settings that cannot be
 */
export function viewOf(
  scenario: Scenario,
  sources: Sources,
  validation: Validation | null = null,
  rows: Rows = {},
): View {
  const users = readUsers(scenario);
  if (users === null) return viewWith(scenario, sources, null, validation, rows);
  const fleet = planFleet(scenario, users, sources);
  return viewWith({ ...scenario, gpus: reportOfReplica(fleet).settings.gpus }, sources, fleet, validation, rows);
}

function viewWith(
  scenario: Scenario,
  sources: Sources,
  fleet: View['fleet'],
  validation: View['validation'],
  rows: Rows,
  served?: SimulatedFleet,
): View {
  const { request, refused } = prepare(scenario, sources);
  const planned = makePlan(request, refused, rows);
  const report = fleet ? ofFleet(request, planned, served ?? fleet.fleet) : planned;
  const kept = new Map(report.plans.map((p) => [p.id, p]));
  const all = request.candidates.flatMap((candidate): Evaluated[] => {
    const plan = kept.get(candidateId(request.geometry, candidate, request.cacheType));
    if (plan) return [{ candidate, plan, kept: true }];
    return rows.everyRow === false ? [] : [{ candidate, plan: evaluate(request, candidate), kept: false }];
  });
  return { report, request, sources, fleet, validation, all };
}

/** One replica's report with the fleet's choice as its answer. As it is where the fleet has no plan on so many GPUs. */
function ofFleet(
  r: PlanRequest,
  report: PlanReport,
  { deploy, upside }: Pick<SimulatedFleet, 'deploy' | 'upside'> | Fleet,
): PlanReport {
  const here = (row: Pick<FleetRow, 'planId' | 'tensorParallel'> | null): string | null =>
    row?.tensorParallel === r.gpus ? row.planId : null;
  const named = { deploy: here(deploy), upside: here(upside) };
  if (named.deploy === null && named.upside === null) return report;
  const again = decidedAgain(r, report, named);
  return { ...again, answer: { ...again.answer, unsure: null, fails: null, alternatives: [] } };
}

/** Adds why nothing answers to a view without a solution. */
export async function explained(view: View, scenario: Scenario): Promise<View> {
  const { report, sources } = view;
  if (hasSolution(report)) return view;
  const { message, hint } = await noSolutionError([{ report, scenario, sources }]);
  return { ...view, failure: `${message}\n${hint}` };
}

/** The same view of the replica that a simulated fleet deploys. */
export function ofReplica(view: View, scenario: Scenario, simulated: SimulatedFleet): View {
  const { deploy, upside } = simulated;
  const gpus = (deploy ?? upside)?.tensorParallel ?? view.request.gpus;
  return gpus === view.request.gpus
    ? { ...view, report: ofFleet(view.request, view.report, simulated) }
    : viewWith({ ...scenario, gpus }, view.sources, view.fleet, view.validation, {}, simulated);
}

/**
 * The same view, with the answer that a simulation chose where there is one, and a command that starts the server that
 * is simulated.
 */
export function decidedBy(view: View, chosen: ServingMost | null, server: ReportedServer | null): View {
  const { request } = view;
  const report = chosen ? decidedAgain(request, view.report, chosen) : view.report;
  const { answer } = report;
  const plan = report.plans.find((p) => p.id === (answer.deploy ?? answer.fallback)?.planId);
  if (answer.serve === undefined || !plan || !server) return { ...view, report };
  return { ...view, report: { ...report, answer: { ...answer, ...served(request, plan, server) } } };
}

/** The recommended plan; where there is none, the one that holds most, or null when nothing fits. */
export function shownPlan({ report }: View): Plan | null {
  const chosen = report.plans.find((p) => p.id === chosenId(report));
  if (chosen) return chosen;
  const fitting = report.plans.filter(
    (p) => p.maxBatch.exact >= 1 && !p.marks.some((m) => m.code === 'destroys-generation'),
  );
  return best(fitting, (p) => p.maxBatch.exact) ?? null;
}

/** `measured on calibrations/x.json` or `datasheet of NVIDIA H200`: where times come from. */
export function timeSource({ report, sources }: View): string {
  if (sources.calibration)
    return `${sources.calibration.file}, measured on ${sources.calibration.content.device.description}`;
  return sources.spec
    ? `kernels of ${report.device.pricing} on ${report.device.name}`
    : 'nothing is known about the speed of this device';
}
