/**
 * Forced decoding: prompts are prefilled (all but their last token), then a step a token over the cache that the codec
 * keeps. On the real decoder; codecs that it does not run are decoded in float64.
 */
import { setImmediate as breathe } from 'node:timers/promises';
import { isPacked } from '../codecs/registry.js';
import { inMemory, type TensorSource } from '../decoder/index.js';
import { ReferenceDecoder } from '../decoder/reference/decoder.js';
import { loadModel } from '../decoder/reference/model.js';
import { greedy } from '../decoder/sampler.js';
import { tensorsOf, withDecoder, type Teacher } from '../fit/capture.js';
import type { Configuration } from '../schedule/schedule.js';
import type { Item } from './items.js';

/** Log-probabilities of every token of the vocabulary, one list a predicted token. */
export type Predictions = readonly Float32Array[];

/** Sequences that are decoded together. */
const BATCH = 16;

export function logSoftmax(logits: Float32Array): Float32Array {
  let top = -Infinity;
  for (const x of logits) top = Math.max(top, x);
  let sum = 0;
  for (const x of logits) sum += Math.exp(x - top);
  const shift = top + Math.log(sum);
  return logits.map((x) => x - shift);
}

/**
 * What a configuration predicts for the continuation of every item.
 * @param codec weights, for codecs that have some
 * @param greedyTokens that a rollout of the usual length is continued by; then its continuation is what is predicted
 */
export async function predict(
  teacher: Teacher,
  configuration: Configuration,
  codec: TensorSource | undefined,
  items: readonly Item[],
  greedyTokens = 0,
): Promise<Predictions[]> {
  if (isPacked(configuration.codec)) return predictInFloat64(teacher, configuration, items);
  const student = codec ? { ...teacher, weights: { ...teacher.weights, codec } } : teacher;
  const { vocab } = teacher.geometry;
  const lengthOf = ({ kind, continuation, rolloutTokens }: Item): number =>
    kind === 'rollout' && greedyTokens > 0 ? (rolloutTokens ?? greedyTokens) : continuation.length;
  // Items that take as many steps are decoded together.
  const order = items.map((_, i) => i).sort((a, b) => lengthOf(items[b] as Item) - lengthOf(items[a] as Item));
  const all: Float32Array[][] = items.map(() => []);
  for (let from = 0; from < order.length; from += BATCH) {
    const batch = order.slice(from, from + BATCH).map((index) => ({ index, item: items[index] as Item }));
    const steps = lengthOf((batch[0] as { item: Item }).item);
    const contextTokens = Math.max(...batch.map(({ item }) => item.prompt.length)) + steps;
    await withDecoder(student, configuration, { batch: batch.length, contextTokens }, async (decoder) => {
      await decoder.prefill(batch.map(({ item }) => item.prompt.slice(0, -1)));
      for (let step = 0; step < steps; step++) {
        await decoder.step(batch.map(({ index, item }) => inputOf(item, step, all[index] as Float32Array[])));
        const logits = await decoder.logits();
        batch.forEach(({ index, item }, row) => {
          if (step < lengthOf(item)) all[index]?.push(logSoftmax(logits.subarray(row * vocab, (row + 1) * vocab)));
        });
      }
    });
  }
  return all;
}

/** The same in float64, a sequence after the other, of codecs without weights. Interrupts are taken between them. */
async function predictInFloat64(
  teacher: Teacher,
  configuration: Configuration,
  items: readonly Item[],
): Promise<Predictions[]> {
  const model = loadModel(teacher.geometry, tensorsOf(teacher), teacher.normEpsilon);
  const all: Predictions[] = [];
  for (const item of items) {
    await breathe();
    const decoder = new ReferenceDecoder(model, NO_TENSORS, configuration);
    const prompt = item.prompt.slice(0, -1);
    if (prompt.length > 0) decoder.prefill(prompt, 'accumulated');
    all.push(item.continuation.map((_, step) => logSoftmax(Float32Array.from(decoder.step(inputOf(item, step, []))))));
  }
  return all;
}

/** Weights of a codec that has none. */
export const NO_TENSORS = inMemory([]);

/** The token that a step reads: the prompt's last, then the continuation's, or the prediction before it. */
function inputOf({ prompt, continuation }: Item, step: number, made: readonly Float32Array[]): number {
  if (step === 0) return prompt.at(-1) as number;
  const before = made[step - 1];
  return continuation[step - 1] ?? (before ? greedy(before) : 0);
}
