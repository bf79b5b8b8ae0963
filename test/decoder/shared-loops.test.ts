/**
 * Codecs whose loops read one set of rows, in float64: the definition of each way of sharing written out a second time,
 * on random models, and an example that vllm-rlt has published.
 */
import { describe, expect, it } from 'vitest';
import { SHARINGS, type Codec } from '../../src/codecs/codec.js';
import { averagesLoops, CODECS, layoutOf } from '../../src/codecs/registry.js';
import { accumulate, type Vector } from '../../src/decoder/reference/arithmetic.js';
import { attendHead } from '../../src/decoder/reference/attend.js';
import { SequenceCache } from '../../src/decoder/reference/cache.js';
import type { PrefillKind } from '../../src/decoder/reference/decoder.js';
import type { Model } from '../../src/decoder/reference/model.js';
import type { Projection, Site } from '../../src/decoder/reference/network.js';
import { CacheWriter } from '../../src/decoder/reference/writer.js';
import { SEED } from '../gpu/random.js';
import {
  byToken,
  decoderFor,
  exactRow,
  expectOther,
  expectSame,
  overRows,
  type Head,
  type History,
  type Row,
} from './account.js';
import { BRANCH, decodeAll, GEOMETRIES, modelOf, promptOf, SINGLE } from './models.js';

const PROMPT = 6;
const STEPS = 4;
const KINDS_OF_LOOPS = ['final-loop', 'mean-loop'] as const;
const CODECS_OF_LOOPS: readonly Codec[] = KINDS_OF_LOOPS.flatMap((kind) =>
  (CODECS[kind].sharings ?? []).map((shared): Codec => ({ kind, shared })),
);
const KINDS: readonly [PrefillKind, number?][] = [
  ['one-shot'],
  ['by-layer'],
  ['accumulated'],
  ['chunked', PROMPT],
  ['chunked', 1],
];

/** The row that all loops of the core read of a token. */
const sharedRow =
  (model: Model, codec: Codec) =>
  (token: number, head: Head): Row => {
    const { loops } = model.geometry;
    const at = (loop: number): Row => exactRow(model)(token, head, { ...head.site, loop });
    if (head.site.block !== 'core') return at(head.site.loop);
    if (!averagesLoops(codec)) return at(loops - 1);
    const mean = (part: keyof Row): Vector => {
      const sum = new Float64Array(model.geometry.headDim);
      for (let loop = 0; loop < loops; loop++) accumulate(sum, at(loop)[part], 1 / loops);
      return sum;
    };
    return { key: mean('key'), value: mean('value') };
  };

/** Logits of a prompt and of steps behind it, as the way of sharing defines them. */
function defined(model: Model, codec: Codec, prompt: readonly number[], more: readonly number[]): Vector[] {
  const [exact, shared] = [exactRow(model), sharedRow(model, codec)];
  const steps = overRows(model, (token, head) => (token < head.n ? shared : exact)(token, head));
  if (codec.shared === 'all') return byToken(model, [...prompt, ...more], steps);
  const history: History = [];
  const logits = byToken(model, prompt, overRows(model, exact), history);
  // The second pass reads shared rows of the first, each token's own included.
  const second = overRows(model, (token, head) => shared(token, { ...head, history }));
  const read = codec.shared === 'two-pass' ? byToken(model, prompt, second) : logits;
  return [...read, ...byToken(model, more, steps, history)];
}

describe.each(GEOMETRIES.filter((g) => g.loops > 1))(`loops that share rows, $name (seed ${SEED})`, (g) => {
  const model = modelOf(g, SEED);
  const prompt = promptOf(g, PROMPT, SEED);
  const more = promptOf(g, STEPS, SEED + 1);

  for (const codec of CODECS_OF_LOOPS)
    it(`${codec.kind}, ${codec.shared}: prompts of every kind, and steps behind them`, () => {
      const expected = defined(model, codec, prompt, more);
      for (const [kind, size] of KINDS) {
        if (size === 1 && codec.shared !== 'all') continue;
        const decoder = decoderFor(model, { codec });
        expectSame([...decoder.prefill(prompt, kind, size), ...decodeAll(decoder, more)], expected, kind);
      }
    });

  const found = (codec: Codec): Vector[] => {
    const decoder = decoderFor(model, { codec });
    return [...decoder.prefill(prompt, 'accumulated'), ...decodeAll(decoder, more)];
  };

  it('differ from each other and from the full cache', () => {
    const all = [{ kind: 'full' } as const, ...CODECS_OF_LOOPS].map(found);
    for (const [i, a] of all.entries()) for (const b of all.slice(i + 1)) expectOther(a, b);
  });

  it('mean what the first way says where none is given', () => {
    for (const kind of KINDS_OF_LOOPS) {
      const [shared] = CODECS[kind].sharings as [(typeof SHARINGS)[number]];
      expect(found({ kind })).toEqual(found({ kind, shared }));
    }
  });
});

it('one loop has nothing to share', () => {
  const one = modelOf(GEOMETRIES[3]!, SEED);
  for (const kind of KINDS_OF_LOOPS) expect(() => decoderFor(one, { codec: { kind } })).toThrow('at least two loops');
});

/**
 * vllm-rlt, docs/kv_layout_computation.md, section 2 (Apache-2.0): tokens A and B, two loops, scalars without RoPE and
 * scale. A has K, V (1, 10) and (2, 20). B has q = 1, (1, 30), then q = k = o/20, v = o. Attention's outputs for B are
 * 20 and 20 where each loop has its rows, 22.6894 and 20.73 where loops share the last one's.
 */
describe('the published example', () => {
  const g = { ...GEOMETRIES[0]!, layers: 1, loops: 2, heads: 1, kvHeads: 1, headDim: 2 };
  const vector = (x: number): Vector => Float64Array.of(x, 0);
  const token = (position: number, k: number, v: number): Projection => ({
    position,
    input: new Float64Array(g.hidden),
    queries: [],
    keys: [vector(k)],
    values: [vector(v)],
  });
  /** RoPE turns a key by one radian from A to B, and scores are divided by √2: both are taken off. */
  const [OFF_ANGLE, OFF_SCALE] = [1 / Math.cos(1), Math.SQRT2];

  function outputsOfB(codec: Codec): number[] {
    const cache = new SequenceCache(g, layoutOf(g, codec, 'full', SINGLE, BRANCH), null, true);
    const writer = new CacheWriter('full', [], cache, 'accumulated', averagesLoops(codec));
    const site = (loop: number): Site => ({ block: 'core', layer: 0, loop });
    writer.capture(site(0), token(0, OFF_ANGLE * 1, 10));
    writer.capture(site(1), token(0, OFF_ANGLE * 2, 20));
    cache.join([0]);
    const attend = (loop: number, q: number, k: number, v: number): number =>
      attendHead(
        { geometry: g, path: 'full', cache, site: site(loop), kvHead: 0, reindexed: false, codec: undefined },
        vector(OFF_SCALE * q),
        1,
        { cached: [0], exact: [token(1, k, v)] },
      ).output[0]!;
    const first = attend(0, 1, 1, 30);
    return [first, attend(1, first / 20, first / 20, first)];
  }

  it('last exited: each loop has its rows', () => {
    const [first, second] = outputsOfB({ kind: 'full' });
    expect(first).toBeCloseTo(20, 9);
    expect(second).toBeCloseTo(20, 9);
  });

  it('shared: the last loop has them', () => {
    const [first, second] = outputsOfB({ kind: 'final-loop', shared: 'all' });
    expect(first).toBeCloseTo(22.6894, 4);
    expect(second).toBeCloseTo(20.73, 2);
  });
});
