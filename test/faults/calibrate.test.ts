/** What `calibrate` does with files that are there already. */
import '../gpu/timed.js';
import { mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { hostname } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { UNFINISHED } from '../../src/bench/calibrate/visits.js';
import { beginningOf } from '../../src/io/process-alive.js';
import { slugOf } from '../../src/commands/calibrate.js';
import { loadCalibration } from '../../src/plan/ask/calibrations.js';
import { calibrationSchema, type Calibration, type Sample } from '../../src/schema/calibration.js';
import { inProcess, scratch } from '../cli/program.js';
import { describeGpu } from '../gpu/device.js';

const MEASURE = ['--kernel', 'rmsnorm,swiglu', '--budget', '2s'] as const;

describeGpu('calibrate', () => {
  const home = scratch();
  const file = join(home.path, 'calibration.json');
  const read = (): Calibration => JSON.parse(readFileSync(file, 'utf8')) as Calibration;
  const calibrate = (...args: string[]) => inProcess('calibrate', '-o', file, ...args);
  let measured = '';

  beforeAll(async () => {
    const { code, err } = await calibrate(...MEASURE);
    expect(code, err).toBe(0);
    measured = readFileSync(file, 'utf8');
  });
  afterAll(() => home.remove());

  test('what it leaves is a calibration, and nothing beside it', () => {
    const calibration = calibrationSchema.parse(JSON.parse(measured));
    expect(calibration.kernels.flatMap((k) => k.samples).length).toBeGreaterThan(0);
    expect(calibration.kernels.flatMap((k) => k.gaps).filter((g) => g.reason === UNFINISHED)).toEqual([]);
    expect(readdirSync(home.path)).toEqual(['calibration.json']);
  });

  test('never erases measurements unasked', async () => {
    const { code, err } = await calibrate(...MEASURE);
    expect(code).toBe(2);
    expect(err).toMatch(/^error: calibration ".*calibration.json" exists; add --resume/);
    for (const part of ['driver', 'device', 'backend', 'description'] as const) {
      const other = read();
      other.device[part] = 'another';
      writeFileSync(file, JSON.stringify(other));
      const { code, err } = await calibrate('--resume', ...MEASURE);
      expect(code).toBe(2);
      expect(err).toMatch(
        new RegExp(`was measured on another device \\(${part} another, and this is .*\\); name another`),
      );
      expect(read()).toEqual(other);
      writeFileSync(file, measured);
    }
    expect(readdirSync(home.path)).toEqual(['calibration.json']);
  });

  test('writes beside files of other machines where no file is named, and goes on with its own', async () => {
    const elsewhere = read();
    elsewhere.device.driver = 'another';
    const folder = join(home.path, 'work');
    mkdirSync(join(folder, 'calibrations'), { recursive: true });
    const there = process.cwd();
    process.chdir(folder);
    try {
      const name = slugOf(elsewhere.device);
      for (const one of [name, `${name}-2`]) writeFileSync(`calibrations/${one}.json`, JSON.stringify(elsewhere));
      const made = async (...args: string[]): Promise<string> => {
        const { code, out, err } = await inProcess('calibrate', ...MEASURE, ...args);
        return code === 0 ? /Written to (.*)/.exec(out)![1]! : err;
      };
      expect(await made()).toBe(`calibrations/${name}-3.json`);
      expect(await made()).toContain(`${name}-3.json" exists; add --resume`);
      expect(await made('--resume')).toBe(`calibrations/${name}-3.json`);
    } finally {
      process.chdir(there);
      rmSync(folder, { recursive: true });
    }
  });

  test('refuses a file that another process writes', async () => {
    writeFileSync(`${file}.lock`, `${process.ppid} ${beginningOf(process.ppid) ?? '-'} ${hostname()}\n`);
    const { code, err } = await calibrate('--resume', ...MEASURE);
    home.removeFile('calibration.json.lock');
    expect(code).toBe(2);
    expect(err).toMatch(/is being written by process \d+; wait for it/);
    expect(readFileSync(file, 'utf8')).toBe(measured);
  });

  /** The first kernel that was measured, and its first sample. */
  function firstOf(calibration: Calibration) {
    const kernel = calibration.kernels.find((k) => k.samples.length > 0) as Calibration['kernels'][number];
    return { kernel, sample: kernel.samples[0] as Sample };
  }

  test('goes on with what version 1 stored, in the form of today', async () => {
    const old = readFileSync('calibrations/mesa-llvmpipe.json', 'utf8');
    const { device, host, clock } = read();
    writeFileSync(file, JSON.stringify({ ...(JSON.parse(old) as Calibration), device, host, clock }));
    const { sample } = firstOf((await loadCalibration(file)).calibration);
    const { code, err } = await calibrate('--resume', '--kernel', 'rope', '--budget', '1s');
    expect(code, err).toBe(0);
    expect(read().schemaVersion).toBe(2);
    expect(firstOf((await loadCalibration(file)).calibration).sample.seconds).toEqual(sample.seconds);
    expect(readdirSync(home.path)).toEqual(['calibration.json']);
  });

  test('says that a budget was too small', async () => {
    writeFileSync(file, measured);
    const { kernel } = firstOf(read());
    const { code, err } = await calibrate('--resume', '--kernel', kernel.kernel, '--budget', '10ms');
    expect(code, err).toBe(0);
    expect(err).toMatch(/^it took [\d.]+ s for --budget 10ms: overheads, ceilings and one point take that long here$/m);
  });

  test('keeps the times of kernels that have changed beside', async () => {
    const stale = read();
    const { kernel } = firstOf(stale);
    kernel.sourceHash = 'of an older kernel';
    writeFileSync(file, JSON.stringify(stale));
    const { code, err } = await calibrate('--resume', '--kernel', kernel.kernel, '--budget', '1s');
    expect(code, err).toBe(0);
    expect(err).toContain(`changed since they were measured: ${kernel.kernel}; they are measured again`);
    expect(JSON.parse(readFileSync(`${file}.old`, 'utf8'))).toEqual(stale);
    calibrationSchema.parse(read());
  });
});
