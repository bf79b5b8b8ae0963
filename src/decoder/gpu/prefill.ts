/**
 * Prefill of whole prompts: the operations of schedule/prefill/, one prompt after the other. Pass 1 attends to exact
 * keys and values and writes the cache, latents once their loops have accumulated; pass 2 attends to what the cache
 * then holds. What it computes is `prefill(…)` of reference/decoder.ts, of each kind.
 */
import { TILE_TOKENS } from '../../../kernels/spec.js';
import type { Device } from '../../gpu/index.js';
import { boundRun } from '../../schedule/bind/index.js';
import { planPrompts, type PromptSetting } from '../../schedule/bind/prompt.js';
import { ASIDE, prefillBuffers, promptControls } from '../../schedule/prefill/buffers.js';
import type { PromptExtent } from '../../schedule/prefill/pass.js';
import { OPERATIONS_OF_A_SUBMISSION } from '../../schedule/prefill/calls.js';
import { setsRowsAside, type WholePrompt } from '../../schedule/prefill/prefill.js';
import { choiceOf } from '../sampler.js';
import { Allocations, type Allocation } from './allocations.js';
import { Caches } from './caches.js';
import { Machine } from './machine.js';
import { Binder, secondsOf, type Operation } from './program.js';

export interface WholePrompts {
  readonly method: WholePrompt;
  /** One a sequence, and the tokens that it has already. */
  readonly prompts: readonly (readonly number[])[];
  readonly lengths: readonly number[];
  readonly chunkTokens: number;
  /** The number of each sequence's draw. */
  readonly draws: readonly number[];
  /** Stream of random draws of each sequence. */
  readonly streams: readonly number[];
  /** False where more of the prompts follows: neither logits nor tokens are made. */
  readonly ends: boolean;
}

/**
 * Writes the caches of all sequences, behind what they hold, and the logits and the token after each prompt. An empty
 * prompt leaves its sequence alone.
 * @param onStart called before the first submission of each run: a failure before then has changed nothing
 * @returns seconds of the operations on the device, and the buffers beside the decoder's own, which are freed
 * @throws GpuError `out-of-memory` or `unsupported` for a prompt that does not fit beside the decoder
 */
export async function prefillPrompts(
  m: Machine,
  { prompts, lengths, draws, streams, ends, ...asked }: WholePrompts,
  onStart: () => void,
): Promise<{ seconds: number; allocations: readonly Allocation[] }> {
  const counts = prompts.map((tokens) => tokens.length);
  const { method, chunkTokens, runs, extent } = planPrompts(m.c, asked, counts, lengths);
  const { machine: prompt, setting } = await openPrompt(m, extent, chunkTokens);
  const binder = new Binder(m.device, m.buffer('unused'));
  const { vocab } = m.c.geometry;
  const choice = choiceOf(setting.sampling);
  let seconds = 0;
  try {
    for (const [sequence, own] of runs.entries()) {
      if (own.length === 0) continue;
      const tokens = prompts[sequence] as readonly number[];
      await m.device.write(
        prompt.buffer('draws'),
        Uint32Array.of(streams[sequence] as number, draws[sequence] as number),
      );
      for (const run of own) {
        const rest = tokens.slice(run.from - (lengths[sequence] as number));
        const visits = boundRun(setting, m.caches, sequence, run, {
          chunkTokens,
          method,
          ends: ends && run.tokens === rest.length,
          slots: m.caches.slots.capacity,
          choice,
        });
        const operations = await prompt.compile(binder, visits);
        onStart();
        await m.device.write(prompt.buffer('tokens'), Uint32Array.from(rest.slice(0, run.tokens)));
        seconds += await runAll(m.device, operations);
        binder.free();
      }
      if (!ends) continue;
      await m.device.copy(prompt.buffer('logits'), m.buffer('logits'), 4 * vocab, 4 * sequence * vocab);
      await m.device.copy(prompt.buffer('next tokens'), m.buffer('next tokens'), 4, 4 * sequence);
    }
    return { seconds, allocations: prompt.allocations.table };
  } finally {
    binder.free();
    prompt.allocations.free();
  }
}

/** The buffers of a call, beside those of the decoder. @throws GpuError `out-of-memory`; nothing stays allocated */
async function openPrompt(
  m: Machine,
  extent: PromptExtent,
  chunkTokens: number,
): Promise<{ machine: Machine; setting: PromptSetting }> {
  const { device, c, setting, weights, caches } = m;
  const allocations = new Allocations(device);
  try {
    // Rows set aside are a cache of their own.
    const list = prefillBuffers(c, extent).filter(({ label }) => label !== ASIDE);
    await allocations.makeRows(setting, [...list, ...promptControls(c, extent)], 1, caches);
    const { rows, captures } = extent;
    const aside = setsRowsAside(c)
      ? new Caches({ ...c, eviction: null }, 1, rows, TILE_TOKENS, allocations, 0, 'aside')
      : undefined;
    await aside?.allocate('prefill');
    return {
      machine: new Machine(device, setting, allocations, weights, caches, m, aside),
      setting: { ...setting, rows, chunkTokens, captures, aside },
    };
  } catch (error) {
    allocations.free();
    throw error;
  }
}

async function runAll(device: Device, operations: readonly Operation[]): Promise<number> {
  const steps = operations.flatMap((operation) => operation.steps);
  let seconds = 0;
  for (let at = 0; at < steps.length; at += OPERATIONS_OF_A_SUBMISSION) {
    seconds += secondsOf(await device.run(steps.slice(at, at + OPERATIONS_OF_A_SUBMISSION)));
  }
  return seconds;
}
