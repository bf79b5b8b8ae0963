/**
 * Fits what tuned kernels reach on each GPU to calibrations/stacks/*.json, writes calibrations/attainable.json, and
 * prints how well it holds for stacks and GPUs that were left out.
 *
 *   npx esbuild --bundle --platform=node --format=esm scripts/attainable.ts --packages=external > attainable.mjs
 *   node attainable.mjs [--write]
 *
 * Widths are told by leaving out; so that no number judges itself, the table's coverage is that of brackets widened by
 * what the OTHER generations' left-out stacks (or the other left-out generations) show.
 */
import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { AttainableFile, Bracket } from '../src/stacks/attainable.js';
import {
  fitBracket,
  leaveOut,
  measuredTimes,
  outside,
  widened,
  widthLacking,
  type Measured,
} from '../src/stacks/fit-attainable.js';
import { generationOf } from '../src/stacks/gpus.js';
import { lawSeconds } from '../src/cost/law.js';
import { TUNED_CLASSES, type TunedClass } from '../src/kernels/tuned.js';
import type { StackFile } from '../src/stacks/stack-schema.js';
import { median } from '../src/statistics.js';

const folder = 'calibrations/stacks';
const names = readdirSync(folder)
  .filter((name) => name.endsWith('.json'))
  .sort();
const all = names.flatMap((name) => measuredTimes(JSON.parse(readFileSync(join(folder, name), 'utf8')) as StackFile));
const percent = (x: number): string => `${(100 * x).toFixed(0)} %`;

function judge(bracket: Bracket, times: readonly Measured[]): string {
  const inside = times.filter((t) => outside(bracket, t) === 0).length / times.length;
  const ratio = median(
    times.map((t) => lawSeconds(bracket.slow, t.work, t.rates) / lawSeconds(bracket.fast, t.work, t.rates)),
  );
  const error = median(times.map((t) => Math.abs(Math.log(t.seconds / lawSeconds(bracket.middle, t.work, t.rates)))));
  return `${percent(inside)} inside, high/low ${ratio.toFixed(2)}, median error ${percent(Math.exp(error) - 1)}, ${times.length} times`;
}

const rounded = (bracket: Bracket): Bracket =>
  JSON.parse(
    JSON.stringify(bracket, (_, v: unknown) => (typeof v === 'number' ? Number(v.toPrecision(4)) : v)),
  ) as Bracket;

const pooled: Partial<Record<TunedClass, Bracket>> = {};
const devices: Record<string, Partial<Record<TunedClass, Bracket>>> = {};
for (const kind of TUNED_CLASSES) {
  const times = all.filter((t) => t.class === kind);
  const byGeneration = leaveOut(times, (t) => generationOf(t.device));
  for (const one of byGeneration) {
    const others = byGeneration.filter((o) => o !== one);
    console.log(`${kind}, ${one.group} left out: ${judge(widened(one.bracket, widthLacking(others)), one.left)}`);
  }
  pooled[kind] = rounded(widened(fitBracket(times), widthLacking(byGeneration)));
  const ids = [...new Set(times.map((t) => t.device))];
  const byStack = new Map(
    ids.map(
      (id) =>
        [
          id,
          leaveOut(
            times.filter((t) => t.device === id),
            (t) => t.stack,
          ),
        ] as const,
    ),
  );
  const widthOf = (without: string): number =>
    widthLacking([...byStack].filter(([id]) => generationOf(id) !== without).flatMap(([, left]) => left));
  for (const id of ids) {
    const own = byStack.get(id) ?? [];
    for (const one of own)
      console.log(
        `${kind} on ${id}, ${one.group} left out: ${judge(widened(one.bracket, widthOf(generationOf(id))), one.left)}`,
      );
    if (own.length === 0) continue;
    const bracket = widened(fitBracket(times.filter((t) => t.device === id)), widthOf(''));
    (devices[id] ??= {})[kind] = rounded(bracket);
  }
}
if (process.argv.includes('--write')) {
  const file: AttainableFile = {
    schema: 'lla-sim/attainable',
    schemaVersion: 1,
    from: names,
    pooled: pooled as AttainableFile['pooled'],
    devices,
  };
  writeFileSync('calibrations/attainable.json', `${JSON.stringify(file, null, 1)}\n`);
}
