/**
 * Fits what tuned kernels reach on each GPU to calibrations/stacks/*.json, and prints how well it holds for stacks and
 * GPUs that were left out. With --write it writes calibrations/attainable.json, and leaves out no GPU: that takes
 * longest.
 *
 *   npx esbuild --bundle --platform=node --format=esm scripts/attainable.ts --packages=external > attainable.mjs
 *   node attainable.mjs [--write]
 *
 * Widths are told by leaving out, and no number judges itself: a generation is left out of everything that its bracket
 * and the width of it are fitted to. A GPU without tables is as wide as holds all but 5 % of the times of left-out
 * generations, a stack as holds all but 5 % of those of stacks left out on GPUs of the same form.
 */
import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { atPace, lawSeconds } from '../src/cost/law.js';
import { findDevice } from '../src/devices/find.js';
import { bracketAt, UNDIVIDED, type AttainableFile, type Bracket } from '../src/stacks/attainable.js';
import {
  fitBracket,
  isInside,
  leaveOut,
  sidesOf,
  timesOf,
  tunedTimes,
  widened,
  worstOf,
  type LeftOut,
  type Measured,
  type Sides,
} from './fit-attainable.js';
import { endsOf, fitWalk, walksOf } from './fit-undivided.js';
import { formOf, generationOf } from '../src/stacks/fit/gpus.js';
import { TUNED_CLASSES, type TunedClass } from '../kernels/tuned.js';
import type { StackFile } from '../src/stacks/stack-schema.js';
import { stackLabel, walksAlone } from '../src/stacks/serving.js';
import { median } from '../src/numbers/statistics.js';
import { keepScores } from './scores.js';

const folder = 'calibrations/stacks';
const names = readdirSync(folder)
  .filter((name) => name.endsWith('.json'))
  .sort();
const files = names.map((name) => JSON.parse(readFileSync(join(folder, name), 'utf8')) as StackFile);
const all = tunedTimes(files);
const percent = (x: number): string => `${(100 * x).toFixed(0)} %`;

function judge(group: string, bracket: Bracket, times: readonly Measured[]): string {
  const inside = times.filter((t) => isInside(bracket, t)).length / times.length;
  const seconds = times.map((t) => {
    const { fast, middle, slow } = bracketAt(bracket, t.pace);
    return [fast, middle, slow].map((law) => lawSeconds(law, t.work, t.rates));
  });
  keepScores(
    group,
    seconds.map(([low, middle, high], i) => ({
      error: Math.log(times[i]!.seconds / middle!),
      low: Math.log(low! / middle!),
      high: Math.log(high! / middle!),
    })),
  );
  const ratio = median(seconds.map(([low, , high]) => high! / low!));
  const error = median(seconds.map(([, middle], i) => Math.abs(Math.log(times[i]!.seconds / middle!))));
  return (
    `${group}: ${percent(inside)} inside, high/low ${ratio.toFixed(2)}, median error ` +
    `${percent(Math.exp(error) - 1)}, ${times.length} times`
  );
}

const rounded = (bracket: Bracket): Bracket =>
  JSON.parse(
    JSON.stringify(bracket, (_, v: unknown) => (typeof v === 'number' ? Number(v.toPrecision(4)) : v)),
  ) as Bracket;

const write = process.argv.includes('--write');
/** Share of left-out times beyond each end: with twice as many, some generations and stacks have too few inside. */
const BEYOND_EACH = 0.025;

const pooled: Partial<Record<TunedClass, Bracket>> = {};
const devices: Record<string, Partial<Record<TunedClass, Bracket>>> = {};
for (const kind of TUNED_CLASSES) {
  const times = all.filter((t) => t.class === kind);
  const generation = (t: Measured): string => generationOf(t.device);
  const byGeneration = leaveOut(times, generation);
  for (const one of write ? [] : byGeneration) {
    const others = leaveOut(
      times.filter((t) => generation(t) !== one.group),
      generation,
    );
    console.log(
      judge(`${kind}, ${one.group} left out`, widened(one.bracket, sidesOf(others, BEYOND_EACH), kind), one.left),
    );
  }
  pooled[kind] = {
    ...rounded(widened(fitBracket(times), sidesOf(byGeneration, BEYOND_EACH), kind)),
    worst: worstOf(byGeneration, BEYOND_EACH),
  };
  const ids = [...new Set(times.map((t) => t.device))];
  const byStack = new Map(
    ids.map(
      (id) =>
        [
          id,
          leaveOut(
            times.filter((t) => t.device === id),
            (t) => t.stack,
          ).map((one) => ({ ...one, group: `${stackLabel(one.group)} on ${id}` })),
        ] as const,
    ),
  );
  const alike = (id: string, without: string): LeftOut[] =>
    [...byStack]
      .filter(([other]) => formOf(other) === formOf(id) && generationOf(other) !== without)
      .flatMap(([, left]) => left);
  const widthOf = (id: string, without: string): Sides => sidesOf(alike(id, without), BEYOND_EACH);
  for (const id of ids) {
    const own = byStack.get(id) ?? [];
    for (const one of own)
      console.log(
        judge(`${kind}, ${one.group} left out`, widened(one.bracket, widthOf(id, generationOf(id)), kind), one.left),
      );
    if (own.length === 0) continue;
    const bracket = widened(fitBracket(times.filter((t) => t.device === id)), widthOf(id, ''), kind);
    (devices[id] ??= {})[kind] = { ...rounded(bracket), worst: worstOf(alike(id, ''), BEYOND_EACH) };
  }
}
const launch = pooled['decode-attention']!.middle;
const walks = files.flatMap((file) => {
  const tables = file.tables.filter(({ op }) => op === UNDIVIDED);
  if (!walksAlone(file.stack, file.device) || tables.length === 0) return [];
  const times = tables.flatMap((table) => timesOf(file, table));
  const { floorSeconds } = atPace(launch, times[0]!.pace);
  return [walksOf(file.device, times, findDevice(file.device).units, floorSeconds)];
});
const walk = fitWalk(walks);
for (const { device, secondsPerByte } of walks)
  console.log(
    `walk of one unit on ${device}: ${(1e12 * median(secondsPerByte)).toFixed(1)} ps a byte, ` +
      `${secondsPerByte.length} times`,
  );
const toFour = (value: number): number => Number(value.toPrecision(4));
if (write) {
  const laws: Omit<AttainableFile, 'undividedEnds'> = {
    schema: 'lla-sim/attainable',
    schemaVersion: 1,
    from: names,
    pooled: pooled as AttainableFile['pooled'],
    undividedSecondsPerByte: { estimate: toFour(walk.estimate), low: toFour(walk.low), high: toFour(walk.high) },
    devices,
  };
  const { low, high } = endsOf(files, laws);
  const file: AttainableFile = { ...laws, undividedEnds: { low: toFour(low), high: toFour(high) } };
  writeFileSync('calibrations/attainable.json', `${JSON.stringify(file, null, 1)}\n`);
}
