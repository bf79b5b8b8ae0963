/** Heap, calendar, timeline and draws. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { type Pricer, overlapped } from '../../src/cost/latency.js';
import { reservesPrompt, schedulesMeanwhile } from '../../src/stacks/serving.js';
import { Calendar } from '../../src/serving/scheduler/counted.js';
import { emptyDraft } from '../../src/serving/scheduler/requests.js';
import { SyntheticSource, type SyntheticWorkload } from '../../src/serving/workload/workload.js';
import { drawLength, exponential, gamma, normal, streamOf } from '../../src/serving/workload/draws.js';
import { Heap } from '../../src/serving/scheduler/heap.js';
import { Timeline } from '../../src/serving/timeline.js';
import { SEED } from '../gpu/random.js';

describe('the heap', () => {
  it('gives items by key and tie, also where some were taken out of its middle', () => {
    const keyed = fc.tuple(fc.integer({ min: -9, max: 9 }), fc.boolean());
    fc.assert(
      fc.property(fc.array(keyed, { maxLength: 200 }), (given) => {
        const heap = new Heap();
        given.forEach(([key], i) => heap.push(key, i, i));
        given.forEach(([, removed], i) => removed && heap.remove(i));
        const got: number[] = [];
        for (; heap.size > 0; heap.pop()) got.push(heap.first);
        const wanted = given.map(([key, removed], i) => ({ key, removed, i })).filter(({ removed }) => !removed);
        expect(got).toEqual(wanted.sort((a, b) => a.key - b.key || a.i - b.i).map(({ i }) => i));
      }),
      { seed: SEED, numRuns: 200 },
    );
  });
});

describe('the timeline', () => {
  it('keeps every second of what held, in at most 256 and at least 128 intervals of a long run', () => {
    const stretch = fc.tuple(fc.double({ min: 1e-3, max: 40, noNaN: true }), fc.nat(9), fc.nat(9), fc.nat(9));
    fc.assert(
      fc.property(fc.array(stretch, { minLength: 1, maxLength: 200 }), fc.nat(100), (stretches, begin) => {
        const timeline = new Timeline();
        let now = begin;
        const held = [0, 0, 0];
        for (const [seconds, ...counts] of stretches) {
          now += seconds;
          timeline.add(now, seconds, ...counts);
          counts.forEach((count, i) => (held[i]! += seconds * count));
        }
        const points = timeline.points();
        const width = points[0]!.time - begin;
        const sums = (['running', 'waiting', 'usedBlocks'] as const).map((key) =>
          points.reduce((sum, point) => sum + width * point[key], 0),
        );
        sums.forEach((sum, i) => expect(sum).toBeCloseTo(held[i]!, 6));
        expect(points.length).toBeLessThanOrEqual(256);
        if (now - begin > 256) expect(points.length).toBeGreaterThanOrEqual(128);
        else expect(width).toBeCloseTo(1, 9);
        expect(points.at(-1)!.time).toBeGreaterThanOrEqual(now - 1e-6);
      }),
      { seed: SEED, numRuns: 200 },
    );
  });
});

describe('the calendar', () => {
  it('gives every item at its iteration, also rounds later, unless it was removed', () => {
    fc.assert(
      fc.property(fc.array(fc.tuple(fc.integer({ min: 1, max: 20_000 }), fc.boolean()), { maxLength: 60 }), (items) => {
        const calendar = new Calendar();
        items.forEach(([due], item) => calendar.add(item, due, 0));
        items.forEach(([, removed], item) => removed && calendar.remove(item));
        const got = new Map<number, number>();
        for (let now = 0; now <= 20_000; now++)
          for (let item = calendar.take(now); item >= 0; item = calendar.take(now)) got.set(item, now);
        expect(got).toEqual(new Map(items.flatMap(([due, removed], item) => (removed ? [] : [[item, due]]))));
      }),
      { seed: SEED, numRuns: 20 },
    );
  });
});

describe('draws', () => {
  const uniform = streamOf(SEED, 5);
  const moments = (draw: () => number): [number, number] => {
    const values = Array.from({ length: 20_000 }, draw);
    const mean = values.reduce((a, b) => a + b, 0) / values.length;
    return [mean, values.reduce((a, b) => a + (b - mean) ** 2, 0) / values.length];
  };
  it.each([
    ['exponential', () => exponential(uniform), 1, 1],
    ['normal', () => normal(uniform) + 1, 1, 1],
    ['gamma of shape 4', () => gamma(uniform, 4), 1, 0.25],
    ['gamma of shape 0.5', () => gamma(uniform, 0.5), 1, 2],
    ['lognormal', () => drawLength({ kind: 'lognormal', mean: 1000, deviation: 500 }, uniform) / 1000, 1, 0.25],
  ] as const)('%s have their mean and variance', (_, draw, mean, variance) => {
    const [m, v] = moments(draw);
    expect(Math.abs(m - mean)).toBeLessThan(0.05);
    expect(Math.abs(v / variance - 1)).toBeLessThan(0.15);
  });
});

it('servers that schedule while the GPU works: each from the version on that does', () => {
  const versions = ['0.9.2', '0.12.0', '0.13.1', '0.14.0', '0.14.0rc1', '0.19.0', '1.0'];
  expect(versions.map((v) => schedulesMeanwhile('vllm', v))).toEqual([false, false, false, true, true, true, true]);
  expect(['0.21.0', '1.0.0'].map((v) => schedulesMeanwhile('trtllm', v))).toEqual([false, true]);
  expect(schedulesMeanwhile('vllm-rlt', '9.0')).toBe(false);
  expect(['0.18.1', '0.19.0', null].map((v) => reservesPrompt('vllm', v))).toEqual([false, true, true]);
  expect(reservesPrompt('sglang', '0.4.0')).toBe(true);
  const pricer = { stepOverhead: { estimate: 2, low: 1, high: 3 } } as Pricer;
  expect(overlapped(pricer).stepOverhead).toMatchObject({ estimate: 0, low: 0, high: 3 });
});

const fixed = { kind: 'fixed', tokens: 10 } as const;
const TENS: SyntheticWorkload = {
  arrivals: 'closed',
  requestsPerSecond: 1,
  burstiness: 1,
  users: 4,
  thinkSeconds: 1,
  rampSeconds: 8,
  prompt: fixed,
  output: fixed,
  observed: null,
  requests: 100,
  mostOpen: Infinity,
  turns: 1,
  sharedPrefixTokens: 0,
  seed: SEED,
};

it('a client that keeps few requests open sends the next one when one has ended, and not before it comes', () => {
  const uniform = streamOf(SEED, 7);
  const most = 1 + Math.floor(5 * uniform());
  const arrivals: SyntheticWorkload = { ...TENS, arrivals: 'poisson' };
  const draft = emptyDraft();
  const coming: number[] = [];
  for (const free = new SyntheticSource(arrivals); free.next(draft);) coming.push(draft.time);
  // A queue of so many servers, each request with a time of its own.
  const seconds = coming.map(() => 2 * most * uniform());
  const idle = Array<number>(most).fill(0);
  const wanted = coming.map((time, i) => {
    const first = idle.indexOf(Math.min(...idle));
    const sent = Math.max(time, idle[first]!);
    idle[first] = sent + seconds[i]!;
    return sent;
  });
  const source = new SyntheticSource({ ...arrivals, mostOpen: most });
  const open: { sent: number; ends: number }[] = [];
  const sent: number[] = [];
  const send = (): void => {
    open.push({ sent: draft.time, ends: draft.time + seconds[sent.length]! });
    sent.push(draft.time);
  };
  while (source.next(draft)) send();
  expect(open).toHaveLength(most);
  while (open.length > 0) {
    const [ended] = open.sort((a, b) => a.ends - b.ends).splice(0, 1);
    const done = { time: ended!.ends, session: -1, turn: 0, promptTokens: 10, outputTokens: 10, refused: false };
    if (source.after(done, draft)) send();
  }
  expect(sent).toEqual(wanted);
});

it('a run begins anywhere in the traffic of conversations: as many requests, as long, as at any later time', () => {
  const [turns, thinkSeconds, requestsPerSecond] = [8, 300, 20];
  const talks = { ...TENS, arrivals: 'poisson', turns, thinkSeconds, requestsPerSecond, requests: 1e6 } as const;
  const source = new SyntheticSource(talks);
  const draft = emptyDraft();
  const first: { time: number; turn: number; promptTokens: number }[] = [];
  // Nothing that a user asks after thinking comes so early, but of those who think as the run begins.
  while (source.next(draft) && draft.time < 60) first.push({ ...draft });
  expect(first.map(({ time }) => time)).toEqual(first.map(({ time }) => time).toSorted((a, b) => a - b));
  // Of Poisson's 1,200, and the thinkers' share of them that falls by e^(−t/300) until the others' next turns come.
  const wanted = (60 * requestsPerSecond) / turns + ((turns - 1) / turns) * requestsPerSecond * 300 * -Math.expm1(-0.2);
  expect(Math.abs(first.length - wanted) / Math.sqrt(wanted), `seed ${SEED}`).toBeLessThan(5);
  for (const { turn, promptTokens } of first) expect(promptTokens).toBe(10 + 20 * turn);
  const counts = Array.from({ length: turns }, (_, turn) => first.filter((one) => one.turn === turn).length);
  expect(Math.min(...counts), `${counts.join()}, seed ${SEED}`).toBeGreaterThan(60);
});

it('every user of a closed loop begins, also where others ask again meanwhile', () => {
  const source = new SyntheticSource(TENS);
  const begun: number[] = [];
  const [draft, again] = [emptyDraft(), emptyDraft()];
  while (source.next(draft)) {
    begun.push(draft.time);
    const { session, turn } = draft;
    expect(
      source.after({ time: draft.time, session, turn, promptTokens: 10, outputTokens: 10, refused: false }, again),
    ).toBe(true);
  }
  expect(begun).toEqual([0, 2, 4, 6]);
});
