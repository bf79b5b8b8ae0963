/**
 * A second account of decoding: one token at a time over the exact projections of all tokens. What a head attends to is
 * said by the caller, as its codec defines it.
 */
import { expect } from 'vitest';
import type { Codec } from '../../src/codecs/codec.js';
import { accumulate, dot, joined, rotate, softmax, type Vector } from '../../src/decoder/reference/arithmetic.js';
import type { Model } from '../../src/decoder/reference/model.js';
import { run, type Projection, type Site } from '../../src/decoder/reference/network.js';
import { codecTensor } from '../../src/decoder/tensors.js';
import type { TensorSource } from '../../src/decoder/weights.js';
import { SEED } from '../gpu/random.js';
import { decodeAll, decoderOf, distance, type Setup } from './models.js';

/** Exact projections by token and site. */
export type History = Map<string, Projection>[];
const keyOf = ({ block, layer, loop }: Site): string => [block, layer, loop].join();
export const projected = (history: History, token: number, site: Site): Projection => history[token]!.get(keyOf(site))!;

/** A query head of token `n`, the last of the history. */
export interface Head {
  readonly history: History;
  readonly n: number;
  readonly site: Site;
  readonly head: number;
  readonly kvHead: number;
  readonly own: Projection;
}
/** A score and a value for each token that a head attends to. */
type Attended = (head: Head) => readonly { readonly score: number; readonly value: Vector }[];

/** @param history takes the projections; of a pass of its own unless given */
export function byToken(model: Model, tokens: readonly number[], of: Attended, history: History = []): Vector[] {
  const { heads, kvHeads } = model.geometry;
  return tokens.map((token) => {
    const n = history.push(new Map()) - 1;
    return run(model, [token], [n], (site, [self]) => {
      const own = self!;
      history[n]!.set(keyOf(site), own);
      const outputs = own.queries.map((_, head) => {
        const kvHead = Math.floor((head * kvHeads) / heads);
        const rows = of({ history, n, site, head, kvHead, own });
        const out = new Float64Array(rows[0]!.value.length);
        softmax(rows.map(({ score }) => score)).forEach((p, m) => accumulate(out, rows[m]!.value, p));
        return out;
      });
      return [joined(outputs)];
    })[0]!;
  });
}

/** The key of a token, rotated to its position, and its value. */
export interface Row {
  readonly key: Vector;
  readonly value: Vector;
}

/** Attention over one row a token. */
export const overRows =
  ({ geometry: { rope, headDim } }: Model, rowOf: (token: number, head: Head) => Row): Attended =>
  (head) => {
    const query = rotate(head.own.queries[head.head]!, head.n, rope);
    return head.history.map((_, m) => {
      const { key, value } = rowOf(m, head);
      return { score: dot(query, key) / Math.sqrt(headDim), value };
    });
  };

/** A row as it is projected at a site, that of the head unless given. */
export const exactRow =
  ({ geometry: { rope } }: Model) =>
  (token: number, { history, site, kvHead }: Head, at: Site = site): Row => {
    const { keys, values } = projected(history, token, at);
    return { key: rotate(keys[kvHead]!, token, rope), value: values[kvHead]! };
  };

const range = (n: number): number[] => Array.from({ length: n }, (_, i) => i);

/** What a learned codec stacks to one latent: its number, and (loop, head) pairs in order. */
function stackOf({ kind }: Codec, { loops, kvHeads }: Model['geometry'], { loop }: Site, head: number) {
  const [ownLoop, ownHead] = [kind === 'mla-head', kind === 'lla' || kind === 'lla-window'];
  const members = (ownLoop ? [loop] : range(loops)).flatMap((t) =>
    (ownHead ? [head] : range(kvHeads)).map((h) => [t, h] as const),
  );
  return { group: ownLoop ? loop : ownHead ? head : 0, members };
}

type Axis = 'key' | 'value';
/** A projected row, not rotated. */
export type RowOf = (axis: Axis, token: number, site: Site, kvHead: number) => Vector;
export const exactlyOf =
  (history: History): RowOf =>
  (axis, token, site, kvHead) =>
    projected(history, token, site)[`${axis}s`][kvHead]!;

/**
 * x̂ = (x − mu) W_down W_upᵀ + mu over the whole stack of (loop, head) pairs, index by index from the stored tensors.
 * @param round what is stored of a latent
 */
export function reconstructing(
  { geometry: g }: Model,
  codec: Codec,
  weights: TensorSource,
  round: (latent: Vector) => Vector = (latent) => latent,
): (rows: RowOf) => RowOf {
  const d = g.headDim;
  return (rows) => (axis, token, site, head) => {
    const [, width, rank] = weights.shapes.get(codecTensor(site.layer, axis, 'down')) as [number, number, number];
    const { group, members } = stackOf(codec, g, site, head);
    const [down, up, mean] = (['down', 'up', 'mean'] as const).map((part) =>
      weights.read(codecTensor(site.layer, axis, part)),
    ) as [Float32Array, Float32Array, Float32Array];
    const stack = members.flatMap(([loop, h]) => [...rows(axis, token, { ...site, loop }, h)]);
    expect(stack.length).toBe(width);
    const first = group * width;
    const latent = Float64Array.from({ length: rank }, (_, r) =>
      stack.reduce((c, x, i) => c + (x - mean[first + i]!) * down[(first + i) * rank + r]!, 0),
    );
    const at = first + members.findIndex(([loop, h]) => loop === site.loop && h === head) * d;
    const kept = round(latent);
    return Float64Array.from({ length: d }, (_, i) =>
      kept.reduce((x, c, r) => x + c * up[(at + i) * rank + r]!, mean[at + i]!),
    );
  };
}

/** Reconstructed rows, ready to meet a rotated query. */
export const rebuiltRow =
  ({ geometry: { rope } }: Model, rebuilt: RowOf) =>
  (token: number, { site, kvHead }: Head): Row => ({
    key: rotate(rebuilt('key', token, site, kvHead), token, rope),
    value: rebuilt('value', token, site, kvHead),
  });

export const EXACT = 1e-9;
export type Logits = readonly Float64Array[];

export const expectSame = (found: Logits, expected: Logits, message?: string): void =>
  expect(distance(found, expected), message).toBeLessThan(EXACT);
export const expectOther = (found: Logits, other: Logits, least = 1e-6): void =>
  expect(distance(found, other)).toBeGreaterThan(least);

/** A decoder on the seed's weights unless the setup has its own. */
export const decoderFor = (model: Model, setup: Omit<Setup, 'seed'>) => decoderOf(model, { seed: SEED, ...setup });
export const decoded = (model: Model, setup: Omit<Setup, 'seed'>, tokens: readonly number[]): Float64Array[] =>
  decodeAll(decoderFor(model, setup), tokens);
