/** `lla-sim plan --users N`: the fewest GPUs for each device. */
import { EXIT, UserError, type ExitCode } from '../errors.js';
import { jsonText } from '../json.js';
import { prepare } from '../plan/answer.js';
import { readSources } from '../plan/ask.js';
import { degreesFor, fleetOf } from '../plan/fleet.js';
import { makePlan } from '../plan/plan.js';
import type { Fleet, PlanReport } from '../plan/types.js';
import { fleetText } from '../report/fleet-text.js';
import type { Scenario } from '../schema/settings.js';
import { print, type OutputOptions } from './output.js';

interface Planned {
  readonly fleet: Fleet;
  /** By the GPUs that share the model. */
  readonly reports: readonly PlanReport[];
}

/** Plans one scenario for every number of GPUs that may share the model; --gpus leaves one. */
async function planFleet(scenario: Scenario, users: number): Promise<Planned> {
  const sources = await readSources(scenario);
  const degrees = scenario.gpus === undefined ? degreesFor(sources.model.geometry) : [scenario.gpus];
  const reports = degrees.map((gpus) => {
    const { request, refused } = prepare({ ...scenario, gpus }, sources);
    return makePlan(request, refused, { everyRow: false });
  });
  return { fleet: fleetOf(users, reports), reports };
}

/** Answers for each scenario, the fewest GPUs (or the least money) first. @throws UserError when none serves the users */
export async function planFleets(
  scenarios: readonly Scenario[],
  { users, best }: { readonly users: number; readonly best: boolean },
  { format, width, colour }: { readonly format: string; readonly width: number; readonly colour: boolean },
  output: OutputOptions,
): Promise<ExitCode> {
  if (format !== 'table' && format !== 'json')
    throw new UserError(`--users prints a table or JSON, not ${format}`, 'leave --format out, or write --format json');
  if (scenarios.some((s) => s.batch !== undefined))
    throw new UserError(
      '--users and --batch ask two questions',
      'leave --batch out: --tpot decides how many share a replica',
    );
  const planned: Planned[] = [];
  for (const scenario of scenarios) planned.push(await planFleet(scenario, users));
  planned.sort((a, b) => costOf(a) - costOf(b));
  if (format === 'json') await print(fleetJson(planned), output);
  if (planned.every((p) => p.fleet.rows.length === 0)) {
    const nearest = planned.flatMap((p) => p.reports.flatMap((r) => r.nearest?.text ?? []))[0];
    throw new UserError(
      `no number of GPUs serves these users${nearest === undefined ? '' : `\n${nearest}`}`,
      'relax a target, take a larger GPU, a shorter context or a higher ratio',
      EXIT.noSolution,
    );
  }
  if (format === 'table') {
    const short = best || planned.length > 1;
    const parts = planned.map((p) => fleetText(p.fleet, p.reports[0] as PlanReport, { width, colour, best: short }));
    await print(parts.join('\n'), output);
  }
  return EXIT.ok;
}

/** Money an hour where it is priced, else GPUs; what does not run today comes last. */
function costOf({ fleet: { deploy, upside } }: Planned): number {
  const row = deploy ?? upside;
  return row === null ? Infinity : (row.usdPerHour ?? row.gpus) + (deploy ? 0 : 1e9);
}

function fleetJson(planned: readonly Planned[]): string {
  const runs = planned.map(({ fleet, reports }) => ({
    device: reports[0]?.device,
    contextTokens: reports[0]?.contextTokens,
    settings: reports[0]?.settings,
    fleet,
  }));
  return jsonText({ schema: 'lla-sim/fleet', schemaVersion: 1, runs });
}
