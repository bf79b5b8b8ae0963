/** The pages are true: every command, file and snippet is run, and what is shown as output is what comes out. */
import '../gpu/narrow.js';
import { spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, readdirSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { z } from 'zod';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { OP_CLASSES } from '../../kernels/op-classes.js';
import { COMMANDS } from '../../src/commands/commands.js';
import { parse } from '../../src/commands/parser.js';
import { DRIFT_RETRIED } from '../../src/bench/calibrate/repetitions.js';
import { KAPPA_UNTESTED } from '../../src/cost/conformal.js';
import { NORMAL_90 } from '../../src/cost/predictor.js';
import { ROOFLINE } from '../../src/cost/roofline.js';
import { PAPER_FIGURES } from '../../src/paper/figures.js';
import { CONTRADICTIONS } from '../../src/quality/contradictions.js';
import { calibrationSchema } from '../../src/schema/calibration.js';
import { DRIFT_CORRECTED } from '../../src/schema/drift.js';
import { SETTINGS } from '../../src/schema/settings.js';
import { TOLERANCES } from '../../src/validate/checks.js';
import { describeGpu } from '../gpu/device.js';
import {
  commandsInText,
  commandsOf,
  expectedCode,
  fencesOf,
  linksOf,
  PAGES,
  wordsOf,
  type Fence,
} from './documents.js';
import { compile, inProcess, OURO_CONFIG, type Outcome, pageProgram, read, ROOT, words } from './program.js';

/** extending.test.ts follows it. */
const ELSEWHERE = 'docs/extending.md';
const RUN_HERE = PAGES.filter((p) => p !== ELSEWHERE);

/** A model that a software adapter decodes at once. */
const TINY_RUN = 'npx lla-sim run --model tiny/config.json ';
const CHUNKED = '--tokens 1,2,3,4,5,6 --prefill chunked --prefill-chunk 4';
const CAPITAL = 'npx lla-sim run --model ./Ouro-1.4B --text "The capital of France is"';
/** Commands that take minutes, or a checkpoint that is not carried, and what runs instead. */
const INSTEAD: Readonly<Record<string, string>> = {
  // That would replace the packages under the tests.
  'npm ci && npx lla-sim plan --vram 141GB --ctx 4096': 'npx lla-sim plan --vram 141GB --ctx 4096',
  'npx lla-sim simulate scenarios/chat-h200.yaml --find-rate':
    'npx lla-sim simulate scenarios/chat-h200.yaml --find-rate --codec full --ttft 2s --tpot 80ms --percentile 99',
  // accuracy/accuracy.test.ts prices all rows.
  'npx lla-sim accuracy': 'npx lla-sim accuracy --only hla',
  'npx lla-sim accuracy --only h100 --format csv': 'npx lla-sim accuracy --only threads --format csv',
  'npx lla-sim validate --only latency --budget 5m --format markdown --picture scatter.png -o validation.md':
    'npx lla-sim validate --quick --only long-context --format markdown -o validation.md',
  'npx lla-sim run --layers 2 --vocab 24576 --tokens 1,2,3 --codec lla --ratio 4 --path reconstruct':
    TINY_RUN + '--tokens 1,2,3 --codec lla --ratio 4 --path reconstruct --max-tokens 2',
  'npx lla-sim run --layers 1 --vocab 24576 --codec lla --ratio 21.33 --fill 32k --batch 4 --max-tokens 8':
    TINY_RUN + '--codec lla --ratio 21.33 --fill 64 --batch 4 --max-tokens 2',
  ['npx lla-sim run --layers 1 --vocab 24576 --codec lla --ratio 21.33 ' + CHUNKED]:
    TINY_RUN + `--codec lla --ratio 21.33 ${CHUNKED} --max-tokens 2`,
  'npx lla-sim fit --ratio 4 -o lla4.safetensors': 'npx lla-sim fit --ratio 4 --max-tokens 256 -o lla4.safetensors',
  'npx lla-sim run --codec lla --ratio 4 --codec-weights lla4.safetensors':
    'npx lla-sim run --codec lla --ratio 4 --codec-weights lla4.safetensors --max-tokens 2',
  'npx lla-sim fit --model ./Ouro-1.4B --text book.txt --ratio 4 -o ouro-lla4.safetensors':
    'npx lla-sim fit --model tiny/config.json --max-tokens 256 --ratio 4 -o made-lla4.safetensors',
  [`${CAPITAL} --codec lla --ratio 4 --codec-weights ouro-lla4.safetensors`]:
    TINY_RUN + '--tokens 1,2,3 --codec lla --ratio 4 --codec-weights made-lla4.safetensors --max-tokens 2',
};
const MEASURED = '--model models/lla-tiny --fidelity fidelity.json --device h200 --ctx 256';
/** Commands that do not run at all, and why. */
const NOT_RUN: Readonly<Record<string, string>> = {
  'npm test': 'this is a part of it',
  'npx lla-sim calibrate --budget 10m': 'minutes; test/faults/calibrate.test.ts measures',
  'npx lla-sim calibrate --resume': 'minutes; test/faults/calibrate.test.ts resumes',
  'npx lla-sim report scenarios/chat-h200.yaml -o reports/chat-h200':
    'test/report/folder.test.ts runs it, test/report/committed.test.ts compares what it writes',
  'npx lla-sim calibrate --page measure.html': 'the build makes the page; test/measure/page.test.ts opens it',
  'npx lla-sim import calibration calibrations/mesa-llvmpipe.json --check':
    'test/measure/parts.test.ts judges every carried file',
  'npx lla-sim calibrate --tune --budget 15m': 'minutes; test/bench/tune.test.ts tunes',
  'npx lla-sim calibrate --kernel attend,matmul --budget 5m --resume': 'minutes; the options are those of the others',
  'npx lla-sim calibrate --model huginn-3.5b --budget 10m -o calibrations/huginn-shapes.json':
    'minutes; the options are those of the others',
  'npx lla-sim bench': 'two minutes; docs/extending.md runs it on a kernel',
  'npx lla-sim bench --roofline': 'two minutes; docs/extending.md runs it on a kernel',
  'npx lla-sim bench --roofline --budget 2m': 'two minutes; docs/extending.md runs it on a kernel',
  'npx lla-sim bench --against HEAD~1': 'minutes; test/bench/regression-versions.test.ts reads revisions',
  'npx lla-sim bench --against ../other/kernels --kernel attend,matmul --format markdown':
    'there is no other checkout; test/bench/regression-gpu.test.ts compares with a folder',
  'npx lla-sim validate': 'a quarter of an hour; test/validate runs its sections',
  'npx lla-sim validate --quick': 'a minute or two; test/validate runs its sections',
  'npx lla-sim validate --serving': 'minutes; test/decoder runs the loop',
  [CAPITAL]: 'the checkpoint is not carried; test/cli/run.test.ts decodes a made-up one',
  'npx lla-sim fit --ratio 8 --distil -o lla8.safetensors': 'minutes; test/training distils',
  'npx lla-sim fit --ratio 8 --distil --on-policy -o lla8.safetensors': 'the same',
  'npx lla-sim fit --codec hla --ratio 4 --distil -o hla4.safetensors': 'the same',
  'npx lla-sim fidelity --codec-weights hla4.safetensors --only hla': 'weights of that training',
  'npx lla-sim fidelity --codec-weights lla4.safetensors': 'minutes; test/fit/capture.test.ts judges',
  'npx lla-sim simulate scenarios/chat-h200.yaml --find-rate --ways':
    'half a minute; test/report/committed.test.ts has its table, test/serving/ways.test.ts compares ways',
  ['npx lla-sim simulate --device b300 --stack vllm-rlt --attention flash-attn-4 ' +
  '--max-num-seqs 64 --max-num-batched-tokens 2048 --find-rate --ways']: 'the same',
  'npx lla-sim fidelity --only speculation': 'a minute; test/fidelity/acceptance.test.ts measures it',
  'npx lla-sim fidelity -o fidelity.json': 'a quarter of an hour',
  'npx lla-sim fidelity -o fidelity.json --picture fidelity.png': 'the same',
  [`npx lla-sim plan ${MEASURED}`]: 'that file takes a quarter of an hour; test/plan/fidelity.test.ts plans with one',
  [`npx lla-sim plan ${MEASURED} --max-kl 0.05 --min-recall 0.9`]: 'the same',
  [`npx lla-sim report ${MEASURED} -o reports/lla-tiny`]: 'the same',
  'npx lla-sim fidelity --claims -o claims.json': 'half an hour; test/fidelity judges claims',
  'npx lla-sim fit --spectra --picture spectra.png': 'a minute; test/fidelity has spectra of made-up vectors',
  'npx lla-sim run --seed 7': 'test/cli/run.test.ts asks the bundled model',
  ['npx lla-sim run --text "anna bread the old dog sees a bird . boris lamp ' +
  'a cat follows the king . ? anna" --max-tokens 1']: 'the same',
  'npx lla-sim run --model lla-small --seed 7': 'test/tiny asks it',
  'npx lla-sim fit --model lla-small --ratio 4 -o small-lla4.safetensors': 'minutes',
  'npx lla-sim fidelity --model lla-small --only lla-4x': 'minutes',
  'npx lla-sim fidelity --only flashloop': 'minutes in float64; test/fidelity/fidelity.test.ts decodes so',
  'npm run train:model': 'minutes; test/training makes two steps',
  'npm run train:model -- lla-small': 'half an hour of processor time',
  'npm run score:model': 'minutes, and it writes the card; test/tiny asks the model',
  'npx lla-sim import aic ./aiconfigurator --gpu h200_sxm --stack vllm -o h200-vllm.json':
    'needs a clone; test/stacks imports one that it makes',
  'npx lla-sim import llmservingsim ./LLMServingSim --gpu RTX4090 -o rtx-4090-vllm.json': 'the same',
  'npx lla-sim import csv times.csv --device h100 --stack ours -o ours.json': 'the same',
  'npm run pack:portable': 'builds dist/ anew under the tests',
  'tar xJf lla-sim-portable-linux-x64.tar.xz': 'on the server; scripts/pack-portable.mjs writes that archive',
  'lla-sim-portable/run doctor': 'on the server; doctor runs here',
  'lla-sim-portable/measure results 9': 'on the server; scripts/measure-gpu.sh calls commands that run here',
};

/**
 * Kinds of blocks: sh and console run, text is the output of the one before, js runs against the compiled package, ts
 * is what npm run schema writes, FILES are written to the file that they name, formula is mathematics.
 */
const LANGUAGES = words('sh console text js ts yaml csv json formula');
const FILES = ['yaml', 'csv', 'json'];
const GPU_COMMANDS = ['calibrate', 'bench', 'run', 'fit', 'fidelity', 'validate', 'doctor'];
const TINY_SIZES = { num_hidden_layers: 1, total_ut_steps: 4, hidden_size: 64, head_dim: 16, intermediate_size: 128 };
const TINY_CONFIG = { ...(JSON.parse(OURO_CONFIG) as object), ...TINY_SIZES, vocab_size: 512, rope_theta: 1e6 };

const fences = RUN_HERE.flatMap((page) => fencesOf(page));
const shell = fences
  .filter((f) => f.language === 'sh')
  .flatMap((f) => commandsOf(f).map((command) => ({ page: f.page, command, code: expectedCode(f, command) })));

/** What runs for a command, or null. */
const runOf = (command: string): string | null =>
  Object.hasOwn(NOT_RUN, command) ? null : (INSTEAD[command] ?? command);
const verbOf = (command: string): string => wordsOf(command)[2] as string;
/** Distinct commands that run here, and where they stand. */
const running = [
  ...new Map(
    shell.flatMap(({ page, command, code }) => {
      const run = runOf(command);
      return run === null ? [] : [[run, { run, page, code }] as const];
    }),
  ).values(),
];

let session = '';
let program: Awaited<ReturnType<typeof compile>>;
const outcomes = new Map<string, Outcome>();
beforeAll(async () => {
  program = await compile();
  const page = join(dirname(program.cli), '../page');
  mkdirSync(page, { recursive: true });
  writeFileSync(join(page, 'page.js'), await pageProgram());
  session = mkdtempSync(join(tmpdir(), 'lla-sim-documents-'));
  for (const folder of ['scenarios', 'src']) symlinkSync(join(ROOT, folder), join(session, folder));
  mkdirSync(join(session, 'tiny'));
  writeFileSync(join(session, 'tiny/config.json'), JSON.stringify(TINY_CONFIG));
  for (const f of fences.filter((x) => FILES.includes(x.language))) writeFileSync(join(session, f.info), f.text);
});
afterAll(() => {
  program?.remove();
  rmSync(session, { recursive: true, force: true });
});

/** Runs `npx lla-sim ...` as a reader would, in the folder that has the pages' files. */
async function execute(command: string): Promise<Outcome> {
  const [verb = '', ...argv] = wordsOf(command).slice(2);
  // A report reads the page's program, which lies beside the compiled one.
  if (verb === 'report') return program.run([verb, ...argv], { cwd: session });
  const before = process.cwd();
  process.chdir(session);
  try {
    return await inProcess(verb, ...argv);
  } finally {
    process.chdir(before);
  }
}

function runs({ run, code }: (typeof running)[number]): void {
  it(`${run}`, async () => {
    const o = await execute(run);
    outcomes.set(run, o);
    expect(o.code, o.err).toBe(code);
    // With -o, or when nothing answers, the answer is not on stdout.
    if (code === 0 && !/ (-o|--output) /.test(run)) expect(o.out.length).toBeGreaterThan(100);
  });
}

describe('commands of the pages', () => {
  it('are many, and every entry of the list of others is on a page', () => {
    expect(shell.length).toBeGreaterThan(40);
    const listed = Object.keys({ ...INSTEAD, ...NOT_RUN });
    expect(listed.filter((c) => !shell.some((s) => s.command === c))).toEqual([]);
    for (const why of Object.values(NOT_RUN)) expect(why.length).toBeGreaterThan(5);
  });

  it('are run here or listed with a reason', () => {
    for (const { page, command } of shell)
      if (runOf(command) === command)
        expect(command, page).toMatch(new RegExp(`^npx lla-sim (${Object.keys(COMMANDS).join('|')})\\b`));
  });

  it('have options that exist, also those that do not run and those inside sentences', async () => {
    const written = [...shell.map((s) => s.command), ...PAGES.flatMap((p) => commandsInText(p))]
      .flatMap((c) => c.split(' && '))
      .map((c) => c.replace(/^npx /, ''))
      .filter((c) => c.startsWith('lla-sim '));
    for (const command of new Set(written)) {
      const [verb = '', ...argv] = wordsOf(command).slice(1);
      expect(Object.keys(COMMANDS), command).toContain(verb);
      if (!argv.includes('--help')) expect(await parse([verb, ...argv]), command).not.toBeNull();
    }
  });

  it('of npm and node inside sentences exist', () => {
    const scripts = (JSON.parse(read(join(ROOT, 'package.json'))) as { scripts: Record<string, string> }).scripts;
    for (const page of PAGES) {
      const text = read(join(ROOT, page));
      for (const [, name = ''] of text.matchAll(/npm run ([\w:]+)/g))
        expect(scripts[name], `${page}: npm run ${name}`).toBeDefined();
      for (const [, path = ''] of text.matchAll(
        /\b((?:scripts|test|src|scenarios|schemas)\/[\w./-]+\.(?:mjs|ts|sh|wgsl|json|yaml))\b/g,
      )) {
        const made = fencesOf(page, text).some((f) => f.info === path);
        expect(made || existsSync(join(ROOT, path)), `${page} names ${path}`).toBe(true);
      }
    }
  });

  describe('run', () => {
    for (const one of running.filter((r) => !GPU_COMMANDS.includes(verbOf(r.run)))) runs(one);
  });
  describeGpu('run on a device', () => {
    for (const one of running.filter((r) => GPU_COMMANDS.includes(verbOf(r.run)))) runs(one);
  });
});

describe('blocks of the pages', () => {
  it('are of a kind that is held true, and name their file where they are one', () => {
    for (const f of fences) {
      // The tree of DESIGN.md, which is compared with src/ below.
      if (f.page === 'DESIGN.md' && f.language === '') continue;
      expect(LANGUAGES, `${f.page}:${f.line}`).toContain(f.language);
      if (FILES.includes(f.language)) {
        expect(f.info, `${f.page}:${f.line}`).toMatch(/^[\w-]+\.(yaml|csv|json)$/);
        const readers = fences.filter(
          (x) => x.page === f.page && (x.language === 'sh' || x.language === 'console') && x.text.includes(f.info),
        );
        expect(readers.length, `${f.page}: no command reads ${f.info}`).toBeGreaterThan(0);
      }
    }
  });

  const shown = fences.flatMap((f, i) => (f.language === 'text' ? [{ fence: f, before: fences[i - 1] as Fence }] : []));
  it.each(shown.map((s) => [`${s.fence.page}:${s.fence.line}`, s] as const))(
    'output at %s is what is printed',
    async (_, { fence, before }) => {
      expect([before.page, before.language]).toEqual([fence.page, 'sh']);
      const run = runOf(commandsOf(before).at(-1) as string) as string;
      const o = outcomes.get(run) ?? (await execute(run));
      expect(fence.text).toBe(o.out);
    },
  );

  const consoles = fences.filter((f) => f.language === 'console');
  it.each(consoles.map((f) => [`${f.page}:${f.line}`, f] as const))('session at %s is what happens', async (_, f) => {
    for (const part of f.text.split(/^\$ /m).slice(1)) {
      const [command = '', ...output] = part.split('\n');
      const o = await execute(command);
      expect(o.out + o.err).toBe(output.join('\n'));
      expect(o.code).toBe(o.err.startsWith('error:') ? 2 : 0);
    }
  });

  const snippets = fences.filter((f) => f.language === 'js');
  it.each(snippets.map((f) => [`${f.page}:${f.line}`, f] as const))('snippet at %s runs', (at, f) => {
    // Inside the package its own name resolves to it.
    const file = join(dirname(program.cli), '..', `${at.replace(/\W/g, '-')}.mjs`);
    writeFileSync(file, f.text);
    const o = spawnSync(process.execPath, [file], { encoding: 'utf8' });
    expect(o.status, o.stderr).toBe(0);
    expect(o.stderr).toBe('');
    expect(o.stdout).not.toMatch(/NaN|undefined|\[object/);
  });
});

/** Names in the first column of a page's tables. */
const namesIn = (text: string): string[] =>
  [...text.matchAll(/^\| (`.+?) \|/gm)].flatMap(([, cell = '']) =>
    [...cell.matchAll(/`([^`]+)`/g)].map(([, name = '']) => name),
  );

describe('what the pages list', () => {
  it('links lead to files and headings that exist, and README leads to every page', () => {
    const slug = (heading: string): string =>
      heading
        .toLowerCase()
        .replace(/[`*]/g, '')
        .replace(/[^\w\- ]/g, '')
        .trim()
        .replaceAll(' ', '-');
    for (const page of PAGES) {
      for (const link of linksOf(read(join(ROOT, page)))) {
        const [path = '', anchor] = link.split('#');
        const target = path === '' ? page : join(dirname(page), path);
        expect(existsSync(join(ROOT, target)), `${page} links ${link}`).toBe(true);
        if (anchor === undefined) continue;
        const headings = [...read(join(ROOT, target)).matchAll(/^#+ (.+)$/gm)].map(([, heading = '']) => slug(heading));
        expect(headings, `${page} links ${link}`).toContain(anchor);
      }
    }
    for (const page of PAGES.filter((p) => p.startsWith('docs/')))
      expect(linksOf(read(join(ROOT, 'README.md')))).toContain(page);
  });

  it('the fields of a calibration are those of its schema', () => {
    const named = namesIn(read(join(ROOT, 'docs/calibration.md')));
    interface Node {
      readonly properties?: Record<string, Node>;
      readonly items?: Node;
      readonly additionalProperties?: Node | boolean;
      readonly anyOf?: readonly Node[];
    }
    const leaves = (node: Node, path: string): string[] => {
      const inner = node.anyOf?.find((n) => n.properties ?? n.items) ?? node;
      if (inner.properties)
        return Object.entries(inner.properties).flatMap(([name, child]) =>
          leaves(child, path === '' ? name : `${path}.${name}`),
        );
      if (inner.items?.properties) return leaves(inner.items, `${path}[]`);
      if (typeof inner.additionalProperties === 'object') {
        const each = inner.additionalProperties.anyOf?.[0] ?? inner.additionalProperties;
        if (each.properties) return leaves(each, `${path}{}`);
      }
      return [path];
    };
    const fields = leaves(z.toJSONSchema(calibrationSchema, { unrepresentable: 'any', io: 'input' }) as Node, '').map(
      (f) => f.replace(/^overheads\.(upload|readback)\..*/, 'overheads.$1'),
    );
    expect(fields.length).toBeGreaterThan(50);
    expect([...new Set(named)].sort()).toEqual([...new Set(fields)].sort());
  });

  it('the fields of a scenario are those of its table', () => {
    const text = read(join(ROOT, 'docs/scenarios.md'));
    expect(namesIn(text).sort()).toEqual(Object.keys(SETTINGS).sort());
    expect(text).toContain(
      `\`scenarios/\` holds ` +
        `${['eight', 'nine', 'ten', 'eleven', 'twelve'][readdirSync(join(ROOT, 'scenarios')).length - 8]} examples`,
    );
  });

  it('counts are those of today', () => {
    const trust = read(join(ROOT, 'docs/trust.md'));
    expect(trust).toContain(`${PAPER_FIGURES.length} published figures`);
    expect(trust).toContain(`in ${CONTRADICTIONS.length} places`);
    // The README's output is compared with the program's above.
    const readme = read(join(ROOT, 'README.md'));
    const [, full] = /^> full .* ([\d.]+ \([\d.]+–[\d.]+\))/m.exec(readme)!;
    expect(trust).toContain(`\`${full}\` ms a token`);
    const [, run, word] = /At (\d+): \d+ ms a token \([\d–]+, (\w+)\)/.exec(readme)!;
    expect(trust).toContain(`${run} sequences at once. The time is\n\`${word}\``);
    const counts = /^(\d+) rows of real servers; (\d+) are priced/m.exec(read(join(ROOT, 'docs/accuracy.md')))!;
    const [rows, priced] = counts.slice(1).map((n) => Number(n).toLocaleString('en-US'));
    expect(trust).toContain(`with ${priced} of ${rows} published rows`);
    expect(readme).toContain(`against ${priced} published rows`);
  });

  it('operations of a table of times, with their sizes', () => {
    const rows = read(join(ROOT, 'docs/stacks.md')).split('\n');
    for (const [op, { axes, fixed }] of Object.entries(OP_CLASSES)) {
      const row = rows.find((line) => line.startsWith('|') && line.split('|')[1]!.includes(`\`${op}\``));
      expect(row?.split('|')[2]!.trim().split(', '), op).toEqual([...fixed, ...axes]);
    }
  });

  it('constants are those of the code', () => {
    const model = read(join(ROOT, 'docs/cost-model.md'));
    const percent = (x: number): string => `${100 * x} %`;
    const us = (seconds: number): string => `${seconds * 1e6} µs`;
    for (const [name, field, text] of [
      ['bandwidth', 'bandwidth', percent],
      ['vector rate', 'vector', percent],
      ['launch', 'launchSeconds', us],
    ] as const) {
      const line = model.split('\n').find((l) => l.startsWith(`${name} `));
      const values = (['low', 'estimate', 'high'] as const).map((end) => text(ROOFLINE[end][field]));
      expect(line?.slice(name.length).trim().split(/ {2,}/), name).toEqual(values);
    }
    expect(model).toContain(`max(${NORMAL_90}, q(`);
    expect(KAPPA_UNTESTED).toBe(Math.LN2);
    const calibrating = read(join(ROOT, 'docs/calibration.md'));
    expect(calibrating).toContain(`| up to ${percent(DRIFT_CORRECTED)} |`);
    expect(calibrating).toContain(
      `| above ${percent(DRIFT_RETRIED.usual)} (processor time: ${percent(DRIFT_RETRIED.processor)}) |`,
    );
    for (const text of [percent(TOLERANCES.software.median), percent(TOLERANCES.software.p90)])
      expect(read(join(ROOT, 'docs/commands.md'))).toContain(text);
  });

  it('the rooms of DESIGN.md are those of src/, and kernels/', () => {
    const tree = fences.find((f) => f.page === 'DESIGN.md' && f.language === '') as Fence;
    const rooms = [...tree.text.matchAll(/^ {2}([\w-]+)\/ /gm)].map((m) => m[1] as string);
    const folders = readdirSync(join(ROOT, 'src'), { withFileTypes: true })
      .filter((e) => e.isDirectory())
      .map((e) => e.name);
    expect(rooms.sort()).toEqual(folders.sort());
    expect(tree.text).toMatch(/^kernels\/ /m);
  });

  it('DESIGN.md is read in ten minutes, and its files of src/ exist', () => {
    const text = read(join(ROOT, 'DESIGN.md'));
    expect(text.split(/\s+/).filter((word) => word !== '').length).toBeLessThanOrEqual(2500);
    const named = [...text.matchAll(/`([\w-]+\/[\w./-]+\.(?:ts|wgsl))`/g)].map((m) => m[1] as string);
    expect(named.length).toBeGreaterThan(20);
    expect(named.filter((path) => !existsSync(join(ROOT, path)) && !existsSync(join(ROOT, 'src', path)))).toEqual([]);
  });
});
