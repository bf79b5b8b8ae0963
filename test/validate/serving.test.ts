/** The figures and checks of `validate --serving`, from hand-made times. */
import { expect, test } from 'vitest';
import { outsideTolerance, servingChecks } from '../../src/validate/checks.js';
import { compare, SERVING_TOLERANCES, type ServingRow } from '../../src/validate/serving.js';
import type { Times } from '../../src/validate/serving-requests.js';
import type { Served } from '../../src/decoder/serving/drive.js';

/** [arrival, first token, last token, output tokens, preemptions] by request. */
type Row = readonly [number, number, number, number, number];

const times = (rows: readonly Row[]): Times[] =>
  rows.map(([arrival, firstToken, lastToken, outputTokens, preemptions], id) => {
    return { id, arrival, firstToken, lastToken, outputTokens, preemptions };
  });

/** As the loop hands them out: in the order of their ends. */
const served = (rows: readonly Row[]): Served[] =>
  times(rows)
    .map(({ outputTokens, ...t }) => ({ ...t, tokens: new Array<number>(outputTokens).fill(0) }))
    .sort((a, b) => a.lastToken - b.lastToken);

const SIMULATED: readonly Row[] = [
  [0, 1, 5, 5, 0],
  [1, 3, 9, 4, 1],
  // One token has no time between tokens.
  [2, 10, 10, 1, 0],
];

test('times of both sides by their definitions', () => {
  const measured: readonly Row[] = [
    [0, 2, 8, 4, 0],
    [1, 4, 10, 7, 2],
    [2, 12, 12, 1, 1],
  ];
  const row = compare(served(measured), times(SIMULATED));
  expect(row.meanTpotSeconds.measured).toBeCloseTo((6 / 3 + 6 / 6) / 2, 12);
  expect(row.meanTpotSeconds.simulated).toBeCloseTo((4 / 4 + 6 / 3) / 2, 12);
  expect(row.meanTtftSeconds.measured).toBeCloseTo((2 + 3 + 10) / 3, 12);
  expect(row.meanTtftSeconds.simulated).toBeCloseTo((1 + 2 + 8) / 3, 12);
  // Latencies 8, 9, 10 and 5, 8, 8, linear between ranks.
  expect(row.p90E2elSeconds.measured).toBeCloseTo(9.8, 12);
  expect(row.p90E2elSeconds.simulated).toBeCloseTo(8, 12);
  expect(row.preemptions).toEqual({ measured: 3, simulated: 1 });
});

test('order of completion: every pair that ends in the same order in all simulations', () => {
  const swapped: readonly Row[] = [SIMULATED[0]!, [1, 3, 10.5, 4, 1], [2, 10, 10, 1, 0]];
  expect(compare(served(swapped), times(SIMULATED))).toMatchObject({ pairs: 3, inverted: 1 });
  // Other prices let the last two change places.
  expect(compare(served(swapped), times(SIMULATED), [times(swapped)])).toMatchObject({ pairs: 2, inverted: 0 });
  const early: readonly Row[] = [[0, 1, 10.2, 5, 0], SIMULATED[1]!, SIMULATED[2]!];
  expect(compare(served(early), times(SIMULATED), [times(swapped)])).toMatchObject({ pairs: 2, inverted: 2 });
  // Ends at the same time are no order.
  const together: readonly Row[] = [SIMULATED[0]!, [1, 3, 10, 4, 1], [2, 10, 10, 1, 0]];
  expect(compare(served(together), times(SIMULATED))).toMatchObject({ inverted: 1 });
  expect(compare(served(SIMULATED), times(together))).toMatchObject({ pairs: 2, inverted: 0 });
});

type Judged = Pick<ServingRow, 'meanTpotSeconds' | 'p90E2elSeconds' | 'pairs' | 'inverted' | 'replay'>;

function rowOf(tpot: number, e2el: number, inverted = 0, replayed = 0): Judged {
  const figures = {
    preemptions: { measured: 0, simulated: 0 },
    meanTpotSeconds: { measured: 2, simulated: 2 * (1 + tpot) },
    meanTtftSeconds: { measured: 1, simulated: 1 },
    p90E2elSeconds: { measured: 4, simulated: 4 * (1 + e2el) },
    pairs: 5,
    inverted,
  };
  return { ...figures, replay: { ...figures, inverted: replayed, iterations: 3 } };
}

test('the checks hold up to their tolerances, by the worst row of either sign', () => {
  const { tpot, e2el } = SERVING_TOLERANCES;
  const statuses = (...rows: Judged[]): string[] => servingChecks(rows, true).map(({ status }) => status);
  expect(statuses(rowOf(0.99 * tpot, -0.99 * e2el), rowOf(0, 0))).toEqual(['holds', 'holds', 'holds']);
  expect(statuses(rowOf(0, 0), rowOf(-1.01 * tpot, 0))).toEqual(['failed', 'holds', 'holds']);
  expect(statuses(rowOf(0.5 * tpot, 1.01 * e2el), rowOf(0, 0))).toEqual(['holds', 'failed', 'holds']);
  expect(statuses(rowOf(0, 0), rowOf(0, 0, 1))).toEqual(['holds', 'holds', 'failed']);
  // With the times that were measured nothing may end in another order.
  expect(statuses(rowOf(0, 0), rowOf(0, 0, 0, 1))).toEqual(['holds', 'holds', 'failed']);
  expect(statuses()).toEqual(['not-checked', 'not-checked', 'not-checked']);
  const reported = servingChecks([rowOf(-0.2, 0.01)], false);
  expect(reported[0]).toMatchObject({ strict: false, found: '−20.0 % at worst' });
  // What is reported and not judged ends with no exit code.
  expect(outsideTolerance(reported)).toBe(false);
  expect(outsideTolerance(servingChecks([rowOf(-0.2, 0.01)], true))).toBe(true);
});
