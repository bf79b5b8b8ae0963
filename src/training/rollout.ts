/**
 * A student that goes on from prompts, token by token, as the decoder does: a prompt's rows are those of its first
 * pass, those of every later token are what the student computed at it, reading the tokens before through their
 * latents.
 */
import { nn, numpy as np, tree } from '@jax-js/jax';
import { sample } from '../decoder/sampler.js';
import { capture, readBack, type Setting, type Swap } from './cached.js';
import { compiled, free, type Arrays } from './jax.js';
import type { Parameters, Positions } from './looped.js';
import { promptPass, studentPass } from './student.js';

/** How tokens are drawn from the student. */
export interface Draws {
  readonly temperature: number;
  readonly seed: number;
}

export interface Rolled {
  /** The texts that were given, or with what was drawn in place of their ends. */
  readonly texts: readonly (readonly number[])[];
  /** What was captured at every token (`capture`); of the last one nothing reads it. */
  readonly rows: Arrays;
}

/** Rows by `rowName`: as captured, and as read back. */
type Cache = [rows: Arrays, cached: Arrays];
type Begin = (p: Parameters, base: Parameters, at: Positions, tokens: np.Array) => Cache;
type Step = (
  p: Parameters,
  base: Parameters,
  at: Positions,
  here: np.Array,
  tokens: np.Array,
  cache: Cache,
) => [np.Array, ...Cache];

export const tokenArray = (tokens: readonly number[]): np.Array =>
  np.array(Int32Array.from(tokens), { dtype: np.int32 });

export class Rollout {
  private readonly begin: Begin;
  private readonly step: Step;

  constructor(
    private readonly setting: Setting,
    swap: Swap,
  ) {
    const { geometry: g, length } = setting;
    const single: Setting = { ...setting, length: 1 };
    this.begin = compiled<Begin>((p, base, at, tokens) => {
      const rows = promptPass(setting, swap, tree.ref(p), base, tree.ref(at), nn.oneHot(tokens, g.vocab));
      const cached = readBack(setting, swap, p, at, tree.ref(rows));
      free(p, at);
      return [rows, cached];
    });
    this.step = compiled<Step>((p, base, at, here, tokens, [rows, cached]) => {
      const own = Object.fromEntries(
        Object.entries(at).map(([name, table]) => [name, np.matmul(here.ref, table)]),
      ) as unknown as Positions;
      const made: Arrays = {};
      const student = studentPass(
        single,
        swap,
        tree.ref(p),
        base,
        tree.ref(own),
        tree.ref(cached),
        nn.oneHot(tokens, g.vocab),
        { inputs: (inputs) => capture(single, swap, made, inputs) },
      );
      const back = readBack(single, swap, p, own, tree.ref(made));
      const place = here.reshape([length, 1]);
      const others = np.array(1).sub(place.ref);
      const joined = (all: Arrays, one: Arrays): Arrays =>
        Object.fromEntries(
          Object.entries(all).map(([name, array]) => [
            name,
            array.mul(others.ref).add((one[name] as np.Array).mul(place.ref)),
          ]),
        );
      const out: [np.Array, ...Cache] = [student, joined(rows, made), joined(cached, back)];
      free({ place, others }, p, own);
      return out;
    });
  }

  /**
   * Prefills `prompt` tokens of each text, then makes a step a token: over the texts' own, or over what is drawn.
   * @param p, base, at stay usable
   */
  async run(
    p: Parameters,
    base: Parameters,
    at: Positions,
    given: readonly (readonly number[])[],
    prompt: number,
    draws: Draws | null,
  ): Promise<Rolled> {
    const { geometry: g, length } = this.setting;
    const texts = given.map((text) => [...text]);
    let cache = this.begin(tree.ref(p), tree.ref(base), tree.ref(at), tokenArray(texts.flat()));
    for (let n = prompt; n + 1 < length; n++) {
      const here = new Float32Array(length);
      here[n] = 1;
      const tokens = tokenArray(texts.map((text) => text[n] as number));
      const [next, ...grown] = this.step(
        tree.ref(p),
        tree.ref(base),
        tree.ref(at),
        np.array(here).reshape([1, length]),
        tokens,
        cache,
      );
      cache = grown;
      // Read in either case: jax-js computes what is read, and steps that wait for one another cost more each.
      const logits = (await next.data()) as Float32Array;
      if (draws === null) continue;
      texts.forEach((text, i) => {
        text[n + 1] = sample(logits.subarray(i * g.vocab, (i + 1) * g.vocab), { ...draws, topP: 1 }, n, i);
      });
    }
    const [rows, cached] = cache;
    free(cached);
    return { texts, rows };
  }
}
