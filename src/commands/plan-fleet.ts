/** `lla-sim plan --users N`: the fewest GPUs for each device. */
import { EXIT, UserError } from '../errors.js';
import { readSources } from '../plan/ask/on-disk.js';
import { degreesFor, planFleet, readUsers, reportOfReplica, type PlannedFleet } from '../plan/decide/fleet.js';
import type { ModelSource, Sources } from '../plan/ask/prepare.js';
import { SERVER_GPUS } from '../devices/catalogue.js';
import { gpuCounts } from '../geometry/geometry.js';
import { counted } from '../numbers/units.js';
import { remedyWords } from '../plan/decide/remedies.js';
import type { SimulatedFleet } from '../serving/types.js';
import { cheapestFirst, fleetJson, type AnsweredFleet } from '../report/plan-json.js';
import { paragraph } from '../report/text/answer-text.js';
import { fleetsWords, fleetText } from '../report/text/fleet-text.js';
import type { Scenario } from '../schema/settings.js';
import type { Args } from './command.js';
import { asJson, ProgressLine } from './output.js';
import type { PlanAnswer, Terminal } from './plan.js';

/** A fleet, and what it was asked. */
interface AskedFleet extends AnsweredFleet {
  readonly scenario: Scenario;
  readonly sources: Sources;
}

/**
 * Answers for each scenario, the fewest GPUs (or the least money) first.
 * @throws UserError for a format that users do not have, and for settings that cannot be
 */
export async function answerForUsers(
  scenarios: readonly Scenario[],
  args: Args,
  on: Terminal,
  model: ModelSource | null,
): Promise<PlanAnswer> {
  const format = args.text('format') ?? 'table';
  if (format !== 'table' && format !== 'json')
    throw new UserError(`--users prints a table or JSON, not ${format}`, 'leave --format out, or write --format json');
  const asked: AskedFleet[] = [];
  const line = new ProgressLine(args.isSet('quiet'));
  for (const scenario of scenarios) {
    const users = readUsers(scenario);
    if (users === null) continue;
    const sources = await readSources(scenario, model);
    const fleet = planFleet(scenario, users, sources);
    asked.push({ ...fleet, scenario, sources, simulated: await simulatedOf(scenario, fleet, sources, line) });
  }
  const planned = cheapestFirst(asked, (p) => p);
  const failure = planned.every((p) => p.fleet.rows.length === 0)
    ? noneServes(planned as [AskedFleet, ...AskedFleet[]])
    : null;
  if (format === 'json') return { text: asJson(fleetJson(planned)), failure };
  if (failure) return { text: null, failure };
  const brief = args.isSet('best') || planned.length > 1;
  const parts = planned.map((p) => fleetText(p.fleet, reportOfReplica(p), { ...on, best: brief }, p.simulated));
  const best = fleetsWords(planned);
  const head = best === null ? [] : [`${paragraph({ label: 'Best', text: best }, on.width).join('\n')}\n`];
  return { text: [...head, ...parts].join('\n'), failure: null };
}

/** Why no number of GPUs serves the users, and what would help. */
function noneServes(planned: readonly [AskedFleet, ...AskedFleet[]]): UserError {
  const [{ scenario, sources, reports }] = planned;
  const several = planned.length > 1;
  const near = planned.flatMap((p) =>
    p.reports.flatMap(({ nearest: one, device }) =>
      one ? [{ times: one.times ?? Infinity, text: several ? `  ${device.name}:\n${one.text}` : one.text }] : [],
    ),
  );
  const nearest = near.reduce<(typeof near)[number] | null>((a, b) => (a && a.times <= b.times ? a : b), null)?.text;
  const { users: _users, ...one } = { ...scenario, gpus: reports.at(-1)?.settings.gpus ?? 1 };
  // Heads such as Huginn's 55 divide over numbers that servers seldom have.
  const { geometry } = sources.model;
  const usual = degreesFor(geometry);
  const odd = gpuCounts(geometry).filter(
    (gpus) =>
      scenario.gpus === undefined &&
      gpus <= SERVER_GPUS &&
      !usual.includes(gpus) &&
      planFleet({ ...scenario, gpus }, readUsers(scenario)!, sources).fleet.rows.length > 0,
  );
  const most = counted(one.gpus, 'GPU');
  return new UserError(
    `no replicas of up to ${most} serve these users${nearest === undefined ? '' : `\n${nearest}`}`,
    odd.length > 0
      ? `the heads also divide over ${odd.join(' and ')} GPUs, where plans pass: add --gpus ${odd[0]}`
      : reports.some(({ removed }) => removed.length > 0)
        ? 'relax a target, or take a larger GPU or a shorter context'
        : remedyWords(one, sources),
    EXIT.noSolution,
  );
}

/** What the scenario's workload makes of the fleet; null without one, and where nothing is known about speed. */
async function simulatedOf(
  scenario: Scenario,
  fleet: PlannedFleet,
  sources: Sources,
  line: ProgressLine,
): Promise<SimulatedFleet | null> {
  if (scenario.workload === undefined || fleet.fleet.rows.every((row) => row.secondsPerStep === null)) return null;
  line.show(`simulating users on ${sources.spec?.name ?? 'this GPU'} …`);
  try {
    return (await import('../serving/fleet.js')).simulateFleet(scenario, fleet, sources);
  } finally {
    line.clear();
  }
}
