/**
 * Codecs whose loops read one set of rows, in float64: the definition of each way of sharing written out a second time,
 * on random models, and an example that vllm-rlt has published.
 */
import { describe, expect, it } from 'vitest';
import { SHARINGS, type Codec } from '../../src/codecs/codec.js';
import { averagesLoops, CODECS, layoutOf } from '../../src/codecs/registry.js';
import { accumulate, dot, joined, rotate, softmax, type Vector } from '../../src/decoder/reference/arithmetic.js';
import { attendHead } from '../../src/decoder/reference/attend.js';
import { SequenceCache } from '../../src/decoder/reference/cache.js';
import type { PrefillKind } from '../../src/decoder/reference/decoder.js';
import { exactAttention, forward } from '../../src/decoder/reference/forward.js';
import type { Model } from '../../src/decoder/reference/model.js';
import { run, type Projection, type Site } from '../../src/decoder/reference/network.js';
import { CacheWriter } from '../../src/decoder/reference/writer.js';
import { SEED } from '../gpu/random.js';
import { BRANCH, decodeAll, decoderOf, distance, GEOMETRIES, modelOf, promptOf } from './models.js';

const EXACT = 1e-9;
const PROMPT = 6;
const STEPS = 4;
const CODECS_OF_LOOPS: readonly Codec[] = (['final-loop', 'mean-loop'] as const).flatMap((kind) =>
  (CODECS[kind].sharings ?? []).map((shared): Codec => ({ kind, shared })),
);
const KINDS: readonly [PrefillKind, number?][] = [
  ['one-shot'],
  ['by-layer'],
  ['accumulated'],
  ['chunked', PROMPT],
  ['chunked', 1],
];

type What = 'keys' | 'values';
/** Exact projections by token and site. */
type History = Map<string, Projection>[];
const keyOf = ({ block, layer, loop }: Site): string => [block, layer, loop].join();

/** The row that all loops of the core read of a token. */
function sharedRow(codec: Codec, loops: number, of: Map<string, Projection>, site: Site, what: What, head: number) {
  const at = (loop: number): Vector => of.get(keyOf({ ...site, loop }))![what][head]!;
  if (site.block !== 'core') return at(site.loop);
  if (!averagesLoops(codec)) return at(loops - 1);
  const mean = new Float64Array(at(0).length);
  for (let loop = 0; loop < loops; loop++) accumulate(mean, at(loop));
  return mean.map((x) => x / loops);
}

/** Attention of one token: shared rows of tokens before it, its own exact ones. */
function step(model: Model, codec: Codec, history: History, token: number): Vector {
  const { rope, headDim, heads, kvHeads, loops } = model.geometry;
  const n = history.length;
  const own = new Map<string, Projection>();
  const [logits] = run(model, [token], [n], (site, [self]) => {
    own.set(keyOf(site), self!);
    return [
      joined(
        self!.queries.map((query, head) => {
          const kvHead = Math.floor((head * kvHeads) / heads);
          const row = (m: number, what: What): Vector =>
            m === n ? self![what][kvHead]! : sharedRow(codec, loops, history[m]!, site, what, kvHead);
          const out = new Float64Array(headDim);
          const scores = Array.from({ length: n + 1 }, (_, m) =>
            dot(rotate(query, n, rope), rotate(row(m, 'keys'), m, rope)),
          );
          softmax(scores.map((s) => s / Math.sqrt(headDim))).forEach((p, m) => accumulate(out, row(m, 'values'), p));
          return out;
        }),
      ),
    ];
  });
  history.push(own);
  return logits!;
}

/** The exact pass over a prompt, and what it leaves. */
function exactPass(model: Model, prompt: readonly number[]): { logits: Vector[]; history: History } {
  const history: History = prompt.map(() => new Map<string, Projection>());
  const exact = exactAttention(model);
  const positions = prompt.map((_, n) => n);
  const logits = run(model, prompt, positions, (site, tokens) => {
    tokens.forEach((token, n) => history[n]!.set(keyOf(site), token));
    return exact(site, tokens);
  });
  return { logits, history };
}

/** A second pass, which reads shared rows of the first, each token's own included. */
function secondPass(model: Model, codec: Codec, prompt: readonly number[], history: History): Vector[] {
  const { rope, headDim, heads, kvHeads, loops } = model.geometry;
  const positions = prompt.map((_, n) => n);
  return run(model, prompt, positions, (site, tokens) =>
    tokens.map((token, n) =>
      joined(
        token.queries.map((query, head) => {
          const kvHead = Math.floor((head * kvHeads) / heads);
          const row = (m: number, what: What): Vector => sharedRow(codec, loops, history[m]!, site, what, kvHead);
          const out = new Float64Array(headDim);
          const scores = positions
            .slice(0, n + 1)
            .map((m) => dot(rotate(query, n, rope), rotate(row(m, 'keys'), m, rope)) / Math.sqrt(headDim));
          softmax(scores).forEach((p, m) => accumulate(out, row(m, 'values'), p));
          return out;
        }),
      ),
    ),
  );
}

/** Logits of a prompt and of steps behind it, as the way of sharing defines them. */
function defined(model: Model, codec: Codec, prompt: readonly number[], more: readonly number[]): Vector[] {
  if (codec.shared === 'all') {
    const history: History = [];
    return [...prompt, ...more].map((token) => step(model, codec, history, token));
  }
  const { logits, history } = exactPass(model, prompt);
  const read = codec.shared === 'two-pass' ? secondPass(model, codec, prompt, history) : logits;
  return [...read, ...more.map((token) => step(model, codec, history, token))];
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
        const decoder = decoderOf(model, { codec, seed: SEED });
        const found = [...decoder.prefill(prompt, kind, size), ...decodeAll(decoder, more)];
        expect(distance(found, expected), kind).toBeLessThan(EXACT);
      }
    });

  it('differ from each other and from the full cache', () => {
    const all = [{ kind: 'full' } as const, ...CODECS_OF_LOOPS].map((codec) => {
      const decoder = decoderOf(model, { codec, seed: SEED });
      return [...decoder.prefill(prompt, 'accumulated'), ...decodeAll(decoder, more)];
    });
    for (const [i, a] of all.entries()) for (const b of all.slice(i + 1)) expect(distance(a, b)).toBeGreaterThan(1e-6);
  });

  it('read a prompt exactly where they share in decoding alone', () => {
    const truth = forward(model, prompt);
    for (const codec of CODECS_OF_LOOPS.filter(({ shared }) => shared === 'decode'))
      expect(distance(decoderOf(model, { codec, seed: SEED }).prefill(prompt, 'accumulated'), truth)).toBeLessThan(
        EXACT,
      );
  });

  it('mean what the first way says where none is given', () => {
    for (const kind of ['final-loop', 'mean-loop'] as const) {
      const of = (codec: Codec): Vector[] => {
        const decoder = decoderOf(model, { codec, seed: SEED });
        return [...decoder.prefill(prompt, 'accumulated'), ...decodeAll(decoder, more)];
      };
      const [first] = CODECS[kind].sharings as [(typeof SHARINGS)[number]];
      expect(of({ kind })).toEqual(of({ kind, shared: first }));
    }
  });
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
    const choice = { storage: 'f32', groupSize: 32 } as const;
    const cache = new SequenceCache(g, layoutOf(g, codec, 'full', choice, BRANCH), null, true);
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
