/** What a report prints, and which results are a regression. */
import { describe, expect, test } from 'vitest';
import { representativeCalls, rooflineCases, shapeText } from '../../src/bench/regression/cases.js';
import { benchMarkdown, benchTable, headline } from '../../src/bench/regression/print.js';
import {
  isOutOfTime,
  isRegression,
  ratesOf,
  type BenchReport,
  type BenchResult,
  type SkippedResult,
} from '../../src/bench/regression/report.js';
import { readThreshold } from '../../src/commands/bench.js';
import { planOperation } from '../../src/gpu/index.js';
import { KERNEL_NAMES } from '../../kernels/registry.js';

const ceilings = {
  copyBytesPerSecond: 1e9,
  readBytesPerSecond: 1e9,
  f32FlopsPerSecond: 1e10,
  f16FlopsPerSecond: null,
  matrixFlopsPerSecond: null,
};
const subject = { kernel: 'swiglu', variant: 'f32', shape: { rows: 64, width: 5632 } } as const;
const rates = ratesOf({ readBytes: 3e6, writeBytes: 1e6, flops: 1e7 }, 0.01, ceilings);
const paired = (verdict: 'slower' | 'same' | 'unclear'): BenchResult => ({
  ...subject,
  state: 'paired',
  sameSource: false,
  medianSeconds: { before: 0.01, now: 0.0115 },
  ratio: { estimate: 1.15, low: 1.1, high: 1.2 },
  verdict,
  rates,
  callsPerBatch: 2,
  rounds: [{ before: 0.01, now: 0.0115 }],
});
const report = (results: readonly BenchResult[]): BenchReport => ({
  schema: 'lla-sim/bench',
  schemaVersion: 1,
  program: { name: 'lla-sim', version: '0' },
  device: {
    ...{ vendor: 'v', architecture: 'a', device: 'd', description: 'A | <b>GPU</b>', driver: 'x', backend: 'vulkan' },
    ...{ software: false, features: [], limits: {}, memoryBytes: null },
  },
  host: { os: 'o', arch: 'a', cpu: 'c', cores: 2, memoryBytes: 2 ** 30, node: 'v20' },
  clock: 'gpu-timestamp',
  ceilings,
  against: { kind: 'git', name: 'HEAD~1 (0123456789)' },
  threshold: 0.05,
  budgetSeconds: 120,
  elapsedSeconds: 9,
  seed: 1,
  results,
  paths: [],
  notes: [],
  regressed: results.some(isRegression),
});

test('rates are work over time, and the roofline is the larger share', () => {
  const shares = { readShare: 0.4, f32Share: 0.1, rooflineShare: 0.4, boundBy: 'read' };
  expect(rates).toEqual({ bytesPerSecond: 4e8, flopsPerSecond: 1e9, ...shares });
});

const skipped = (state: SkippedResult['state']): BenchResult => ({ ...subject, state, reason: 'because' });

test('slower and wrong are regressions; unclear, identical and not comparable are none', () => {
  expect([paired('slower'), skipped('wrong')].map(isRegression)).toEqual([true, true]);
  for (const result of [paired('same'), paired('unclear'), skipped('identical'), skipped('not-comparable')])
    expect(isRegression(result)).toBe(false);
});

test('time was short where a call was not reached, and none was timed or found wrong', () => {
  const [late, checked, wrong] = [skipped('not-reached'), skipped('checked'), skipped('wrong')];
  for (const results of [[late], [checked], [skipped('identical'), late]]) expect(isOutOfTime(results)).toBe(true);
  for (const results of [[], [skipped('unsupported')], [late, wrong], [checked, paired('same')]])
    expect(isOutOfTime(results)).toBe(false);
});

describe('printing', () => {
  const full = report([
    paired('slower'),
    { ...subject, state: 'not-comparable', reason: 'the other version does not run with this program: no binding 3' },
    { ...subject, kernel: 'rope', state: 'identical', reason: 'the sources are identical' },
  ]);

  test('what there was no time for is a line', () => {
    const late = report([paired('same'), { ...skipped('not-reached'), kernel: 'rope' }, skipped('checked')]);
    const counts = 'of 3 calls 1 same, 1 not reached in time, 1 right, and not timed';
    expect(headline(late)).toBe(`no regression found: ${counts}`);
    const spent = 'The budget of 120 s was spent; not measured (more --budget, or --kernel): rope, swiglu';
    expect(benchTable(late)).toContain(spent);
  });

  test('the headline counts every call', () => {
    expect(headline(full)).toBe('regressed: of 3 calls 1 slower, 1 with identical source, 1 not comparable');
    expect(headline(report([paired('same')]))).toBe('no regression found: of 1 call 1 same');
  });

  test('the table has ratio, interval, verdict, roofline share, and why one was not measured, in 100 columns', () => {
    const text = benchTable(full);
    expect(text).toMatch(/swiglu f32 +10 +11\.5 +1\.150 +1\.100–1\.200 +SLOWER +40 % read/);
    expect(text.replace(/\s+/g, ' ')).toContain(
      'swiglu f32 (rows64 w5632): not-comparable, the other version does not run with this program: no binding 3',
    );
    expect(text).toContain('(--all measures them): rope');
    for (const line of text.split('\n')) expect(line.length, line).toBeLessThanOrEqual(100);
  });

  test('shares of ceilings have their interval, matrix units a column where there are any, paths their ratio', () => {
    const share = (estimate: number) => ({ estimate, low: estimate - 0.02, high: estimate + 0.02 });
    const timed: BenchResult = {
      ...subject,
      state: 'timed',
      seconds: [0.01],
      medianSeconds: 0.01,
      relativeError: 0,
      rates,
      shares: { read: share(0.4), copy: share(0.2), f32: share(0.1), f16: null, matrix: null },
    };
    const compared = { ranks: '96/160', context: 16384, above: 'block-absorbed', below: 'fused rebuild' };
    const path = { ...compared, ratio: { estimate: 0.5, low: 0.45, high: 0.55 } };
    const plain = { ...report([timed]), against: null, paths: [path] };
    expect(benchTable(plain)).toMatch(/swiglu f32 +10 +0\.4 +1 +40 %±2\.0 +20 %±2\.0 +10 %±2\.0/);
    expect(benchTable(plain)).toContain(
      '96/160 at 16384 tokens, time of block-absorbed : fused rebuild = 0.500 (0.450–0.550)',
    );
    expect(benchTable(plain)).not.toContain('% matrix');
    expect(benchMarkdown({ ...plain, ceilings: { ...ceilings, matrixFlopsPerSecond: 1e12 } })).toContain('% matrix');
    expect(benchMarkdown(plain)).toContain('fused rebuild = 0.500');
  });

  test('Markdown marks the slower kernel, and nothing from outside becomes markup', () => {
    const text = benchMarkdown(full);
    expect(text).toMatch(/^\*\*lla-sim bench: regressed/);
    expect(text).toContain('| swiglu | f32 | 10 | 11.5 | 1.150 | 1.100–1.200 | **slower** |');
    expect(text).toContain('A \\| &lt;b&gt;GPU');
  });
});

test.each([true, false])('every kernel has representative calls that can be planned (software: %s)', (software) => {
  const own = representativeCalls(software);
  for (const call of [...own, ...rooflineCases(software).calls])
    expect(planOperation(call).steps.length).toBeGreaterThan(0);
  expect(own.map((c) => c.kernel)).toEqual(expect.arrayContaining(KERNEL_NAMES));
});

test('a shape leaves out what is usual', () => {
  expect(shapeText({ shape: { groups: 1, m: 2, k: 2048, n: 64 } })).toBe('m2 k2048 n64');
  const shape = { sequences: 3, kvHeads: 4, latentHeads: 4, group: 1, context: 9, functions: 37 };
  expect(shapeText({ shape })).toBe('seq3 kv4 ctx9');
});

test('thresholds are shares or per cent', () =>
  expect(['5%', '7.5 %', '0.05'].map((text) => readThreshold(text))).toEqual([0.05, 0.075, 0.05]));
test.each(['5', '0', '-1%', '1e-2', 'five', '%', '200%', ''])('threshold %j is refused', (text) =>
  expect(() => readThreshold(text)).toThrow(/--threshold must be/),
);
