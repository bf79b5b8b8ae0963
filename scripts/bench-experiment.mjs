/**
 * Does `lla-sim bench --against` find what it should, and only that? Two kinds of runs, each a fresh process of the
 * real command line in a copy of the program of its own:
 *
 *   planted    one of two kernels has been slowed down in its WGSL, by each of --slowdowns: exit code 4 and `slower`
 *     for
 *              that kernel count as caught
 *   unchanged  the kernels differ from the other version in an unused constant only (so they are compiled and
 *     measured): exit code 4
 *              is a false alarm
 *
 *   node scripts/bench-experiment.mjs [--runs 20] [--unchanged 20] [--slowdowns 10,15,20,30] [--budget 10s] [--noise]
 *
 * After npm run build. --runs is the number of planted runs of each slowdown.
 *
 * The slowdown is real work: the kernel repeats a share of its main loop, and a condition that never holds, but that no
 * compiler can decide, keeps the repetition alive. Results stay right. Which share makes it depends on the machine,
 * so it is found by measuring for longer than any run may, and the slowdown that was reached is printed with its
 * interval. `--noise` runs a process that takes a core in random phases of 50 to 500 ms, half of the time. Exit code 1
 * if fewer than 60 % are caught of 10 %, 95 % of 15 % and 20 %, all of 30 %, or if more than 1 of 50 unchanged runs
 * alarm.
 */
import { spawn, spawnSync } from 'node:child_process';
import { cpSync, existsSync, mkdirSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';

const ROOT = fileURLToPath(new URL('..', import.meta.url));
const HOME = join(ROOT, 'node_modules/.cache/lla-sim-bench-experiment');
/** Share that must be caught, from this slowdown on. */
const MUST = [
  [0.3, 1],
  [0.15, 0.95],
  [0.1, 0.6],
];
const MOST_ALARMS = 0.02;
/** How far the planted slowdown may be off. */
const PRECISION = 0.02;
const SECONDS_PER_PLANT = 10;

/**
 * Where each kernel repeats work: the share to try first, file, text, and what is put before it (`SHARE` is a literal).
 */
const PLANTS = {
  attend_merge: {
    share: 0.28,
    file: 'attend_merge.wgsl',
    text: '  for (var j0 = 0u; j0 < params.width; j0 += WG) {\n',
    planted: `  // A share of the workgroups again.
  var again = 0.0;
  if (f32(row % 64u) < 64.0 * SHARE) {
    for (var j = l; j < params.width; j += WG) {
      for (var s = 0u; s < params.splits; s++) {
        let at = base + s * stride;
        again += partials[at + j] * fade(partials[at + params.width], peak);
      }
    }
  }
  if (again == 1.2345e30) { total = again; }
`,
  },
  swiglu: {
    share: 0.15,
    file: 'swiglu.wgsl',
    text: '  for (var i = id.x; i < params.count; i += groups.x * WG) {\n',
    planted: `  // A share of the workgroups again.
  var again = 0.0;
  if (f32((id.x / WG) % 64u) < 64.0 * SHARE) {
    for (var i = id.x; i < params.count; i += groups.x * WG) {
      let at = params.input_offset + i / params.width * params.input_stride + i % params.width;
      again += input[at] / (1.0 + exp(-input[at])) * input[at + params.width];
    }
  }
  if (again == 1.2345e30) { output[0] = again; }
`,
  },
};
const KERNELS = Object.keys(PLANTS);

const { values } = parseArgs({
  options: {
    runs: { type: 'string', default: '20' },
    unchanged: { type: 'string' },
    slowdowns: { type: 'string', default: '15' },
    budget: { type: 'string', default: '10s' },
    noise: { type: 'boolean', default: false },
  },
});
const whole = (name, text) => {
  if (!/^[0-9]{1,6}$/.test(text)) throw new Error(`--${name} must be a whole number, not ${text}`);
  return Number(text);
};
const RUNS = whole('runs', values.runs);
const UNCHANGED = whole('unchanged', values.unchanged ?? values.runs);
const SLOWDOWNS = RUNS === 0 ? [] : values.slowdowns.split(',').map((percent) => whole('slowdowns', percent) / 100);
if (!existsSync(join(ROOT, 'dist/bin/cli.js'))) throw new Error('dist/ is missing: npm run build first');

/** A folder of kernels that differ by an unused constant, with one of them slowed down if asked. */
function writeKernels(folder, kernel, share) {
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(folder, { recursive: true });
  // File by file, by contents: a copied link would lead back to the real kernels.
  const own = readdirSync(join(ROOT, 'kernels'), { recursive: true }).filter((path) => path.endsWith('.wgsl'));
  for (const path of own) {
    const text = readFileSync(join(ROOT, 'kernels', path), 'utf8');
    // A comment would not count as another version.
    const marked = text.includes('@compute') ? `${text}const ANOTHER_VERSION = 1u;\n` : text;
    writeFileSync(join(folder, basename(path)), marked);
  }
  if (!kernel) return;
  const { file, text, planted } = PLANTS[kernel];
  const source = readFileSync(join(folder, file), 'utf8');
  if (source.split(text).length !== 2) throw new Error(`${file} has changed: write its planted slowdown anew`);
  writeFileSync(join(folder, file), source.replace(text, planted.replaceAll('SHARE', share.toFixed(4)) + text));
}

/** A program of its own with these kernels. */
function makeProgram(name, kernel, share) {
  const home = join(HOME, name);
  mkdirSync(home, { recursive: true });
  cpSync(join(HOME, 'dist'), join(home, 'dist'), { recursive: true });
  cpSync(join(ROOT, 'package.json'), join(home, 'package.json'));
  writeKernels(join(home, 'kernels'), kernel, share);
  return join(home, 'dist/bin/cli.js');
}

/** Finds the share of repeated work that makes a slowdown (1.15), by measurements longer than a run's. */
async function calibratePlant(kernel, wanted) {
  const { bench } = await import('../dist/src/bench/regression/bench.js');
  const { resolveAgainst } = await import('../dist/src/bench/regression/versions.js');
  const { Budget } = await import('../dist/src/io/budget.js');
  const { openDevice } = await import('../dist/src/gpu/index.js');
  const folder = join(HOME, 'plant', 'kernels');
  const device = await openDevice();
  try {
    // The stated share makes about 15 %.
    let share = (PLANTS[kernel].share * (wanted - 1)) / 0.15;
    let seconds = SECONDS_PER_PLANT;
    for (let attempt = 0; attempt < 8; attempt++) {
      writeKernels(folder, kernel, share);
      const against = resolveAgainst(folder);
      // The id enters the key of compiled pipelines: each attempt is another version.
      const sources = { ...against.sources, id: `${kernel} ${share}` };
      const report = await bench(device, {
        against: { ...against, sources },
        kernels: [kernel],
        budget: new Budget(seconds),
        threshold: 0.001,
        seed: attempt,
        all: false,
      });
      const [result] = report.results;
      if (result?.state !== 'paired') throw new Error(`${kernel}: ${result?.reason ?? 'not measured'}`);
      // The planted version is the other one here, so its slowdown is the inverse.
      const slowdown = { estimate: 1 / result.ratio.estimate, low: 1 / result.ratio.high, high: 1 / result.ratio.low };
      process.stderr.write(
        `${kernel}: ${(100 * share).toFixed(1)} % again: ${slowdown.estimate.toFixed(3)} ` +
          `(${slowdown.low.toFixed(3)}–${slowdown.high.toFixed(3)}), ${result.rounds.length} rounds of ` +
          `${result.callsPerBatch} calls\n`,
      );
      const narrow = (slowdown.high - slowdown.low) / 2 < PRECISION;
      if (narrow && Math.abs(slowdown.estimate - wanted) < PRECISION) return { share, slowdown };
      if (narrow) share *= Math.min(3, Math.max(0.3, (wanted - 1) / Math.max(0.01, slowdown.estimate - 1)));
      else seconds *= 1.3;
    }
    throw new Error(
      `${kernel}: no share of repeated work makes ${wanted} ± ${PRECISION}; this machine is too noisy now`,
    );
  } finally {
    device.close();
  }
}

/** Of a kernel's shapes the one that says most: slower, else measured, else any. */
const telling = (shapes) =>
  shapes.find((r) => r.verdict === 'slower') ?? shapes.find((r) => r.state === 'paired') ?? shapes[0];

/** One run of the command line: exit code and verdicts by kernel. */
function runBench(cli, seed) {
  const args = [
    cli,
    'bench',
    '--against',
    join(ROOT, 'kernels'),
    '--kernel',
    KERNELS.join(','),
    '--budget',
    values.budget,
    '--seed',
    String(seed),
    '--format',
    'json',
    '--quiet',
  ];
  const started = performance.now();
  const run = spawnSync(process.execPath, args, { encoding: 'utf8', maxBuffer: 2 ** 28, cwd: dirname(cli) });
  if (run.status !== 0 && run.status !== 4) throw new Error(`bench ended with ${run.status}: ${run.stderr}`);
  const { results } = JSON.parse(run.stdout);
  return {
    alarm: run.status === 4,
    seconds: (performance.now() - started) / 1000,
    results: Object.fromEntries(KERNELS.map((kernel) => [kernel, telling(results.filter((r) => r.kernel === kernel))])),
  };
}

const describe = (r) =>
  r.state === 'paired'
    ? `${r.kernel} ${r.ratio.estimate.toFixed(3)} (${r.ratio.low.toFixed(3)}–${r.ratio.high.toFixed(3)}) ` +
      `${r.verdict}, ${r.rounds.length} rounds`
    : `${r.kernel} ${r.state}`;

/** Takes a core in random phases. */
const NOISE =
  'const phase = () => { const end = performance.now() + 50 + 450 * Math.random(); while (performance.now() < ' +
  'end); setTimeout(phase, 50 + 450 * Math.random()); }; phase();';

const noise = values.noise ? spawn(process.execPath, ['-e', NOISE], { stdio: 'ignore' }) : null;
try {
  rmSync(HOME, { recursive: true, force: true });
  mkdirSync(HOME, { recursive: true });
  cpSync(join(ROOT, 'dist'), join(HOME, 'dist'), { recursive: true });
  const started = performance.now();
  let seed = 1;
  for (const slowdown of SLOWDOWNS) {
    const programs = {};
    for (const kernel of KERNELS) {
      const { share, slowdown: reached } = await calibratePlant(kernel, 1 + slowdown);
      console.log(
        `planted in ${kernel}: ${(100 * share).toFixed(1)} % of its loop again is a slowdown of ` +
          `${reached.estimate.toFixed(3)} (${reached.low.toFixed(3)}–${reached.high.toFixed(3)})`,
      );
      programs[kernel] = makeProgram(`planted-${kernel}`, kernel, share);
    }
    let [caught, besides] = [0, 0];
    for (let i = 0; i < RUNS; i++) {
      const kernel = KERNELS[i % KERNELS.length];
      const p = runBench(programs[kernel], seed++);
      const others = KERNELS.filter((k) => k !== kernel).map((k) => p.results[k]);
      if (p.alarm && p.results[kernel].verdict === 'slower') caught++;
      besides += others.filter((r) => r.verdict === 'slower').length;
      console.log(
        `planted ${i + 1}: exit ${p.alarm ? 4 : 0}, ${p.seconds.toFixed(1)} s; ` +
          `${[p.results[kernel], ...others].map(describe).join('; ')}`,
      );
    }
    console.log(
      `slowdown of ${Math.round(100 * slowdown)} %: caught ${caught} of ${RUNS}; ${besides} of ` +
        `${(KERNELS.length - 1) * RUNS} kernels beside a planted one alarmed`,
    );
    const must = MUST.find(([from]) => slowdown >= from)?.[1] ?? 0;
    if (caught < Math.floor(must * RUNS)) process.exitCode = 1;
  }
  const unchanged = makeProgram('unchanged');
  let [alarms, measured, unclear] = [0, 0, 0];
  for (let i = 0; i < UNCHANGED; i++) {
    const u = runBench(unchanged, seed++);
    if (u.alarm) alarms++;
    measured += KERNELS.filter((k) => u.results[k].state === 'paired').length;
    unclear += KERNELS.filter((k) => u.results[k].verdict === 'unclear').length;
    console.log(
      `unchanged ${i + 1}: exit ${u.alarm ? 4 : 0}, ${u.seconds.toFixed(1)} s; ` +
        `${KERNELS.map((k) => describe(u.results[k])).join('; ')}`,
    );
  }
  console.log(
    `${alarms} of ${UNCHANGED} unchanged runs alarmed (of two kernels each ${measured} of ` +
      `${KERNELS.length * UNCHANGED} were measured in time, ${unclear} verdicts unclear); ` +
      `${((performance.now() - started) / 60_000).toFixed(1)} minutes in all${noise ? ', with noise' : ''}`,
  );
  if (alarms > Math.max(1, Math.floor(MOST_ALARMS * UNCHANGED))) process.exitCode = 1;
} finally {
  noise?.kill();
  rmSync(HOME, { recursive: true, force: true });
}
