/** Prefill: whole prompts that the decoder takes in, measured beside what is predicted for them. */
import { openProbe, type Probe } from '../bench/probe.js';
import { pricePrompt } from '../cost/latency.js';
import { openDecoder, type GpuDecoder } from '../decoder/gpu/decoder.js';
import { GpuError, type Device } from '../gpu/index.js';
import type { PromptPlan } from '../schedule/prefill-calls.js';
import type { Configuration } from '../schedule/schedule.js';
import { correctedSeconds, typicalSeconds } from '../schema/drift.js';
import { pricerFor, referenceSeconds, type MeasuredRow, type StepRules } from './latency.js';
import { summarise, type ErrorSummary } from './statistics.js';

/** A prompt to measure. */
export interface PromptCase {
  readonly id: string;
  readonly c: Configuration;
  readonly prompt: PromptPlan & { readonly chunkTokens: number };
}

/** Its prediction holds the choice of a token, too, which the decoder makes apart: a small part of a prompt. */
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
const now = (): number => Number(process.hrtime.bigint()) * 1e-9;

/**
 * Measures and predicts every prompt that time allows.
 * @throws GpuError for any failure but a prompt that the decoder does not take in
 */
export async function checkPrompts(device: Device, cases: readonly PromptCase[], rules: Pick<StepRules, 'seed' | 'calibrated' | 'seconds' | 'stopped' | 'onStep'>): Promise<PromptsReport> {
  const { calibration, pricer } = rules.calibrated;
  const probe = await openProbe(device, { clock: device.hasTimestamps ? 'gpu-timestamp' : 'wall', submitSeconds: calibration.overheads.submitSeconds });
  const rows: PromptRow[] = [];
  const notRun: { id: string; reason: string }[] = [];
  const started = now();
  const left = (): number => rules.seconds - (now() - started);
  try {
    const reference = await referenceSeconds(rules.calibrated, probe);
    for (const [i, of] of cases.entries()) {
      if (rules.stopped?.()) break;
      rules.onStep?.(i, cases.length, of.id);
      if (rows.length > 0 && left() <= 0) {
        notRun.push({ id: nameOf(of), reason: 'the time budget was spent' });
        continue;
      }
      try {
        const rounds = await measure(device, of, probe, { reference, seed: rules.seed, seconds: () => left() / (cases.length - i) });
        const price = pricePrompt(of.c, pricerFor(device, pricer), of.prompt);
        rows.push({
          id: of.id, ...of.prompt, ...rounds,
          measuredSeconds: typicalSeconds(correctedSeconds({ seconds: rounds.rawSeconds, drift: rounds.drift })),
          predicted: { estimate: price.estimate, low: price.low, high: price.high },
          evidence: price.evidence, rooflineShare: price.evidenceShare.roofline, octavesOutside: price.octavesOutside,
        });
      } catch (error) {
        if (!(error instanceof GpuError && error.fault === 'unsupported')) throw error;
        notRun.push({ id: nameOf(of), reason: error.message });
      }
    }
  } finally {
    probe.free();
  }
  return { rows, notRun, summary: summarise(rows) };
}

const nameOf = ({ id, prompt }: PromptCase): string => `${id}, ${prompt.method} prefill of ${prompt.promptTokens} tokens`;

/** Times of a prompt after a first run, which compiles; as many as take `seconds`, at least one. */
async function measure(device: Device, { c, prompt }: PromptCase, probe: Probe, rules: { reference: number; seed: number; seconds: () => number }): Promise<{ rawSeconds: number[]; drift: number[] }> {
  const { method, promptTokens, chunkTokens } = prompt;
  const tokens = [Array.from({ length: promptTokens }, (_, i) => i % c.geometry.vocab)];
  let decoder: GpuDecoder | undefined;
  const [rawSeconds, drift]: [number[], number[]] = [[], []];
  try {
    decoder = await openDecoder(device, c, { weights: { storage: 'f16', seed: rules.seed }, batch: 1, contextTokens: promptTokens, prefillChunkTokens: chunkTokens });
    await decoder.prefill(tokens, method);
    const until = now() + rules.seconds();
    do {
      decoder.reset();
      const before = await probe.run();
      rawSeconds.push((await decoder.prefill(tokens, method)).seconds);
      drift.push(Math.sqrt(before * (await probe.run())) / rules.reference);
    } while (rawSeconds.length < MOST_ROUNDS && now() < until);
  } finally {
    decoder?.close();
  }
  return { rawSeconds, drift };
}
