/// <reference lib="dom" />
/** The measuring page in a real browser, opened from disk, on a software adapter: a few shapes in a few seconds. */
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Browser, BrowserContext, Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { measureBundle } from '../../scripts/page-bundle.mjs';
import { measureDocument } from '../../src/measure/document.js';
import type { KnownStacks } from '../../src/report/page-data.js';
import { calibrationSchema, type Calibration } from '../../src/schema/calibration.js';
import { plan, ROOT, scratch } from '../cli/program.js';
import { noBrowser, openIn, SOFTWARE_GPU, startBrowser } from '../report/browser.js';

const carried = (name: string): unknown => JSON.parse(readFileSync(join(ROOT, `calibrations/${name}.json`), 'utf8'));
const FEW = '&kernels=swiglu,rope&calls=first&seed=5';

describe.skipIf(noBrowser !== null)(`the measuring page (${noBrowser ?? 'in Chromium'})`, () => {
  const folder = scratch();
  const file = join(folder.path, 'measure.html');
  let browser: Browser;
  let bytes: number;
  beforeAll(async () => {
    const [started, { text, inputs }] = await Promise.all([startBrowser(SOFTWARE_GPU), measureBundle()]);
    browser = started;
    expect(inputs).not.toContain('src/gpu/adapter.ts');
    const files = { attainable: carried('attainable'), servers: carried('servers') } as KnownStacks['files'];
    const html = measureDocument(text.trim(), files);
    bytes = Buffer.byteLength(html);
    writeFileSync(file, html);
  });
  afterAll(async () => {
    await browser?.close();
    folder.remove();
  });

  const ready = (page: Page): Promise<void> =>
    expect.poll(() => page.locator('#m-name').innerText()).not.toContain('Looking');
  const context = (width = 1100): Promise<BrowserContext> =>
    browser.newContext({ viewport: { width, height: 900 }, colorScheme: 'dark' });

  it('is one file of at most 4 MB', () => {
    expect(bytes).toBeLessThan(4e6);
  });

  it('measures, goes on after closing, survives the loss of its device, saves what a plan can use', async () => {
    const kept = await context();
    await kept.addInitScript(() => {
      const own = window as unknown as { devices: GPUDevice[]; words: string[] };
      [own.devices, own.words] = [[], []];
      const { prototype } = GPUAdapter;
      const request = Reflect.get(prototype, 'requestDevice') as GPUAdapter['requestDevice'];
      prototype.requestDevice = async function (this: GPUAdapter, descriptor) {
        const device = await request.call(this, descriptor);
        own.devices.push(device);
        return device;
      };
      addEventListener('DOMContentLoaded', () => {
        const status = document.getElementById('m-status') as HTMLElement;
        new MutationObserver(() => own.words.push(status.textContent ?? '')).observe(status, { childList: true });
      });
    });
    const first = await openIn(kept, file, `#seconds=25${FEW}`);
    await ready(first.page);
    expect(await first.page.locator('#m-name').innerText()).toContain('software adapter');
    // By keyboard.
    await first.page.locator('#m-start').focus();
    await first.page.keyboard.press('Enter');
    await expect
      .poll(() => first.page.locator('#m-now').textContent(), { timeout: 60_000 })
      .toMatch(/left\. [1-9]\d* shapes/);
    await first.close();
    expect(first.incidents).toEqual([]);

    const second = await openIn(kept, file, `#seconds=600${FEW}`);
    const { page } = second;
    await ready(page);
    await expect.poll(() => page.locator('#m-start').innerText()).toMatch(/^Go on from [1-9]/);
    // Its device is lost as soon as it has measured a shape; a stop ends it, as a budget might end before the loss.
    await page.evaluate(() => {
      const now = document.getElementById('m-now') as HTMLElement;
      const lost = new MutationObserver(() => {
        if (!now.textContent?.includes('left')) return;
        lost.disconnect();
        (window as unknown as { devices: GPUDevice[] }).devices.at(-1)?.destroy();
      });
      lost.observe(now, { childList: true });
    });
    await page.locator('#m-start').click();
    const words = (): Promise<string> =>
      page.evaluate(() => (window as unknown as { words: string[] }).words.join('\n'));
    await expect
      .poll(words, { timeout: 60_000 })
      .toMatch(/took the GPU away .*Going on with a new device\.\nMeasuring\. Leave this tab in front\.$/);
    await page.locator('#m-stop').click();
    await expect.poll(() => page.locator('#m-status').textContent(), { timeout: 60_000 }).toBe('Done.');

    expect(await page.locator('#m-facts').innerText()).toMatch(/compared with a computation in float64/);
    expect(await page.locator('#m-answer').innerText()).toMatch(
      /full cache of ouro-1\.4b (holds \d+ sequences of 4096 tokens|does not fit)/,
    );
    expect(await page.locator('#plans tbody tr').count()).toBeGreaterThan(10);
    const [download] = await Promise.all([page.waitForEvent('download'), page.locator('#m-save').click()]);
    const saved = join(folder.path, 'saved.json');
    await download.saveAs(saved);
    const calibration = calibrationSchema.parse(JSON.parse(readFileSync(saved, 'utf8')));
    expect(calibration.host.browser?.name).toMatch(/Chrom/);
    expect(calibration.host.node).toBeUndefined();
    const samples = calibration.kernels.flatMap((k) => k.samples);
    // The first visit left one at least.
    expect(samples.length).toBeGreaterThan(1);
    for (const sample of samples) expect(sample.relativeError).toBeLessThan(2e-5);
    expect(calibration.kernels.some((k) => Object.keys(k.predictors).length > 0)).toBe(true);
    const shown = await plan('--calibration', saved, '--ctx', '4096', '--format', 'json');
    expect([0, 3], shown.err).toContain(shown.code);
    expect(shown.out).toContain('times were measured in a browser, Chrom');
    // What was forgotten is not shown any more, and the next measurement does not go on from it.
    await page.locator('#m-forget').click();
    await expect.poll(() => page.locator('#m-status').textContent()).toMatch(/^Forgotten\. /);
    expect(await page.locator('#m-start').innerText()).toBe('Measure');
    for (const part of ['#m-result', '#figure-m-roofline', '#plans', '#m-forget'])
      expect(await page.locator(part).isVisible(), part).toBe(false);
    expect(second.incidents).toEqual([]);
    await kept.close();
  }, 240_000);

  it('shows a file from elsewhere as text, refuses what is none, and fits a narrow screen in the dark', async () => {
    const own = await context(400);
    const { page, incidents } = await openIn(own, file);
    await ready(page);
    const hostile = carried('mesa-llvmpipe') as Calibration;
    hostile.device.description = '<img src=x onerror=alert(1)>llvmpipe';
    hostile.kernels = hostile.kernels.slice(0, 4);
    const give = (name: string, content: string): Promise<void> =>
      page.locator('#m-open').setInputFiles({ name, mimeType: 'application/json', buffer: Buffer.from(content) });
    await give('a.json', '{"schema": "lla-sim/calibration"}');
    await expect.poll(() => page.locator('#m-status').innerText()).toMatch(/^Not read: /);
    await give('b.json', JSON.stringify(hostile));
    await expect.poll(() => page.locator('#m-status').innerText()).toContain('<img');
    await expect.poll(() => page.locator('#plans tbody tr').count()).toBeGreaterThan(10);
    expect(await page.locator('img').count()).toBe(0);
    expect(await page.evaluate(() => document.documentElement.scrollWidth)).toBeLessThanOrEqual(400);
    expect(incidents).toEqual([]);
    await own.close();
  }, 60_000);

  it('says what to do where there is no WebGPU', async () => {
    const own = await context();
    await own.addInitScript(() => Object.defineProperty(Navigator.prototype, 'gpu', { value: undefined }));
    const { page, incidents } = await openIn(own, file);
    await ready(page);
    expect(await page.locator('#m-name').innerText()).toMatch(
      /no GPU for this page\. Chrome and Edge have WebGPU from version/,
    );
    expect(await page.locator('#m-start').isDisabled()).toBe(true);
    expect(incidents).toEqual([]);
    await own.close();
  });
});
