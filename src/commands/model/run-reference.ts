/** `lla-sim run --reference`: one sequence in float64 on the processor. */
import { freemem } from 'node:os';
import { setImmediate as breathe } from 'node:timers/promises';
import { bytesPerToken, windowBytes, type CacheLayout } from '../../codecs/layout.js';
import { layoutOf } from '../../codecs/registry.js';
import { codecTensors, fabricate, modelTensors, sample, storedAs, type SafetensorsFile } from '../../decoder/index.js';
import { ReferenceDecoder } from '../../decoder/reference/decoder.js';
import { loadModel } from '../../decoder/reference/model.js';
import { EXIT, UserError } from '../../errors.js';
import { clockNow } from '../../io/clock.js';
import { keptTokens } from '../../eviction/policy.js';
import { parameterCount, type Geometry } from '../../geometry/geometry.js';
import type { Configuration } from '../../schedule/schedule.js';
import { formatBytes } from '../../numbers/units.js';
import type { Loaded, RunQuestion } from './run-question.js';
import { describe, interruptedAfter, type RunReport } from './run-report.js';

/**
 * Prefills the prompt and generates.
 * @throws UserError for what one sequence in float64 cannot do, and with exit code 130 when `signal` is aborted
 */
export async function generateInFloat64(
  loaded: Loaded,
  q: RunQuestion,
  codec: SafetensorsFile | undefined,
  signal: AbortSignal,
): Promise<RunReport> {
  for (const [flag, given] of [
    ['--batch', q.batch > 1],
    ['--fill', q.fill > 0],
    ['--draft-tokens', q.draft !== null],
    ['--vram', q.vramBytes !== null],
  ] as const)
    if (given)
      throw new UserError(
        `${flag} means nothing with --reference, which decodes one sequence in float64`,
        'leave it out',
      );
  const c: Configuration = { ...q.configuration, bindingBytes: Infinity };
  const { geometry: g } = c;
  requireRoom(g, freemem());
  const { checkpoint } = loaded;
  const seeded = { seed: q.seed, tiedEmbeddings: g.tiedEmbeddings, codec: 'random' } as const;
  const model = loadModel(
    g,
    storedAs(checkpoint?.tensors ?? fabricate(modelTensors(g), seeded), q.storage),
    checkpoint?.normEpsilon,
  );
  const codecWeights = codec ?? fabricate(codecTensors(g, c.codec, c.path, c.branch), seeded);
  const decoder = new ReferenceDecoder(model, storedAs(codecWeights, q.storage), c);
  const out: number[] = [];
  const seconds: number[] = [];
  const pause = async (): Promise<void> => {
    await breathe();
    if (signal.aborted) throw interruptedAfter(out.length, q);
  };
  const method = q.prefill ?? 'accumulated';
  const began = clockNow();
  let logits: Float64Array | undefined;
  if (method === 'by-token')
    for (const token of q.prompt) {
      await pause();
      logits = decoder.step(token);
    }
  else logits = decoder.prefill(q.prompt, method, q.chunkTokens).at(-1);
  const prefillSeconds = clockNow() - began;
  const generating = clockNow();
  for (;;) {
    await pause();
    const token = sample(logits as Float64Array, q.sampling, out.length);
    out.push(token);
    if (out.length === q.maxTokens || token === q.stop) break;
    const from = clockNow();
    logits = decoder.step(token);
    seconds.push(clockNow() - from);
  }
  const kept = keptTokens(c.eviction, decoder.length);
  return describe(
    {
      device: { description: 'float64 reference', software: true },
      cacheBytes: heldBytes(decoder, layoutOf(g, c.codec, c.path, c.choice, c.branch), kept),
      lengths: [decoder.length],
      memory: null,
    },
    c,
    q,
    { ...loaded, codec },
    {
      tokens: [out],
      seconds,
      spent: clockNow() - generating,
      prefillSeconds,
      prefillMethod: method,
      speculation: null,
    },
  );
}

/** @throws UserError for weights that do not fit in memory in float64 */
export function requireRoom(g: Geometry, freeBytes: number): void {
  const bytes = Float64Array.BYTES_PER_ELEMENT * parameterCount(g);
  if (bytes > freeBytes)
    throw new UserError(
      `--reference holds the weights of ${g.name} in float64, ${formatBytes(bytes)}, and ` +
        `${formatBytes(freeBytes)} are free`,
      'take a smaller model, or --layers and --vocab of one with fabricated weights',
      EXIT.noSolution,
    );
}

/** Bytes of the cache: those that packed loops have, and those that the layout has of all else. */
function heldBytes({ packedLoops }: ReferenceDecoder, layout: CacheLayout, tokens: number): number {
  const counted = packedLoops ? layout.filter(({ block }) => block !== 'core') : layout;
  return (packedLoops?.bytes().length ?? 0) + tokens * bytesPerToken(counted) + windowBytes(counted, tokens);
}
