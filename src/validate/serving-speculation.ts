/**
 * A run that speculates beside its price: sequences begin together, and rounds go on until each has its tokens. How many
 * proposals a round accepts is drawn, as the simulation draws it: the weights are made up, and propose nothing that they
 * would accept. So the run and its prediction have the same rounds, and their difference is that of prices.
 */
import { OUT_OF_TIME, type Budget } from '../io/budget.js';
import type { Draft } from '../codecs/verification.js';
import { priceCalls, type Pricer } from '../cost/latency.js';
import { openDecoder, type GpuDecoder } from '../decoder/gpu/index.js';
import type { Device } from '../gpu/index.js';
import { expand } from '../schedule/expand.js';
import { schedule, type Configuration } from '../schedule/schedule.js';
import { driftExponentOf, slowdownOf } from '../schema/drift.js';
import { acceptedOf, tokensPerRound } from '../serving/speculation.js';
import type { DriftWatch } from './controls.js';
import { requestsOf, type ServingCase } from './serving-requests.js';

/** What a run speculates with. The acceptance is that of Ouro-1.4B by two loops, rounded. */
const DRAFT: Draft = { draftLoops: 2, draftTokens: 4 };
const ACCEPTANCE = 0.9;

/** Parts of a run: proposals of a round, their verification, and a token of each sequence where none speculates. */
const PARTS = ['draft', 'verify', 'step'] as const;
export type SpeculatedPart = (typeof PARTS)[number];

/** One call of the decoder: a round's proposals, its verification, or a step. */
interface SpeculatedCall {
  readonly part: SpeculatedPart;
  /** Tokens in the cache of each sequence before it; of one that is done those that it had. */
  readonly lengths: readonly number[];
  /** By the device's clock, and the probe beside it over its reference. */
  readonly seconds: number;
  readonly drift: number;
}

/** Sums of times, with the drift taken off, and of prices: by the calibration, and as the rehearsal corrects it. */
export interface SpeculatedPrice {
  readonly count: number;
  readonly measured: number;
  readonly calibrated: number;
  readonly priced: number;
}

export interface SpeculatedRun extends Draft {
  readonly id: string;
  readonly acceptance: number;
  readonly sequences: number;
  /** Tokens that rounds made, of all sequences, and rounds of them. */
  readonly tokens: number;
  readonly rounds: number;
  readonly tokensPerRound: { readonly measured: number; readonly expected: number };
  readonly parts: Readonly<Record<SpeculatedPart, SpeculatedPrice>>;
  /** Of the whole run: proposals and verifications. */
  readonly total: SpeculatedPrice;
  /** A token of a sequence over one that comes by itself: how much faster, measured and predicted. */
  readonly speedUp: { readonly measured: number; readonly predicted: number };
  readonly calls: readonly SpeculatedCall[];
}

/** What a speculating run may be off by. */
export const SPECULATION_TOLERANCE = 0.08;

/** Of the budget of serving. */
const SHARE = 0.2;
/** Runs of all sequences, of which the first rehearse. */
const [LEAST_RUNS, MOST_RUNS] = [2, 12];

interface Rules {
  readonly seed: number;
  readonly watch: Pick<DriftWatch, 'run' | 'between'>;
  readonly stopped: () => boolean;
}

/** Estimates of a run's calls, each computed once. */
export function speculationPrices(
  c: Configuration,
  pricer: Pricer,
  sequences: number,
  { draftLoops, draftTokens }: Draft,
): (part: SpeculatedPart, lengths: readonly number[]) => number {
  const known = new Map<string, number>();
  const priceOf = (part: SpeculatedPart, context: number): number => {
    const rows = part === 'verify' ? sequences * (draftTokens + 1) : sequences;
    const listed = schedule(c, rows, context, { inTurn: part === 'verify' });
    return priceCalls(pricer, c.gpus, (add) => {
      for (const { op } of expand(c, listed, part === 'draft' ? draftLoops : undefined)) add(op, 1);
      return { collectives: listed.collectives, submissions: 1, sequences: rows };
    }).estimate;
  };
  const at = (part: SpeculatedPart, context: number): number => {
    const key = `${part} ${context}`;
    const seconds = known.get(key) ?? priceOf(part, context);
    known.set(key, seconds);
    return seconds;
  };
  /** Attention's time is linear in a sequence's length. */
  const mean = (lengths: readonly number[]): number =>
    Math.max(1, Math.round(lengths.reduce((sum, length) => sum + length, 0) / lengths.length));
  return (part, lengths) => {
    const context = mean(lengths);
    if (part === 'step') return at(part, context);
    if (part === 'verify') return at(part, context + Math.round(draftTokens / 2));
    return Array.from({ length: draftTokens }, (_, i) => at(part, context + i)).reduce((sum, s) => sum + s, 0);
  };
}

/** What the decoder is asked for. */
export type RoundEngine = Pick<GpuDecoder, 'lengths' | 'extend' | 'forget' | 'speculate' | 'step'>;

/** Rounds of all sequences until each has its tokens, then a few steps one by one. @param first number of the run */
async function runOnce(
  decoder: RoundEngine,
  of: ServingCase,
  draft: Draft,
  first: number,
  { seed, watch, stopped }: Rules,
): Promise<{ calls: SpeculatedCall[]; tokens: number; rounds: number }> {
  const requests = requestsOf(of, of.sequences, seed + first, null);
  const last: number[] = [];
  for (const [i, { prompt }] of requests.entries()) {
    decoder.forget(i);
    last[i] = (await decoder.extend(i, prompt, true)).token as number;
  }
  const speculation = { ...draft, acceptance: ACCEPTANCE, source: null, seed };
  const made = requests.map(() => 1);
  const goesOn = (i: number): boolean => (made[i] as number) < (requests[i]?.maxTokens as number);
  const calls: SpeculatedCall[] = [];
  let [tokens, rounds] = [0, 0];
  let before = await watch.run();
  const drifted = async (): Promise<number> => {
    const after = await watch.run();
    const drift = watch.between(before, after);
    before = after;
    return drift;
  };
  while (requests.some((_, i) => goesOn(i)) && !stopped()) {
    const lengths = [...decoder.lengths];
    const round = await decoder.speculate(last, goesOn, (i) =>
      acceptedOf(speculation, first * of.sequences + i, made[i] as number),
    );
    const drift = await drifted();
    calls.push({ part: 'draft', lengths, seconds: round.draftSeconds, drift });
    calls.push({ part: 'verify', lengths, seconds: round.verifySeconds, drift });
    round.tokens.forEach((own, i) => {
      if (own.length === 0) return;
      rounds++;
      tokens += own.length;
      made[i] = (made[i] as number) + own.length;
      last[i] = own.at(-1) as number;
    });
    const steps = [...decoder.lengths];
    // A step that nobody keeps: as many as rounds, at the same lengths and drift.
    const { seconds } = await decoder.step(last, () => false);
    calls.push({ part: 'step', lengths: steps, seconds, drift: await drifted() });
  }
  return { calls, tokens, rounds };
}

/** The run's figures. @param rehearsed calls of other runs, which correct the prices */
function speculatedRun(
  of: Pick<ServingCase, 'id' | 'sequences'>,
  draft: Draft,
  ran: { readonly calls: readonly SpeculatedCall[]; readonly tokens: number; readonly rounds: number },
  rehearsed: readonly SpeculatedCall[],
  price: (part: SpeculatedPart, lengths: readonly number[]) => number,
): SpeculatedRun {
  const partOf = (part: SpeculatedPart): SpeculatedPrice => {
    const [own, others] = [ran.calls, rehearsed].map((calls) => calls.filter((call) => call.part === part)) as [
      SpeculatedCall[],
      SpeculatedCall[],
    ];
    const exponent = driftExponentOf([
      {
        seconds: others.map((call) => call.seconds / price(part, call.lengths)),
        drift: others.map(({ drift }) => drift),
      },
    ]);
    const measured = (calls: readonly SpeculatedCall[]): number =>
      calls.reduce((sum, { seconds, drift }) => sum + seconds / slowdownOf(drift, exponent), 0);
    const priced = (calls: readonly SpeculatedCall[]): number =>
      calls.reduce((sum, { lengths }) => sum + price(part, lengths), 0);
    const factor = measured(others) / priced(others);
    const calibrated = priced(own);
    return { count: own.length, measured: measured(own), calibrated, priced: factor * calibrated };
  };
  const parts = { draft: partOf('draft'), verify: partOf('verify'), step: partOf('step') };
  const sum = (of: 'measured' | 'calibrated' | 'priced'): number => parts.draft[of] + parts.verify[of];
  const { tokens, rounds } = ran;
  const each = tokens / rounds;
  const { step } = parts;
  return {
    ...draft,
    id: of.id,
    acceptance: ACCEPTANCE,
    sequences: of.sequences,
    tokens,
    rounds,
    tokensPerRound: { measured: each, expected: tokensPerRound({ ...draft, acceptance: ACCEPTANCE }) },
    parts,
    total: {
      count: parts.verify.count,
      measured: sum('measured'),
      calibrated: sum('calibrated'),
      priced: sum('priced'),
    },
    speedUp: {
      measured: (each * step.measured) / sum('measured'),
      predicted: (each * step.priced) / sum('priced'),
    },
    calls: ran.calls,
  };
}

/** Runs of a decoder that is open, as many as there is time for: the first half rehearses. @returns null without time */
export async function speculateFor(
  decoder: RoundEngine,
  of: ServingCase,
  price: (part: SpeculatedPart, lengths: readonly number[]) => number,
  rules: Rules & { readonly budget: Budget },
): Promise<SpeculatedRun | null> {
  // A first run compiles shaders, also those of prompts.
  await runOnce(decoder, of, DRAFT, 0, rules);
  const runs: Awaited<ReturnType<typeof runOnce>>[] = [];
  while (!rules.stopped() && runs.length < MOST_RUNS && (runs.length < LEAST_RUNS || rules.budget.left > 0))
    runs.push(await runOnce(decoder, of, DRAFT, 1 + runs.length, rules));
  if (runs.length < LEAST_RUNS || rules.stopped()) return null;
  const half = runs.length >> 1;
  const [rehearsed, own] = [runs.slice(0, half), runs.slice(half)];
  const ran = {
    calls: own.flatMap(({ calls }) => calls),
    tokens: own.reduce((sum, { tokens }) => sum + tokens, 0),
    rounds: own.reduce((sum, { rounds }) => sum + rounds, 0),
  };
  return speculatedRun(
    of,
    DRAFT,
    ran,
    rehearsed.flatMap(({ calls }) => calls),
    price,
  );
}

/**
 * Speculates with a case's model, in a share of the time of serving.
 * @returns the run, or why there is none
 * @throws GpuError when the device fails
 */
export async function checkSpeculation(
  device: Device,
  of: ServingCase,
  pricer: Pricer,
  rules: Rules & { readonly budget: Budget },
): Promise<{ readonly run: SpeculatedRun | null; readonly notRun: string | null }> {
  const budget = rules.budget.part(SHARE * rules.budget.left);
  const contextTokens = Math.ceil((of.promptTokens[1] + of.outputTokens[1] + 2 * (DRAFT.draftTokens + 1)) / 32) * 32;
  const decoder = await openDecoder(device, of.c, {
    weights: { storage: 'f16', seed: rules.seed },
    batch: of.sequences,
    contextTokens,
    speculation: DRAFT,
  });
  try {
    const price = speculationPrices(of.c, pricer, of.sequences, DRAFT);
    const run = await speculateFor(decoder, of, price, { ...rules, budget });
    return { run, notRun: run ? null : OUT_OF_TIME };
  } finally {
    decoder.close();
  }
}
