/** Acceptance by the first loops: rounds of the decoder beside a count on forced tokens, and what rounds amount to. */
import '../gpu/narrow.js';
import { describe, expect, it, test } from 'vitest';
import { measureAcceptance, summariseRounds, type TextRounds } from '../../src/fidelity/acceptance.js';
import { greedy } from '../../src/decoder/sampler.js';
import { predict } from '../../src/fidelity/forced.js';
import type { Item } from '../../src/fidelity/items.js';
import { exactConfiguration, type Teacher } from '../../src/fit/capture.js';
import { tokensPerRound } from '../../src/serving/speculation.js';
import { tinyGeometry } from '../../src/tiny/model.js';
import { describeGpu } from '../gpu/device.js';
import { randomOf, SEED } from '../gpu/random.js';

const random = randomOf(SEED);

describe(`rounds of texts (seed ${SEED})`, () => {
  it('have the shares by place that they were made of, with the places that no round came to apart', () => {
    const texts = [
      [2, 0, 1],
      [2, 2],
      [0, 0, 0],
    ];
    const { rounds, acceptance, byPlace, tokensPerRound: made } = summariseRounds(1, 2, texts);
    expect(rounds).toBe(8);
    // Of eight first proposals four, of four second ones three.
    expect(byPlace.map((place) => place?.estimate)).toEqual([0.5, 0.75]);
    expect(acceptance.estimate).toBeCloseTo(7 / 12, 12);
    expect(made.estimate).toBeCloseTo(15 / 8, 12);
    for (const { low, estimate, high } of [acceptance, made]) expect(low <= estimate && estimate <= high).toBe(true);
    expect(summariseRounds(1, 3, [[0, 0], [0]]).byPlace.slice(1)).toEqual([null, null]);
  });

  it('say which acceptance, the same at every place, makes as many tokens', () => {
    const draftTokens = random.whole(1, 6);
    const texts = Array.from({ length: 5 }, (): TextRounds =>
      Array.from({ length: 8 }, () => random.whole(0, draftTokens)),
    );
    const { draftAcceptance, tokensPerRound: made } = summariseRounds(2, draftTokens, texts);
    expect(tokensPerRound({ acceptance: draftAcceptance, draftTokens })).toBeCloseTo(made.estimate, 6);
  });
});

/** Logits that differ by less in 32 bits may be equal. */
const TIE = 1e-5;

/** By how much the likeliest token leads the next. */
const margin = (scores: Float32Array): number => {
  const [first, second] = [...scores].sort((a, b) => b - a);
  return first! - second!;
};

describeGpu(`measured acceptance (LLA_SIM_SEED=${SEED})`, (device) => {
  const teacher: Teacher = {
    device,
    geometry: { ...tinyGeometry(), loops: 3, layers: 1 },
    normEpsilon: 1e-6,
    weights: { storage: 'f32', seed: SEED },
  };
  const items = Array.from({ length: 8 }, (_, i): Item => ({
    kind: i % 2 === 0 ? 'text' : 'rollout',
    prompt: Array.from({ length: random.whole(2, 9) }, () => random.whole(0, teacher.geometry.vocab - 1)),
    continuation: [],
  }));

  test('is that of forced tokens, whose first loops are asked apart', async () => {
    const [draftTokens, tokensEach] = [random.whole(1, 4), 20];
    const measured = await measureAcceptance(teacher, items, undefined, { draftTokens, tokensEach });
    expect(measured.notMeasured).toBeNull();
    const rollouts = items.map((item): Item => ({ ...item, kind: 'rollout', rolloutTokens: tokensEach + draftTokens }));
    const said = await predict(teacher, exactConfiguration(teacher), undefined, rollouts, tokensEach);
    const forced = items.map(({ prompt }, i): Item => ({
      kind: 'text',
      prompt,
      continuation: (said[i] as readonly Float32Array[]).map(greedy),
    }));
    for (const own of measured.loops) {
      const early = { ...teacher, geometry: { ...teacher.geometry, loops: own.draftLoops } };
      const proposed = await predict(early, exactConfiguration(early), undefined, forced);
      const texts = proposed.map((of, i) => {
        const agrees = of.map((p, at) => greedy(p) === forced[i]?.continuation[at]);
        const rounds: number[] = [];
        for (let at = 1; at < tokensEach; at += 1 + (rounds.at(-1) as number)) {
          const wrong = agrees.slice(at, at + draftTokens).indexOf(false);
          rounds.push(wrong < 0 ? draftTokens : wrong);
        }
        return rounds;
      });
      // Rounding decides a tie, otherwise in a batch.
      const least = Math.min(...[...proposed, ...said].flat().map((scores) => margin(scores as Float32Array)));
      if (least > TIE) expect(own).toEqual(summariseRounds(own.draftLoops, draftTokens, texts));
    }
    expect(measured.loops.map(({ draftLoops }) => draftLoops)).toEqual([1, 2]);
  });

  test('is not measured of a model with one loop, and the reason is there', async () => {
    const one = { ...teacher, geometry: { ...teacher.geometry, loops: 1 } };
    expect(await measureAcceptance(one, items)).toMatchObject({ loops: [], notMeasured: 'the model has one loop' });
    const narrow = { ...teacher, geometry: { ...teacher.geometry, heads: 2, kvHeads: 2, headDim: 8 } };
    expect((await measureAcceptance(narrow, items)).notMeasured).toContain('no multiple of 256 bytes');
  });
});
