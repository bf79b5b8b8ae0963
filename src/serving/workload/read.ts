/** Reads what requests come to a server: text and numbers from outside become a workload. */
import { show, UserError } from '../../errors.js';
import { parseNumber, parseSeconds, parseTokens } from '../../numbers/units.js';
import { present } from '../../present.js';
import {
  asked,
  choice,
  servingFlag,
  WORKLOAD_SETTINGS,
  type Workload,
  type WorkloadName,
} from '../../schema/serving.js';
import type { Source } from '../engine.js';
import { longestLength, meanLength, shortestLength, type Lengths } from './draws.js';
import { observedLengths, summarise, TraceSource } from './trace.js';
import { SyntheticSource, type Observed, type SyntheticWorkload } from './workload.js';

/** Longest request of a made-up workload that needs no more; models' own limits are often far beyond what chats use. */
const MADE_UP_LONGEST = 32_768;
/** Lengths that are drawn from a trace are those of so many requests at most. */
const MOST_OBSERVED = 2 ** 20;

/** Requests to serve. */
export interface WorkloadChoice {
  /** In words, such as `poisson, prompts lognormal:1024:1024`. */
  readonly label: string;
  /** How long requests are, without when they come. */
  readonly lengthsLabel: string;
  readonly kind: 'made up' | 'trace';
  /** Requests that the client keeps open at most; null without a limit. */
  readonly mostOpen: number | null;
  /** Requests a second; null for users who wait for their answers, and where all come at once. */
  readonly requestsPerSecond: number | null;
  /** All requests are there at the beginning, or are sent as others end (`--rate inf`). */
  readonly atOnce: boolean;
  /** Those users; null where requests come by themselves. */
  readonly users: number | null;
  readonly requests: number;
  readonly meanOutputTokens: number;
  readonly meanPromptTokens: number;
  /** Of a conversation; 1 where requests have nothing to do with each other. */
  readonly turns: number;
  /** Mean time between an answer and the same user's next request. */
  readonly thinkSeconds: number;
  /** Longest prompt with its answer that a server is set to, unless it says otherwise. */
  readonly longest: number;
  /** Tokens of a hash id of a trace; null where requests have none. */
  readonly hashTokens: number | null;
  readonly sharedPrefixTokens: number;
  readonly skippedLines: number;
  readonly seed: number | null;
  /**
   * Requests at another rate, in the same order with the same lengths.
   * @param least of made-up requests there are so many, and they come for so long; a trace begins anew
   */
  source(requestsPerSecond: number | null, least?: Least): Requested;
  /**
   * The same lengths from so many users, each with one request at a time; null for a trace.
   * @param rampSeconds within which they begin
   * @param least requests
   */
  closed: ((users: number, rampSeconds: number, least: number) => Requested) | null;
  /** The same users beginning within this time; null where the workload says when they begin, or has none. */
  ramped: ((rampSeconds: number) => Requested) | null;
}

export interface Least {
  readonly requests: number;
  readonly seconds: number;
}

/** Requests to come, and how many. */
export interface Requested {
  readonly source: Source;
  readonly requests: number;
}

/** The number of a setting that is asked for, or the other. */
type NumberOf = (name: WorkloadName, rule: Parameters<typeof parseNumber>[2], otherwise: number) => number;

const AT_ONCE = 'all at once';

/** `inf`, as in vllm bench serve. */
const isAtOnce = ({ rate }: Workload): boolean => rate === WORKLOAD_SETTINGS.rate.unlimited;

/** Requests a second, Infinity for all at once; null where nothing is asked. */
const readRate = (w: Workload, number: NumberOf): number | null =>
  isAtOnce(w)
    ? Infinity
    : asked(w.rate)
      ? number('rate', { min: 1e-6, max: 1e6, or: WORKLOAD_SETTINGS.rate.unlimited }, 1)
      : null;

/** Of each user of a closed loop at least, so that most of them come when all are there; else a whole conversation. */
const REQUESTS_A_USER = 10;

/**
 * @param maxModelLen as the server sets it; null where it does not
 * @param positions longest context that the model takes
 * @throws UserError naming the setting, its rule and the value; for a trace its line
 */
export function readWorkload(
  w: Workload,
  maxModelLen: number | null,
  positions: number,
  skipBad: boolean,
): WorkloadChoice {
  const flag = (name: WorkloadName): string => `--${servingFlag(name)}`;
  const number: NumberOf = (name, rule, otherwise) =>
    asked(w[name]) ? parseNumber(w[name], flag(name), rule) : otherwise;
  if (asked(w.trace)) {
    const misplaced = MADE_UP.find((name) => asked(w[name]));
    if (misplaced !== undefined)
      throw new UserError(
        `${flag(misplaced)} says nothing of a trace`,
        misplaced === 'requests' ? `${flag('limit')} reads its first lines` : `leave ${flag(misplaced)} or --trace out`,
      );
    return readTrace(w, number, positions, skipBad);
  }
  for (const name of ['speedUp', 'limit'] as const)
    if (asked(w[name]))
      throw new UserError(`${flag(name)} is for traces`, `name one with --trace, or leave ${flag(name)} out`);
  const arrivals = choice('arrivals', w.arrivals, WORKLOAD_SETTINGS.arrivals.choices);
  const isClosed = arrivals === 'closed';
  const atOnce = !isClosed && isAtOnce(w);
  const observed = asked(w.lengthsOf) ? readObserved(w) : null;
  const { promptTokens = 'lognormal:1024:1024', outputTokens = 'lognormal:256:256' } = w;
  const prompt = readLengths(promptTokens, '--prompt-tokens');
  const output = readLengths(outputTokens, '--output-tokens');
  const mean = (of: Int32Array): number => of.reduce((sum, n) => sum + n, 0) / of.length;
  const secondsOf = (value: string | number, subject: string): number =>
    /^0+(\.0*)?\s*(ms|s|m|h)?$/.test(String(value)) ? 0 : parseSeconds(String(value), subject, true);
  const thinkSeconds = asked(w.think) ? secondsOf(w.think, '--think') : 0;
  const settings: SyntheticWorkload = {
    arrivals,
    requestsPerSecond: readRate(w, number) ?? 1,
    burstiness: number('burstiness', { min: 0.01, max: 1000 }, 0.5),
    users: number('users', { min: 1, max: 1e6, whole: true }, 32),
    thinkSeconds,
    rampSeconds: asked(w.ramp) ? secondsOf(w.ramp, '--ramp') : thinkSeconds,
    prompt,
    output,
    observed,
    mostOpen: number('maxConcurrency', { min: 1, max: 1e6, whole: true }, Infinity),
    requests: number('requests', { min: 1, max: 1e8, whole: true }, 1000),
    turns: number('turns', { min: 1, max: 1000, whole: true }, 1),
    sharedPrefixTokens: asked(w.sharedPrefix) ? parseTokens(String(w.sharedPrefix), '--shared-prefix') : 0,
    seed: number('seed', { min: 0, max: 2 ** 32 - 1, whole: true }, 1),
  };
  const most = maxModelLen ?? Math.min(positions, Math.max(MADE_UP_LONGEST, longestOf(settings)));
  if (!observed) refuseAllTooLong(settings, most, maxModelLen !== null);
  for (const name of ['rate', 'maxConcurrency'] as const)
    if (isClosed && asked(w[name]))
      throw new UserError(`${flag(name)} says nothing of users who wait for their answers`, 'name --users instead');
  const scaled = present([
    asked(w.promptTokens) && `prompts of ${promptTokens}`,
    asked(w.outputTokens) && `outputs of ${outputTokens}`,
  ]);
  const lengths = observed
    ? `lengths of ${String(w.lengthsOf)}${scaled.length === 0 ? '' : `, scaled to ${scaled.join(' and ')} tokens`}`
    : `prompts ${promptTokens}, outputs ${outputTokens} tokens`;
  const turns = settings.turns > 1 ? `, ${settings.turns} turns` : '';
  const prefix = settings.sharedPrefixTokens > 0 ? `, ${settings.sharedPrefixTokens} shared tokens` : '';
  const bounded = asked(w.maxConcurrency) ? `, at most ${settings.mostOpen} sent at once` : '';
  const came = settings.mostOpen === Infinity ? AT_ONCE : 'sent as others end';
  const lengthsLabel = `${lengths}${turns}${prefix}`;
  /** Requests of the workload with these settings otherwise. */
  const requested = (otherwise: Partial<SyntheticWorkload>): Requested => {
    const all = { ...settings, ...otherwise };
    return { source: new SyntheticSource(all), requests: all.requests };
  };
  return {
    label: `${isClosed ? `${settings.users} users` : atOnce ? came : arrivals}${bounded}, ${lengthsLabel}`,
    lengthsLabel,
    kind: 'made up',
    requestsPerSecond: isClosed || atOnce ? null : settings.requestsPerSecond,
    atOnce,
    users: isClosed ? settings.users : null,
    mostOpen: settings.mostOpen === Infinity ? null : settings.mostOpen,
    requests: settings.requests,
    meanOutputTokens: observed ? mean(observed.outputs) : meanLength(output),
    turns: settings.turns,
    thinkSeconds,
    meanPromptTokens: (observed ? mean(observed.prompts) : meanLength(prompt)) + settings.sharedPrefixTokens,
    longest: most,
    hashTokens: null,
    sharedPrefixTokens: settings.sharedPrefixTokens,
    skippedLines: 0,
    seed: settings.seed,
    source: (rate, least = { requests: 0, seconds: 0 }) => {
      const requestsPerSecond = rate ?? settings.requestsPerSecond;
      const within = least.seconds === 0 ? 0 : Math.ceil(requestsPerSecond * least.seconds);
      const requests = Math.max(settings.requests, least.requests, within);
      return requested({ requestsPerSecond, requests });
    },
    ramped: isClosed && thinkSeconds === 0 && !asked(w.ramp) ? (rampSeconds) => requested({ rampSeconds }) : null,
    closed: (users, rampSeconds, least) => {
      const requests = Math.max(settings.requests, least, REQUESTS_A_USER * users, settings.turns * users);
      return requested({ arrivals: 'closed', users, rampSeconds, requests });
    },
  };
}

/**
 * Reads `512`, `uniform:100-900` or `lognormal:1024:512`.
 * @throws UserError for anything else
 */
function readLengths(text: string | number, subject: string): Lengths {
  const word = String(text).trim();
  const [kind, ...rest] = word.split(':');
  if (kind === 'uniform' && rest.length === 1) {
    const [least, most, ...more] = rest[0]!.split('-').map((part) => parseTokens(part, subject));
    if (least !== undefined && most !== undefined && more.length === 0 && least <= most)
      return { kind: 'uniform', least, most };
  } else if (kind === 'lognormal' && rest.length === 2) {
    const mean = parseTokens(rest[0]!, subject);
    if (/^0+(\.0*)?$/.test(rest[1]!)) return { kind: 'fixed', tokens: mean };
    return { kind: 'lognormal', mean, deviation: parseTokens(rest[1]!, subject) };
  } else if (rest.length === 0 && /^[0-9]/.test(word)) return { kind: 'fixed', tokens: parseTokens(word, subject) };
  throw new UserError(
    `${subject} must be tokens, uniform:LEAST-MOST or lognormal:MEAN:DEVIATION, not ${show(text)}`,
    `write for example ${subject} lognormal:1024:512`,
  );
}

/**
 * Lengths of the trace of `--lengths-of`; with a number for prompts or outputs, scaled so that this is their mean.
 * @throws UserError where either is no number
 */
function readObserved(w: Workload): Observed {
  const { prompts, outputs } = observedLengths(String(w.lengthsOf), MOST_OBSERVED);
  const scaled = (of: Int32Array, wanted: string | number | undefined, subject: string): Int32Array => {
    if (wanted === undefined) return of;
    const lengths = readLengths(wanted, subject);
    if (lengths.kind !== 'fixed')
      throw new UserError(
        `${subject} must be a number beside --lengths-of, the mean of what is drawn, not ${show(wanted)}`,
        `write for example ${subject} 512`,
      );
    const by = (lengths.tokens * of.length) / of.reduce((sum, n) => sum + n, 0);
    return of.map((n) => Math.max(1, Math.round(n * by)));
  };
  return {
    prompts: scaled(prompts, w.promptTokens, '--prompt-tokens'),
    outputs: scaled(outputs, w.outputTokens, '--output-tokens'),
  };
}

/** Tokens of the longest request of a workload, answer included. */
function longestOf({ prompt, output, observed, turns, sharedPrefixTokens }: SyntheticWorkload): number {
  const exchange = observed
    ? observed.prompts.reduce((most, n, i) => Math.max(most, n + observed.outputs[i]!), 0)
    : longestLength(prompt) + longestLength(output);
  return sharedPrefixTokens + turns * exchange;
}

/** @throws UserError where a server would refuse every request, because also the shortest is too long */
function refuseAllTooLong(
  { prompt, output, sharedPrefixTokens }: SyntheticWorkload,
  most: number,
  asked: boolean,
): void {
  const prompts = shortestLength(prompt) + sharedPrefixTokens;
  const outputs = shortestLength(output);
  if (prompts + outputs <= most) return;
  const least = prompt.kind === 'fixed' ? '' : 'at least ';
  throw new UserError(
    `prompts of ${least}${prompts} tokens${prompts <= most ? ` with outputs of ${outputs}` : ''} exceed ` +
      (asked ? `--max-model-len ${most}` : `the ${most} tokens that the model has positions for`),
    asked ? 'raise --max-model-len' : 'shorten them, or name a longer --max-model-len',
  );
}

/** Settings that only made-up requests have. */
const MADE_UP = (Object.keys(WORKLOAD_SETTINGS) as WorkloadName[]).filter(
  (name) => !['trace', 'speedUp', 'limit', 'rate', 'depth', 'draftAcceptance'].includes(name),
);

function readTrace(w: Workload, number: NumberOf, positions: number, skipBad: boolean): WorkloadChoice {
  const path = String(w.trace);
  const limit = number('limit', { min: 1, max: 1e9, whole: true }, Infinity);
  const speedUp = number('speedUp', { min: 1e-6, max: 1e6 }, 1);
  if (asked(w.rate) && asked(w.speedUp))
    throw new UserError('--rate and --speed-up both scale the arrival times', 'give one of them');
  const options = { path, limit, skipBad };
  const summary = summarise(options);
  const { requests, seconds } = summary;
  const own = seconds > 0 ? requests / seconds : requests;
  const rate = readRate(w, number) ?? own * speedUp;
  const atOnce = rate === Infinity;
  const lengthsLabel = `${summary.format} trace ${path}`;
  return {
    label: `${lengthsLabel}${atOnce ? `, ${AT_ONCE}` : ''}`,
    lengthsLabel,
    kind: 'trace',
    mostOpen: null,
    requestsPerSecond: atOnce ? null : rate,
    atOnce,
    users: null,
    requests,
    meanOutputTokens: summary.outputTokens / requests,
    meanPromptTokens: summary.promptTokens / requests,
    turns: 1,
    thinkSeconds: 0,
    longest: Math.min(summary.longest, positions),
    hashTokens: summary.hashTokens,
    sharedPrefixTokens: 0,
    skippedLines: summary.skipped,
    seed: null,
    source: (wanted, least = { requests: 0, seconds: 0 }) => {
      const requestsPerSecond = wanted ?? rate;
      // A trace that ends before a queue can grow says nothing of a rate: it begins anew.
      const within = least.seconds === 0 ? 0 : requestsPerSecond * least.seconds;
      const times = Math.max(1, Math.ceil(within / requests));
      const roundSeconds = requests / own;
      return {
        source: new TraceSource(options, requestsPerSecond / own, times, roundSeconds),
        requests: times * requests,
      };
    },
    closed: null,
    ramped: null,
  };
}
