#!/usr/bin/env node
/**
 * What the program predicts for cases that were left out of its fits, kept to compare a change of the model with.
 *
 *   npm run build && node scripts/frozen-predictions.mjs freeze OUT.csv [--tables AICONFIGURATOR] [--runs FOLDER]
 *     [--only PART,PART]
 *   node scripts/frozen-predictions.mjs compare OLD.csv NEW.csv
 *
 * Parts: `ledger` (figures of whole servers: `lla-sim accuracy`), `tables` (kernels of serving stacks with points, head
 * counts, inner sizes and octaves left out: stack-accuracy.ts), `attainable` (stacks and generations left out:
 * attainable.ts), `calibration` (recorded calibrations, those of FOLDER too: calibration-accuracy.ts). AICONFIGURATOR
 * is a clone of github.com/ai-dynamo/aiconfigurator. A row of the files is a judged time: part, group, log of measured
 * over estimate, and logs of the interval's ends over it.
 *
 * `compare` prints each group old and new, and fails (exit 1) where a median error grows by more than a tenth, fewer
 * groups cover 85 to 97 % of their times, or intervals are wider in groups that did.
 */
import { spawnSync } from 'node:child_process';
import { appendFileSync, existsSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { parseArgs } from 'node:util';
import { parse } from 'csv-parse/sync';

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    tables: { type: 'string' },
    runs: { type: 'string' },
    only: { type: 'string', default: 'ledger,tables,attainable,calibration' },
  },
});

/** Groups of fewer times show nothing of a tenth. */
const FEWEST = 20;
const MOST_WORSE = 1.1;
/** Mean widths that differ by less are alike: a search that ends elsewhere moves single ones by more. */
const ALIKE = 1.03;
const IN_RANGE = [0.85, 0.97];

function run(command, args, env = {}) {
  const { status, stdout, stderr } = spawnSync(command, args, {
    encoding: 'utf8',
    maxBuffer: 2 ** 28,
    env: { ...process.env, ...env },
  });
  if (status !== 0) throw new Error(`${command} ${args.join(' ')}: ${stderr}`);
  return stdout;
}

/** Runs a script of this folder; what it judges goes to OUT under the part's name. */
function judged(out, part, script, args) {
  const bundle = join('dist', 'plan', `${script}.mjs`);
  run('npx', [
    'esbuild',
    ...['--bundle', '--platform=node', '--format=esm', '--packages=external', '--log-level=error'],
    `scripts/${script}.ts`,
    `--outfile=${bundle}`,
  ]);
  const scores = `${out}.part`;
  rmSync(scores, { force: true });
  run('node', [bundle, ...args], { SCORES: scores });
  if (existsSync(scores))
    for (const row of parse(readFileSync(scores, 'utf8'))) appendFileSync(out, line(part, ...row));
  rmSync(scores, { force: true });
}

const line = (...cells) =>
  `${cells.map((cell) => (/[",]/.test(String(cell)) ? JSON.stringify(String(cell)) : cell)).join()}\n`;

function freeze(out) {
  const parts = values.only.split(',');
  writeFileSync(out, line('part', 'group', 'error', 'low', 'high'));
  if (parts.includes('ledger'))
    for (const row of parse(run('npx', ['lla-sim', 'accuracy', '--format', 'csv', '--quiet']), { columns: true })) {
      if (row.use !== 'judges' || row.low === '' || row.measured === '') continue;
      const [measured, predicted, low, high] = ['measured', 'predicted', 'low', 'high'].map((key) => Number(row[key]));
      const cells = [measured, low, high].map((x) => Math.log(x / predicted));
      appendFileSync(out, line('ledger', `${row.server.split(' ')[0]} ${row.kind}`, ...cells));
    }
  if (parts.includes('tables') && values.tables)
    for (const [gpus, stacks] of [
      ['h200_sxm,b200_sxm', 'vllm'],
      ['h100_sxm,l40s', 'trtllm'],
      ['a100_sxm', 'sglang'],
    ])
      judged(out, 'tables', 'stack-accuracy', [values.tables, '--gpus', gpus, '--stacks', stacks, '--seeds', '1']);
  if (parts.includes('attainable')) judged(out, 'attainable', 'attainable', []);
  if (parts.includes('calibration')) {
    const more = values.runs ? readdirSync(values.runs).filter((name) => name.endsWith('.json')) : [];
    const files = ['calibrations/mesa-llvmpipe.json', ...more.sort().map((name) => join(values.runs, name))];
    judged(out, 'calibration', 'calibration-accuracy', files);
  }
}

function read(path) {
  const groups = new Map();
  for (const { part, group, ...cells } of parse(readFileSync(path, 'utf8'), { columns: true })) {
    const key = `${part}: ${group}`;
    const list = groups.get(key) ?? [];
    groups.set(key, list);
    list.push({ error: Number(cells.error), low: Number(cells.low), high: Number(cells.high) });
  }
  return groups;
}

function summary(list) {
  const at = (of, q) => {
    const sorted = list.map(of).sort((a, b) => a - b);
    const place = q * (sorted.length - 1);
    const [a, b] = [sorted[Math.floor(place)], sorted[Math.ceil(place)]];
    return a + (place - Math.floor(place)) * (b - a);
  };
  const size = ({ error }) => Math.abs(error);
  return {
    count: list.length,
    median: Math.expm1(at(size, 0.5)),
    p90: Math.expm1(at(size, 0.9)),
    inside: list.filter(({ error, low, high }) => low <= error && error <= high).length / list.length,
    half: list.reduce((sum, { low, high }) => sum + (high - low) / 2, 0) / list.length,
  };
}

function compare(oldPath, newPath) {
  const [before, after] = [read(oldPath), read(newPath)];
  const percent = (x) => `${(100 * x).toFixed(x < 0.1 ? 1 : 0)}`.padStart(5);
  const isCovered = ({ inside }) => inside >= IN_RANGE[0] && inside <= IN_RANGE[1];
  const faults = [];
  let [covered, coveredNow] = [0, 0];
  console.log(
    `${'%, old → new (half-width: mean, log units)'.padEnd(72)} times   median        90th        inside     ` +
      'half-width',
  );
  for (const [group, list] of [...before].sort(([a], [b]) => (a < b ? -1 : 1))) {
    const found = after.get(group);
    if (!found) continue;
    const [a, b] = [summary(list), summary(found)];
    const pair = (key) => `${percent(a[key])} →${percent(b[key])}`;
    const notes = [];
    if (a.count >= FEWEST) {
      if (isCovered(a)) covered++;
      if (isCovered(b)) coveredNow++;
      if (b.median > MOST_WORSE * a.median) notes.push('error');
      if (isCovered(a) && b.half > ALIKE * a.half) notes.push('wider');
      if (isCovered(a) && !isCovered(b)) notes.push(b.inside > IN_RANGE[1] ? 'covers more' : 'covers less');
      if (!isCovered(a) && isCovered(b)) notes.push('covers now');
    }
    faults.push(...notes.filter((note) => note === 'error' || note === 'wider').map((note) => `${group}: ${note}`));
    const cells = ['median', 'p90', 'inside', 'half'].map(pair).join('  ');
    console.log(`${group.slice(0, 72).padEnd(72)} ${String(a.count).padStart(5)} ${cells}  ${notes.join(', ')}`);
  }
  console.log(`groups that cover 85 to 97 %: ${covered} before, ${coveredNow} now`);
  if (coveredNow < covered) faults.push('fewer groups cover 85 to 97 %');
  console.log(faults.length > 0 ? `not as good: ${faults.join('; ')}` : 'as good in every group');
  process.exitCode = faults.length > 0 ? 1 : 0;
}

const [what, ...paths] = positionals;
if (what === 'freeze' && paths.length === 1) freeze(resolve(paths[0]));
else if (what === 'compare' && paths.length === 2) compare(...paths);
else {
  console.error('freeze OUT.csv, or compare OLD.csv NEW.csv');
  process.exitCode = 2;
}
