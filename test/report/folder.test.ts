/** What a report's folder holds, for every scenario; and the command that writes it. */
import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { runCommandLine } from '../../src/commands/parser.js';
import { UserError } from '../../src/errors.js';
import type { FleetJson } from '../../src/report/plan-json.js';
import { picturesOf } from '../../src/report/pictures/index.js';
import { png } from '../../src/report/pictures/png.js';
import { LIGHT } from '../../src/report/pictures/theme.js';
import { APPENDICES } from '../../src/report/report-markdown.js';
import { viewOf } from '../../src/report/view.js';
import type { PlanReport } from '../../src/plan/types.js';
import type { Scenario } from '../../src/schema/settings.js';
import { shownDecode } from '../../src/plan/words/words.js';
import { readValidation } from '../../src/schema/validation.js';
import type { SimulationReport } from '../../src/serving/types.js';
import { formatCount, formatNumber } from '../../src/numbers/units.js';
import { bundle, type Outcome, pageProgram, plan, type Program, ROOT, scratch, words } from '../cli/program.js';
import { blank, filesOf, scenarioOf, SCENARIOS, SERVED_USERS, textOf, viewOfScenario } from './reports.js';

describe.each(SCENARIOS)('%s', (name) => {
  it('holds the same numbers as plan prints, in every format', async () => {
    const files = await filesOf(scenarioOf(name), { draw: blank });
    const file = join(ROOT, 'scenarios', `${name}.yaml`);
    expect(textOf(files, 'plans.json')).toBe((await plan(file, '--format', 'json')).out);
    const { report } = (await viewOfScenario(scenarioOf(name))).view;
    if (report.plans.some((p) => p.maxBatch.exact >= 1)) {
      expect(textOf(files, 'plans.csv')).toBe((await plan(file, '--format', 'csv')).out);
      const table = (await plan(file, '--format', 'markdown')).out.split('\n').filter((l) => l.startsWith('|'));
      // The Markdown has the rows of a short table.
      const md = textOf(files, 'report.md');
      for (const id of [report.answer.deploy, report.answer.upside]) {
        const mark = id && (id === report.answer.deploy ? '**>**' : '**+**');
        if (mark) expect(table.some((line) => line.includes(`| ${mark} |`) && md.includes(line))).toBe(true);
      }
    }
  });

  it('answers, shows memory and pictures with their evidence, in Markdown and HTML', async () => {
    const { view } = await viewOfScenario(scenarioOf(name));
    const files = await filesOf(scenarioOf(name), { draw: blank });
    const [md, page] = [textOf(files, 'report.md'), textOf(files, 'report.html')];
    for (const p of picturesOf(view)) {
      expect(files.has(`${p.id}.png`)).toBe(true);
      expect(md).toContain(`(${p.id}.png)`);
      expect(page).toContain(`id="figure-${p.id}"`);
      expect(p.title.length * p.summary.length * p.source.length * p.subtitle.length).toBeGreaterThan(0);
    }
    for (const text of [md, page]) {
      expect(text.replace(/<script[\s\S]*?<\/script>/g, '')).not.toMatch(/NaN|undefined|\[object|Infinity/);
      expect(text).not.toMatch(/\b20\d\d-\d\d-\d\dT/);
    }
    expect(page).not.toMatch(/(?:src|href)="(?!#)/);
    expect([...page.matchAll(/<tr data-id=/g)].length).toBe(view.all.length);
  });
});

it('names the pictures that it has only where there is something to show', async () => {
  const ids = async (s: Parameters<typeof viewOfScenario>[0]) =>
    picturesOf((await viewOfScenario(s)).view).map((p) => p.id);
  const four = ['users-against-speed', 'memory-breakdown', 'time-against-context', 'quality-by-task'];
  expect(await ids({ device: 'h200' })).toEqual(four);
  expect(await ids({ device: 'h200', eviction: ['none', 'streaming:4+256'] })).toEqual(
    expect.arrayContaining(['eviction-batch']),
  );
  // Nothing is known about the speed of 55 GB of memory.
  expect(await ids({ vram: '55GB' })).toEqual(['memory-breakdown', 'quality-by-task']);
  // No figure is published for this model.
  expect(await ids({ device: 'h200', model: 'nanbeige4.2-3b' })).toEqual(four.slice(0, 3));
  expect(await ids({ calibration: join(ROOT, 'calibrations/mesa-llvmpipe.json') })).toContain('kernel-roofline');
});

it('says the decision within 150 lines of Markdown, and begins with the answer', async () => {
  for (const scenario of [{ device: 'h200' }, ...SCENARIOS.map(scenarioOf)]) {
    const md = textOf(await filesOf(scenario, { draw: blank }), 'report.md');
    const lines = md.split('\n');
    expect(lines.indexOf(APPENDICES), JSON.stringify(scenario)).toBeGreaterThan(20);
    expect(lines.indexOf(APPENDICES), JSON.stringify(scenario)).toBeLessThanOrEqual(150);
    const { report } = (await viewOfScenario(scenario)).view;
    if (report.answer.deploy) expect(lines.slice(0, 8).join('\n')).toContain('**Deploy** full cache');
    expect(md).toMatch(/```sh\nlla-sim plan --/);
  }
});

it('shows predicted against measured steps where a validation is at hand', async () => {
  const folder = scratch();
  const step = (id: string, measured: number, predicted: number): object => ({
    id,
    batch: 1,
    contextTokens: 64,
    measuredSeconds: measured,
    predicted: { estimate: predicted, low: predicted * 0.9, high: predicted * 1.1 },
    evidence: 'interpolated',
  });
  const file = folder.file(
    'validation.json',
    JSON.stringify({
      schema: 'lla-sim/validate',
      schemaVersion: 1,
      device: { description: 'llvm<b>pipe', software: true },
      latency: { model: 'small', steps: [step('a', 0.01, 0.0102), step('b', 0.1, 0.12), step('c', 0.2, 0.21)] },
    }),
  );
  const made = await viewOfScenario(scenarioOf('chat-h200'));
  const view = viewOf(made.scenario, made.sources, readValidation(file));
  folder.remove();
  const picture = picturesOf(view).find((p) => p.id === 'predicted-against-measured');
  expect(picture?.summary).toBe(
    '3 decode steps: the prediction is off by 5 % in the median, 2 of 3 measured times lie in their interval. A ' +
      'software adapter: this says nothing about a GPU.',
  );
  expect(picture?.evidence).toBe('interpolated');
  const points = picture?.chart(LIGHT).data.datasets.find((d) => d.label === 'interpolated')?.data as {
    x: number;
    y: number;
  }[];
  expect(points.map(({ x, y }) => [Number(x.toFixed(6)), Number(y.toFixed(6))])).toEqual([
    [10, 10.2],
    [100, 120],
    [200, 210],
  ]);
  expect(png(picture as NonNullable<typeof picture>).length).toBeGreaterThan(10_000);
  expect(picturesOf(made.view).some((p) => p.id === 'predicted-against-measured')).toBe(false);
});

it('gives the same bytes again, pictures too', async () => {
  const [a, b] = [
    await filesOf(scenarioOf('huginn-h100'), { draw: png }),
    await filesOf(scenarioOf('huginn-h100'), { draw: png, anew: true }),
  ];
  expect([...b.keys()]).toEqual([...a.keys()]);
  for (const [name, content] of a)
    expect(Buffer.compare(Buffer.from(content), Buffer.from(b.get(name) as Buffer)), name).toBe(0);
});

it('begins with what the simulation found: targets, replicas, the price of all, the simulated server', async () => {
  const scenario: Scenario = {
    model: 'ouro-2.6b',
    device: 'h100',
    codec: ['full'],
    usdPerHour: 2.5,
    ttft: '1s',
    percentile: 90,
    workload: { rate: 16, promptTokens: 300, outputTokens: 60, requests: 150 },
    server: { replicas: 2, maxNumSeqs: 4 },
  };
  const files = await filesOf(scenario, { simulate: true });
  const { candidates } = JSON.parse(textOf(files, 'simulation.json')) as SimulationReport;
  const { estimate, high } = candidates![0]!.replicasFor!.replicas;
  expect(estimate).toBeGreaterThan(2);
  const page = textOf(files, 'report.html').split('</header>')[0]!;
  for (const text of [textOf(files, 'report.md').split('## ')[0]!, page]) {
    expect(text).toContain(
      '16 requests a second on 2 × NVIDIA H100 SXM 80GB (2 replicas): misses the targets; p90 TTFT ',
    );
    expect(text).toContain(` It needs ${estimate} replicas, $${2.5 * estimate} an hour`);
    if (high !== estimate) expect(text).toContain(`; at the slow end ${high} replicas, $${2.5 * high!} an hour.`);
    expect(text).toMatch(/At [1-4]: /);
    expect(text).toContain('--max-num-seqs 4 --max-model-len 32768 ');
  }
  // What is bought is sure, where any number is.
  const bought = high ?? estimate;
  expect(page).toContain(
    `${bought} GPUs of ${bought} replicas at $2.5 an hour each: $${2.5 * bought} an hour, ` +
      `$${formatCount(2.5 * bought * 730)} a month`,
  );
  // So many GPUs answer 16 requests of 60 tokens a second.
  const million = Number(/a million output tokens cost \$(\d+(?:\.\d+)?)/.exec(page)![1]);
  expect(million / ((2.5 * bought * 1e6) / 3600 / (16 * 60))).toBeCloseTo(1, 2);
});

it('prices all GPUs that the users need, not one replica', async () => {
  const files = await filesOf({ device: 'h200', codec: ['full'], context: '16k', users: 100, usdPerHour: 2 });
  // As plan --users prints it.
  const { schema, runs } = JSON.parse(textOf(files, 'plans.json')) as FleetJson;
  expect(schema).toBe('lla-sim/fleet');
  const { deploy } = runs[0]!.fleet;
  // What one replica alone would take is not told beside it.
  expect(textOf(files, 'report.md').split('## ')[0]).not.toMatch(/no upside|loses too much/);
  for (const text of [textOf(files, 'report.md'), textOf(files, 'report.html')]) {
    expect(text).toContain(`${deploy!.gpus} h200`);
    const [, gpus] = /Deploy(?:\*\*|<\/strong>) (\d+) h200: (?=\d+ replicas)/.exec(text)!;
    expect(Number(gpus)).toBeGreaterThan(1);
    expect(text).toMatch(
      new RegExp(`${gpus} GPUs of \\d+ replicas at \\$2 an hour each: \\$${2 * Number(gpus)} an hour`),
    );
  }
});

it('says at which batch the times of its table are', async () => {
  const { view } = await viewOfScenario(scenarioOf('chat-h200'));
  const page = textOf(await filesOf(scenarioOf('chat-h200'), { draw: blank }), 'report.html');
  expect(page).toContain(
    'run: the smallest batch with 90 % of its best throughput; times and rates are at this batch.',
  );
  for (const { plan } of view.all) {
    const row = page.split(`<tr data-id="${plan.id}"`)[1]!.split('</tr>')[0]!;
    const d = shownDecode(plan);
    expect(row).toContain(`data-key="run" data-value="${d.batch}"`);
    expect(row).toContain(`data-key="rate" data-value="${d.tokensPerSecond?.estimate ?? ''}"`);
  }
});

it('begins with the simulated workload where users are asked, as plan --users does', async () => {
  const files = await filesOf(SERVED_USERS, { simulate: true });
  const markdown = textOf(files, 'report.md').split('## ')[0]!;
  const page = textOf(files, 'report.html').split('</header>')[0]!;
  for (const text of [markdown, page]) {
    expect(text).toContain('60 users, prompts 500, outputs 50 tokens, on NVIDIA H200');
    expect(text).toMatch(/Deploy(\*\*|<\/strong>) \d+ h200 by simulation: \d+ replicas of 1 GPU, full cache/);
    expect(text).toMatch(/Workload(\*\*|<\/strong>) simulated: each user asks/);
  }
});

/** The plans of the answer are simulated: page and Markdown say what simulation.json holds. */
function expectSimulated(out: string): void {
  const read = (name: string): string => readFileSync(join(out, name), 'utf8');
  const { answer } = JSON.parse(read('plans.json')) as PlanReport;
  const { runs, candidates, workload } = JSON.parse(read('simulation.json')) as SimulationReport;
  expect(runs.length).toBe(2);
  expect(runs[0]!.id).toBe(answer.deploy!.planId);
  // At the slow end the second serves less.
  expect(answer).toMatchObject({ chosenBy: 'simulation', upside: null });
  expect(read('report.md')).toContain('by simulation none whose kernels have to be written serves more requests');
  const lows = runs.map((r) => candidates!.find((c) => c.id === r.id)!.requestsPerSecond.low);
  expect(lows[1]).toBeLessThan(lows[0]!);
  expect(candidates!.map((c) => c.id).sort()).toEqual(runs.map((r) => r.id).sort());
  const rows = read('report.md').split('\n');
  for (const { id, low, estimate, high } of runs) {
    expect(estimate.completed).toBe(workload.requests);
    const [middle, least, most] = [estimate, low, high].map((of) => formatNumber(of.p99_ttft_ms!));
    const cell = `${middle} (${least}–${most})`;
    const row = rows.find((r) => r.startsWith(`| ${id} | TTFT, ms |`));
    expect(row?.endsWith(` ${cell} |`), row).toBe(true);
    expect(read('report.html')).toContain(`<td class="number">${cell}</td>`);
  }
}

describe('the command', () => {
  const folder = scratch();
  let program: Program;
  beforeAll(async () => {
    program = await bundle();
    const page = join(program.cli, '../../page');
    mkdirSync(page, { recursive: true });
    writeFileSync(join(page, 'page.js'), await pageProgram());
  });
  afterAll(() => {
    program.remove();
    folder.remove();
  });
  const run = (...args: string[]): Outcome => program.run(['report', ...args], { cwd: ROOT });

  it('writes a folder and says so, removes pictures that are no more, leaves other files', () => {
    const out = join(folder.path, 'chat');
    // Long prompts: one decode step favours the codec, the workload does not. Few requests tell a share of 90 %.
    const chat = folder.file(
      'chat.yaml',
      'model: ouro-2.6b\ndevice: h200\ncontext: 4096\ncodec: [full, lla]\npercentile: 90\n' +
        'workload: { rate: 1, promptTokens: 3500, outputTokens: 30, requests: 100 }\n',
    );
    mkdirSync(out);
    for (const name of ['kernel-roofline.png', 'cache-against-context.png', 'mine.png', 'notes.txt'])
      writeFileSync(join(out, name), 'x');
    const o = run(chat, '-o', out);
    expect(o.code, o.err).toBe(0);
    expect(o.out).toBe('');
    const names = readdirSync(out).sort();
    const pictures =
      'memory-breakdown mine quality-by-task serving-percentiles serving-rate serving-timeline serving-ways';
    expect(names).toEqual(
      [
        ...words(`${pictures} time-against-context users-against-speed`).map((picture) => `${picture}.png`),
        ...words('notes.txt plans.csv plans.json report.html report.md simulation.json'),
      ].sort(),
    );
    for (const name of names.filter((n) => n.endsWith('.png') && n !== 'mine.png'))
      expect(readFileSync(join(out, name)).subarray(1, 4).toString()).toBe('PNG');
    expect(o.err).toContain('report.html');
    expectSimulated(out);
    // The folder is this scenario's: another one asks first.
    const other = run('scenarios/nanbeige-a100.yaml', '-o', out);
    expect([other.code, other.err]).toEqual([2, expect.stringMatching(/holds the report of chat\.yaml.*--overwrite/)]);
    expect(readFileSync(join(out, 'report.md'), 'utf8')).toContain('ouro-2.6b');
    expect(run('scenarios/nanbeige-a100.yaml', '-o', out, '--overwrite', '--quiet').code).toBe(0);
    // Nothing is said of that scenario's requests.
    expect(readdirSync(out).filter((n) => /simulation|serving/.test(n))).toEqual([]);
    expect(run('scenarios/nanbeige-a100.yaml', '-o', out, '--quiet').err).toBe('');
    writeFileSync(join(out, 'report.md'), '# mine');
    expect(run('scenarios/nanbeige-a100.yaml', '-o', out).err).toMatch(/a report\.md that is not of this version/);
  });

  it('writes a report that says why nothing fits, and exits with 3', () => {
    const out = join(folder.path, 'nothing');
    const o = run('scenarios/nothing-fits.yaml', '-o', out);
    expect(o.code).toBe(3);
    expect(o.err).toMatch(/error: nothing fits/);
    expect(readFileSync(join(out, 'report.md'), 'utf8')).toMatch(/Nothing fits/);
    // What would help is told in the folder, too, which is what people send.
    const remedy = /what fits: .*/.exec(o.err)![0];
    for (const name of ['report.md', 'report.html'])
      expect(readFileSync(join(out, name), 'utf8').split('All combinations')[0]).toContain(remedy);
  });

  it('refuses what it cannot write or read, in one line', async () => {
    const file = folder.file('file', 'x');
    const scenario = join(ROOT, 'scenarios/nanbeige-a100.yaml');
    const validation = { schema: 'lla-sim/validate', schemaVersion: 1, device: { description: 'x', software: true } };
    const untimed = folder.file('v.json', JSON.stringify({ ...validation, latency: null }));
    for (const [args, message] of [
      [
        [scenario, '-o', file],
        /--output ".*file" cannot be written: a file of that name exists where a folder is needed/,
      ],
      [
        [scenario, '-o', join(file, 'below')],
        /--output ".*below" cannot be written: a part of its path is not a folder/,
      ],
      [['none.yaml', '-o', join(folder.path, 'a')], /scenario "none.yaml" does not exist/],
      [['--device', 'h200'], /folder of the report is not given/],
      [['--device', 'h201', '-o', join(folder.path, 'b')], /unknown device "h201"/],
      [[scenario, '-o', join(folder.path, 'd'), '--validation', file], /validation ".*file" is not valid JSON/],
      [[scenario, '-o', join(folder.path, 'd'), '--validation', untimed], /holds no step times/],
    ] as const) {
      const error = await runCommandLine(['report', ...args]).catch((e: unknown) => e);
      expect(error, args.join(' ')).toBeInstanceOf(UserError);
      expect((error as UserError).message).toMatch(message);
    }
    for (const name of ['a', 'b', 'd']) expect(existsSync(join(folder.path, name))).toBe(false);
  });

  it('says in the words of the file what is wrong in it', async () => {
    const file = folder.file('bad.yaml', 'device: h200\nbatch: 0\n');
    const error = await runCommandLine(['report', file, '-o', join(folder.path, 'c')]).catch((e: unknown) => e);
    expect(error).toBeInstanceOf(UserError);
    expect((error as UserError).message).toMatch(/^scenario ".*bad\.yaml": batch must be/);
  });
});
