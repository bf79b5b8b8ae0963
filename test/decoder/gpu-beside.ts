/** A GPU decoder beside the float64 references that follow it, one a sequence. */
import type { GpuDecoder, GpuDecoderOptions } from '../../src/decoder/gpu/decoder.js';
import type { Vector } from '../../src/decoder/reference/arithmetic.js';
import type { PrefillKind } from '../../src/decoder/reference/decoder.js';
import type { Device } from '../../src/gpu/index.js';
import { expectWithin, opened, relative, type Case } from './gpu-cases.js';
import { followersOf, type Followers } from './gpu-follow.js';

export interface Pair extends Followers {
  readonly decoder: GpuDecoder;
  /** Relative error of the decoder's logits, of all sequences the largest. */
  readonly errorOf: (expected: readonly Vector[]) => Promise<number>;
  /** Fails where the decoder's logits are further off than arithmetic explains. */
  readonly compare: (expected: readonly Vector[], message?: string) => Promise<void>;
  /** Follows what the decoder has taken in. @returns the references' logits of the last tokens */
  readonly prefilled: (parts: readonly (readonly number[])[], kind: PrefillKind, size?: number) => Promise<Vector[]>;
  /** Decodes a token of each sequence on both sides. */
  readonly step: (tokens: readonly number[]) => Promise<Vector[]>;
  /** Compares, and again after each of so many more tokens of the prompts. */
  readonly goOn: (expected: readonly Vector[], lengths: readonly number[], steps: number, of?: string) => Promise<void>;
}

export async function beside<T>(
  device: Device,
  of: Case,
  prompts: readonly (readonly number[])[],
  options: Partial<GpuDecoderOptions>,
  body: (pair: Pair) => Promise<T>,
): Promise<T> {
  const { vocab } = of.geometry;
  return opened(device, of, { batch: prompts.length, ...options }, (decoder) => {
    const followers = followersOf(decoder, of, prompts);
    const { references, follow } = followers;
    const errorOf: Pair['errorOf'] = async (expected) => {
      const logits = await decoder.logits();
      return Math.max(...expected.map((row, i) => relative(logits.subarray(i * vocab, (i + 1) * vocab), row)));
    };
    const compare: Pair['compare'] = async (expected, message) =>
      expectWithin(await errorOf(expected), of, prompts, message);
    const step: Pair['step'] = async (tokens) => {
      await decoder.step(tokens);
      await follow();
      return references.map((reference, i) => reference.step(tokens[i]!));
    };
    const pair: Pair = {
      ...followers,
      decoder,
      errorOf,
      compare,
      step,
      prefilled: async (parts, kind, size) => {
        await follow();
        return references.map((reference, i) => reference.prefill(parts[i]!, kind, size).at(-1)!);
      },
      goOn: async (expected, lengths, steps, message = 'logits') => {
        for (let i = 0; ; i++) {
          await compare(expected, `${message}, step ${i}`);
          if (i === steps) return;
          expected = await step(prompts.map((prompt, sequence) => prompt[lengths[sequence]! + i]!));
        }
      },
    };
    return body(pair);
  });
}
