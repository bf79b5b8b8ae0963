/** Prefill: whole prompts, measured beside their prediction. */
import { OUT_OF_TIME, type Budget } from '../io/budget.js';
import { pricePrompt, type Pricer } from '../cost/latency.js';
import { openDecoder } from '../decoder/gpu/decoder.js';
import { GpuError, type Device } from '../gpu/index.js';
import { forEachPrefillCall, type PromptPlan } from '../schedule/prefill-calls.js';
import type { Configuration } from '../schedule/schedule.js';
import { driftOf, exponentOf, typical, type DriftWatch, type Timed, type Weighed } from './controls.js';
import { OPENED, pricerFor, type MeasuredRow, type StepRules } from './latency.js';
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
  readonly notRun: readonly { readonly id: string; readonly reason: string }[];
  readonly summary: ErrorSummary | null;
}

const MOST_ROUNDS = 5;
/** Time of control points after each prompt, as a share of the prompt's. */
const CONTROLS_SHARE = 0.5;
/** Control points take this share of the time for prompts. */
const CONTROLS_OPEN_SHARE = 0.3;
/** Kind of a piece of the budget: the first run, and one that counts. */
const PROMPT = 'prompt run twice';

/**
 * Measures and predicts every prompt that time allows.
 * @throws GpuError for any failure but a prompt that the decoder refuses
 */
export async function checkPrompts(
  device: Device,
  cases: readonly PromptCase[],
  rules: Pick<StepRules, 'seed' | 'calibrated' | 'watch' | 'budget' | 'mostRounds' | 'stopped' | 'onStep'>,
): Promise<PromptsReport> {
  const { pricer, driftExponent } = rules.calibrated;
  const notRun: { id: string; reason: string }[] = [];
  const { budget } = rules;
  const measured: { of: PromptCase; rounds: Timed[] }[] = [];
  await rules.watch.renew(budget.part(CONTROLS_OPEN_SHARE * budget.left));
  for (const [i, of] of cases.entries()) {
    if (rules.stopped?.()) break;
    rules.onStep?.(i, cases.length, of.id);
    if (!budget.fits(OPENED, PROMPT)) {
      notRun.push({ id: nameOf(of), reason: OUT_OF_TIME });
      continue;
    }
    try {
      const { seed, mostRounds = MOST_ROUNDS } = rules;
      const part = budget.part(budget.left / (cases.length - i));
      measured.push({ of, rounds: await measure(device, of, rules.watch, { seed, budget: part, mostRounds }) });
    } catch (error) {
      if (!(error instanceof GpuError && error.fault === 'unsupported')) throw error;
      notRun.push({ id: nameOf(of), reason: error.message });
    }
  }
  const drift = rules.watch.look();
  const rows = measured.map(({ of, rounds }): PromptRow => {
    const price = pricePrompt(of.c, pricerFor(device, pricer), of.prompt);
    const calls = callsOfPrompt(of, pricer);
    const kernelDrift = driftOf(calls, drift);
    return {
      id: of.id,
      ...of.prompt,
      kernelDrift,
      rawSeconds: rounds.map((t) => t.seconds),
      drift: rounds.map((t) => t.drift),
      measuredSeconds: typical(rounds, exponentOf(calls, driftExponent)) / kernelDrift,
      predicted: { estimate: price.estimate, low: price.low, high: price.high },
      evidence: price.evidence,
      rooflineShare: price.evidenceShare.roofline,
      octavesOutside: price.octavesOutside,
    };
  });
  return { rows, notRun, summary: summarise(rows) };
}

/** All calls of a prompt. */
export function callsOfPrompt({ c, prompt }: PromptCase, pricer: Pricer): Weighed[] {
  const calls: Weighed[] = [];
  forEachPrefillCall(c, prompt, (call, times) => calls.push({ call, seconds: times * pricer.price(call).estimate }));
  return calls;
}

const nameOf = ({ id, prompt }: PromptCase): string =>
  `${id}, ${prompt.method} prefill of ${prompt.promptTokens} tokens`;

/** Times of a prompt after a first run, which compiles; as many as there is time for, at least one. */
async function measure(
  device: Device,
  { c, prompt }: PromptCase,
  watch: DriftWatch,
  rules: { seed: number; budget: Budget; mostRounds: number },
): Promise<Timed[]> {
  const { method, promptTokens, chunkTokens } = prompt;
  const tokens = [Array.from({ length: promptTokens }, (_, i) => i % c.geometry.vocab)];
  const rounds: Timed[] = [];
  const { budget } = rules;
  const decoder = await openDecoder(device, c, {
    weights: { storage: 'f16', seed: rules.seed },
    batch: 1,
    contextTokens: promptTokens,
    prefillChunkTokens: chunkTokens,
  });
  const began = budget.now();
  try {
    await decoder.prefill(tokens, method);
    do {
      decoder.reset();
      const round = await watch.beside(async () => (await decoder.prefill(tokens, method)).seconds);
      if (rounds.length === 0) budget.note(PROMPT, budget.now() - began);
      rounds.push(round);
      await watch.turn(CONTROLS_SHARE * round.seconds);
    } while (rounds.length < rules.mostRounds && budget.left > 0);
  } finally {
    decoder.close();
  }
  return rounds;
}
