/** The server of a question: which one, its runtime, and what it keeps for itself. */
import type { Interval } from '../../cost/evidence.js';
import { show, UserError } from '../../errors.js';
import { flagOf, type Scenario } from '../../schema/settings.js';
import { runsOn } from '../../stacks/choose.js';
import { besideHost, Runtime, runtimeChoice, type RuntimeSource } from '../../stacks/runtime.js';
import { serverDefaults, serverMemory, type ServerMemory } from '../../stacks/server-memory.js';
import {
  isAsynchronous,
  isRuntime,
  isStack,
  listedAs,
  RUNTIMES,
  servedBy,
  stackLabel,
  stackName,
  usualStack,
  type Host as Server,
} from '../../stacks/serving.js';
import { halved } from '../../numbers/halving.js';
import { formatMilliseconds, parseNumber, parseSeconds, parseTokens } from '../../numbers/units.js';
import type { PlanRequest } from '../types.js';
import type { Sources, ModelSource } from './prepare.js';

/** @throws UserError for what the server does not do, and for settings of a runtime without one */
export function runtimeOf(scenario: Scenario, { gpu, model }: Sources, gpus: number): Runtime | null {
  const { execution, attention, server } = scenario;
  const source = gpu?.runtime;
  if (!source) {
    const idle = (['execution', 'attention', 'measuredStep'] as const).find((name) => scenario[name] !== undefined);
    if (idle !== undefined)
      throw new UserError(
        `--${flagOf(idle)} is for servers that are priced with their runtime`,
        `add --stack ${RUNTIMES[0]}`,
      );
    return null;
  }
  if (model.geometry.quantised)
    throw new UserError(
      `${source.name} is not known to load weights in ${model.geometry.quantised.name}`,
      'leave --weight-type out, or choose another --stack',
    );
  if (gpus > 1) throw new UserError(`${source.name} runs a model on one GPU, not on ${gpus}`, 'leave --gpus out');
  if (!source.terms.serves) checkBatch(scenario, source, model);
  const asynchronous = isAsynchronous(server?.asyncScheduling, null);
  return new Runtime(source, runtimeChoice(source, { execution, attention }, asynchronous), model.geometry);
}

/** @throws UserError for what only a server does, and for models whose launches nobody counted */
function checkBatch(
  { execution, workload, server, cacheType }: Scenario,
  { name }: RuntimeSource,
  model: ModelSource,
): void {
  const label = stackLabel(name);
  if (servedBy(listedAs(model), name) === null)
    throw new UserError(
      `launches of ${label} were not counted for ${listedAs(model) ?? model.geometry.name}`,
      'leave --stack out, or choose another',
    );
  const asked: readonly (readonly [flag: string, is: boolean])[] = [
    ['execution loop-graphs', execution !== undefined && execution !== 'eager'],
    ['depth', workload?.depth !== undefined],
    ['draft-tokens', server?.draftTokens !== undefined],
    ['async-scheduling on', server?.asyncScheduling === 'on'],
    ['prefill-replicas', server?.prefillReplicas !== undefined],
    ['prefix-caching on', server?.prefixCaching === 'on'],
    ['cache-type fp8', cacheType === 'fp8'],
  ];
  const found = asked.find(([, is]) => is);
  if (found)
    throw new UserError(`${label} generates one batch from end to end: it has no --${found[0]}`, 'leave it out');
}

/** @throws UserError unless it is a time and the tokens that were cached, such as `59ms@160` */
function readMeasuredStep(text: string) {
  const [, time, tokens] = /^([^@]+)@([^@]+)$/.exec(text) ?? [];
  if (time === undefined || tokens === undefined)
    throw new UserError(
      `--measured-step must be a time and the tokens that were cached, not ${show(text)}`,
      'write for example --measured-step 59ms@160',
    );
  const flag = '--measured-step';
  return { seconds: parseSeconds(time, flag), contextTokens: parseTokens(tokens, flag) };
}

/** Seconds a launch of hosts, from a fast one to a slow one: 5 to 28 µs were measured. */
const LAUNCH_SECONDS = [1e-6, 1e-4] as const;
/** A step that grows by less where its host takes a tenth longer tells nothing of the host. */
const LEAST_GROWTH = 1.05;

/**
 * The runtime beside the user's own host: the one beside which a step of one sequence takes what it took.
 * @param text `--measured-step`
 * @param secondsOf a step of one sequence of so many tokens under a runtime
 * @throws UserError where no host makes the step take so long
 */
export function besideMeasured(
  runtime: Runtime,
  text: string,
  secondsOf: (runtime: Runtime, contextTokens: number) => Interval,
): Runtime {
  const { seconds, contextTokens } = readMeasuredStep(text);
  const eager = (launch: number): Runtime =>
    runtime.with(besideHost(runtime.source, launch, text), { ...runtime.choice, execution: 'eager' });
  const stepOf = (launch: number): number => secondsOf(eager(launch), contextTokens).estimate;
  const [least, most] = LAUNCH_SECONDS;
  const [low, high] = halved([Math.log(least), Math.log(most)], 30, (log) => stepOf(Math.exp(log)) < seconds);
  const launch = Math.exp((low + high) / 2);
  const how = 'time a token of one sequence with few tokens cached, kernels launched one by one, all loops taken';
  if (seconds > stepOf(most))
    throw new UserError(
      `--measured-step ${text}: even a slow host takes ${formatMilliseconds(stepOf(most))} ms for such a step`,
      how,
    );
  const alone = secondsOf(eager(least), contextTokens);
  if (seconds < alone.high || stepOf(1.1 * launch) < LEAST_GROWTH * stepOf(launch))
    throw new UserError(
      `--measured-step ${text} tells nothing about the host: such a step takes ` +
        `${formatMilliseconds(alone.estimate)} ms by the GPU alone, and up to ${formatMilliseconds(alone.high)}`,
      how,
    );
  return runtime.with(besideHost(runtime.source, launch, text), runtime.choice);
}

export const runtimeNote = ({ name, host, hostFrom }: RuntimeSource): string => {
  const [estimate, low, high] = [host.estimate, host.low, host.high].map((s) => (s * 1e6).toFixed(1));
  return hostFrom === null
    ? `nobody measured ${name} beside this GPU: its host takes ${estimate} µs a launch (${low} to ${high}, as ` +
        'others do); a step takes as long as the slower of host and GPU. --measured-step tells the time of your host'
    : 'row' in hostFrom
      ? `${name} launches a kernel in ${estimate} µs, as a host beside this GPU did in the ledger (${hostFrom.row}); ` +
        'another host may take half of that or twice as long: --measured-step tells the time of yours'
      : `by --measured-step ${hostFrom.step} your host launches a kernel in ${estimate} µs`;
};

/**
 * What a server keeps for itself: the one whose tables price, else the one that would run on the GPU, so that GPUs are
 * compared under the same rules. None where `--stack` or a calibration asks for kernels without a server.
 */
export function serverOf(sources: Sources, gpus: number, scenario: Scenario): ServerMemory | null {
  const { device, model } = sources;
  const { server } = scenario;
  const hosted = {
    geometry: model.geometry,
    gpus,
    vramBytes: device.vramBytes,
    device: device.id ?? '',
    sequences: wholeNumber(server?.maxNumSeqs),
    batchedTokens: wholeNumber(server?.maxNumBatchedTokens),
  };
  const host = hostOf(sources, scenario);
  return host && serverMemory(host, hosted);
}

/** Tokens of a prompt that the server takes in at once: its limit of an iteration, or all where each reads all. */
export function promptChunkTokens(
  { server }: Scenario,
  host: Host | null,
  { vramBytes, id }: PlanRequest['device'],
  { geometry: { promptsBothWays }, contextTokens }: Pick<PlanRequest, 'geometry' | 'contextTokens'>,
): number {
  const { sequences, batchedTokens } = serverDefaults(host, vramBytes, id ?? '');
  const atOnce = askedBatchedTokens(server) ?? Math.max(batchedTokens, wholeNumber(server?.maxNumSeqs) ?? sequences);
  return promptsBothWays || server?.chunkedPrefill === 'off' ? Math.max(atOnce, contextTokens) : atOnce;
}

/** Tokens of an iteration, where the scenario says them. @throws UserError for what is no such number */
export const askedBatchedTokens = (server: Scenario['server']): number | undefined =>
  server?.maxNumBatchedTokens === undefined
    ? undefined
    : parseNumber(server.maxNumBatchedTokens, '--max-num-batched-tokens', { min: 1, max: 2 ** 20, whole: true });

const wholeNumber = (value: string | number | undefined): number | undefined =>
  value === undefined || !Number.isInteger(Number(value)) ? undefined : Number(value);

/** A server as it is named. */
export interface Host extends Server {
  readonly name: string;
}

/** @throws UserError for what is no version */
function readVersion(text: string): string {
  if (/^\d[\w.+-]*$/.test(text)) return text;
  throw new UserError(`--server-version must be one such as 0.19.1, not ${show(text)}`, 'correct it, or leave it out');
}

/**
 * The server whose rules hold: whose memory a plan reserves, and whose scheduler a simulation has. Without tables it is
 * the stack that is asked for, else the one that usually serves the model.
 */
export function hostOf({ gpu, spec, model }: Sources, { stack: asked, server }: Scenario): Host | null {
  const version = server?.serverVersion === undefined ? null : readVersion(String(server.serverVersion));
  const file = gpu?.stack?.file;
  if (gpu?.runtime) return { stack: gpu.runtime.name, version: null, name: stackLabel(gpu.runtime.name) };
  if (file) {
    const own = version ?? file.version;
    return { stack: file.stack, version: own, name: stackName({ ...file, version: own }) };
  }
  const stack = asked ?? usualStack(listedAs(model));
  if (!gpu || !spec || !isStack(stack) || !runsOn(stack, spec)) return null;
  // Later versions refuse some models.
  const newest = servedBy(listedAs(model), stack)?.until ?? null;
  return { stack, version: version ?? newest, name: `${stackLabel(stack)}${version === null ? '' : ` ${version}`}` };
}

/**
 * The stack that would serve: the one that prices, and on an NVIDIA GPU without tables the host (`hostOf`), at an
 * estimated time. None on another maker's GPU without tables or a calibration: no kernel and no
 * runtime was ever measured there.
 */
export const servingStack = (sources: Sources, scenario: Scenario): string | null => {
  const stack = sources.stack ?? undefined;
  if (stack !== 'attainable' && !isRuntime(stack)) return sources.stack;
  if (sources.spec?.vendor !== 'nvidia') return null;
  return stack === 'attainable' ? (hostOf(sources, scenario)?.stack ?? null) : stack;
};
