/** Distillation as jax-js computes it against float64: the student's forward pass, its loss and gradients, and steps. */
import { nn, numpy as np, tree, valueAndGrad } from '@jax-js/jax';
import { existsSync } from 'node:fs';
import { beforeAll, describe, expect, it } from 'vitest';
import type { Branch, Codec, Path } from '../../src/codecs/codec.js';
import { pathSpec } from '../../src/codecs/paths.js';
import { accumulate, dot, joined, product, rotate, softmax, split } from '../../src/decoder/reference/arithmetic.js';
import type { Vector } from '../../src/decoder/reference/arithmetic.js';
import { decode, encode, groupOf, loadCodec, offsetOf } from '../../src/decoder/reference/codec.js';
import { ReferenceDecoder } from '../../src/decoder/reference/decoder.js';
import { exactAttention } from '../../src/decoder/reference/forward.js';
import { loadModel } from '../../src/decoder/reference/model.js';
import { run, type Attention, type Projection, type Site } from '../../src/decoder/reference/network.js';
import { codecTensors, type CodecAxis } from '../../src/decoder/tensors.js';
import { fabricate, type TensorSource } from '../../src/decoder/weights.js';
import { fitCommand } from '../../src/commands/fit.js';
import { heldOutOf } from '../../src/commands/fit-distil.js';
import { refuseDistil } from '../../src/fit/distillable.js';
import type { Geometry } from '../../src/geometry/geometry.js';
import { randomFrom } from '../../src/random.js';
import { tinyGeometry, untrainedTwin } from '../../src/tiny/model.js';
import { parametersFrom, startJax } from '../../src/training/arrays.js';
import { distil, type Distillation } from '../../src/training/distil.js';
import { distilRate } from '../../src/training/distiller.js';
import type { Parameters } from '../../src/training/looped.js';
import {
  distillationLoss,
  exactPass,
  studentPass,
  studentPositions,
  type Setting,
  type Swap,
} from '../../src/training/student.js';
import { temporaryFolder } from '../decoder/files.js';
import { GEOMETRIES } from '../decoder/models.js';
import { SEED } from '../gpu/random.js';

const two = tinyGeometry({
  hidden_size: 12,
  intermediate_size: 10,
  num_attention_heads: 4,
  num_key_value_heads: 2,
  head_dim: 4,
  total_ut_steps: 2,
  vocab_size: 17,
});
const EPSILON = 1e-5;
const LENGTH = 6;
const LAMBDA = 0.5;
const one = { ...two, layers: 1 };
const settingOf = (geometry: Geometry): Setting => ({ geometry, normEpsilon: EPSILON, length: LENGTH });
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
];

const codecOf = ([codec, path, branch, g]: Case): TensorSource =>
  fabricate(codecTensors(g, codec, path, branch), { seed: SEED, tiedEmbeddings: false, codec: 'random' });
const nameOf = ({ loop, layer }: Site): string => `${loop} ${layer}`;
const logSoftmax = (row: Vector): number[] => [...softmax([...row])].map(Math.log);

/** Log-probabilities of a text's tokens, and attention's outputs by site: exactly, and through the codec. */
function exactStudent([codec, path, branch, g]: Case, source: TensorSource, text: readonly number[]) {
  const model = loadModel(g, twinOf(g), EPSILON);
  const positions = text.map((_, i) => i);
  const wanted = new Map<string, Vector[]>();
  const seen = new Map<string, readonly Projection[]>();
  const exact = exactAttention(model);
  const teacher = run(model, text, positions, (site, projections) => {
    const outputs = exact(site, projections);
    wanted.set(nameOf(site), outputs);
    seen.set(nameOf(site), projections);
    return outputs;
  });
  const codecs = loadCodec(g, codec, path, branch, source);
  /** The row that a token's latent gives back. */
  const rowOf = (site: Site, axis: CodecAxis, head: number, token: number): Vector => {
    const parts = (codecs[site.layer] as (typeof codecs)[number])[axis];
    const group = groupOf(parts, site.loop, head);
    const stacked = new Float64Array(parts.groups.width);
    for (let loop = 0; loop < g.loops; loop++)
      for (let other = 0; other < g.kvHeads; other++)
        if (groupOf(parts, loop, other) === group) {
          const from = seen.get(nameOf({ ...site, loop }))?.[token] as Projection;
          const rows = axis === 'key' ? from.keys : from.values;
          stacked.set(rows[other] as Vector, offsetOf(parts, loop, other));
        }
    return decode(parts, site.loop, head, encode(parts, group, stacked));
  };
  const first = new Map<string, readonly Projection[]>();
  const outputs = new Map<string, Vector[]>();
  /** @param cached whether tokens before the own one are read through latents, or exactly (a prompt's first pass) */
  const attention =
    (cached: boolean, into: Map<string, Vector[]>): Attention =>
    (site, tokens) => {
      const own = codecs[site.layer] as (typeof codecs)[number];
      const { loops } = own.key.groups;
      if (site.loop % loops === 0) first.set(String(site.layer), tokens);
      const firstSite = nameOf({ ...site, loop: Math.floor(site.loop / loops) * loops });
      const branchKey = (from: Projection, head: number): Vector => {
        const keys = split(product((own.branch as NonNullable<typeof own.branch>).key, from.input), branch.width);
        return keys[branch.perHead ? head : 0] as Vector;
      };
      const made = tokens.map((token, n) =>
        joined(
          token.queries.map((query, head) => {
            const kv = Math.floor((head * g.kvHeads) / g.heads);
            const branchQuery = own.branch && split(product(own.branch.query, token.input), branch.width)[head];
            const turned = (x: Vector, position: number): Vector => rotate(x, position, g.rope);
            const scores = tokens.slice(0, n + 1).map((_, m) => {
              const isOwn = m === n || !cached;
              const key = isOwn ? ((tokens[m] as Projection).keys[kv] as Vector) : rowOf(site, 'key', kv, m);
              if (!branchQuery) return dot(turned(query, n), turned(key, m)) / Math.sqrt(g.headDim);
              const from = (isOwn ? first.get(String(site.layer)) : seen.get(firstSite))?.[m] as Projection;
              const place = dot(turned(branchQuery, n), turned(branchKey(from, kv), m));
              return (dot(query, key) + place) / Math.sqrt(g.headDim + branch.width);
            });
            const output = new Float64Array(g.headDim);
            softmax(scores).forEach((weight, m) =>
              accumulate(
                output,
                m === n || !cached ? ((tokens[m] as Projection).values[kv] as Vector) : rowOf(site, 'value', kv, m),
                weight,
              ),
            );
            return output;
          }),
        ),
      );
      into.set(nameOf(site), made);
      return made;
    };
  if (pathSpec(path).branch) {
    const scored = attention(false, new Map());
    const firstPass = new Map<string, readonly Projection[]>();
    run(model, text, positions, (site, tokens) => {
      firstPass.set(nameOf(site), tokens);
      return scored(site, tokens);
    });
    for (const [site, tokens] of firstPass) seen.set(site, tokens);
  }
  const student = run(model, text, positions, attention(true, outputs));
  let mismatch = 0;
  for (const [site, rows] of wanted)
    rows.forEach((a, n) =>
      a.forEach((x, i) => (mismatch += (x - ((outputs.get(site) as Vector[])[n]?.[i] as number)) ** 2)),
    );
  return { teacher: teacher.map(logSoftmax), student: student.map(logSoftmax), mismatch };
}

/** The loss of both texts. */
function exactLoss(of: Case, source: TensorSource): number {
  const g = of[3];
  let [kl, mismatch] = [0, 0];
  for (const text of texts) {
    const own = exactStudent(of, source, text);
    own.teacher.forEach((row, n) => row.forEach((p, i) => (kl += Math.exp(p) * (p - (own.student[n]?.[i] as number)))));
    mismatch += own.mismatch;
  }
  return (kl + (LAMBDA * mismatch) / (g.loops * g.layers)) / (texts.length * LENGTH);
}

describe(`distillation (LLA_SIM_SEED=${SEED})`, () => {
  beforeAll(startJax);
  const oneHot = (): np.Array => nn.oneHot(np.array(Int32Array.from(texts.flat()), { dtype: np.int32 }), two.vocab);
  const codecArrays = (source: TensorSource): Parameters =>
    Object.fromEntries(
      [...source.shapes].map(([name, shape]) => [name, np.array(source.read(name)).reshape([...shape])]),
    );

  it.each(CASES)(
    '%o by %s: the pass is that of the decoder, and gradients are those of the float64 loss',
    async (...of) => {
      const [codec, path, branch, g] = of;
      const setting = settingOf(g);
      const base = (): Parameters => parametersFrom(g, twinOf(g));
      const swap: Swap = { codec, path, branch };
      const source = codecOf(of);
      const exact = exactPass(setting, swap, base(), oneHot());
      const at = studentPositions(setting, swap);

      const pass = studentPass(setting, swap, codecArrays(source), base(), tree.ref(at), exact, oneHot());
      const own = (await pass.logProbabilities.data()) as Float32Array;
      texts.forEach((text, i) => {
        const decoder = new ReferenceDecoder(loadModel(g, twinOf(g), EPSILON), source, {
          codec,
          path,
          branch,
          eviction: null,
          choice: { storage: 'f32', groupSize: 64 },
          exactStorage: true,
        });
        decoder.prefill(text.slice(0, -1), 'accumulated');
        const last = logSoftmax(decoder.step(text.at(-1) as number));
        const ours = exactStudent(of, source, text).student;
        last.forEach((p, j) => {
          expect(ours.at(-1)?.[j]).toBeCloseTo(p, 9);
          expect(own[((i + 1) * LENGTH - 1) * g.vocab + j]).toBeCloseTo(p, 3);
        });
      });

      const [loss, gradients] = (
        valueAndGrad(distillationLoss(setting, swap, LAMBDA) as never) as unknown as (
          ...args: unknown[]
        ) => [np.Array, Parameters]
      )(codecArrays(source), { base: base(), at, exact, oneHot: oneHot() });
      expect(((await loss.data()) as Float32Array)[0]).toBeCloseTo(exactLoss(of, source), 4);
      expect(Object.keys(gradients).sort()).toEqual([...source.shapes.keys()].sort());
      for (const [name, gradient] of Object.entries(gradients)) {
        const values = (await gradient.data()) as Float32Array;
        const length = Math.hypot(...values);
        expect(length, name).toBeGreaterThan(0);
        const direction = values.map((x) => x / length + (random() - 0.5) / Math.sqrt(values.length));
        const shifted = (by: number): number =>
          exactLoss(of, {
            shapes: source.shapes,
            read: (other) => source.read(other).map((x, i) => (other === name ? x + by * (direction[i] as number) : x)),
          });
        const step = 2 ** -9;
        const numeric = (shifted(step) - shifted(-step)) / (2 * step);
        const analytic = values.reduce((sum, x, i) => sum + x * (direction[i] as number), 0);
        expect(Math.abs(numeric - analytic) / Math.abs(analytic), name).toBeLessThan(0.01);
      }
    },
  );

  it('lowers KL; ends early with the best so far, and goes on as if it had not', async () => {
    const swap: Swap = { codec: { kind: 'lla', rankK: 2, rankV: 3 }, path: 'reconstruct', branch: shared };
    const file = `${temporaryFolder()}/state`;
    const asked: Distillation = {
      setting: settingOf(one),
      swap,
      plan: { seed: SEED, steps: 8, rate: 0.02, attentionWeight: LAMBDA, texts: 1 },
      model: twinOf(one),
      start: codecOf([swap.codec, swap.path, swap.branch, one]),
      texts,
      heldOut: texts,
    };
    const unheard = new AbortController().signal;
    const whole = await distil(asked, { signal: unheard, state: null });
    expect(whole.bestStep).toBe(8);
    expect(whole.after.estimate).toBeLessThan(whole.before.estimate);
    const abort = new AbortController();
    const seen: number[] = [];
    const part = await distil(asked, {
      signal: abort.signal,
      state: { path: file, question: 'q' },
      onProgress: (step) => {
        seen.push(step);
        if (step === 2) abort.abort();
      },
    });
    expect([part.steps, part.bestStep, seen]).toEqual([2, 0, [1, 2]]);
    expect(part.after).toEqual(part.before);
    await expect(distil(asked, { signal: unheard, state: { path: file, question: 'other' } })).rejects.toThrow(
      /of another model, text or setting/,
    );
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
    expect(refuseDistil(two, lla, 'fast')).toMatch(/no latents/);
    expect(refuseDistil(two, { kind: 'cla', shareLayers: 2 }, 'full')).toMatch(/no weights/);
    expect(refuseDistil({ ...two, mlpHidden: 1e6 }, lla, 'reconstruct')).toMatch(/at most 5M/);
    // By the command, before it looks for a GPU; --window is of the text.
    const flags = { model: 'ouro-1.4b', distil: true, ratio: '4', window: '64', output: 'codec.safetensors' };
    await expect(fitCommand.run({ flags, positional: null, secondPositional: null })).rejects.toThrow(
      /--distil: ouro-1.4b has 1.43G parameters, .* at most 5M/,
    );
    for (const other of GEOMETRIES.slice(1)) expect(refuseDistil(other, lla, 'reconstruct')).toMatch(/Ouro's layers/);
  });

  it('is trained at a rate that rises for a tenth of the steps, then falls', () => {
    const plan = { seed: 1, steps: 100, rate: 0.02, attentionWeight: LAMBDA, texts: 1 };
    expect([5, 10].map((step) => distilRate(plan, step))).toEqual([0.01, 0.02]);
    expect(distilRate(plan, 55)).toBeCloseTo(0.01, 3);
    expect(distilRate(plan, 100)).toBeLessThan(1e-4);
  });

  it('is judged on other windows than it is trained on', () => {
    const windows = Array.from({ length: 17 }, (_, i) => Array.from({ length: i === 16 ? 3 : 5 }, () => i));
    const { texts: trained, heldOut } = heldOutOf(windows);
    expect([trained.length, heldOut.length]).toEqual([14, 2]);
    expect(new Set([...trained, ...heldOut].flat()).size).toBe(16);
    expect(() => heldOutOf(windows.slice(0, 1))).toThrow(/none to judge on/);
  });
});
