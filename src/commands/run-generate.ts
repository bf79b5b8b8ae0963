/**
 * Generating for `lla-sim run`: a decoder is opened, prefills the prompt and decodes, until it is done or interrupted.
 */
import type { SafetensorsFile } from '../decoder/index.js';
import { openDecoder, type GpuDecoder, type StepResult } from '../decoder/gpu/decoder.js';
import { EXIT, UserError } from '../errors.js';
import type { Device } from '../gpu/index.js';
import type { Configuration } from '../schedule/schedule.js';
import { limitAddressSpace } from '../validate/process-memory.js';
import { progressLine } from './progress.js';
import type { Loaded, RunQuestion } from './run-question.js';
import { describe, onDevice, type RunReport } from './run-report.js';

const now = (): number => Number(process.hrtime.bigint()) * 1e-9;

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
  };
  if (q.vramBytes !== null) await limitMemory(device, c, q.vramBytes, options, q.prompt);
  let decoder: GpuDecoder | undefined;
  // Closing frees the buffers. Calls in flight then fail; the signal says that this was an interruption.
  const stop = (): void => decoder?.close();
  signal.addEventListener('abort', stop);
  const tokens: number[][] = Array.from({ length: q.batch }, () => []);
  const seconds: number[] = [];
  const interruption = (): UserError =>
    new UserError(
      `interrupted after ${tokens[0]?.length ?? 0} of ${q.maxTokens} tokens; nothing of it is printed`,
      'run it again',
      EXIT.interrupted,
    );
  const progress = !quiet && process.stderr.isTTY === true;
  try {
    if (signal.aborted) throw interruption();
    decoder = await openDecoder(device, c, options);
    if (signal.aborted) throw interruption();
    if (q.fill > 0) await decoder.fillCache(q.fill);
    const began = now();
    const prompted = await decoder.prefill(
      Array.from({ length: q.batch }, () => q.prompt),
      q.prefill,
    );
    const prefillSeconds = now() - began;
    let result: StepResult = prompted;
    const generating = now();
    const take = (): boolean => {
      result.tokens.forEach((token, i) => (tokens[i] as number[]).push(token));
      return (tokens[0] as number[]).length < q.maxTokens && (q.stop === null || result.tokens[0] !== q.stop);
    };
    while (take()) {
      result = await decoder.step(result.tokens);
      seconds.push(result.seconds);
      const [done, elapsed] = [seconds.length + 1, now() - generating];
      if (progress)
        process.stderr.write(
          progressLine(elapsed, (elapsed / done) * (q.maxTokens - done), `${done} of ${q.maxTokens} tokens`),
        );
    }
    if (signal.aborted) throw interruption();
    const spent = now() - generating;
    return describe(
      onDevice(device, decoder),
      c,
      q,
      { ...loaded, codec },
      { tokens, seconds, spent, prefillSeconds, prefillMethod: prompted.method },
    );
  } catch (error) {
    throw signal.aborted && !(error instanceof UserError) ? interruption() : error;
  } finally {
    if (progress && seconds.length > 0) process.stderr.write('\r\u001b[K');
    signal.removeEventListener('abort', stop);
    decoder?.close();
  }
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
