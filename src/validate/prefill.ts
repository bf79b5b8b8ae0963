/** Prefill: whole prompts, measured beside their prediction. */
import { inTime } from '../bench/in-time.js';
import { interleave } from '../bench/rounds.js';
import { pricePrompt, type Pricer } from '../cost/latency.js';
import type { Device } from '../gpu/index.js';
import { forEachPrefillCall, type PromptPlan } from '../schedule/prefill/calls.js';
import type { Configuration } from '../schedule/schedule.js';
import type { Timed, Weighed } from './controls.js';
import { withDecoder, type NotRun } from './decoding.js';
import {
  besidePrice,
  CONTROLS_OPEN_SHARE,
  CONTROLS_SHARE,
  OPENED,
  pricerFor,
  weighed,
  type MeasuredRow,
  type StepRules,
} from './latency.js';
import { summarise, type ErrorSummary } from './statistics.js';

/** A prompt to measure. */
export interface PromptCase {
  readonly id: string;
  readonly c: Configuration;
  readonly prompt: PromptPlan & { readonly chunkTokens: number };
}

/** The prediction includes the choice of a token, which the decoder runs separately: a small part of a prompt. */
export interface PromptRow extends MeasuredRow {
  readonly method: PromptPlan['method'];
  readonly promptTokens: number;
  readonly chunkTokens: number;
}

export interface PromptsReport {
  readonly rows: readonly PromptRow[];
  readonly notRun: readonly NotRun[];
  readonly summary: ErrorSummary | null;
}

const MOST_ROUNDS = 5;
/** Kind of a piece of the budget: the first run, and one that counts. */
const PROMPT = 'prompt run twice';

/**
 * Measures and predicts every prompt that time allows.
 * @throws GpuError for any failure but a prompt that the decoder refuses
 */
export async function checkPrompts(
  device: Device,
  cases: readonly PromptCase[],
  rules: Omit<StepRules, 'openBytes'>,
): Promise<PromptsReport> {
  const { pricer, driftExponent } = rules.calibrated;
  const { budget, watch, onCase, stopped } = rules;
  await watch.renew(budget.part(CONTROLS_OPEN_SHARE * budget.left));
  const { results, notRun } = await inTime(
    cases,
    { budget, kinds: [OPENED, PROMPT], stopped, onCase: ({ id }, done, total) => onCase?.(done, total, id) },
    (of, done) => measure(device, of, { ...rules, budget: budget.part(budget.left / (cases.length - done)) }),
  );
  const drift = watch.look();
  const rows = results.map(({ one: of, result: rounds }): PromptRow => {
    const price = pricePrompt(of.c, pricerFor(device, pricer), of.prompt);
    const beside = besidePrice(rounds, callsOfPrompt(of, pricer), price, drift, driftExponent);
    return { id: of.id, ...of.prompt, ...beside };
  });
  const without = notRun.map(({ one, reason }) => ({ id: nameOf(one), reason }));
  return { rows, notRun: without, summary: summarise(rows) };
}

export const callsOfPrompt = ({ c, prompt }: PromptCase, pricer: Pricer): Weighed[] =>
  weighed(pricer, (visit) => forEachPrefillCall(c, prompt, visit));

const nameOf = ({ id, prompt }: PromptCase): string =>
  `${id}, ${prompt.method} prefill of ${prompt.promptTokens} tokens`;

/** Times of a prompt after a first run, which compiles; as many as there is time for, at least one. */
async function measure(
  device: Device,
  { c, prompt }: PromptCase,
  { budget, seed, watch, mostRounds = MOST_ROUNDS }: Pick<StepRules, 'budget' | 'seed' | 'watch' | 'mostRounds'>,
): Promise<Timed[]> {
  const { method, promptTokens, chunkTokens } = prompt;
  const tokens = [Array.from({ length: promptTokens }, (_, i) => i % c.geometry.vocab)];
  const rounds: Timed[] = [];
  const options = { batch: 1, contextTokens: promptTokens, prefillChunkTokens: chunkTokens };
  await withDecoder(device, c, seed, options, async (decoder) => {
    const began = budget.now();
    await decoder.prefill(tokens, method);
    const once = async (): Promise<number> => {
      decoder.reset();
      const round = await watch.beside(async () => (await decoder.prefill(tokens, method)).seconds);
      if (rounds.length === 0) budget.note(PROMPT, budget.now() - began);
      rounds.push(round);
      await watch.turn(CONTROLS_SHARE * round.seconds);
      return round.seconds;
    };
    await interleave([once], { seconds: budget.left, leastRounds: 1, mostRounds, seed, clockNow: budget.now });
  });
  return rounds;
}
