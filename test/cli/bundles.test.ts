/** The program in bundles, as it is published: every command answers, and what is loaded when needed is there. */
import { spawnSync } from 'node:child_process';
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { COMMANDS } from '../../src/commands/commands.js';
import { picturesOf } from '../../src/report/pictures/index.js';
import { png } from '../../src/report/pictures/png.js';
import { viewOfScenario } from '../report/reports.js';
import { bundle, expectRefused, OURO_CONFIG, plan, type Program, read, ROOT, scratch } from './program.js';

/** What each command's own code refuses, after its arguments are parsed, and what it says. */
const REFUSED: Readonly<Record<string, readonly [args: readonly string[], message: RegExp]>> = {
  plan: [['--vram', '5 apples'], /--vram .*"5 apples"/],
  open: [[], /no link is given/],
  mcp: [['now'], /"now" is one word too many/],
  paper: [['--format', 'csv'], /--format must be .*markdown.*"csv"/],
  report: [['--device', 'h200'], /the folder of the report is not given/],
  calibrate: [['--budget', 'soon'], /--budget .*"soon"/],
  bench: [['--format', 'csv'], /--format must be .*markdown.*"csv"/],
  validate: [['--only', 'luck'], /--only must be one of memory.*"luck"/],
  run: [['--tokens', '1,x'], /--tokens .*"x"/],
  fidelity: [['--only', 'luck'], /no configuration has "luck"/],
  fit: [[], /there is no file to write to/],
  doctor: [['--format', 'csv'], /--format must be .*json.*"csv"/],
  import: [[], /the source of the tables is not given/],
  simulate: [[], /the memory of the GPU is not given/],
  accuracy: [['--only', 'no such row'], /no row of the ledger has "no such row"/],
  models: [['--format', 'csv'], /--format must be .*json.*"csv"/],
};

let program: Program;
const files = scratch();
beforeAll(async () => {
  program = await bundle();
});
afterAll(() => {
  program.remove();
  files.remove();
});

describe('bundles', () => {
  it.each(Object.keys(COMMANDS))('%s has help, and refuses what only its own code can refuse', (name) => {
    const help = program.run([name, '--help']);
    expect([help.code, help.err]).toEqual([0, '']);
    expect(help.out).toContain(`lla-sim ${name}`);
    expect(help.out).toContain('Examples:');
    const [args, message] = REFUSED[name] ?? [[], /^$/];
    const refused = program.run([name, ...args]);
    expectRefused(refused, message);
  });

  it('every file loads, and none imports a file that is not there', () => {
    const folder = dirname(program.cli);
    const names = readdirSync(folder).filter((name) => name !== 'cli.js');
    const imported = readdirSync(folder).flatMap((name) =>
      [...read(join(folder, name)).matchAll(/\bimport\("\.\/([^"]+)"\)/g)].map(([, to]) => to ?? ''),
    );
    expect(names.length).toBeGreaterThan(Object.keys(COMMANDS).length);
    expect(imported.length).toBeGreaterThan(Object.keys(COMMANDS).length);
    expect(imported.filter((name) => !names.includes(name))).toEqual([]);
    const load =
      `for (const name of ${JSON.stringify(names)}) await import(new URL(name, ` +
      `${JSON.stringify(pathToFileURL(`${folder}/`).href)}).href);`;
    const options = { encoding: 'utf8', timeout: 60_000 } as const;
    const loaded = spawnSync(process.execPath, ['--input-type=module', '-e', load], options);
    expect([loaded.status, loaded.stderr]).toEqual([0, '']);
  });

  it('report draws the pictures that its modules draw, on the canvas that comes with its package', async () => {
    const page = join(dirname(program.cli), '../page');
    mkdirSync(page);
    writeFileSync(join(page, 'page.js'), '');
    const folder = join(files.path, 'report');
    const question = { device: 'h200', codec: ['full', 'lla'], ratio: [4] };
    const drawn = program.run(['report', '--device', 'h200', '--codec', 'full,lla', '--ratio', '4', '-o', folder]);
    expect(drawn.code, drawn.err).toBe(0);
    const { view } = await viewOfScenario(question);
    for (const picture of picturesOf(view))
      expect(readFileSync(join(folder, `${picture.id}.png`)).equals(png(picture)), picture.id).toBe(true);
    expect(picturesOf(view).length).toBeGreaterThan(2);
    const chunk = readdirSync(dirname(program.cli)).find((name) => /^report-pictures-png/.test(name)) ?? '';
    const imports = read(join(dirname(program.cli), chunk)).matchAll(/from"([^."][^"]*)"/g);
    const packages = [...imports].map(([, name]) => name);
    expect(new Set(packages.filter((name) => !name?.startsWith('node:')))).toEqual(new Set(['@napi-rs/canvas']));
  });

  it('plan prints what its modules print, from all that it reads', async () => {
    const config = files.file('config.json', OURO_CONFIG);
    const stack = files.file('stack.json', read(join(ROOT, 'calibrations/stacks/h200-trtllm.json')));
    const scenario = files.file('scenario.yaml', 'device: h200\ncodec: [full, lla]\n');
    for (const format of ['json', 'csv', 'markdown', 'table']) {
      const args = [scenario, '--model', config, '--stack', stack, '--format', format];
      const bundled = program.run(['plan', ...args]);
      expect([bundled.code, bundled.err]).toEqual([0, '']);
      expect(bundled.out).toBe((await plan(...args)).out);
    }
  });
});
