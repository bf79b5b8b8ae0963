/**
 * FlashLoop's decoder against a second account of its definition (arXiv 2609.29812): every loop is computed of all
 * tokens, and what tokens would not have run is put back; rows are packed and rebuilt from the bytes of the cache.
 */
import { describe, expect, it } from 'vitest';
import type { Codec, FlashloopConstants } from '../../src/codecs/codec.js';
import { FLASHLOOP, flashloopBytes, packedAfter } from '../../src/codecs/flashloop.js';
import { bytesPerToken } from '../../src/codecs/layout.js';
import { layoutOf } from '../../src/codecs/registry.js';
import { dot, joined, rotate, softmax, type Vector } from '../../src/decoder/reference/arithmetic.js';
import { forward } from '../../src/decoder/reference/forward.js';
import type { Model } from '../../src/decoder/reference/model.js';
import { run, type Projection, type Site } from '../../src/decoder/reference/network.js';
import type { Geometry } from '../../src/geometry/geometry.js';
import { halfBits, halfValue } from '../../kernels/host/half.js';
import { randomOf, SEED } from '../gpu/random.js';
import { BRANCH, decodeAll, decoderOf, GEOMETRIES, modelOf, promptOf, F16 } from './models.js';
import { expectSame, expectOther } from './account.js';

const [OURO, HUGINN, GROUPED] = GEOMETRIES as [Geometry, Geometry, Geometry];
// A coda would read states that the second account puts back only when the next loop begins.
const MODELS: readonly Geometry[] = [
  { ...OURO, loops: 4, headDim: 16 },
  OURO,
  { ...HUGINN, loops: 4, codaLayers: 0 },
  { ...GROUPED, loops: 4 },
];
const random = randomOf(SEED);

const flashloop = (constants: Partial<FlashloopConstants>): Codec => ({
  kind: 'flashloop',
  tokens: 'prompt',
  constants: { ...FLASHLOOP, ...constants },
});
const SMALL = { group: 8, tail: 8 };
const half = (x: number): number => halfValue(halfBits(x));
const halves = (x: Vector): number[] => [...x].map(half);

describe.each(MODELS)(`$name (LLA_SIM_SEED=${SEED})`, (g) => {
  const seed = random.whole(0, 2 ** 30);
  const model = modelOf(g, seed);
  const tokens = promptOf(g, 30, seed);

  it('with all tokens and keys is the uncompressed model, in prompts and steps', () => {
    const codec = flashloop({ rows: [1, 1, 1, 1], keys: 1 });
    const exact = forward(model, tokens);
    const prompted = decoderOf(model, { codec, seed });
    expectSame(prompted.prefill(tokens.slice(0, 20), 'accumulated'), exact.slice(0, 20));
    expectSame(decodeAll(prompted, tokens.slice(20)), exact.slice(20));
    expectSame(decodeAll(decoderOf(model, { codec, seed }), tokens), exact);
  });

  it('with all keys reads packed rows in later loops as dense loops do', () => {
    const of = (constants: Partial<FlashloopConstants>): Vector[] => {
      const decoder = decoderOf(model, { codec: flashloop({ ...SMALL, ...constants }), seed, choice: F16 });
      decoder.prefill(tokens.slice(0, 20), 'accumulated');
      return decodeAll(decoder, tokens.slice(20));
    };
    const dense = of({ dense: 4, rows: [1, 1, 1, 1] });
    expectSame(of({ rows: [1, 1, 1, 1], keys: 1 }), dense);
    // Packing changes something, and so do the keys that are left out.
    expectOther(dense, forward(model, tokens).slice(20), 1e-5);
    expectOther(of({ rows: [1, 1, 1, 1], keys: 0.1 }), dense, 1e-5);
  });

  it.each([
    [{}, 42, 5],
    [{ rows: [1, 1, 0.5, 0.5], keys: 0.3, anchorBits: 8, tail: 0 }, 27, 30],
    [{ dense: 3, rows: [1, 1, 1, 0.3], keys: 0.2, group: 16, tail: 3 }, 41, 20],
  ] as const)('%j is the second account of it, for a prompt of %d tokens and %d steps', (constants, prompt, steps) => {
    const of = { ...FLASHLOOP, ...SMALL, ...constants };
    const text = promptOf(g, prompt + steps, seed + prompt);
    const decoder = decoderOf(model, { codec: flashloop(of), seed, choice: F16 });
    const first = decoder.prefill(text.slice(0, prompt), 'accumulated').at(-1)!;
    const second = new SecondAccount(model, of);
    expectSame([first], [second.prefill(text.slice(0, prompt))]);
    text.slice(prompt).forEach((token, i) => {
      const cache = decoder.packedLoops!.bytes();
      expect(cache.length).toBe(second.plannedBytes(prompt, i));
      const logits = second.step(token, cache);
      expectSame([decoder.step(token)], [logits], `step ${i}`);
    });
  });
});

it('a packed cache has the bytes that a plan counts a token, where groups are full', () => {
  const g = MODELS[0]!;
  const model = modelOf(g, 1);
  const constants = { ...FLASHLOOP, ...SMALL, rows: [1, 1, 0.5, 0.25] };
  const decoder = decoderOf(model, { codec: flashloop(constants), seed: 1, choice: F16 });
  decodeAll(decoder, promptOf(g, 40, 1));
  const generated: Codec = { ...flashloop(constants), tokens: 'generated' };
  const layout = layoutOf(g, generated, 'full', F16, BRANCH);
  const exact = bytesPerToken(layoutOf(g, { kind: 'full' }, 'full', F16, BRANCH));
  const packed = packedAfter(0, 40, constants);
  expect(packed).toBe(32);
  expect(decoder.packedLoops!.bytes().length).toBe(packed * bytesPerToken(layout) + (40 - packed) * exact);
});

type Rows = number[][];

/** Loops of all tokens; the packed part of the cache is read from its bytes. */
class SecondAccount {
  private tokens = 0;
  /** Tokens of the prompt that ran each loop. */
  private ran: Set<number>[] = [];
  /** Rows of the tail's tokens and those before, exact: [layer][loop][head]. */
  private readonly keys = new Map<string, Rows>();
  private readonly values = new Map<string, Rows>();
  private readonly outside = new Map<string, Projection[]>();

  constructor(
    private readonly model: Model,
    private readonly of: FlashloopConstants,
  ) {}

  private at(site: Site, head: number): string {
    return [site.layer, site.loop, head].join();
  }

  private rows(of: Map<string, Rows>, site: Site, head: number): Rows {
    const key = this.at(site, head);
    if (!of.has(key)) of.set(key, []);
    return of.get(key)!;
  }

  private outsideCore(site: Site, tokens: readonly Projection[], round: boolean): Vector[] {
    const { geometry: g } = this.model;
    const key = [site.block, site.layer, site.loop].join();
    const known = this.outside.get(key) ?? [];
    this.outside.set(key, [...known, ...tokens]);
    return tokens.map((token, n) =>
      joined(
        token.queries.map((query, head) => {
          const kvHead = Math.floor((head * g.kvHeads) / g.heads);
          const seen = [...known, ...tokens.slice(0, n + 1)];
          const isExact = (i: number): boolean => !round && i >= known.length;
          const keys = seen.map((t, i) => {
            const key = rotate(t.keys[kvHead]!, t.position, g.rope);
            return isExact(i) ? [...key] : halves(key);
          });
          const values = seen.map((t, i) => (isExact(i) ? [...t.values[kvHead]!] : halves(t.values[kvHead]!)));
          return Float64Array.from(attend(rotate(query, token.position, g.rope), keys, values).output);
        }),
      ),
    );
  }

  prefill(prompt: readonly number[]): Vector {
    const { model, of } = this;
    const { geometry: g } = model;
    const n = prompt.length;
    const all = prompt.map((_, i) => i);
    let [previous, current]: [Vector[], Vector[]] = [[], []];
    const logits = run(
      model,
      prompt,
      all,
      (site, tokens) => {
        if (site.block !== 'core') return this.outsideCore(site, tokens, true);
        return tokens.map((token) =>
          joined(
            token.queries.map((query, head) => {
              const kvHead = Math.floor((head * g.kvHeads) / g.heads);
              const keys = this.rows(this.keys, site, kvHead);
              const values = this.rows(this.values, site, kvHead);
              if (keys.length === 0)
                tokens.forEach((t, i) => {
                  const runs = this.ran[site.loop]!.has(i);
                  const before = { ...site, loop: site.loop - 1 };
                  keys.push(
                    runs ? halves(rotate(t.keys[kvHead]!, i, g.rope)) : this.rows(this.keys, before, kvHead)[i]!,
                  );
                  values.push(runs ? halves(t.values[kvHead]!) : this.rows(this.values, before, kvHead)[i]!);
                });
              const upTo = token.position + 1;
              const turned = rotate(query, token.position, g.rope);
              return Float64Array.from(attend(turned, keys.slice(0, upTo), values.slice(0, upTo)).output);
            }),
          ),
        );
      },
      {
        rowsOf: (loop, states) => {
          // States of tokens that did not run the loop before are put back.
          if (loop > 0)
            states.forEach((x, i) => {
              if (!this.ran[loop - 1]!.has(i)) x.set(current[i]!);
            });
          [previous, current] = [current, states.map((x) => x.slice())];
          if (loop < of.dense) this.ran[loop] = new Set(all);
          else {
            const norm = (x: Vector): number => Math.sqrt(dot(x, x));
            const score = all.map((i) => norm(current[i]!.map((x, c) => x - previous[i]![c]!)) / norm(current[i]!));
            const best = all
              .slice(0, -1)
              .filter((i) => this.ran[loop - 1]!.has(i))
              .sort((a, b) => score[b]! - score[a]! || a - b);
            this.ran[loop] = new Set([n - 1, ...best.slice(0, Math.ceil(of.rows[loop]! * n) - 1)]);
          }
          return all;
        },
      },
    );
    this.tokens = n;
    return logits.at(-1)!;
  }

  plannedBytes(prompt: number, generated: number): number {
    const { geometry: g } = this.model;
    const packed = packedAfter(prompt, generated, this.of);
    const [third, fourth] = [2, 3].map((loop) => this.packedTokens(loop, packed).length) as [number, number];
    const bytes = flashloopBytes(g, { packed, third, fourth, tail: prompt + generated - packed }, this.of);
    return bytes.streams + bytes.index + bytes.tail;
  }

  private packedTokens(loop: number, packed: number): number[] {
    if (loop >= this.model.geometry.loops) return [];
    return Array.from({ length: packed }, (_, i) => i).filter((i) => i >= this.promptLength || this.ran[loop]!.has(i));
  }

  private get promptLength(): number {
    return Math.max(0, ...[...(this.ran[0] ?? [])].map((i) => i + 1));
  }

  /** @param cache bytes of the decoder's cache, from which packed rows are read */
  step(token: number, cache: Uint8Array): Vector {
    const { model, of } = this;
    const { geometry: g } = model;
    const position = this.tokens++;
    const read = new Reader(
      cache,
      g,
      of,
      position,
      (loop, packed) => this.packedTokens(loop, packed),
      this.promptLength,
    );
    const kept = new Map<number, { output: number[]; chosen: number[]; mass: number; mean: number[] }[]>();
    return run(model, [token], [position], (site, tokens) => {
      if (site.block !== 'core') return this.outsideCore(site, tokens, false);
      const own = tokens[0]!;
      const outputs = own.queries.map((query, head) => {
        const kvHead = Math.floor((head * g.kvHeads) / g.heads);
        const q = rotate(query, position, g.rope);
        const keys = [...read.rows('keys', site, kvHead), [...rotate(own.keys[kvHead]!, position, g.rope)]];
        const values = [...read.rows('values', site, kvHead), [...own.values[kvHead]!]];
        const before = kept.get(site.layer)?.[head];
        if (site.loop >= of.dense) {
          const { output, chosen, mass, mean } = before!;
          const again = attend(
            q,
            chosen.map((i) => keys[i]!),
            chosen.map((i) => values[i]!),
          ).output;
          return Float64Array.from(output.map((o, c) => o + mass * (again[c]! - mean[c]!)));
        }
        const { output, weights } = attend(q, keys, values);
        if (site.loop === of.dense - 1) {
          const order = weights.map((_, i) => i).sort((a, b) => weights[b]! - weights[a]! || a - b);
          const chosen = order.slice(0, Math.ceil(of.keys * (position + 1)));
          const mass = chosen.reduce((sum, i) => sum + weights[i]!, 0);
          const mean = output.map((_, c) => chosen.reduce((sum, i) => sum + (weights[i]! / mass) * values[i]![c]!, 0));
          const list = kept.get(site.layer) ?? [];
          list[head] = { output, chosen, mass, mean };
          kept.set(site.layer, list);
        }
        return Float64Array.from(output);
      });
      return [joined(outputs)];
    })[0]!;
  }
}

function attend(q: Vector, keys: Rows, values: Rows): { output: number[]; weights: number[] } {
  const weights = softmax(keys.map((key) => dot(q, Float64Array.from(key)) / Math.sqrt(q.length)));
  return { output: [...q].map((_, c) => values.reduce((sum, v, i) => sum + weights[i]! * v[c]!, 0)), weights };
}

/** Rows from the bytes of a cache, as the head of flashloop-bytes.ts says where they are. */
class Reader {
  private readonly found = new Map<string, Rows[]>();

  constructor(
    bytes: Uint8Array,
    g: Geometry,
    of: FlashloopConstants,
    tokens: number,
    packedTokens: (loop: number, packed: number) => number[],
    promptTokens: number,
  ) {
    const view = new DataView(bytes.buffer);
    const packed = packedAfter(promptTokens, tokens - promptTokens, of);
    const d = g.headDim;
    let at = 0;
    const half = (): number => halfValue(view.getUint16((at += 2) - 2, true));
    for (let layer = 0; layer < g.layers; layer++) {
      const owners: number[][] = [];
      for (let loop = 0; loop < g.loops; loop++) {
        const own = packedTokens(loop, packed);
        owners.push(own);
        if (loop < of.dense) continue;
        for (let token = 0; token < packed; token++)
          expect(view.getInt32((at += 4) - 4, true)).toBe(own.indexOf(token));
        for (const token of own) expect(view.getInt32((at += 4) - 4, true)).toBe(token);
      }
      for (let head = 0; head < g.kvHeads; head++)
        for (const axis of ['keys', 'values'] as const) {
          let rebuilt: Rows = [];
          const loops: Rows[] = [];
          owners.forEach((own, loop) => {
            const bits = loop === 0 ? of.anchorBits : 4;
            const codes = own.map((_, row) =>
              Array.from({ length: d }, (_, c) => {
                const bit = (row * d + c) * bits;
                return (bytes[at + (bit >> 3)]! >> (bit & 7)) & (2 ** bits - 1);
              }),
            );
            at += (own.length * d * bits) / 8;
            const pairs = new Map<string, [number, number]>();
            const put = (key: string): unknown => pairs.set(key, [half(), half()]);
            if (axis === 'keys')
              for (let c = 0; c < d; c++) for (let i = 0; i < own.length; i += of.group) put(`${c} ${i / of.group}`);
            else
              own.forEach((_, row) => {
                for (let c = 0; c < d; c += of.group) put(`${c / of.group} ${row}`);
              });
            const next = rebuilt.map((row) => [...row]);
            own.forEach((token, row) => {
              next[token] = codes[row]!.map((code, c) => {
                const key =
                  axis === 'keys' ? `${c} ${Math.floor(row / of.group)}` : `${Math.floor(c / of.group)} ${row}`;
                const [scale, low] = pairs.get(key)!;
                const value = halfValue(halfBits(Math.fround(Math.fround(code * scale) + low)));
                return loop === 0 ? value : halfValue(halfBits(rebuilt[token]![c]! + value));
              });
            });
            loops.push((rebuilt = next));
          });
          for (let loop = 0; loop < g.loops; loop++)
            for (let token = packed; token < tokens; token++) loops[loop]![token] = Array.from({ length: d }, half);
          this.found.set([axis, layer, head].join(), loops);
        }
    }
    expect(at).toBe(bytes.length);
  }

  rows(axis: 'keys' | 'values', { layer, loop }: Site, head: number): Rows {
    return this.found.get([axis, layer, head].join())![loop]!;
  }
}
