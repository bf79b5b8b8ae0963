/** The methods of prefill, and where each may be used. */
import { streamsOf, takesWhole } from '../../codecs/registry.js';
import type { Geometry } from '../../geometry/geometry.js';
import { UserError } from '../../errors.js';
import type { WholePrompt } from '../../schedule/prefill/prefill.js';
import type { Configuration } from '../../schedule/schedule.js';

/**
 * Whole, or token by token, each attending to the cache as in decoding. Whole prompts need two passes where a codec has
 * latents. These are accumulated loop by loop (`accumulated`), encoded layer by layer from 16-bit captures of all loops
 * (`by-layer`), or at once from 32-bit captures of everything (`one-shot`). The latents are the same, the memory grows
 * (cost/memory.ts, prefillPeaks). Without latents all three are one ordinary pass. `chunked` is accumulated prefill
 * chunk by chunk, each attending to what the cache holds of those before it.
 */
export type PrefillMethod = WholePrompt | 'by-token';
export const PREFILL_METHODS = [
  'accumulated',
  'chunked',
  'by-layer',
  'one-shot',
  'by-token',
] as const satisfies readonly PrefillMethod[];

/** @param begun sequences hold tokens already */
export const usualMethod = (g: Geometry, begun: boolean): PrefillMethod =>
  begun || g.laterLoopsWindow !== undefined || g.shiftsLoops ? 'by-token' : 'accumulated';

/**
 * @param begun a sequence that takes a part of a prompt holds tokens already
 * @param ends its prompt ends with this part
 * @throws UserError where later loops keep windows, or need the token before: prompts run all tokens through a loop;
 * where they run chosen tokens alone; where prompts attend to exact rows, which a cache does not keep for a later part
 */
export function requireRuns({ geometry, codec }: Configuration, begun: boolean, ends: boolean): void {
  const { name, laterLoopsWindow, shiftsLoops } = geometry;
  const byToken = 'take prompts token by token (--prefill by-token)';
  if (shiftsLoops)
    throw new UserError(
      `later loops of ${name} begin with the state of the token before, and the decoder has no such whole prompts`,
      byToken,
    );
  if (laterLoopsWindow !== undefined)
    throw new UserError(
      `later loops of ${name} attend to windows, and the decoder has no such attention of whole prompts`,
      byToken,
    );
  if (streamsOf(geometry, codec)?.runs.some((share) => share < 1))
    throw new UserError(
      `${codec.kind} runs later loops of a prompt on a share of its tokens, which the GPU decoder does not choose`,
      `${byToken}, run all (--constants loop3=1,loop4=1), or use --reference`,
    );
  if (takesWhole(codec) && (begun || !ends))
    throw new UserError(
      `${codec.kind} takes a prompt in whole: it attends exactly, and the cache keeps no exact rows for a later part`,
      'give all tokens at once to a sequence without any, or take them token by token',
    );
}

/** @throws UserError where the method cannot prefill whole prompts */
export function requireWhole(method: WholePrompt, begun: boolean): void {
  const named = method === 'accumulated' ? 'an accumulated' : `a ${method}`;
  if (begun && method !== 'chunked')
    throw new UserError(`${named} prefill begins its sequences`, 'reset the decoder, or take the prompts in chunks');
}
