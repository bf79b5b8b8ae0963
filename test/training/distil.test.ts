/** Distillation as jax-js computes it against float64: the student's pass, its loss and gradients, and steps. */
import { nn, numpy as np, tree } from '@jax-js/jax';
import { existsSync } from 'node:fs';
import { beforeAll, describe, expect, it } from 'vitest';
import type { Branch, Codec, Path } from '../../src/codecs/codec.js';
import {
  accumulate,
  dot,
  joined,
  product,
  rotate,
  softmax,
  split,
  type Vector,
} from '../../src/decoder/reference/arithmetic.js';
import { decode, encode, groupOf, loadCodec, offsetOf } from '../../src/decoder/reference/codec.js';
import { ReferenceDecoder } from '../../src/decoder/reference/decoder.js';
import type { SequenceCache } from '../../src/decoder/reference/cache.js';
import { exactAttention } from '../../src/decoder/reference/forward.js';
import {
  attendHybrid,
  encodeInput,
  loadHybrid,
  partsOf,
  rolesOf,
  rotateLatent,
} from '../../src/decoder/reference/hybrid.js';
import { sample } from '../../src/decoder/sampler.js';
import { loadModel } from '../../src/decoder/reference/model.js';
import { run, type Attention, type Projection, type Site } from '../../src/decoder/reference/network.js';
import { codecTensors, type CodecAxis } from '../../src/decoder/tensors.js';
import { fabricate, type TensorSource } from '../../src/decoder/weights.js';
import { command as fitCommand } from '../../src/commands/model/fit.js';
import { Args } from '../../src/commands/command.js';
import { heldOutOf, readDistil } from '../../src/commands/model/fit-distil.js';
import { refuseDistil } from '../../src/fit/distillable.js';
import type { Geometry } from '../../src/geometry/geometry.js';
import { randomFrom } from '../../src/numbers/random.js';
import { tinyGeometry, untrainedTwin } from '../../src/tiny/model.js';
import { parametersFrom, trainedTensors } from '../../src/training/arrays.js';
import { startJax, type Arrays } from '../../src/training/jax.js';
import { distil, type Distillation, type Distilled } from '../../src/training/distil.js';
import { distilRate } from '../../src/training/distiller.js';
import type { Parameters } from '../../src/training/looped.js';
import { readBack, rowName, studentPositions, type Setting, type Swap } from '../../src/training/cached.js';
import { Rollout } from '../../src/training/rollout.js';
import { distillationLoss, exactPass, studentPass, type Frozen } from '../../src/training/student.js';
import { temporaryFolder } from '../decoder/files.js';
import { GEOMETRIES } from '../decoder/models.js';
import { SEED } from '../gpu/random.js';
import { expectGradients, withGradients } from './gradients.js';

const two = tinyGeometry({
  ...{ hidden_size: 12, intermediate_size: 10, total_ut_steps: 2, vocab_size: 17 },
  ...{ num_attention_heads: 4, num_key_value_heads: 2, head_dim: 4 },
});
const EPSILON = 1e-5;
const LENGTH = 6;
const LAMBDA = 0.5;
const one = { ...two, layers: 1 };
const three = { ...one, loops: 3 };
const twinOf = (geometry: Geometry): TensorSource => untrainedTwin(geometry, SEED);
const random = randomFrom(SEED);
const texts = [0, 1].map(() => Array.from({ length: LENGTH }, () => Math.floor(random() * two.vocab)));

const shared: Branch = { width: 6, perHead: false };
type Case = readonly [codec: Codec, path: Path, branch: Branch, geometry: Geometry];
const CASES: readonly Case[] = [
  [{ kind: 'lla', rankK: 2, rankV: 3 }, 'reconstruct', shared, two],
  [{ kind: 'lla', rankK: 3, rankV: 2 }, 'absorbed', shared, one],
  [{ kind: 'lla-2d', rankK: 4, rankV: 5 }, 'block-absorbed', shared, one],
  [{ kind: 'mla-head', rankK: 3, rankV: 4 }, 'absorbed', { width: 6, perHead: true }, one],
  [{ kind: 'hla', rankK: 8, rankV: 5, rankFirst: 4, windowTokens: 0 }, 'rotated', shared, three],
  [{ kind: 'hla', rankK: 4, rankV: 6, rankFirst: 8, windowTokens: 2 }, 'rotated', shared, two],
];

const codecOf = ([codec, path, branch, g]: Case): TensorSource =>
  fabricate(codecTensors(g, codec, path, branch), { seed: SEED, tiedEmbeddings: false, codec: 'random' });
const nameOf = ({ loop, layer }: Site): string => `${loop} ${layer}`;
const logSoftmax = (row: Vector): number[] => [...softmax([...row])].map(Math.log);

/** Rows of `capture`, in plain numbers. */
type Captured = ReadonlyMap<string, { readonly shape: readonly number[]; readonly values: Float32Array }>;

async function captured(rows: Arrays): Promise<Captured> {
  const all = Object.entries(rows).map(async ([name, array]) => {
    return [name, { shape: array.shape, values: (await array.ref.data()) as Float32Array }] as const;
  });
  return new Map(await Promise.all(all));
}

/** The loss of texts in float64, for rows that are as they are. @param weights of the tokens */
function exactLoss(
  [codec, path, branch, g]: Case,
  source: TensorSource,
  rows: Captured,
  weights: readonly number[],
  lambda = LAMBDA,
): number {
  const model = loadModel(g, twinOf(g), EPSILON);
  const codecs = loadCodec(g, codec, path, branch, source);
  /** What was captured of a token. @param slot KV head */
  const rowOf = (
    part: CodecAxis | 'input',
    { loop, layer }: Site,
    text: number,
    slot: number,
    token: number,
  ): Vector => {
    const { shape, values } = rows.get(rowName(part, loop, layer)) as { shape: number[]; values: Float32Array };
    const [, slots, tokens, width] = shape as [number, number, number, number];
    const from = ((text * slots + slot) * tokens + token) * width;
    return Float64Array.from(values.subarray(from, from + width));
  };
  /** The row that a token's latent gives back. */
  const backOf = (axis: CodecAxis, site: Site, text: number, head: number, token: number): Vector => {
    const parts = (codecs[site.layer] as (typeof codecs)[number])[axis];
    const group = groupOf(parts, site.loop, head);
    const stacked = new Float64Array(parts.groups.width);
    for (let loop = 0; loop < g.loops; loop++)
      for (let other = 0; other < g.kvHeads; other++)
        if (groupOf(parts, loop, other) === group)
          stacked.set(rowOf(axis, { ...site, loop }, text, other, token), offsetOf(parts, loop, other));
    return decode(parts, site.loop, head, encode(parts, group, stacked));
  };
  const turned = (x: Vector, position: number): Vector => rotate(x, position, g.rope);
  const hybrids = loadHybrid(g, codec, source);
  /** What the cache of rotated latents, and of exact rows beside them, has of a text. */
  const cacheOf = (text: number): Pick<SequenceCache, 'read'> => ({
    read: (role, site, head, token) => {
      if (role === 'key') return turned(rowOf('key', site, text, head, token), token);
      if (role === 'value') return rowOf('value', site, text, head, token);
      const layer = hybrids[site.layer] as (typeof hybrids)[number];
      const loops = site.loop === 0 ? [0] : Array.from({ length: g.loops - 1 }, (_, i) => i + 1);
      const shares = loops.map((loop) => encodeInput(layer, loop, rowOf('input', { ...site, loop }, text, 0, token)));
      const latent = shares.reduce((sum, share) => sum.map((x, i) => x + (share[i] as number)));
      const { key, value } = partsOf(layer, site.loop, latent);
      return role === rolesOf(site.loop).key ? rotateLatent(key, token, g) : value;
    },
  });
  const attendLatents = (text: number, site: Site, tokens: readonly Projection[]): Vector[] =>
    tokens.map((token, n) =>
      joined(
        token.queries.map((query, head) => {
          const kvHead = Math.floor((head * g.kvHeads) / g.heads);
          const exactFrom = n - (codec.windowTokens as number);
          const cache = cacheOf(text) as SequenceCache;
          const context = { geometry: g, path, cache, site, kvHead, reindexed: false, codec: undefined, exactFrom };
          const visible = { cached: Array.from({ length: n }, (_, m) => m), exact: [token] };
          const layer = hybrids[site.layer] as (typeof hybrids)[number];
          return attendHybrid(context, layer, query, n, visible).output;
        }),
      ),
    );
  let loss = 0;
  texts.forEach((text, at) => {
    const weightOf = (token: number): number => weights[at * LENGTH + token] as number;
    const positions = text.map((_, i) => i);
    const wanted = new Map<string, Vector[]>();
    const exact = exactAttention(model);
    const teacher = run(model, text, positions, (site, tokens) => {
      const outputs = exact(site, tokens);
      wanted.set(nameOf(site), outputs);
      return outputs;
    }).map(logSoftmax);
    const first = new Map<number, readonly Projection[]>();
    const attendRows: Attention = (site, tokens) => {
      const own = codecs[site.layer] as (typeof codecs)[number];
      const begin = site.loop - (site.loop % own.key.groups.loops);
      if (site.loop === begin) first.set(site.layer, tokens);
      const branchKey = (input: Vector, head: number): Vector =>
        split(product((own.branch as NonNullable<typeof own.branch>).key, input), branch.width)[
          branch.perHead ? head : 0
        ] as Vector;
      return tokens.map((token, n) =>
        joined(
          token.queries.map((query, head) => {
            const kv = Math.floor((head * g.kvHeads) / g.heads);
            const branchQuery = own.branch && split(product(own.branch.query, token.input), branch.width)[head];
            const scores = tokens.slice(0, n + 1).map((_, m) => {
              const key = m === n ? (token.keys[kv] as Vector) : backOf('key', site, at, kv, m);
              if (!branchQuery) return dot(turned(query, n), turned(key, m)) / Math.sqrt(g.headDim);
              const input =
                m === n
                  ? (first.get(site.layer)?.[n] as Projection).input
                  : rowOf('input', { ...site, loop: begin }, at, 0, m);
              const place = dot(turned(branchQuery, n), turned(branchKey(input, kv), m));
              return (dot(query, key) + place) / Math.sqrt(g.headDim + branch.width);
            });
            const output = new Float64Array(g.headDim);
            softmax(scores).forEach((weight, m) =>
              accumulate(output, m === n ? (token.values[kv] as Vector) : backOf('value', site, at, kv, m), weight),
            );
            return output;
          }),
        ),
      );
    };
    const attention: Attention = (site, tokens) => {
      const outputs = hybrids.length > 0 ? attendLatents(at, site, tokens) : attendRows(site, tokens);
      outputs.forEach((output, n) =>
        output.forEach((x, i) => {
          const difference = x - ((wanted.get(nameOf(site)) as Vector[])[n]?.[i] as number);
          loss += (weightOf(n) * lambda * difference ** 2) / (g.loops * g.layers);
        }),
      );
      return outputs;
    };
    run(model, text, positions, attention)
      .map(logSoftmax)
      .forEach((student, n) =>
        teacher[n]?.forEach((p, i) => (loss += weightOf(n) * Math.exp(p) * (p - (student[i] as number)))),
      );
  });
  return loss;
}

describe(`distillation (LLA_SIM_SEED=${SEED})`, () => {
  beforeAll(startJax);
  const oneHot = (): np.Array => nn.oneHot(np.array(Int32Array.from(texts.flat()), { dtype: np.int32 }), two.vocab);
  const codecArrays = (source: TensorSource): Parameters =>
    Object.fromEntries(
      [...source.shapes].map(([name, shape]) => [name, np.array(source.read(name)).reshape([...shape])]),
    );
  /** Tokens that are prefilled. */
  const PROMPT = 2;

  it.each(CASES)(
    "%o by %s: each step is the decoder's, draws too, and gradients are those of the float64 loss",
    async (...of) => {
      const [codec, path, branch, g] = of;
      const setting: Setting = { geometry: g, normEpsilon: EPSILON, length: LENGTH };
      const swap: Swap = { codec, path, branch };
      const source = codecOf(of);
      const at = studentPositions(setting, swap);
      const base = parametersFrom(trainedTensors(g), twinOf(g));
      const arrays = codecArrays(source);
      const rollout = new Rollout(setting, swap);
      const { rows } = await rollout.run(arrays, base, at, texts, PROMPT, null);

      const cached = readBack(setting, swap, arrays, at, tree.ref(rows));
      const student = studentPass(setting, swap, tree.ref(arrays), tree.ref(base), tree.ref(at), cached, oneHot());
      const own = (await student.data()) as Float32Array;
      const decoderOf = (prompt: readonly number[]): ReferenceDecoder => {
        const choice = { storage: 'f32', groupSize: 64 } as const;
        const options = { codec, path, branch, eviction: null, choice, exactStorage: true };
        const decoder = new ReferenceDecoder(loadModel(g, twinOf(g), EPSILON), source, options);
        decoder.prefill(prompt, 'accumulated');
        return decoder;
      };
      const same = (text: number, n: number, logits: Vector): void =>
        logSoftmax(logits).forEach((p, j) => expect(own[(text * LENGTH + n) * g.vocab + j]).toBeCloseTo(p, 4));
      texts.forEach((text, i) => {
        // Within the prompt a token is a first step behind those before it.
        for (let n = 1; n < PROMPT; n++) same(i, n, decoderOf(text.slice(0, n)).step(text[n] as number));
        const decoder = decoderOf(text.slice(0, PROMPT));
        for (let n = PROMPT; n < LENGTH; n++) same(i, n, decoder.step(text[n] as number));
      });

      const draws = { temperature: 0.7, seed: SEED };
      const drawn = await rollout.run(arrays, base, at, texts, PROMPT, draws);
      drawn.texts.forEach((text, i) => {
        expect(text.slice(0, PROMPT + 1)).toEqual(texts[i]?.slice(0, PROMPT + 1));
        const decoder = decoderOf(text.slice(0, PROMPT));
        for (let n = PROMPT; n + 1 < LENGTH; n++)
          expect(text[n + 1]).toBe(sample(decoder.step(text[n] as number), { ...draws, topP: 1 }, n, i));
      });

      const weights = Array.from({ length: texts.length * LENGTH }, random);
      const known = await captured(rows);
      const frozen = (): Frozen => ({
        base: tree.ref(base),
        at: tree.ref(at),
        exact: exactPass(setting, tree.ref(base), tree.ref(at), oneHot()),
        rows: tree.ref(rows),
        oneHot: oneHot(),
        weights: np.array(weights),
      });
      const alone = distillationLoss(setting, swap, 0)(tree.ref(arrays), frozen());
      expect(((await alone.data()) as Float32Array)[0]).toBeCloseTo(exactLoss(of, source, known, weights, 0), 4);
      const [loss, gradients] = withGradients(distillationLoss(setting, swap, LAMBDA))(arrays, frozen());
      expect(((await loss.data()) as Float32Array)[0]).toBeCloseTo(exactLoss(of, source, known, weights), 4);
      expect(Object.keys(gradients).sort()).toEqual([...source.shapes.keys()].sort());
      const all = Object.entries(gradients).map(async ([name, gradient]) => {
        return { name, values: (await gradient.data()) as Float32Array };
      });
      expectGradients(await Promise.all(all), source, (other) => exactLoss(of, other, known, weights), random);
    },
  );

  it('lowers KL; ends early with the best so far, and goes on as if it had not, on-policy too', async () => {
    const swap: Swap = { codec: { kind: 'lla', rankK: 2, rankV: 3 }, path: 'reconstruct', branch: shared };
    const file = `${temporaryFolder()}/state`;
    const asked: Distillation = {
      setting: { geometry: one, normEpsilon: EPSILON, length: LENGTH },
      swap,
      plan: { seed: SEED, steps: 8, onPolicySteps: 4, temperature: 1, rate: 0.02, lambdaAttn: LAMBDA, texts: 1 },
      model: twinOf(one),
      start: codecOf([swap.codec, swap.path, swap.branch, one]),
      texts,
      heldOut: texts,
    };
    const unheard = new AbortController().signal;
    const off = { ...asked.plan, steps: 40, onPolicySteps: 0, rate: 0.005, lambdaAttn: 0 };
    const forced = await distil({ ...asked, plan: off }, { signal: unheard, state: null });
    expect(forced.after.estimate).toBeLessThan(forced.before.estimate);
    // Steps on drawn texts, and the loss of attention, may raise the KL of the held-out ones.
    const whole = await distil(asked, { signal: unheard, state: null });
    expect(whole.before).toEqual(forced.before);
    // Few steps on drawn texts may bring nothing; those before them stay the best then.
    expect(whole.drawn?.after.estimate).toBeLessThanOrEqual(whole.drawn?.before.estimate as number);
    expect(whole.bestStep).toBeGreaterThanOrEqual(4);
    const until = async (last: number): Promise<Distilled> => {
      const abort = new AbortController();
      const onProgress = (step: number): unknown => step === last && abort.abort();
      return distil(asked, { signal: abort.signal, state: { path: file, question: 'q' }, onProgress });
    };
    const part = await until(2);
    expect([part.steps, part.bestStep, part.drawn]).toEqual([2, 0, null]);
    expect(part.after).toEqual(part.before);
    const another = distil(asked, { signal: unheard, state: { path: file, question: 'other' } });
    await expect(another).rejects.toThrow(/of another model, text or setting/);
    expect((await until(6)).steps).toBe(6);
    const rest = await distil(asked, { signal: unheard, state: { path: file, question: 'q' } });
    expect({ ...rest, tensors: null }).toEqual({ ...whole, tensors: null });
    for (const name of whole.tensors.shapes.keys()) expect(rest.tensors.read(name)).toEqual(whole.tensors.read(name));
    expect(existsSync(file)).toBe(false);
  });
});

describe('what is distilled', () => {
  const lla: Codec = { kind: 'lla', rankK: 2, rankV: 3 };

  it('is small, of layers that training knows, with latents', async () => {
    expect(refuseDistil(two, lla, 'reconstruct')).toBeUndefined();
    for (const [codec, path] of CASES) expect(refuseDistil(two, codec, path), codec.kind).toBeUndefined();
    expect(refuseDistil(two, lla, 'fast')).toMatch(/no latents/);
    expect(refuseDistil(two, { kind: 'cla', shareLayers: 2 }, 'full')).toMatch(/no weights/);
    expect(refuseDistil({ ...two, mlpHidden: 1e6 }, lla, 'reconstruct')).toMatch(/at most 5M/);
    // By the command, before it looks for a GPU; --window is of the text.
    const flags = { model: 'ouro-1.4b', distil: true, ratio: '4', window: '64', output: 'codec.safetensors' };
    const tooLarge = /--distil: ouro-1.4b has 1.43G parameters, .* at most 5M/;
    await expect(fitCommand.run(new Args(flags))).rejects.toThrow(tooLarge);
    for (const other of GEOMETRIES.slice(1)) expect(refuseDistil(other, lla, 'reconstruct')).toMatch(/Ouro's layers/);
  });

  it('is trained at a rate that rises for a tenth of the steps, then falls', () => {
    const plan = { seed: 1, steps: 100, onPolicySteps: 0, temperature: 1, rate: 0.02, lambdaAttn: LAMBDA, texts: 1 };
    expect([5, 10].map((step) => distilRate(plan, step))).toEqual([0.01, 0.02]);
    expect(distilRate(plan, 55)).toBeCloseTo(0.01, 3);
    expect(distilRate(plan, 100)).toBeLessThan(1e-4);
  });

  it('is not drawn where nothing is trained, nor at a temperature where nothing is drawn', () => {
    const asked = (flags: Args['flags']) => () => readDistil(new Args(flags), two, lla, 'reconstruct');
    expect(asked({ 'on-policy': true })).toThrow('--on-policy is of a training, and there is none');
    expect(asked({ distil: true, temperature: '0.7' })).toThrow('--temperature is of drawn texts, and none are drawn');
    expect(asked({ distil: true, 'on-policy': true, steps: '5' })()).toMatchObject({ steps: 5, onPolicySteps: 3 });
    expect(asked({ distil: true, 'on-policy': false })()).toMatchObject({ onPolicySteps: 0, temperature: 1 });
    expect(asked({ 'lambda-attn': '0' })).toThrow('--lambda-attn is of a training, and there is none');
    expect(asked({ distil: true })()).toMatchObject({ lambdaAttn: 0.5 });
    expect(asked({ distil: true, 'lambda-attn': '0' })()).toMatchObject({ lambdaAttn: 0 });
    expect(asked({ distil: true, 'lambda-attn': '-1' })).toThrow(/--lambda-attn/);
    expect(asked({ 'exact-tokens': '4' })).toThrow('--exact-tokens is of a training, and there is none');
    expect(asked({ distil: true, 'exact-tokens': '4' })).toThrow('beside the latents of hla, and not of lla');
    const hla: Codec = { kind: 'hla', rankK: 4, rankV: 6, rankFirst: 8, windowTokens: 128 };
    const of = (flags: Args['flags']) => readDistil(new Args({ distil: true, ...flags }), two, hla, 'rotated');
    expect(of({})).toMatchObject({ windowTokens: 0 });
    expect(of({ 'exact-tokens': '4' })).toMatchObject({ windowTokens: 4 });
  });

  it('is judged on other windows than it is trained on', () => {
    const windows = Array.from({ length: 17 }, (_, i) => Array.from({ length: i === 16 ? 3 : 5 }, () => i));
    const { texts: trained, heldOut } = heldOutOf(windows);
    expect([trained.length, heldOut.length]).toEqual([14, 2]);
    expect(new Set([...trained, ...heldOut].flat()).size).toBe(16);
    expect(() => heldOutOf(windows.slice(0, 1))).toThrow(/none to judge on/);
  });
});
