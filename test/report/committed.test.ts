/**
 * The reports that the repository carries are those that the program writes today (npm run build && npm run reports).
 * Their pages hold the planner itself and are not carried.
 */
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { createCanvas, loadImage } from '@napi-rs/canvas';
import { describe, expect, it } from 'vitest';
import type { PlanReport } from '../../src/plan/types.js';
import { valuesOf } from '../../src/planner/form.js';
import { readLink } from '../../src/report/link.js';
import { png } from '../../src/report/pictures/png.js';
import { ROOT } from '../cli/program.js';
import { filesOf, scenarioOf } from './reports.js';

const REPORTS = join(ROOT, 'reports');
const names = readdirSync(REPORTS, { withFileTypes: true })
  .filter((e) => e.isDirectory())
  .map((e) => e.name)
  .sort();

/** Share of the pixels that differ by more than rounding: other processors may round colours otherwise. */
async function difference(a: Buffer, b: Buffer): Promise<number> {
  const [x, y] = await Promise.all(
    [a, b].map(async (bytes) => {
      const image = await loadImage(bytes);
      const canvas = createCanvas(image.width, image.height);
      canvas.getContext('2d').drawImage(image, 0, 0);
      return canvas.getContext('2d').getImageData(0, 0, image.width, image.height).data;
    }),
  );
  if (!x || !y || x.length !== y.length) return 1;
  let other = 0;
  for (let i = 0; i < x.length; i += 4)
    if (
      Math.abs((x[i] ?? 0) - (y[i] ?? 0)) +
        Math.abs((x[i + 1] ?? 0) - (y[i + 1] ?? 0)) +
        Math.abs((x[i + 2] ?? 0) - (y[i + 2] ?? 0)) >
      24
    )
      other++;
  return (4 * other) / x.length;
}

it('are of three scenarios at least, of different models and devices', () => {
  const reports = names.map((n) => JSON.parse(readFileSync(join(REPORTS, n, 'plans.json'), 'utf8')) as PlanReport);
  expect(new Set(reports.map((r) => r.model.name)).size).toBeGreaterThanOrEqual(3);
  expect(new Set(reports.map((r) => r.device.name)).size).toBeGreaterThanOrEqual(3);
});

describe.each(names)('reports/%s', (name) => {
  it('is what the program writes', async () => {
    // The command of a scenario with a workload is a link, which asks the same.
    const carriedText = readFileSync(join(REPORTS, name, 'report.md'), 'utf8');
    const command = /^lla-sim report '(.*)' -o /m.exec(carriedText);
    if (scenarioOf(name).workload)
      expect(valuesOf(readLink(command![1]!).scenario)).toEqual(valuesOf(scenarioOf(name)));
    const options = {
      draw: png,
      file: `${name}.yaml`,
      simulate: true,
      command: command?.input.split('```sh\n')[1]!.split('\n')[0],
    };
    const files = new Map(await filesOf(scenarioOf(name), options));
    expect(files.delete('report.html')).toBe(true);
    const carriedFiles = readdirSync(join(REPORTS, name)).filter((file) => file !== 'report.html');
    expect(carriedFiles.sort()).toEqual([...files.keys()].sort());
    for (const [file, content] of files) {
      const carried = readFileSync(join(REPORTS, name, file));
      if (Buffer.isBuffer(content)) expect(await difference(carried, content), file).toBeLessThan(0.001);
      else expect(carried.toString() === content, `${file}: run npm run build && npm run reports`).toBe(true);
    }
  });
});
