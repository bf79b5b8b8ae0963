/**
 * Generating for `lla-sim run`: a decoder is opened, prefills the prompt and decodes, until it is done or interrupted.
 */
import type { SafetensorsFile } from '../../decoder/index.js';
import { openDecoder, type GpuDecoder, type PrefillResult, type StepResult } from '../../decoder/gpu/decoder.js';
import { UserError } from '../../errors.js';
import type { Device } from '../../gpu/index.js';
import { clockNow } from '../../io/clock.js';
import type { Configuration } from '../../schedule/schedule.js';
import { limitAddressSpace } from '../../validate/memory/process-memory.js';
import { ProgressLine } from '../output.js';
import type { Loaded, RunQuestion } from './run-question.js';
import { describe, interruptedAfter, onDevice, type RunReport } from './run-report.js';
import { Rounds } from './run-speculate.js';

/**
 * Opens a decoder, prefills the prompt and generates. Nothing is returned unless all of it was done.
 * @throws UserError with exit code 130 when `signal` is aborted before
 */
export async function generate(
  device: Device,
  loaded: Loaded,
  q: RunQuestion,
  codec: SafetensorsFile | undefined,
  quiet: boolean,
  signal: AbortSignal,
): Promise<RunReport> {
  const { checkpoint } = loaded;
  const c: Configuration = { ...q.configuration, bindingBytes: device.limits.maxStorageBufferBindingSize };
  const weights = {
    storage: q.storage,
    seed: q.seed,
    ...(checkpoint ? { model: checkpoint.tensors } : {}),
    ...(codec ? { codec } : {}),
  };
  const options = {
    weights,
    batch: q.batch,
    contextTokens: q.contextTokens,
    pageTokens: q.pageTokens,
    sampling: q.sampling,
    prefillChunkTokens: q.chunkTokens,
    ...(checkpoint ? { normEpsilon: checkpoint.normEpsilon } : {}),
    ...(q.draft ? { speculation: q.draft } : {}),
  };
  if (q.vramBytes !== null) await limitMemory(device, c, q.vramBytes, options, q.prompt);
  let decoder: GpuDecoder | undefined;
  // Closing frees the buffers. Calls in flight then fail; the signal says that this was an interruption.
  const stop = (): void => decoder?.close();
  signal.addEventListener('abort', stop);
  const tokens: number[][] = Array.from({ length: q.batch }, () => []);
  const seconds: number[] = [];
  const interruption = (): UserError => interruptedAfter(tokens[0]?.length ?? 0, q);
  const line = new ProgressLine(quiet);
  try {
    if (signal.aborted) throw interruption();
    decoder = await openDecoder(device, c, options);
    if (signal.aborted) throw interruption();
    const prompts = Array.from({ length: q.batch }, () => q.prompt);
    const began = clockNow();
    const prompted = await begin(decoder, q, prompts);
    const prefillSeconds = clockNow() - began;
    const rounds = new Rounds();
    let last = [...prompted.tokens];
    const generating = clockNow();
    const take = (made: readonly (readonly number[])[]): boolean => {
      made.forEach((own, i) => (tokens[i] as number[]).push(...own));
      last = made.map((own) => own.at(-1) as number);
      const shown = (done: readonly number[]): number =>
        q.stop !== null && done.includes(q.stop) ? done.indexOf(q.stop) + 1 : q.maxTokens;
      const goesOn = tokens.some((own) => own.length < shown(own));
      if (!goesOn) tokens.forEach((own) => own.splice(shown(own)));
      return goesOn;
    };
    let made: readonly (readonly number[])[] = last.map((token) => [token]);
    while (take(made)) {
      if (q.draft) made = await rounds.next(decoder, last);
      else {
        const result = await decoder.step(last);
        seconds.push(result.seconds);
        made = Array.from(result.tokens, (token) => [token]);
      }
      const [done, elapsed] = [(tokens[0] as number[]).length + 1, clockNow() - generating];
      line.time(elapsed, (elapsed / done) * (q.maxTokens - done), `${done} of ${q.maxTokens} tokens`);
    }
    if (signal.aborted) throw interruption();
    const spent = clockNow() - generating;
    const plain = q.draft && (await oneByOne(decoder, q, prompts));
    return describe(
      onDevice(device, decoder),
      c,
      q,
      { ...loaded, codec },
      {
        tokens,
        seconds: q.draft ? rounds.seconds : seconds,
        spent,
        prefillSeconds,
        prefillMethod: prompted.method,
        speculation: q.draft && plain && rounds.report(q.draft, c.geometry.loops, tokens, plain),
      },
    );
  } catch (error) {
    throw signal.aborted && !(error instanceof UserError) ? interruption() : error;
  } finally {
    if (seconds.length > 0) line.clear();
    signal.removeEventListener('abort', stop);
    decoder?.close();
  }
}

/** Takes the prompts in, behind a fabricated cache where one is asked for. */
async function begin(
  decoder: GpuDecoder,
  q: RunQuestion,
  prompts: readonly (readonly number[])[],
): Promise<PrefillResult> {
  if (q.fill > 0) await decoder.fillCache(q.fill);
  return decoder.prefill(prompts, q.prefill);
}

/** As many tokens of the same prompts without speculation, and what each step took. */
async function oneByOne(
  decoder: GpuDecoder,
  q: RunQuestion,
  prompts: readonly (readonly number[])[],
): Promise<{ tokens: number[][]; seconds: number[] }> {
  decoder.reset();
  let result: StepResult = await begin(decoder, q, prompts);
  const tokens = Array.from(result.tokens, (token) => [token]);
  const seconds: number[] = [];
  while (seconds.length < q.maxTokens - 1) {
    result = await decoder.step(result.tokens);
    result.tokens.forEach((token, i) => tokens[i]?.push(token));
    seconds.push(result.seconds);
  }
  return { tokens, seconds };
}

/**
 * First runs with half of the sequences, so that driver and program reach their lasting size and the limit applies to
 * buffers alone.
 */
async function limitMemory(
  device: Device,
  c: Configuration,
  bytes: number,
  options: Parameters<typeof openDecoder>[2],
  prompt: readonly number[],
): Promise<void> {
  if (!device.description.software)
    throw new UserError('--vram limits memory on software adapters only, not on a GPU', 'leave --vram out');
  const batch = Math.ceil(options.batch / 2);
  const warm = await openDecoder(device, c, { ...options, batch });
  try {
    await warm.fillCache(options.contextTokens - 1);
    await warm.prefill(Array.from({ length: batch }, () => prompt));
  } finally {
    warm.close();
  }
  await device.submitEmpty();
  limitAddressSpace(bytes);
}
