/** Percentiles of latencies: exact for few values, and within the stated error for many; everything that shows them. */
import { groups, max } from 'd3-array';
import fc from 'fast-check';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { readSources } from '../../src/plan/ask/on-disk.js';
import { planFleet } from '../../src/plan/decide/fleet.js';
import { brief } from '../../src/report/text/answer-text.js';
import { fleetText } from '../../src/report/text/fleet-text.js';
import { servingPercentiles, servingRate } from '../../src/report/pictures/serving.js';
import { simulationTable } from '../../src/report/text/simulation-table.js';
import type { Picture } from '../../src/report/pictures/picture.js';
import { LIGHT } from '../../src/report/pictures/theme.js';
import type { Scenario } from '../../src/schema/settings.js';
import { simulate, type SimulationOptions } from '../../src/serving/answer.js';
import type { Service } from '../../src/serving/candidate.js';
import { simulateFleet } from '../../src/serving/fleet.js';
import { Metrics, type Ended } from '../../src/serving/metrics.js';
import type { Requested } from '../../src/serving/workload/read.js';
import { EXACT_VALUES, RELATIVE_ERROR, Sketch } from '../../src/serving/sketch.js';
import { trial, type Trial } from '../../src/serving/trial.js';
import type { RunFigures, SimulationReport } from '../../src/serving/types.js';
import { randomOf, SEED } from '../gpu/random.js';

/** As numpy.percentile does, linear between ranks, of values in order. */
function percentile(sorted: readonly number[], share: number): number {
  const rank = share * (sorted.length - 1);
  const below = Math.floor(rank);
  return sorted[below]! + (rank - below) * ((sorted[below + 1] ?? sorted[below]!) - sorted[below]!);
}

/** Every rank of so many values, and two places between each and the next. */
const sharesOf = (count: number): number[] =>
  count === 1
    ? [0, 0.5, 0.99, 1]
    : Array.from({ length: count }, (_, rank) => [rank, rank + 0.01, rank + 0.6])
        .flat()
        .filter((rank) => rank <= count - 1)
        .map((rank) => rank / (count - 1));

function expectWithin(sketch: Sketch, values: readonly number[], error: number): void {
  expect(sketch.count).toBe(values.length);
  const sorted = [...values].sort((a, b) => a - b);
  const shares = [...sharesOf(Math.min(values.length, 101)), 0.5, 0.9, 0.95, 0.99, 0.999];
  const off = max(shares, (share) => Math.abs(sketch.quantile(share)! / percentile(sorted, share) - 1));
  expect(off, `${values.length} values, seed ${SEED}`).toBeLessThanOrEqual(error + 1e-9);
}

describe('percentiles', () => {
  it('of no values are none', () => expect(new Sketch().quantile(0.99)).toBeNull());

  it('are exact of few values, and by counts alone within the stated error, at every rank of one to a hundred', () => {
    fc.assert(
      fc.property(
        fc.array(fc.tuple(fc.double({ min: 1e-7, max: 1e6, noNaN: true }), fc.integer({ min: 1, max: 3 })), {
          minLength: 1,
          maxLength: 100,
        }),
        (given) => {
          const [exact, counted] = [new Sketch(), new Sketch(0)];
          for (const sketch of [exact, counted]) given.forEach(([value, weight]) => sketch.add(value, weight));
          const all = given.flatMap(([value, weight]) => new Array<number>(weight).fill(value));
          expectWithin(exact, all, 0);
          expectWithin(counted, all, RELATIVE_ERROR);
        },
      ),
      { seed: SEED, numRuns: 60 },
    );
  });

  it(`are exact up to ${EXACT_VALUES} values, also where more come later; else within the error`, () => {
    const random = randomOf(SEED);
    const values = Array.from({ length: EXACT_VALUES }, () => random.whole(1, 1e9) / 1e6);
    const sketch = new Sketch();
    for (const value of values.slice(0, 50)) sketch.add(value);
    expectWithin(sketch, values.slice(0, 50), 0);
    for (const value of values.slice(50)) sketch.add(value);
    expect(sketch.isExact).toBe(true);
    expectWithin(sketch, values, 0);
    values.push(17, 17);
    sketch.add(17, 2);
    expect(sketch.isExact).toBe(false);
    expectWithin(sketch, values, RELATIVE_ERROR);
  });

  it('of a million values need no more memory than those of one', () => {
    const bytesOf = (sketch: Sketch): number =>
      Object.values(sketch).reduce<number>((sum, own) => sum + (ArrayBuffer.isView(own) ? own.byteLength : 8), 0);
    const sketch = new Sketch();
    sketch.add(1);
    const one = bytesOf(sketch);
    for (let i = 2; i <= 1_000_000; i++) sketch.add(i / 1000);
    expect(bytesOf(sketch)).toBeLessThanOrEqual(one);
    expect(Object.values(sketch).some((own) => Array.isArray(own))).toBe(false);
    expect(Math.abs(sketch.quantile(0.99)! / 990 - 1)).toBeLessThanOrEqual(1.1 * RELATIVE_ERROR);
  });
});

/** The requests of every run from now on, run by run. */
function recorded(): () => Ended[][] {
  const spy = vi.spyOn(Metrics.prototype, 'end');
  return () =>
    groups(
      spy.mock.contexts.map((run, i) => ({ run, ended: spy.mock.calls[i]![0] })),
      (e) => e.run,
    ).map(([, requests]) => requests.map((e) => e.ended));
}
afterEach(() => vi.restoreAllMocks());

const TIMES = {
  ttft: (e: Ended) => e.ttftSeconds,
  tpot: (e: Ended) => e.tpotSeconds,
  e2el: (e: Ended) => e.e2elSeconds,
  queue: (e: Ended) => e.queueSeconds,
};
const millisOf = (requests: readonly Ended[], of: (e: Ended) => number | null, share: number): number => {
  const seconds = requests.map(of).filter((own) => own !== null);
  seconds.sort((a, b) => a - b);
  return 1e3 * percentile(seconds, share);
};

/** Figures are those of the requests that ended. */
function expectFiguresOf(figures: RunFigures, requests: readonly Ended[]): void {
  expect(figures.completed).toBe(requests.length);
  expect(figures.sketched.filter((metric) => metric !== 'itl')).toEqual([]);
  for (const [metric, of] of Object.entries(TIMES) as [keyof typeof TIMES, (e: Ended) => number | null][])
    for (const [statistic, share] of [
      ['median', 0.5],
      ['p90', 0.9],
      ['p95', 0.95],
      ['p99', 0.99],
    ] as const)
      expect(figures[`${statistic}_${metric}_ms`], `${statistic} ${metric}, seed ${SEED}`).toBeCloseTo(
        millisOf(requests, of, share),
        6,
      );
}

const OPTIONS: SimulationOptions = { findRate: false, skipBad: false, shard: null, progress: () => false };
const random = randomOf(SEED + 1);
/** Few requests, of lengths that differ, so that the two largest latencies do. */
const fewOf = (requests: number): Scenario => ({
  device: 'h200',
  codec: ['full'],
  workload: {
    requests,
    rate: 30,
    promptTokens: 'uniform:100-6000',
    outputTokens: 'uniform:20-100',
    seed: random.whole(0, 1e6),
  },
});
const simulated = async (scenario: Scenario, more: Partial<SimulationOptions> = {}): Promise<SimulationReport> =>
  simulate(scenario, await readSources(scenario), { ...OPTIONS, ...more });
const text = (r: SimulationReport): string => simulationTable(r, { colour: false }).replaceAll(/\s+/g, ' ');
const curvesOf = (picture: Picture): { label: string; data: { x: number; y: number }[] }[] =>
  (picture.chart(LIGHT).data as { datasets: { label: string; data: { x: number; y: number }[] }[] }).datasets;

describe('of few requests', () => {
  it('figures, table and picture of a run show the exact ones', async () => {
    for (const requests of [2, 3, random.whole(4, 100)]) {
      const runs = recorded();
      const r = await simulated(fewOf(requests), { bounds: ['estimate'] });
      const [ended] = runs() as [Ended[]];
      const { estimate, percentiles } = r.runs[0]!;
      expectFiguresOf(estimate, ended);
      for (const [i, percent] of percentiles.percent.entries())
        expect(percentiles.ttft[i]).toBeCloseTo(millisOf(ended, TIMES.ttft, percent / 100), 6);
      const [ttft] = curvesOf(servingPercentiles(r)!);
      expect(ttft!.data.find(({ y }) => y === 99)!.x).toBeCloseTo(millisOf(ended, TIMES.ttft, 0.99) / 1e3, 9);
      expect(text(r)).toContain('percentiles are exact, linear between ranks');
      expect(text(r)).not.toContain('within 0.1 %');
      vi.restoreAllMocks();
    }
  });

  it('a run that misses its target shows a p99 that does, though all but one of the requests meet it', async () => {
    const runs = recorded();
    const scenario = fewOf(random.whole(2, 20));
    await simulated(scenario, { bounds: ['estimate'] });
    const [second, most] = runs()[0]!
      .map(TIMES.ttft)
      .sort((a, b) => a - b)
      .slice(-2) as [number, number];
    const ttft = (second + most) / 2;
    const r = await simulated({ ...scenario, ttft: `${ttft}s`, tpot: '60s' }, { bounds: ['estimate'] });
    expect(text(r)).toContain('misses the targets');
    expect(r.runs[0]!.estimate.p99_ttft_ms! / 1e3).toBeGreaterThan(ttft);
    const met = await simulated({ ...scenario, ttft: `${most * 1.001}s`, tpot: '60s' }, { bounds: ['estimate'] });
    expect(text(met)).toContain('may meet the targets');
    expect(met.runs[0]!.estimate.p99_ttft_ms! / 1e3).toBeLessThan(most * 1.001);
  });

  it('a sustained rate, and the picture of rates, have the exact ones', async () => {
    const runs = recorded();
    const scenario = fewOf(20);
    const { candidates, ...r } = await simulated(
      { ...scenario, ttft: '1s', percentile: 90 },
      { findRate: true, curve: true },
    );
    const { atEstimate, curve, requestsPerSecond } = candidates![0]!;
    const drawn = runs().slice(-curve!.length);
    for (const [i, point] of curve!.entries()) {
      expect(point.p99_ttft_ms).toBeCloseTo(millisOf(drawn[i]!, TIMES.ttft, 0.99), 6);
      expect(point.p99_tpot_ms).toBeCloseTo(millisOf(drawn[i]!, TIMES.tpot, 0.99), 6);
    }
    const at = curve!.findIndex((p) => p.requestsPerSecond === requestsPerSecond.estimate);
    expectFiguresOf(atEstimate!, drawn[at]!);
    const counted = drawn[at]!.filter((e) => e.number >= drawn[at]!.length / 7);
    const late = counted.filter((e) => e.ttftSeconds > 1 || (e.tpotSeconds ?? 0) > 0.08).length;
    expect(late).toBeLessThanOrEqual(0.1 * counted.length);
    const lines = curvesOf(servingRate({ ...r, candidates: candidates! })!);
    expect(lines[0]!.data.map(({ y }) => 1e3 * y)).toEqual(curve!.map((p) => p.p99_ttft_ms));
    expect(text({ ...r, candidates: candidates! })).toContain('percentiles are exact');
  });

  it('a rate counts requests that miss either target, as the verdict of a run does', () => {
    const targets = { ttftSeconds: 1, tpotSeconds: 0.1, share: 0.99 };
    const metrics = new Metrics(targets);
    const serve = (late: number, slow: number): Trial => {
      for (let i = 0; i < 200; i++)
        metrics.end({
          number: i,
          arrival: i,
          promptTokens: 1,
          outputTokens: 2,
          queueSeconds: 0,
          ttftSeconds: i < late ? 2 : 0.5,
          tpotSeconds: i >= 200 - slow ? 0.2 : 0.05,
          e2elSeconds: 3,
          preemptions: 0,
          replica: 0,
        });
      const result = { metrics, finished: true };
      return trial({ run: () => result } as unknown as Service, targets, 'estimate', {} as Requested);
    };
    expect(serve(1, 1)).toMatchObject({ meets: true, missed: null });
    expect(serve(2, 1)).toMatchObject({ meets: false, missed: 'ttft' });
    expect(serve(0, 7)).toMatchObject({ meets: false, missed: 'tpot' });
  });

  it('a fleet has the exact ones of a replica', async () => {
    const scenario: Scenario = { ...fewOf(2), gpus: 1, ttft: '60s', tpot: '1s' };
    const sources = await readSources(scenario);
    const planned = planFleet(scenario, 2, sources);
    const runs = recorded();
    const found = simulateFleet(scenario, planned, sources);
    const { deploy, upside } = found;
    expect(upside).toBeNull();
    const [estimate, high] = runs().slice(-2) as [Ended[], Ended[]];
    expectFiguresOf(deploy!.estimate, estimate);
    expectFiguresOf(deploy!.high, high);
    const words = fleetText(planned.fleet, planned.reports[0]!, { width: 400, colour: false, best: false }, found);
    expect(words).toContain(`p99 TTFT ${brief(millisOf(high, TIMES.ttft, 0.99))} ms`);
  });
});

it('of many requests a table names what is within 0.1 %', async () => {
  const scenario = fewOf(EXACT_VALUES + 1);
  const workload = { ...scenario.workload, promptTokens: 64, outputTokens: 2 };
  const r = await simulated({ ...scenario, workload }, { bounds: ['estimate'] });
  expect(r.runs[0]!.estimate.sketched).toEqual(['ttft', 'tpot', 'itl', 'e2el', 'queue']);
  expect(text(r)).toContain(
    'percentiles of more than 10000 values (TTFT, TPOT, ITL, E2EL, queueing) are within 0.1 % of the exact ones, ' +
      'the others are exact',
  );
});
