/**
 * Parts of a sweep: joined they are the whole, and nothing is missing or counted twice. Cluster scripts, as they are.
 */
import { execFileSync } from 'node:child_process';
import { chmodSync, copyFileSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { parse as parseYaml } from 'yaml';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { SimulationReport } from '../../src/serving/types.js';
import { bundle, expectRefused, inProcess, ROOT, scratch, words, type Outcome } from '../cli/program.js';

const OF = 3;
const SCENARIO = `model: ouro-1.4b
device: h200
codec: [full, kv-quant]
ratio: [4, 2]
percentile: 90
ttft: 500ms
tpot: 30ms
workload: { requests: 20, rate: 2, promptTokens: 256, outputTokens: 16 }
min: { gsm8k: 0.1 }
`;

const files = scratch();
const { path: folder, file } = files;
afterAll(() => files.remove());
let whole: SimulationReport;
const simulate = (...argv: string[]): Promise<Outcome> => inProcess('simulate', ...argv);
const shardFile = (index: number): string => join(folder, 'results', `shard-${index}.json`);
const runShard = (index: number): Promise<Outcome> =>
  simulate(
    join(folder, 's.yaml'),
    ...words(`--find-rate --shard ${index}/${OF} --format json --quiet -o`),
    shardFile(index),
  );
const merged = (): Promise<Outcome> => simulate('merge', join(folder, 'results'), '--format', 'json');

beforeAll(async () => {
  mkdirSync(join(folder, 'results'));
  file('s.yaml', SCENARIO);
  const o = await simulate(join(folder, 's.yaml'), '--find-rate', '--format', 'json');
  expect(o.code, o.err).toBe(0);
  whole = JSON.parse(o.out) as SimulationReport;
  for (let index = 1; index <= OF; index++) expect((await runShard(index)).code).toBe(0);
});

describe('shards', () => {
  it('joined are the whole', async () => {
    expect(whole.candidates!.length).toBeGreaterThan(1);
    expect(whole.candidates!.every((s) => s.requestsPerSecond.low > 0)).toBe(true);
    for (const { requestsPerSecond: r } of whole.candidates!) {
      expect(r.low).toBeLessThanOrEqual(r.estimate);
      expect(r.estimate).toBeLessThanOrEqual(r.high);
    }
    const o = await merged();
    expect(o.code, o.err).toBe(0);
    expect(JSON.parse(o.out)).toEqual(whole);
    const table = (await simulate('merge', join(folder, 'results'))).out;
    expect(table).toContain('Runs today');
    // Each shard holds whole candidates: what is exact in one stays so.
    const sketched = whole.candidates!.some((s) => s.atEstimate!.sketched.some((m) => m === 'ttft' || m === 'tpot'));
    expect(table.replaceAll(/\s+/g, ' ')).toContain(
      sketched ? 'percentiles of more than 10000 values (TTFT, TPOT)' : 'percentiles are exact',
    );
    // Shards that were run without a picture have no curve to draw.
    expectRefused(
      await simulate('merge', join(folder, 'results'), '--picture', join(folder, 'rate.png')),
      'the shards hold no latency against the rate',
    );
  });

  it('that are missing, twice, ended early or of another sweep are refused by name', async () => {
    rmSync(shardFile(2));
    expectRefused(await merged(), 'are missing: 2; run --shard 2/3 again');
    copyFileSync(shardFile(1), join(folder, 'results', 'again.json'));
    expectRefused(await merged(), 'are both shard 1');
    rmSync(join(folder, 'results', 'again.json'));
    // The shard that died is run again.
    expect((await runShard(2)).code).toBe(0);
    const good = readFileSync(shardFile(2), 'utf8');
    expect(JSON.parse((await merged()).out)).toEqual(whole);
    const report = JSON.parse(good) as SimulationReport;
    for (const [changed, message] of [
      [{ ...report, partial: true }, 'was ended early'],
      [{ ...report, targets: { ...report.targets, tpotSeconds: 1 } }, 'answer different questions'],
      [{ ...report, candidates: whole.candidates }, 'times, not once'],
      [{ ...report, schema: 'lla-sim/plan' }, 'is no shard'],
      [
        {
          ...report,
          candidates: report.candidates!.map(({ atEstimate, ...c }) => {
            const { few: _few, ...older } = atEstimate!;
            return { ...c, atEstimate: older };
          }),
        },
        'is of an older version; run --shard 2/3 again',
      ],
    ] as const) {
      writeFileSync(shardFile(2), JSON.stringify(changed));
      expectRefused(await merged(), message);
    }
    writeFileSync(shardFile(2), good);
  });

  it('are asked for rightly', async () => {
    for (const [argv, message] of [
      [['--shard', '4/3', '--find-rate', '--format', 'json'], '--shard must be i/n'],
      [['--shard', '1/3', '--format', 'json'], '--shard needs --find-rate'],
      [['merge'], 'the folder of the shards is not given'],
      [['merge', join(folder, 'none')], 'cannot be read'],
    ] as const) {
      expectRefused(await simulate(...(argv[0] === 'merge' ? [] : [join(folder, 's.yaml')]), ...argv), message);
    }
  });
});

interface Container {
  readonly command: string[];
  readonly args: string[];
  readonly env: { name: string; value: string }[];
}

describe('the scripts of docs/cluster', () => {
  /** Stands in for a cluster: a program on the path, and the variables that the scheduler sets. */
  it('run every part, and one part again', async () => {
    const program = await bundle();
    try {
      const bin = join(folder, 'bin');
      mkdirSync(bin, { recursive: true });
      // One candidate: some parts have nothing to do.
      const scenario = file('one.yaml', SCENARIO.replace('[full, kv-quant]\nratio: [4, 2]', '[full]'));
      const wanted = whole.candidates!.filter(({ id }) => id === 'full/full');
      expect(wanted).toHaveLength(1);
      writeFileSync(join(bin, 'lla-sim'), `#!/bin/sh\nexec "${process.execPath}" "${program.cli}" "$@"\n`);
      chmodSync(join(bin, 'lla-sim'), 0o755);
      const run = (file: string, argv: readonly string[], env: Record<string, string>, name: string): void =>
        void execFileSync(file, argv, {
          env: {
            ...process.env,
            PATH: `${bin}:${process.env['PATH']}`,
            SCENARIO: scenario,
            RESULTS: join(folder, name),
            ...env,
          },
        });
      const slurm = (task: number): void =>
        run(
          'bash',
          [join(ROOT, 'docs/cluster/slurm.sh')],
          { SLURM_ARRAY_TASK_ID: `${task}`, SLURM_ARRAY_TASK_COUNT: '2' },
          'slurm',
        );
      slurm(2);
      slurm(1);
      const job = parseYaml(readFileSync(join(ROOT, 'docs/cluster/kubernetes.yaml'), 'utf8')) as {
        spec: { completions: number; template: { spec: { containers: Container[] } } };
      };
      const container = job.spec.template.spec.containers[0]!;
      expect(container.env.find((e) => e.name === 'COMPLETIONS')!.value).toBe(String(job.spec.completions));
      for (const index of [0, 1])
        run(
          container.command[0]!,
          [...container.command.slice(1), ...container.args],
          { COMPLETIONS: '2', JOB_COMPLETION_INDEX: `${index}` },
          'kubernetes',
        );
      for (const name of ['slurm', 'kubernetes']) {
        const o = await simulate('merge', join(folder, name), '--format', 'json');
        expect(o.code, o.err).toBe(0);
        expect((JSON.parse(o.out) as SimulationReport).candidates).toEqual(wanted);
      }
      // On all cores of one machine.
      const out = join(folder, 'cores.json');
      run(
        process.execPath,
        [program.cli, 'simulate', scenario, '--find-rate', '--cores', '2', '--format', 'json', '-o', out],
        {},
        'cores',
      );
      expect((JSON.parse(readFileSync(out, 'utf8')) as SimulationReport).candidates).toEqual(wanted);
    } finally {
      program.remove();
    }
  });
});
