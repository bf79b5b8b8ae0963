/** Capacity with made-up ends of memory: what is found, and what a decoder's refusal is reported as. */
import { expect, test } from 'vitest';
import { Budget } from '../../src/io/budget.js';
import { GpuError } from '../../src/gpu/index.js';
import {
  CAPACITY_TOLERANCE,
  capacityHolds,
  checkCapacity,
  hasRun,
  largestBatch,
  OutOfTime,
  type Attempt,
} from '../../src/validate/memory/capacity.js';
import { validationModel } from '../../src/bench/calibrate/lists.js';
import { judge } from '../../src/validate/checks.js';
import { randomOf, SEED } from '../gpu/random.js';

const GIB = 2 ** 30;
const check = (attempt: Attempt, quick = true, more: Partial<Parameters<typeof checkCapacity>[0]> = {}) =>
  checkCapacity({
    geometry: validationModel(false, null),
    contextTokens: 4096,
    memoryBytes: 120 * GIB,
    bindingBytes: 2 * GIB - 4,
    quick,
    attempt,
    budget: new Budget(Infinity),
    ...more,
  });
/** What of the verdict is about capacity. */
const verdictOf = (capacity: Awaited<ReturnType<typeof check>>) =>
  judge({ software: false, quick: false, correctness: null, memory: null, steps: null, capacity }).find(
    ({ name }) => name === 'capacity',
  );
const capacityOf = async (attempt: Attempt) => {
  const capacity = await check(attempt);
  return { ...capacity, judged: verdictOf(capacity) };
};

const none: Attempt = () => Promise.resolve(false);
const upTo =
  (most: number): Attempt =>
  (_, batch) =>
    Promise.resolve(batch <= most);
const predictedBatch = async (): Promise<number> => (await check(none)).rows[0]!.predicted.exact;

test('a prediction that memory bears out holds', async () => {
  const { rows, notRun, judged } = await capacityOf(upTo(await predictedBatch()));
  expect(notRun).toEqual([]);
  expect(rows.map(capacityHolds)).toEqual([true]);
  expect(judged).toMatchObject({ status: 'holds', found: '1 of 1 codecs' });
});

test(`the end of memory is found wherever it is (LLA_SIM_SEED=${SEED})`, async () => {
  const random = randomOf(SEED);
  for (let i = 0; i < 200; i++) {
    const predicted = random.whole(0, random.pick([60, 3000]));
    // Near the prediction, far from it, and nothing at all.
    const end = random.pick([0, predicted, random.whole(0, 2 * predicted), random.whole(0, 9000)]);
    const tried: number[] = [];
    const { exact, failedAt } = await largestBatch(predicted, (batch) => {
      tried.push(batch);
      return Promise.resolve(batch <= end);
    });
    const where = `predicted ${predicted}, memory ends at ${end}: ${exact} decoded, ${failedAt} did not`;
    expect(exact <= end && failedAt > end, where).toBe(true);
    expect(failedAt - exact, where).toBeLessThanOrEqual(Math.max(1, 0.005 * exact));
    expect(tried, where).toContain(failedAt);
    expect(tried.length, where).toBeLessThan(30);
  }
  const tried: number[] = [];
  const right = await largestBatch(31, (batch) => Promise.resolve((tried.push(batch), batch <= 31)));
  expect([right, tried]).toEqual([{ exact: 31, failedAt: 32 }, [31, 32]]);
});

test('a prediction that memory does not bear out does not hold', async () => {
  const predicted = await predictedBatch();
  const off = Math.ceil(2 * CAPACITY_TOLERANCE * predicted);
  for (const end of [predicted + off, predicted - off]) {
    const { rows, judged } = await capacityOf(upTo(end));
    expect(Math.abs((rows[0]?.error ?? NaN) - (end / predicted - 1))).toBeLessThan(0.01);
    expect([rows.map(capacityHolds), judged?.status]).toEqual([[false], 'failed']);
  }
});

test('a batch that the decoder refuses is no end of memory', async () => {
  const refusing =
    (most: number): Attempt =>
    (_, batch) =>
      batch > most
        ? Promise.reject(new GpuError('unsupported', `buffer logits takes too many bytes for ${batch} sequences`))
        : Promise.resolve(true);
  const predicted = await predictedBatch();
  expect(predicted).toBeGreaterThan(1);
  const below = await capacityOf(refusing(predicted - 1));
  expect([below.rows, below.judged?.status]).toEqual([[], 'not-checked']);
  const refused = `buffer logits takes too many bytes for ${predicted} sequences`;
  const said = `${refused} (${predicted} sequences were predicted, no batch decoded a step)`;
  expect(below.notRun[0]?.reason).toBe(said);
  const beyond = await capacityOf(refusing(predicted));
  expect([beyond.rows, beyond.judged?.status]).toEqual([[], 'not-checked']);
  const decoded = `(${predicted} sequences were predicted, a batch of ${predicted} decoded a step)`;
  expect(beyond.notRun[0]?.reason).toContain(decoded);
});

test('what was not checked is said beside what holds, and other failures are thrown', async () => {
  const { rows } = await check(none, false);
  const predicted = new Map(rows.map(({ id, predicted: { exact } }) => [id, exact]));
  expect(predicted.size).toBeGreaterThan(2);
  let asked = '';
  const attempt: Attempt = (_, batch) =>
    asked === rows[0]?.id
      ? Promise.reject(new GpuError('unsupported', 'no'))
      : Promise.resolve(batch <= (predicted.get(asked) ?? 0));
  const capacity = await check(attempt, false, { onAttempt: (id) => (asked = id) });
  expect(verdictOf(capacity)).toMatchObject({
    status: 'holds',
    found: `${predicted.size - 1} of ${predicted.size - 1} codecs, 1 not checked`,
  });
  await expect(check(() => Promise.reject(new GpuError('lost', 'gone')))).rejects.toMatchObject({ fault: 'lost' });
});

test('without time for an attempt a codec is not checked, and a batch is tried as often as is asked', async () => {
  let at = 0;
  let attempts = 0;
  const taking = (seconds: number) => () => {
    attempts++;
    at += seconds;
    return Promise.resolve(false);
  };
  const found = await check(taking(4), false, { budget: new Budget(30, () => at), tries: 3 });
  // Of one attempt twice as long is expected, of more less.
  expect([attempts, at]).toEqual([7, 28]);
  expect(found.rows).toEqual([]);
  const reasons = found.notRun.map(({ reason }) => reason);
  expect(reasons).toEqual(new Array(4).fill('the rest of the time budget was too short'));
  [at, attempts] = [0, 0];
  await check(taking(0), true, { tries: 3 });
  expect(attempts % 3).toBe(0);
  // An attempt may be told to end.
  const given: number[] = [];
  const budget = new Budget(9, () => 1);
  await check((_, __, seconds) => (given.push(seconds), Promise.resolve(false)), true, { budget });
  expect(new Set(given)).toEqual(new Set([9]));
});

test('a decoder that ended has run, found the end of memory, or says why neither', () => {
  const ended = (code: number | null, late = false) => hasRun({ code, text: 'why' }, late);
  for (const late of [false, true])
    expect([ended(0, late), ended(3, late), ended(139, late)]).toEqual([true, false, false]);
  expect(ended(null)).toBe(false);
  expect(() => ended(null, true)).toThrow(OutOfTime);
  expect(() => ended(2)).toThrow(expect.objectContaining({ fault: 'unsupported', message: 'why' }));
  for (const code of [1, 6, 128]) expect(() => ended(code)).toThrow(`ended with exit code ${code}: why`);
});
