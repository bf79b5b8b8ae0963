/** On the device at hand: identical kernels, a kernel that became slower, and versions that cannot be compared. */
import '../gpu/timed.js';
import { cpSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, dirname, join } from 'node:path';
import { afterAll, expect, test } from 'vitest';
import { ticking } from './ticking.js';
import { representativeCalls } from '../../src/bench/regression/cases.js';
import { compareVersions, type CompareOptions } from '../../src/bench/regression/compare.js';
import type { KernelCall } from '../../kernels/registry.js';
import { OWN_SOURCES, sourcesFrom, type SourceSet } from '../../kernels/source.js';
import { bench } from '../../src/bench/regression/bench.js';
import type { BenchReport, BenchResult } from '../../src/bench/regression/report.js';
import { resolveAgainst } from '../../src/bench/regression/versions.js';
import { compile, ROOT, words, type Outcome } from '../cli/program.js';
import { describeGpu } from '../gpu/device.js';

const work = mkdtempSync(join(tmpdir(), 'lla-sim-bench-'));
afterAll(() => rmSync(work, { recursive: true, force: true }));

/** A folder with copies of the kernels, swiglu's text changed. */
function kernels(folder: string, change: (text: string) => string): string {
  for (const path of readdirSync(join(ROOT, 'kernels'), { recursive: true, encoding: 'utf8' })) {
    if (!path.endsWith('.wgsl')) continue;
    const [text, file] = [readFileSync(join(ROOT, 'kernels', path), 'utf8'), basename(path)];
    writeFileSync(join(folder, file), file === 'swiglu.wgsl' ? change(text) : text);
  }
  return folder;
}
const folderOf = (change: (text: string) => string): string => kernels(mkdtempSync(join(work, 'kernels-')), change);

/** Some hundred exponentials more an element; no compiler can know that the condition never holds. */
const heavy = (text: string): string => {
  const slow = `var gate = input[at];
    var again = 0.0;
    for (var n = 0u; n < 100u * min(params.count, 1u); n++) { again += exp(gate + f32(n) * 0.01); }
    if (again == 1.2345e30) { gate = again; }`;
  const planted = text.replace('let gate = input[at];', slow);
  if (planted === text) throw new Error('swiglu.wgsl has changed: write this plant anew');
  return planted;
};

const CALL = { kernel: 'swiglu', variant: 'f32', shape: { rows: 8, width: 5632 } } as const;

describeGpu('bench --against', (device) => {
  let measured: BenchReport | undefined;
  /** What comparisons have in common, beside the ceilings of the first report, which take seconds to measure. */
  const common = (seconds = 60) => {
    const { ceilings, clock } = measured as BenchReport;
    return { clock, submitSeconds: 0, ceilings, threshold: 0.05, budget: ticking(seconds), seed: 1, all: false };
  };
  const reportOn = async (folder: string): Promise<BenchReport> =>
    (measured = await bench(device, {
      ...{ against: resolveAgainst(folder), kernels: ['swiglu'], calls: [CALL] },
      ...{ budget: ticking(60), threshold: 0.05, seed: 1, all: false },
    }));
  const against = async (folder: string): Promise<BenchResult | undefined> => {
    const before = resolveAgainst(folder).sources;
    return (await compareVersions(device, { ...common(), calls: [CALL], before }))[0];
  };

  test('a constant that nothing uses is measured, and does not alarm; the same code is not measured', async () => {
    const [result] = (await reportOn(folderOf((t) => `${t}const nobody_uses_it = 1u;\n`))).results;
    expect(result).toMatchObject({ state: 'paired', sameSource: false });
    expect(result?.state === 'paired' && result.verdict).not.toBe('slower');
    expect(await against(folderOf((t) => t))).toMatchObject({ state: 'identical' });
    expect(await against(folderOf((t) => `${t}// a comment\n`))).toMatchObject({ state: 'identical' });
  });

  test('a version that was slower makes this one faster', async () => {
    const result = await against(folderOf(heavy));
    expect(result).toMatchObject({ state: 'paired', verdict: 'faster' });
    expect(result?.state === 'paired' && result.ratio.high).toBeLessThan(0.7);
  });

  test.each([
    ['exp(-gate)', 'no_such_function(gate)', /does not run with this program.*no_such_function/],
    ['@binding(2)', '@binding(7)', /does not run with this program/],
    ['1.0 + exp', '2.0 + exp', /is wrong: wrong result: relative error/],
  ])('a version in which %s is %s is not comparable, and says why', async (ours, theirs, reason) => {
    expect(await against(folderOf((t) => t.replace(ours, theirs)))).toMatchObject({
      state: 'not-comparable',
      reason: expect.stringMatching(reason) as string,
    });
  });

  test('a code that changed under the hash of another is wrong', async () => {
    // To the hash the storages look alike, so that it takes one of them only.
    const version = (id: string, q8: string): SourceSet => ({
      id,
      load: (name, element) =>
        OWN_SOURCES.load(name, element === 'q8' ? 'q8' : 'f16').replace('alias Unit', 'alias Other') +
        (element === 'q8' ? q8 : ''),
    });
    const attend = representativeCalls(true).find((c) => c.kernel === 'attend') as KernelCall;
    const call = { ...attend, variant: 'q8' };
    const statesOf = async (q8: string): Promise<unknown> =>
      compareVersions(device, { ...common(), calls: [call], before: version('before', ''), now: version('now', q8) });
    expect(await statesOf('const nobody_uses_it = 1u;\n')).toMatchObject([
      { state: 'wrong', reason: expect.stringMatching(/its hash did not/) as string },
    ]);
    expect(await statesOf('')).toMatchObject([{ state: 'identical' }]);
  });

  test('without time a call is checked and not timed; others are not reached unless all are to be', async () => {
    const statesOf = async (more: Partial<CompareOptions>): Promise<string[]> => {
      const before = resolveAgainst(folderOf((t) => `${t}const nobody_uses_it = 2u;\n`)).sources;
      const calls = [CALL, { ...CALL, shape: { rows: 4, width: 5632 } }];
      return (await compareVersions(device, { ...common(1), calls, before, ...more })).map((r) => r.state);
    };
    expect(await statesOf({})).toEqual(['checked', 'not-reached']);
    expect(await statesOf({ checkAll: true })).toEqual(['checked', 'checked']);
    // What this program cannot read is no version of it.
    const none = sourcesFrom('none', (file) => {
      throw new Error(`kernel ${file} does not exist`);
    });
    expect(await statesOf({ now: none })).toEqual(['wrong', 'wrong']);
    const wrong = resolveAgainst(folderOf((t) => t.replace('1.0 + exp', '2.0 + exp'))).sources;
    expect(await statesOf({ now: wrong, checkAll: true })).toEqual(['wrong', 'wrong']);
  });

  test('a kernel that became much slower ends the program with exit code 4', async () => {
    const program = await compile();
    try {
      const home = dirname(dirname(dirname(program.cli)));
      // compile() links to the real kernels; the link goes, never what it leads to.
      rmSync(join(home, 'kernels'));
      const own = join(home, 'kernels');
      cpSync(folderOf(heavy), own, { recursive: true });
      const flags = '--kernel swiglu --budget 15s --format markdown --quiet';
      const bench = (...more: string[]): Outcome =>
        program.run(['bench', '--against', join(ROOT, 'kernels'), ...words(flags), ...more]);
      const outcome = bench();
      expect(outcome.code, outcome.err).toBe(4);
      expect(outcome.out).toContain('**slower**');
      const unjudged = bench('--quick');
      expect(unjudged.code, unjudged.err).toBe(0);
      expect(unjudged.out).toContain('slower');
    } finally {
      program.remove();
    }
  });
});
