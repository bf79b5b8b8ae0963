/**
 * What the measuring page does in Chromium on a software adapter, by hand: visits of a budget, whether two of them
 * agree, and whether every kernel agrees with its reference. Run `npm run build` first:
 *
 *   node scripts/browser-figures.mjs [SECONDS [FOLDER]]      120 seconds a visit; screenshots go to FOLDER
 */
import { execFileSync } from 'node:child_process';
import { mkdirSync, readFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { chromium } from 'playwright-core';

const { makePredictor, measuredPoints } = await import('../dist/src/cost/predictor.js');

const root = fileURLToPath(new URL('..', import.meta.url));
const seconds = Number(process.argv[2] ?? 120);
const folder = resolve(process.argv[3] ?? 'dist/browser-figures');
mkdirSync(folder, { recursive: true });

const browser = await chromium.launch({
  executablePath: process.env.LLA_SIM_CHROMIUM ?? '/usr/bin/chromium',
  args: ['--no-sandbox', '--enable-unsafe-webgpu', '--use-webgpu-adapter=swiftshader'],
});

/** One visit of a reader: measures for the budget and saves the calibration. */
async function visit(name, hash) {
  const context = await browser.newContext({ viewport: { width: 1100, height: 900 } });
  const page = await context.newPage();
  page.on('pageerror', (error) => console.log(`${name}: ${error}`));
  await page.goto(`file://${root}dist/measure.html#${hash}`);
  await page.locator('#m-start:not([disabled])').click();
  const began = Date.now();
  await page.waitForFunction(
    () => /Done|ended early|Nothing/.test(document.getElementById('m-status').textContent),
    null,
    { timeout: 1000 * (60 + 10 * seconds) },
  );
  const took = (Date.now() - began) / 1000;
  const file = join(folder, `${name}.json`);
  const [download] = await Promise.all([page.waitForEvent('download'), page.locator('#m-save').click()]);
  await download.saveAs(file);
  await screenshots(page, name);
  await context.close();
  const calibration = JSON.parse(readFileSync(file, 'utf8'));
  const samples = calibration.kernels.flatMap((k) => k.samples.map((s) => ({ kernel: k.kernel, ...s })));
  console.log(
    `${name}: ${took.toFixed(0)} s, ${samples.length} shapes of ${new Set(samples.map((s) => s.kernel)).size} ` +
      'kernels; ' +
      `clock ${calibration.clock.kind}, step ${calibration.clock.resolutionSeconds} s; ` +
      `largest relative error ${Math.max(...samples.map((s) => s.relativeError)).toExponential(1)}`,
  );
  const reasons = new Map();
  for (const k of calibration.kernels)
    for (const gap of k.gaps.filter(({ reason }) => !/would take|takes about/.test(reason)))
      reasons.set(`${k.kernel} ${gap.variant}`, gap.reason);
  for (const [kernel, reason] of reasons) console.log(`  ${kernel}: ${reason}`);
  return { file, calibration };
}

async function screenshots(page, name) {
  const take = (what) => page.screenshot({ path: join(folder, `${name}-${what}.png`), fullPage: true });
  await take('light');
  await page.emulateMedia({ colorScheme: 'dark' });
  await take('dark');
  await page.emulateMedia({ colorScheme: 'light' });
  await page.setViewportSize({ width: 400, height: 800 });
  await take('narrow');
  await page.setViewportSize({ width: 1100, height: 900 });
  await page.pdf({ path: join(folder, `${name}.pdf`), format: 'A4' });
}

/** Predictions of a visit by kernel and variant. */
const predictorsOf = ({ kernels }) =>
  new Map(
    kernels.flatMap((k) =>
      Object.entries(k.predictors).map(([variant, fitted]) => [
        `${k.kernel} ${variant}`,
        makePredictor(k.kernel, variant, k.samples, fitted),
      ]),
    ),
  );

/** Whether two visits tell the same: over all points of both, whose kernel both have. */
function agreement(one, two) {
  const [first, second] = [predictorsOf(one), predictorsOf(two)];
  const points = [one, two].flatMap(({ kernels }, i) =>
    kernels.flatMap((k) =>
      [...new Set(k.samples.map((s) => s.variant))].flatMap((variant) =>
        measuredPoints(k.kernel, variant, k.samples).map((p) => ({ ...p, by: i, key: `${k.kernel} ${variant}` })),
      ),
    ),
  );
  const shared = points.filter(({ key }) => first.has(key) && second.has(key));
  let [overlap, covered] = [0, 0];
  for (const { key, shape, seconds: time, by } of shared) {
    const [a, b] = [first, second].map((p) => p.get(key)(shape));
    if (Math.abs(Math.log(a.seconds / b.seconds)) <= a.halfWidthLog + b.halfWidthLog) overlap++;
    const other = by === 0 ? b : a;
    if (Math.abs(Math.log(time / other.seconds)) <= other.halfWidthLog) covered++;
  }
  const share = (n) => `${((100 * n) / shared.length).toFixed(0)} %`;
  console.log(
    `${shared.length} points of kernels in both: the intervals overlap at ${share(overlap)}; the time of one ` +
      'visit lies ' +
      `in the interval of the other at ${share(covered)}`,
  );
}

try {
  const one = await visit('first', `seconds=${seconds}&seed=1`);
  const two = await visit('second', `seconds=${seconds}&seed=2`);
  agreement(one.calibration, two.calibration);
  for (const { file } of [one, two])
    console.log(
      execFileSync('node', [`${root}dist/bin/cli.js`, 'plan', '--calibration', file, '--ctx', '4096'], {
        encoding: 'utf8',
      })
        .split('\n')
        .slice(0, 3)
        .join('\n'),
    );
} finally {
  await browser.close();
}
