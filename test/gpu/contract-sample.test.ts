/** The choice of a token against float64: greedy exactly, from the nucleus but for draws that lie on a boundary. */
import './narrow.js';
import { expect, test } from 'vitest';
import { mix } from '../../src/numbers/hash.js';
import { drawn, drawToken, nucleus, type Sampling } from '../../kernels/sample/reference.js';
import { planOperation, type Device } from '../../src/gpu/index.js';
import { NO_TOKEN } from '../../kernels/sample/launch.js';
import { describeGpu } from './device.js';
import { randomOf, SEED } from './random.js';
import { randomSingles, randomWords, runPlan } from './run-plan.js';

/** f32 sums of probabilities are known to this: a draw or a top-p this near a boundary may go either way. */
const CLOSE = 1e-5;

async function greedy(device: Device, rows: number, logits: Float32Array<ArrayBuffer>): Promise<number[]> {
  const plan = planOperation({ kernel: 'sample', variant: 'greedy', shape: { rows, vocab: logits.length / rows } });
  return [...(await runPlan(device, plan, { logits }))('tokens')];
}

async function topP(
  device: Device,
  rows: number,
  logits: Float32Array<ArrayBuffer>,
  draws: Uint32Array<ArrayBuffer>,
  sampling: Sampling,
): Promise<number[]> {
  const plan = planOperation(
    { kernel: 'sample', variant: 'top-p', shape: { rows, vocab: logits.length / rows } },
    { sample: sampling },
  );
  return [...(await runPlan(device, plan, { logits, draws }))('tokens')];
}

describeGpu('sampling', (device) => {
  test('greedy: the lowest of equals, masked logits, NaN reported', async () => {
    const random = randomSingles(mix(SEED), 700);
    const masked = random.map(() => -Infinity);
    const rows = [
      Object.assign(random.slice(), { 300: 2, 650: 2 }),
      masked,
      Object.assign(masked.slice(), { 699: -3e38 }),
      Object.assign(random.slice(), { 513: NaN, 5: 9 }),
      Object.assign(random.slice(), { 699: Infinity }),
    ];
    const logits = Float32Array.from(rows.flatMap((x) => [...x]));
    expect(await greedy(device, 5, logits)).toEqual([300, 0, 699, NO_TOKEN, 699]);
  });

  test('top-p draws the token of the reference', async () => {
    let [same, all] = [0, 0];
    for (const [i, vocab] of [1, 2, 255, 257, 3000, 49152].entries()) {
      const r = randomOf(mix(SEED + i));
      const rows = vocab > 10000 ? 4 : 16;
      const [temperature, top] = [r.pick([0.3, 0.7, 1, 2]), r.pick([0.05, 0.5, 0.9, 0.95, 1])];
      const sampling = { temperature, topP: top, seed: mix(SEED + i) };
      // Rounded to a sixteenth, so that many tokens are as likely as each other; -0 and 0 are among them.
      const logits = randomSingles(mix(SEED + i), rows * vocab).map((x) => Math.round(96 * x) / 16);
      const draws = randomWords(mix(SEED + 7 * i), 2 * rows);
      const tokens = await topP(device, rows, logits, draws, sampling);
      tokens.forEach((token, row) => {
        const own = logits.subarray(row * vocab, (row + 1) * vocab);
        const [stream, counter] = [draws[2 * row]!, draws[2 * row + 1]!];
        const right = drawToken(own, sampling, stream, counter);
        const allowed = [right];
        if (token !== right)
          for (const p of [-CLOSE, 0, CLOSE])
            for (const shift of [-CLOSE, 0, CLOSE])
              allowed.push(
                drawToken(own, { ...sampling, topP: Math.min(1, sampling.topP + p) }, stream, counter, shift),
              );
        expect(allowed, `row ${row} of ${vocab}, ${JSON.stringify(sampling)}, LLA_SIM_SEED=${SEED}`).toContain(token);
        all++;
        if (token === right) same++;
      });
    }
    expect(same / all, `LLA_SIM_SEED=${SEED}`).toBeGreaterThan(0.9);
  });

  test('top-p repeats with seed, stream and counter, wherever the row is, and differs otherwise', async () => {
    const logits = randomSingles(mix(SEED), 500);
    const rows = (order: readonly number[], seed: number): Promise<number[]> => {
      const same = Float32Array.from(order.flatMap(() => [...logits]));
      const draws = Uint32Array.from(order.flatMap((i) => [i, 3]));
      return topP(device, order.length, same, draws, { temperature: 1, topP: 1, seed });
    };
    const order = Array.from({ length: 32 }, (_, i) => i);
    const first = await rows(order, SEED);
    expect(await rows([...order].reverse(), SEED)).toEqual([...first].reverse());
    expect(await rows(order, SEED + 1)).not.toEqual(first);
    expect(new Set(first).size).toBeGreaterThan(16);
  });

  test('top-p: a nucleus that ends at zero holds -0 and 0', async () => {
    const logits = Float32Array.from({ length: 40 }, (_, i) => (i < 8 ? 1 : i % 2 ? 0 : -0));
    const sampling = { temperature: 1, topP: 0.5, seed: SEED };
    expect(nucleus(logits, sampling).every((w) => w > 0)).toBe(true);
    const rows = Array.from({ length: 400 }, () => [...logits]).flat();
    const draws = randomWords(mix(SEED), 800);
    const tokens = await topP(device, 400, Float32Array.from(rows), draws, sampling);
    const right = tokens.filter((t, i) => t === drawToken(logits, sampling, draws[2 * i]!, draws[2 * i + 1]!));
    expect(right.length, `LLA_SIM_SEED=${SEED}`).toBeGreaterThan(390);
  });

  test('top-p reports NaN and infinity, and leaves masked tokens out', async () => {
    const row = (x: number): number[] => [...randomSingles(mix(SEED), 299), x];
    const masked = Array.from({ length: 300 }, (_, i) => (i === 123 ? -5 : -Infinity));
    const logits = Float32Array.from([...row(NaN), ...row(Infinity), ...masked, ...masked.map(() => -Infinity)]);
    const tokens = await topP(device, 4, logits, randomWords(mix(SEED), 8), { temperature: 1, topP: 1, seed: 1 });
    expect(tokens).toEqual([NO_TOKEN, NO_TOKEN, 123, NO_TOKEN]);
  });
});

test('drawn numbers are even over [0, 1), and a nucleus is the least set that reaches top-p', () => {
  const bins = new Array<number>(10).fill(0);
  for (let i = 0; i < 10_000; i++)
    bins[Math.floor(10 * drawn(SEED, i % 7, i))] = bins[Math.floor(10 * drawn(SEED, i % 7, i))]! + 1;
  // Six standard deviations of a count of 1000.
  for (const count of bins) expect(Math.abs(count - 1000), `LLA_SIM_SEED=${SEED}`).toBeLessThan(180);
  const logits = [0.5, 0.3, 0.1, 0.1].map(Math.log);
  const kept = (topP: number): number => nucleus(logits, { temperature: 1, topP }).filter((w) => w > 0).length;
  expect([kept(0.4), kept(0.6), kept(0.85), kept(1)]).toEqual([1, 2, 4, 4]);
});

test('a temperature of 0 and a top-p beyond 1 are refused', () => {
  const call = { kernel: 'sample', variant: 'top-p', shape: { rows: 1, vocab: 5 } } as const;
  expect(() => planOperation(call, { sample: { temperature: 0, topP: 1, seed: 1 } })).toThrow(/above 0/);
  expect(() => planOperation(call, { sample: { temperature: 1, topP: 1.5, seed: 1 } })).toThrow(/at most 1/);
});
