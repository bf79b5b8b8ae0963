/** A fleet in words: how many GPUs, how they are divided, and the table of codecs. */
import { isMostlyOutside } from '../../plan/ask/tested.js';
import pc from 'picocolors';
import { isEstimate } from '../../cost/evidence.js';
import { planName } from '../../plan/words/words.js';
import { stackLabel } from '../../stacks/serving.js';
import { wantedWords } from '../../plan/decide/decide.js';
import { present } from '../../present.js';
import { promptsRisk, retrievalRisk } from '../../plan/decide/risks.js';
import type { Fleet, FleetRow } from '../../plan/decide/fleet.js';
import type { Plan, PlanReport } from '../../plan/types.js';
import type { FleetService, RunFigures, SimulatedFleet } from '../../serving/types.js';
import { counted, formatDecimalBytes, formatTokens } from '../../numbers/units.js';
import {
  answerLine,
  brief,
  hadWords,
  lossWords,
  milliseconds,
  paragraph,
  scoreWords,
  testedWords,
  type AnswerLine,
} from './answer-text.js';
import { fleetTable } from './fleet-table.js';
import type { AnsweredFleet } from '../plan-json.js';
import { isFullCache } from '../../plan/decide/representatives.js';
import { deviceName } from '../plan-rows.js';
import {
  shownOf,
  targetWords,
  testedWords as testedSimulationWords,
  unsureWords,
  warmedUp,
} from '../simulation-words.js';
import { wrap } from './text.js';
import type { View } from '../view.js';

/** What is asked of a fleet on one device. @param simulated where the question has a workload */
const fleetQuestion = ({ users }: Fleet, report: PlanReport, simulated: SimulatedFleet | null = null): string => {
  const who = `${report.model.name}: ${counted(users, 'user')}`;
  const machine = `on ${report.device.name} (${formatDecimalBytes(report.device.vramBytes)})`;
  if (simulated) return `${who}, ${simulated.workload}, ${machine}`;
  return `${who} at once, ${formatTokens(report.contextTokens)} tokens each, ${machine}${wantedWords(report.settings)}`;
};

/** What a report's first line asks. @param simulated of this very question */
export const questionWords = (
  { report, fleet }: Pick<View, 'report' | 'fleet'>,
  simulated: SimulatedFleet | null = null,
): string => (fleet ? fleetQuestion(fleet.fleet, report, simulated) : report.answer.question);

/** What the rest of a report about users is about. */
export const replicaWords = ({ report }: Pick<View, 'report'>): string =>
  `All that follows is about one replica: ${report.answer.question}.`;

/**
 * Paragraphs of the answer.
 * @param report any of the device's
 * @param simulated where the question has a workload
 */
export function fleetLines(fleet: Fleet, report: PlanReport, simulated: SimulatedFleet | null = null): AnswerLine[] {
  return simulated ? simulatedLines(fleet, report, simulated) : stillLines(fleet, report);
}

function simulatedLines(fleet: Fleet, report: PlanReport, simulated: SimulatedFleet): AnswerLine[] {
  const device = deviceName(report);
  const { deploy, upside, thinkSeconds, tried } = simulated;
  const still = present([fleet.deploy ?? fleet.cheapest, fleet.upside]).map(
    (row) =>
      `${row.gpus} ${device} (${row.name}, ${usersWords(row)} a ` +
      `replica${row.tensorParallel > 1 ? ` of ${row.tensorParallel} GPUs` : ''})`,
  );
  const none = tried.today.map((name) => `${name}: not one user gets the targets on any number of GPUs`).join('; ');
  return present([
    // A group that prefills for others is no number of GPUs that share the model.
    answerLine(
      'Enough',
      simulated.prefillReplicas > 0 ? null : enoughWords({ ...fleet, fewest: null }, deploy, device),
    ),
    answerLine(
      fleet.deploy ? 'Deploy' : 'Cheapest',
      deploy ? serviceWords(deploy, device, simulated) : none || 'nothing with confidence',
    ),
    answerLine(
      upsideName(simulated, report),
      upside ? serviceWords(upside, device, simulated) : tried.unwritten.length === 0 ? null : noUpside(simulated),
    ),
    answerLine(
      'Workload',
      'simulated: each user asks, waits for the ' +
        `answer${thinkSeconds > 0 ? `, thinks ${shortSeconds(thinkSeconds)}` : ''} and asks again; ` +
        `${simulated.workload}. Targets: ${targetWords(simulated)}`,
    ),
    answerLine(
      'Instead',
      still.length === 0
        ? null
        : `without the workload, ${fleet.users} who all decode at once at ${formatTokens(report.contextTokens)} ` +
            `tokens, and nobody's prompts between: ${still.join('; ')}`,
    ),
    answerLine('Serve', deploy && commandWords(deploy)),
    answerLine('Tested', testedSimulationWords({ tested: simulated.tested, device: report.device })),
    answerLine(
      'Risk',
      present([
        upside && upsideRisk(report, upside.name),
        ...simulated.notes,
        `${togetherWords(simulated)} simulated apart, each with its own users; lla-sim simulate has bursts, routers ` +
          'and all percentiles',
      ]).join('; '),
    ),
  ]);
}

const planOf = ({ plans }: PlanReport, name: string): Plan | undefined => plans.find((p) => planName(p) === name);

/** An upside that is the full cache gains nothing over it. */
function upsideName({ upside }: { readonly upside: Pick<FleetRow, 'name'> | null }, report: PlanReport) {
  const plan = upside && planOf(report, upside.name);
  return plan && isFullCache(plan) ? 'Estimate' : 'Upside';
}

/** Why an upside is no deployment. @param name of its plan */
function upsideRisk(report: PlanReport, name: string): string {
  const { device, model, contextTokens } = report;
  const plan = planOf(report, name);
  if (!plan || !isFullCache(plan)) {
    const retrieval = plan ? retrievalRisk(plan, contextTokens) : null;
    return present(['no server has the kernels of the upside' + (plan ? fleetBuiltWords(plan) : ''), retrieval]).join(
      '; ',
    );
  }
  const { evidence } = plan.decode;
  return evidence === null || isEstimate(evidence)
    ? `nobody has published times of the full cache's kernels on ${device.name}`
    : `${stackLabel(device.stack ?? '')} is not known to run ${model.name}`;
}

/** What published kernels of an upside had, where that is less than the full cache has. */
const fleetBuiltWords = ({ asPublished: a }: Plan): string =>
  a?.implementations.some(({ ofFull }) => ofFull !== null && ofFull < 1)
    ? `: published ones had ${hadWords(a)} speed`
    : '';

/** Why no plan whose kernels would have to be written is named. */
function noUpside({ deploy, tried: { unwritten } }: SimulatedFleet): string {
  const more = unwritten.length - 2;
  const plans = `${unwritten.slice(0, 2).join(', ')}${more > 0 ? ` and ${more} more` : ''}`;
  return (
    `none for this workload: of ${plans} none ` +
    (deploy === null ? 'gives a user the targets' : 'needs fewer GPUs if every step takes the slow end of its interval')
  );
}

/**
 * Whether the GPUs that are asked about serve the users with what runs today; null where no number is asked about.
 * @param by what the answer rests on, where not on all that was asked
 */
function enoughWords(
  { users, asked: gpus, fewest }: Pick<Fleet, 'users' | 'asked' | 'fewest'>,
  row: Pick<FleetRow, 'mostUsersPerReplica' | 'gpus' | 'tensorParallel'> | null,
  device: string,
  by = '',
): string | null {
  if (gpus === null) return null;
  const asked = `${gpus} ${device}${gpus === 1 ? '' : ' that share the model'}`;
  const serve = gpus === 1 ? 'serves' : 'serve';
  if (!row) return `no: nothing that runs today is known to serve them on ${asked}`;
  const { mostUsersPerReplica: most } = row;
  return most >= users
    ? `yes${by}: ${asked} ${serve} up to ${most}`
    : `no${by}: ${asked} ${serve} ${most} of ${users} users; it takes ${groupedWords(row)}` +
        (fewest && fewest.gpus < row.gpus ? `, and fewest are ${groupedWords(fewest)}` : '');
}

/** `40 in groups of 2`; of replicas of one GPU `4, each with the whole model`. */
const groupedWords = ({ gpus, tensorParallel: n }: Pick<FleetRow, 'gpus' | 'tensorParallel'>): string =>
  n === 1 ? `${gpus}, each with the whole model` : `${gpus} in groups of ${n}`;

const shortSeconds = (s: number): string => (s < 1 ? `${brief(s * 1e3)} ms` : `${brief(s)} s`);

/** `2 h200: 2 replicas of 1 GPU, full cache on vLLM 0.24.0, 100 users each: p99 TTFT 0.3 s at the slow end, …`. */
function serviceWords(row: FleetService, device: string, simulated: SimulatedFleet): string {
  const { targets, tested } = simulated;
  const { estimate, high, slowEnd, outputTokensPerSecond: rate } = row;
  const unsure = unsureWords({ tested });
  const pair = (metric: 'ttft' | 'tpot'): string => {
    const words = (f: RunFigures): string => {
      const ms = shownOf(f, 'p99', metric);
      return ms === null ? 'unknown of so few requests' : shortSeconds(ms / 1e3);
    };
    const [sure, likely] = [words(high), words(estimate)];
    const ends = [`${sure} at the slow end`, `${likely} by the estimate`];
    return (slowEnd ? ends : ends.reverse()).join(', ');
  };
  const usd = row.usdPerHour === null ? '' : `; $${brief(row.usdPerHour)} an hour`;
  return (
    `${row.gpus} ${device} by simulation${shapeWords(row, 'more miss the targets')}: p99 TTFT ${pair('ttft')}, p99 ` +
    `TPOT ${pair('tpot')}, ${brief(rate)} output tok/s${usd}. One replica serves ` +
    `${row.replicas > simulated.replicas ? '' : 'at least '}${row.mostUsersPerReplica}` +
    (slowEnd
      ? ', even if every step takes the slow end of its interval' +
        (unsure === null ? '' : `, but that is not sure: ${unsure}`) +
        warmedUp(high, targets)
      : ' by the estimate, and nobody if every step takes the slow end of its interval' + warmedUp(estimate, targets))
  );
}

function stillLines(fleet: Fleet, report: PlanReport): AnswerLine[] {
  const device = deviceName(report);
  const { deploy, upside, cheapest, fails, eightGpus } = fleet;
  // Where nothing is deployed the quality of what runs today is not known.
  const held = cheapest?.servedBy ? cheapest : null;
  const least = fleet.rows[0]?.gpus ?? 0;
  const none = report.answer.reason ?? 'no plan that runs today meets the targets on any number of GPUs';
  return present([
    answerLine('Enough', enoughWords(fleet, deploy ?? held, device, deploy ? '' : ', by memory and time')),
    answerLine('Deploy', deploy ? rowWords(deploy, report) : `nothing with confidence: ${none}`),
    answerLine(
      'Instead',
      deploy && deploy.gpus > 1 && eightGpus && eightGpus.oneReplica > 0
        ? `8 GPUs that share the model serve ${eightGpus.oneReplica}, 8 that each hold it ${eightGpus.eightReplicas}`
        : null,
    ),
    answerLine(
      'Cheapest',
      cheapest &&
        rowWords(cheapest, report) + (least < cheapest.gpus ? '; fewer only with codecs that no server has' : ''),
    ),
    answerLine(upsideName(fleet, report), upside && rowWords(upside, report)),
    answerLine('Fails', fails?.worst && `${fails.gpus} ${device} with ${fails.label}, but ${scoreWords(fails.worst)}`),
    answerLine('Serve', deploy && commandWords({ ...deploy, serve: fleet.serve })),
    answerLine('Tested', testedWords(report)),
    answerLine(
      'Risk',
      present([
        slowWords(fleet, report),
        deploy && promptsRisk(deploy.name, deploy.besidePrompts, report.contextTokens)?.message,
        upside && upsideRisk(report, upside.name),
        'lla-sim simulate adds prompts and queues',
      ]).join('; '),
    ),
  ]);
}

/** Where no time is asked for memory decides, and users may wait for words. */
function slowWords({ deploy, upside, cheapest }: Fleet, { settings }: PlanReport): string | null {
  if (settings.targets.secondsPerToken !== null) return null;
  const slow = present([deploy, upside, cheapest]).filter((row) => (row.secondsPerStep?.estimate ?? 0) > SLOW_SECONDS);
  const names = slow.map(({ name }) => name).join(' and ');
  const who = slow.length === 0 ? '' : `, and with ${names} a user gets under 10 tok/s`;
  return `without --tpot memory alone decides${who}`;
}

/** A user who gets fewer than ten tokens a second waits for words. */
const SLOW_SECONDS = 0.1;

const usersWords = ({ usersPerReplica: n }: Pick<FleetRow, 'usersPerReplica'>): string => counted(n, 'user');

/**
 * `: 12 replicas of 2 GPUs, full cache on vLLM 0.24.0, 17 users each`; where a replica serves one user only, `, one for
 * each user (a second does not fit): full cache on vLLM 0.24.0`.
 * @param why a replica takes no second user
 */
function shapeWords(
  row: Pick<FleetRow, 'name' | 'servedBy' | 'replicas' | 'tensorParallel' | 'usersPerReplica'> &
    Partial<Pick<FleetService, 'prefillReplicas'>>,
  why: string,
): string {
  const { replicas, prefillReplicas: prefill = 0, tensorParallel: degree } = row;
  const plan = `${row.name}${row.servedBy ? ` on ${row.servedBy}` : ''}`;
  if (replicas > 1 && row.usersPerReplica === 1 && prefill === 0)
    return `, ${degree === 1 ? 'one' : degree} for each user (${why}): ${plan}`;
  const shape =
    `${counted(replicas + prefill, 'replica')} of ${counted(degree, 'GPU')}` +
    (prefill === 0 ? '' : ` (${replicas} decode, ${prefill} prefill)`);
  return (
    `: ${replicas === 1 && degree === 1 && prefill === 0 ? '' : `${shape}, `}${plan}, ` +
    `${usersWords(row)}${replicas === 1 ? '' : ' each'}`
  );
}

/** `replicas are`, or with those that prefill `groups of 2 decoding and 1 prefilling replicas are`. */
const togetherWords = ({ replicas, prefillReplicas: prefill }: SimulatedFleet): string =>
  prefill === 0 ? 'replicas are' : `groups of ${replicas} decoding and ${prefill} prefilling replicas are`;

/** Why a replica takes no second user. */
const WHY_ONE: Readonly<Record<FleetRow['limitedBy'], string>> = {
  memory: 'a second does not fit',
  tpot: 'a second would make both miss --tpot',
  'max-num-seqs': '--max-num-seqs is 1',
};

/** The command of one replica. */
const commandWords = ({ serve, ...of }: Partial<FleetService> & Pick<FleetService, 'serve' | 'replicas'>) => {
  const all = of.replicas + (of.prefillReplicas ?? 0);
  return serve === null || all === 1 ? serve : `${serve}; so on each of ${all} replicas`;
};

/** `24 h100: 12 replicas of 2 GPUs, full cache on vLLM 0.24.0, 17 users each at 45 ms a token (…), at most 18`. */
function rowWords(row: FleetRow, report: PlanReport): string {
  const { secondsPerStep: s } = row;
  const { tested } = report;
  const alone = promptsRisk(row.name, row.besidePrompts, report.contextTokens) ? ' without prompts' : '';
  const outside = tested && isMostlyOutside(tested) ? ', by intervals that most published figures miss' : '';
  const time = s
    ? ` at ${milliseconds(s.estimate)} ms a token (${milliseconds(s.low)}–${milliseconds(s.high)}, ` +
      `${row.evidence}${row.chance === null ? '' : `, ${Math.floor(row.chance * 100)} % sure${alone}${outside}`})`
    : '';
  const most = row.mostUsersPerReplica === row.usersPerReplica ? '' : `, at most ${row.mostUsersPerReplica}`;
  const usd = row.usdPerHour === null ? '' : `; $${brief(row.usdPerHour)} an hour`;
  const { quality, kept } = row;
  const loss = lossWords(
    { qualityKept: kept },
    { quality, qualityLost: kept?.scores ?? [], checkpoint: quality === 'kept' ? (kept?.checkpoint ?? null) : null },
    1,
  );
  return `${row.gpus} ${deviceName(report)}${shapeWords(row, WHY_ONE[row.limitedBy])}${time}${most}${usd}. ${loss}`;
}

/** What its columns mean. */
export const fleetLegend = (fleet: Fleet, report: PlanReport): string =>
  `> deploy, + ${upsideName(fleet, report).toLowerCase()}. GPUs: fewest over replicas × GPUs that share the model. ` +
  'users: of one replica, and the most that it serves, beside the prefill of a prompt. kernels: the server that runs ' +
  'the plan, else what its time rests on. keeps: worst published score.';

/**
 * Which of several GPUs serves the users best, and what the others would have to cost; null where it says nothing.
 * @param fleets best first
 */
export function fleetsWords(fleets: readonly AnsweredFleet[]): string | null {
  const all = fleets.map(({ fleet, reports, simulated }) => ({
    device: deviceName(reports[0]!),
    row: (simulated ?? fleet).deploy,
  }));
  const [first, ...rest] = all.flatMap(({ device, row }) => (row ? { device, row } : []));
  if (fleets.length < 2 || !first || new Set(all.map(({ device }) => device)).size < all.length) return null;
  const priced = [first, ...rest].every(({ row }) => row.usdPerHour !== null);
  const gpus = ({ device, row }: typeof first): string =>
    `${row.gpus} ${device}${priced ? ` ($${brief(row.usdPerHour!)} an hour)` : ''}`;
  const others = rest.map((other) =>
    priced ? gpus(other) : `${gpus(other)}, below ${Math.floor((100 * first.row.gpus) / other.row.gpus)} %`,
  );
  const none = all.flatMap(({ device, row }) => (row ? [] : [`${device}: nothing with confidence`]));
  const than = priced ? 'then' : `cheaper only where a GPU costs less than a share of one ${first.device}:`;
  const next = others.length === 0 ? [] : [`${than} ${others.join('; ')}`];
  return [gpus(first), ...next, ...none].join('; ');
}

/** The answer, then one line a codec. */
export function fleetText(
  fleet: Fleet,
  report: PlanReport,
  { width, colour, best }: { width: number; colour: boolean; best: boolean },
  simulated: SimulatedFleet | null = null,
): string {
  const c = pc.createColors(colour);
  const table = [
    '',
    ...(simulated ? [`Without the workload, ${formatTokens(report.contextTokens)} tokens each:`] : []),
    ...fleetTable(fleet, width),
    '',
    ...wrap(fleetLegend(fleet, report), width).map(c.dim),
  ];
  return `${[
    ...wrap(fleetQuestion(fleet, report, simulated), width, '  ').map(c.bold),
    ...fleetLines(fleet, report, simulated).flatMap((line) => paragraph(line, width)),
    ...(best ? [] : table),
  ].join('\n')}\n`;
}
