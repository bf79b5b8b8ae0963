import { mkdirSync, readdirSync, readFileSync } from 'node:fs';
import { homedir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { defineConfig } from 'vitest/config';
import { BaseSequencer, type TestSpecification } from 'vitest/node';
import { manySeeds } from './scripts/many-seeds.js';

const root = fileURLToPath(new URL('.', import.meta.url));
const FILES = readdirSync(`${root}test`, { recursive: true, encoding: 'utf8' })
  .filter((name) => name.endsWith('.test.ts'))
  .map((name) => `test/${name}`);
/** Files that take ten seconds or more beside other work, longest first. */
const LONGEST = JSON.parse(readFileSync(`${root}test/longest.json`, 'utf8')) as string[];
const unknown = LONGEST.filter((name) => !FILES.includes(`test/${name}`));
if (unknown.length > 0) throw new Error(`test/longest.json: no such test: ${unknown.join(', ')}`);
/** `npm test` takes every fourth of them, another by chance each time: it is to end within ten minutes. */
const quarter = process.env.LLA_SIM_QUARTER;
function isDrawn(file: string): boolean {
  const place = LONGEST.indexOf(file.slice('test/'.length));
  return quarter === undefined || place < 0 || place % 4 === Number(quarter);
}

/** A file needs a process of its own for a browser, for a module that is exchanged, for a folder that becomes current. */
const ALONE = /report\/browser\.js'|\.\/browser\.js'|\bvi\.(mock|doMock)\(|process\.chdir\(/;
const DEVICE = /(gpu|\.)\/device\.js'|\bopenDevice\(/;
const NARROW = /(gpu|\.)\/narrow\.js'/;
const TIMED = /(gpu|\.)\/timed\.js'/;

/** What decides how Mesa's software adapter compiles. The driver reads it once, when a process loads it. */
const { GALLIVM_PERF, LLA_SIM_CONTRACT, LP_NATIVE_VECTOR_WIDTH, MESA_SHADER_CACHE_DIR, XDG_CACHE_HOME } = process.env;
// Without its optimisation, which takes longer than the rest of most tests. The full contracts run long enough for it.
const quick: Record<string, string> = LLA_SIM_CONTRACT === 'full' ? {} : { GALLIVM_PERF: GALLIVM_PERF ?? 'nopt' };
// The cache on disk does not tell lanes apart, so that what is compiled for four lies in a folder of its own.
const fourLanes = {
  LP_NATIVE_VECTOR_WIDTH: LP_NATIVE_VECTOR_WIDTH ?? '128',
  MESA_SHADER_CACHE_DIR: join(MESA_SHADER_CACHE_DIR ?? XDG_CACHE_HOME ?? join(homedir(), '.cache'), 'four-lanes'),
};
mkdirSync(fourLanes.MESA_SHADER_CACHE_DIR, { recursive: true });

/**
 * Projects run in the order of their names. Files of one share processes, but those that are alone: so they load the
 * program and open the device once, and compile a pipeline once.
 */
const ENVIRONMENTS = {
  'alone, eight lanes': quick,
  'alone, four lanes': { ...quick, ...fourLanes },
  'eight lanes': quick,
  'four lanes': { ...quick, ...fourLanes },
  shared: quick,
  timed: {},
};
function projectOf(name: string): keyof typeof ENVIRONMENTS {
  const text = readFileSync(root + name, 'utf8');
  const lanes = NARROW.test(text) ? 'four lanes' : 'eight lanes';
  if (ALONE.test(text)) return `alone, ${lanes}`;
  if (TIMED.test(text)) return 'timed';
  return DEVICE.test(text) ? lanes : 'shared';
}
const projects = FILES.filter(isDrawn).map((name) => [name, projectOf(name)] as const);

/** What takes longest comes first in its project: at the end one process would work alone, beside what is timed. */
class LongestFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const sorted = await super.sort(files);
    const projects = [...new Set(sorted.map(({ project }) => project.name))];
    const place = ({ project, moduleId }: TestSpecification): number => {
      const long = LONGEST.findIndex((name) => moduleId.endsWith(name));
      return (LONGEST.length + 1) * projects.indexOf(project.name) + (long < 0 ? LONGEST.length : long);
    };
    return sorted.sort((a, b) => place(a) - place(b));
  }
}

/** Each test for `COUNT` seeds from `FIRST` on: LLA_SIM_SEEDS=FIRST+COUNT. */
const [first, count] = (process.env.LLA_SIM_SEEDS ?? '').split('+').map(Number);
const plugins = first !== undefined && count !== undefined ? [manySeeds(first, count)] : [];

export default defineConfig({
  test: {
    // A software adapter uses every core already; three take 8 % longer.
    maxWorkers: 2,
    sequence: { sequencer: LongestFirst },
    // Projects transform the same modules.
    experimental: { fsModuleCache: plugins.length === 0 },
    projects: Object.entries(ENVIRONMENTS).map(([name, env]) => ({
      plugins,
      test: {
        name,
        env,
        // These end what hangs. How busy a machine is must not decide.
        testTimeout: 600_000,
        hookTimeout: 600_000,
        expect: { poll: { timeout: 20_000 } },
        isolate: name.startsWith('alone'),
        include: projects.filter(([, project]) => project === name).map(([file]) => file),
      },
    })),
  },
});
