/**
 * Kills the program again and again, and looks at what it leaves behind: `npm run test:faults`.
 *
 *   node scripts/faults.mjs [--kills 200] [--seed N] [--only calibrate,validate,report,run,plan]
 *
 * After every kill: each file can be read by the program itself, nothing that was saved before is gone, what was asked
 * to end (SIGTERM, SIGINT) has left nothing behind, and no process goes on. What a SIGKILL left half written is gone
 * after the next run. Then a disk fills up, where the system lets this script mount one.
 */
import { spawn, spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';

const root = fileURLToPath(new URL('..', import.meta.url));
const SIGNALS = ['SIGKILL', 'SIGTERM', 'SIGINT'];
/** A process that was asked to end does so within this time, on a loaded machine as well. */
const PATIENCE_MS = 90_000;
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/** Uniform numbers in [0, 1) from a seed (mulberry32). */
export function randomFrom(seed) {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let x = Math.imul(state ^ (state >>> 15), state | 1);
    x ^= x + Math.imul(x ^ (x >>> 7), x | 61);
    return ((x ^ (x >>> 14)) >>> 0) / 2 ** 32;
  };
}

/** Processes other than this one whose command line holds a text (Linux). */
function processesWith(text) {
  if (!existsSync('/proc/self/cmdline')) return [];
  return readdirSync('/proc').filter((pid) => {
    if (!/^\d+$/.test(pid) || Number(pid) === process.pid) return false;
    try {
      return readFileSync(`/proc/${pid}/cmdline`, 'utf8').includes(text);
    } catch {
      return false;
    }
  });
}

/** Times of every point of a calibration: the first of them stay what they are, whatever comes after. */
function timesIn(calibration) {
  const times = new Map();
  for (const k of calibration.kernels)
    for (const s of k.samples)
      times.set(`${k.kernel} ${s.variant} ${JSON.stringify(Object.entries(s.shape).sort())}`, s.seconds);
  return times;
}

/** What of `before` is missing in `after`. */
function lost(before, after) {
  const missing = [];
  for (const [key, seconds] of before) {
    const now = after.get(key) ?? [];
    if (seconds.some((s, i) => s !== now[i])) missing.push(key);
  }
  return missing;
}

/**
 * @param cli the program, as node runs it; the modules of the same build lie in `dist`
 * @param maxSeconds latest moment of a kill
 * @param budget of a calibration; from 60 s on it compiles ahead
 * @param kernels that it measures, separated by commas; all of them unless given
 * @returns what was found wrong, one line each
 */
export async function faults({
  cli,
  dist,
  kills,
  seed,
  only,
  maxSeconds = 12,
  budget = '60s',
  kernels,
  log = () => undefined,
}) {
  const random = randomFrom(seed);
  const pick = (list) => list[Math.floor(random() * list.length)];
  const { loadCalibration } = await import(pathToFileURL(join(dist, 'plan/ask/calibrations.js')).href);
  const home = mkdtempSync(join(tmpdir(), 'lla-sim-faults-'));
  const temporary = join(home, 'tmp');
  mkdirSync(temporary);
  const problems = [];
  const problem = (text) => {
    problems.push(text);
    log(`  WRONG: ${text}`);
  };
  const environment = { ...process.env, TMPDIR: temporary, NO_COLOR: '1' };
  const start = (args) => {
    const child = spawn(process.execPath, [cli, ...args], {
      cwd: home,
      env: environment,
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    let text = '';
    for (const stream of [child.stdout, child.stderr])
      stream.on('data', (chunk) => (text = (text + chunk).slice(-3000)));
    const ended = new Promise((resolve) => child.on('close', (code, signal) => resolve({ code, signal, text })));
    return { child, ended };
  };
  /**
   * Runs until a moment, or until `enough` says so, sends a signal, waits for the end. `look` sees the files just
   * before.
   */
  const killed = async (args, signal, afterMs, look = () => undefined, enough = () => false) => {
    const { child, ended } = start(args);
    let early;
    for (const until = Date.now() + afterMs; !early && Date.now() < until && !enough();)
      early = await Promise.race([ended, sleep(Math.min(200, until - Date.now()))]);
    const seen = early ? undefined : await look();
    if (!early) child.kill(signal);
    const end = await Promise.race([ended, sleep(PATIENCE_MS)]);
    if (!end) {
      problem(`${args[0]} did not end within ${PATIENCE_MS / 1000} s of ${signal}`);
      child.kill('SIGKILL');
      await ended;
      return { early: false, seen, code: null, text: '' };
    }
    if (!early && signal !== 'SIGKILL' && end.signal === null && ![0, 5, 130].includes(end.code))
      problem(`${args[0]} ended with exit code ${end.code} after ${signal}: ${end.text}`);
    if (/defect in lla-sim/.test(end.text)) problem(`${args[0]}: ${end.text}`);
    return { early: early !== undefined, seen, ...end };
  };
  const debris = (folder) => readdirSync(folder, { recursive: true }).filter((n) => /\.(lock|partial|dead)$/.test(n));

  const file = join(home, 'calibration.json');
  const read = async () => (existsSync(file) ? timesIn((await loadCalibration(file)).calibration) : new Map());
  const measuring = ['calibrate', '--resume', ...(kernels ? ['--kernel', kernels] : [])];
  const calibrate = async (signal, ms, enough) => {
    const before = await read();
    // A session that ends early has not come to what a SIGKILL left.
    const old = debris(home);
    const end = await killed([...measuring, '--budget', budget, '-o', file], signal, ms, read, enough);
    let after;
    try {
      after = await read();
    } catch (error) {
      return problem(`the calibration cannot be read after ${signal}: ${error.message}`);
    }
    for (const key of [...lost(before, after), ...lost(end.seen ?? new Map(), after)])
      problem(`${signal} lost times of ${key}`);
    if (signal !== 'SIGKILL' && end.signal === null && debris(home).some((n) => !old.includes(n)))
      problem(`${signal} left ${debris(home).join(', ')}`);
    return `${after.size} points`;
  };

  const validate = async (signal, ms) => {
    const mark = String(1e9 + Math.floor(random() * 1e9));
    const output = join(home, 'validation.json');
    const args = ['validate', '--quick', '--only', 'capacity', '--seed', mark, '--format', 'json', '-o', output];
    rmSync(output, { force: true });
    const old = readdirSync(temporary);
    await killed(args, signal, ms);
    if (existsSync(output)) JSON.parse(readFileSync(output, 'utf8'));
    for (let waited = 0; processesWith(mark).length > 0; waited += 200) {
      // A child ends once the shader that it compiles is done.
      if (waited > PATIENCE_MS) {
        problem(`${signal} of validate left ${processesWith(mark).length} processes running`);
        break;
      }
      await sleep(200);
    }
    const left = readdirSync(temporary).filter((n) => !old.includes(n));
    if (signal !== 'SIGKILL' && left.length > 0) problem(`${signal} of validate left ${left.join(', ')}`);
  };

  const folder = join(home, 'report');
  const questions = [4096, 8192].map((ctx) => ['report', '--device', 'h200', '--ctx', String(ctx), '-o']);
  const contents = (at) =>
    JSON.stringify(
      readdirSync(at)
        .filter((n) => !n.startsWith('.'))
        .sort()
        .map((n) => [n, readFileSync(join(at, n), 'base64')]),
    );
  let whole = null;
  const report = async (signal, ms) => {
    if (!whole) {
      whole = new Set();
      for (const question of questions) {
        await start([...question, folder]).ended;
        whole.add(contents(folder));
      }
    }
    await killed([...pick(questions), folder], signal, Math.min(ms, 2000), undefined);
    if (!whole.has(contents(folder))) problem(`${signal} left a report that is neither the old nor the new one`);
  };

  const output = (name, args, complete) => async (signal, ms) => {
    const at = join(home, name);
    const old = debris(home);
    const end = await killed([...args, '-o', at], signal, ms);
    if (existsSync(at) && !complete(readFileSync(at, 'utf8'))) problem(`${signal} left a part of ${name}`);
    const left = debris(home).filter((n) => !old.includes(n));
    if (signal !== 'SIGKILL' && end.signal === null && left.length > 0) problem(`${signal} left ${left.join(', ')}`);
  };
  const actions = {
    calibrate,
    validate,
    report,
    run: output(
      'run.json',
      ['run', '--layers', '1', '--vocab', '8192', '--tokens', '1,2,3', '--max-tokens', '40', '--format', 'json'],
      (text) => JSON.parse(text).tokens[0].length === 40,
    ),
    plan: output('plan.csv', ['plan', '--device', 'h200', '--all', '--format', 'csv'], (text) => text.endsWith('\n')),
  };
  const weights = { calibrate: 10, validate: 3, report: 3, run: 3, plan: 1 };
  const drawn = Object.keys(actions).filter((name) => !only || only.includes(name));
  const urn = drawn.flatMap((name) => Array.from({ length: weights[name] }, () => name));

  try {
    for (let n = 1; n <= kills; n++) {
      const [name, signal] = [pick(urn), pick(SIGNALS)];
      const ms = (0.2 + random() * (maxSeconds - 0.2)) * 1000;
      const said = await actions[name](signal, ms);
      log(`${n}/${kills} ${name} ${signal} after ${(ms / 1000).toFixed(1)} s${said ? `: ${said}` : ''}`);
      if (processesWith(home).length > 0) problem(`after ${signal} of ${name} a process goes on`);
    }
    // Whatever SIGKILL left half written, the next run of the same command has taken away: a calibration when it saves.
    const left = debris(home);
    const lockText = () => (existsSync(`${file}.lock`) ? readFileSync(`${file}.lock`, 'utf8') : null);
    const dead = lockText();
    const saved = () =>
      existsSync(file) &&
      (dead === null || lockText() !== dead) &&
      debris(home).every((n) => !left.includes(n) || n.endsWith('.lock'));
    for (const name of drawn)
      if (name === 'calibrate') await actions[name]('SIGTERM', 20_000, saved);
      else if (name !== 'validate') await actions[name]('SIGTERM', PATIENCE_MS);
    if (drawn.includes('validate')) await actions.validate('SIGTERM', 15_000);
    if (debris(home).length > 0) problem(`left behind: ${debris(home).join(', ')}`);
    if (existsSync(file)) await fullDisk({ home, file, measuring, start, problem, log });
  } finally {
    rmSync(home, { recursive: true, force: true });
  }
  return problems;
}

/** A disk that fills up while a calibration is saved to it: one line, exit code 2, and the old file as it was. */
async function fullDisk({ home, file, measuring, start, problem, log }) {
  const disk = join(home, 'disk');
  mkdirSync(disk);
  const kib = Math.ceil(readFileSync(file).length / 1024);
  // Room for the file, its lock, and the trial that is written before measuring; hardly for a second copy.
  const mounted = spawnSync('mount', ['-t', 'tmpfs', '-o', `size=${Math.max(2 * kib + 8, kib + 80)}k`, 'tmpfs', disk]);
  if (mounted.status !== 0) return log(`not tried: a full disk (${String(mounted.stderr ?? mounted.error).trim()})`);
  try {
    const at = join(disk, 'calibration.json');
    writeFileSync(at, readFileSync(file));
    const before = readFileSync(at, 'utf8');
    const spare = join(disk, 'spare');
    const { child, ended } = start([...measuring, '--budget', '60s', '-o', at]);
    // It passes the trial, then the disk fills.
    await sleep(3000);
    for (let size = 2 ** 20; size >= 1024;) {
      try {
        writeFileSync(spare, Buffer.alloc(size), { flag: 'a' });
      } catch {
        size /= 2;
      }
    }
    const end = await Promise.race([ended, sleep(PATIENCE_MS)]);
    if (!end) child.kill('SIGKILL');
    if (end?.code !== 2 || !/cannot be written: no space is left/.test(end.text))
      problem(`a full disk: exit code ${end?.code}, ${end?.text}`);
    if (lost(timesIn(JSON.parse(before)), timesIn(JSON.parse(readFileSync(at, 'utf8')))).length > 0)
      problem('a full disk damaged the calibration');
    const { ended: refused } = start([...measuring, '--budget', '60s', '-o', at]);
    const second = await refused;
    if (second.code !== 2) problem(`a disk that is full already: exit code ${second.code}, ${second.text}`);
    log('a full disk: refused, and nothing lost');
  } finally {
    spawnSync('umount', [disk]);
  }
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const flag = (name, otherwise) => {
    const at = process.argv.indexOf(`--${name}`);
    return at < 0 ? otherwise : process.argv[at + 1];
  };
  const seed = Number(flag('seed', Date.now() % 2 ** 31));
  const kills = Number(flag('kills', 200));
  const only = flag('only', null)?.split(',') ?? null;
  console.log(`${kills} kills, seed ${seed}`);
  const dist = join(root, 'dist');
  const problems = await faults({ cli: join(dist, 'bin/cli.js'), dist, kills, seed, only, log: console.log });
  console.log(problems.length === 0 ? `${kills} kills lost nothing` : `${problems.length} problems (seed ${seed})`);
  process.exit(problems.length === 0 ? 0 : 1);
}
