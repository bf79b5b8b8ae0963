/// <reference lib="dom" />
/** The planner's page in a real browser, opened from disk: silent, alone, with the command line's answers. */
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Browser, Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { plannerBundle } from '../../scripts/page-bundle.mjs';
import { claimRows } from '../../src/ranking/claim-rows.js';
import { judgedGroups, knownStacks } from '../../src/plan/ask/stacks.js';
import { plannerDocument } from '../../src/planner/document.js';
import { QUESTIONS } from '../../src/planner/questions.js';
import { inProcess, scratch } from '../cli/program.js';
import { OURO } from '../geometry/configs.js';
import { everyNth } from '../gpu/sample.js';
import { noBrowser, open, openIn, startBrowser, type Opened } from '../report/browser.js';

/** Words alone: how a terminal divides them into lines does not matter. */
const wordsOf = (text: string): string => text.replace(/\s+/g, ' ').trim();

describe.skipIf(noBrowser !== null)(`the planner's page (${noBrowser ?? 'in Chromium'})`, () => {
  const folder = scratch();
  const file = join(folder.path, 'plan.html');
  let browser: Browser;
  beforeAll(async () => {
    const [started, program, known] = await Promise.all([startBrowser(), plannerBundle(), knownStacks()]);
    browser = started;
    writeFileSync(file, plannerDocument(program, known, judgedGroups(), claimRows()));
  });
  afterAll(async () => {
    await browser?.close();
    folder.remove();
  });

  /** Waits for the answer after `act`, and returns its words. */
  async function answerAfter(page: Page, act: () => Promise<unknown>): Promise<string> {
    await page.evaluate(() => document.getElementById('p-answer')?.replaceChildren());
    await act();
    await page.waitForFunction(() => document.getElementById('p-answer')?.textContent !== '', null, {
      timeout: 20_000,
    });
    return wordsOf(await page.locator('#p-answer').innerText());
  }
  const opened = async (hash = ''): Promise<Opened> => {
    const context = await browser.newContext({ viewport: { width: 1280, height: 900 }, acceptDownloads: true });
    const o = await openIn(context, file, hash);
    await o.page.waitForFunction(
      () => document.querySelector('#p-answer > *') !== null || document.querySelector('#p-status.wrong') !== null,
    );
    return { ...o, close: () => context.close() };
  };
  const textOf = async (page: Page, id: string): Promise<string> =>
    (await page.locator(`#p-${id}`).textContent()) ?? '';
  /** What the command that the page shows prints. */
  async function printed(page: Page): Promise<string> {
    const words = (await textOf(page, 'command')).replaceAll("'", '').split(' ').slice(1);
    const o = await inProcess(words[0] ?? '', ...words.slice(1));
    expect(o.code, o.err).toBe(0);
    return wordsOf(o.out);
  }
  /** Each paragraph of the page's answer is what the command prints. */
  async function expectSame(page: Page): Promise<void> {
    const text = await printed(page);
    const paragraphs = await page.locator('#p-answer .verdict p').allInnerTexts();
    expect(paragraphs.length).toBeGreaterThan(0);
    for (const words of paragraphs.filter((p) => !/^(Risk|Instead)/.test(p))) expect(text).toContain(wordsOf(words));
  }

  it('answers the first questions in the words of the command that it shows, and its link does too', async () => {
    const o = await opened();
    const { page, incidents } = o;
    expect(await textOf(page, 'command')).toContain('lla-sim plan ');
    // The figures that the line Tested counts.
    await page.waitForSelector('#p-near-rows tbody tr');
    const [, inside, all] = /Tested.*? (\d+) of (\d+) in the/.exec(await page.locator('#p-answer').innerText()) ?? [];
    const near = await page.locator('#p-near-rows tbody tr').allInnerTexts();
    expect([near.filter((row) => /\byes$/.test(row)).length, near.length]).toEqual([Number(inside), Number(all)]);
    expect(near[0]).toMatch(/^\S+: \S+\s+\S+\s+vllm [\d.]+\s+ouro-1.4b\s+\S+\s+[+-][\d.]+ %/);
    // Each run asks a part of them.
    for (const i of everyNth([...QUESTIONS.keys()], QUESTIONS.length)) {
      await answerAfter(page, () => page.locator(`[data-question="${i}"]`).click());
      const link = await textOf(page, 'link');
      if (i < 4) await expectSame(page);
      else
        expect(await printed(page)).toContain(wordsOf(await page.locator('#p-answer pre').innerText()).slice(0, 300));
      expect(page.url()).toBe(link);
    }
    // The address is the answer: it opens the same plan elsewhere.
    await answerAfter(page, () => page.locator('[data-question="1"]').click());
    const [saved] = await Promise.all([page.waitForEvent('download'), page.locator('#p-save').click()]);
    const cli = await inProcess('open', page.url(), '--format', 'json');
    expect(cli.err).toBe('');
    expectClose(readFileSync(await saved.path(), 'utf8'), cli.out);
    expect(incidents.filter((x) => !x.startsWith('request: blob:'))).toEqual([]);
    await o.close();
  });

  it('opens a link, says what has changed, and answers a hostile one with a line', async () => {
    const o = await opened('#v0.0.9/ctx=8k/device=h100/stack=sglang/was=full:1:1ms');
    const { page, incidents } = o;
    expect(await textOf(page, 'changed')).toMatch(
      /^the answer has changed: lla-sim 0\.0\.9 gave full at batch 1, 1ms; /,
    );
    for (const [name, value] of [
      ['ctx', '8k'],
      ['device', 'h100'],
      ['stack', 'sglang'],
      ['model', ''],
    ])
      expect(await page.locator(`[name="${name}"]`).inputValue()).toBe(value);
    await expectSame(page);
    for (const hash of ['v0.1.0/ctx=%ff', 'v0.1.0/calibration=x.json', 'v9.9.9/x=<img src=x onerror=alert(1)>']) {
      await page.evaluate((h) => (location.hash = h), hash);
      await expect.poll(() => textOf(page, 'status')).toMatch(/^The link cannot be opened: .{8,}/);
    }
    expect(incidents).toEqual([]);
    await o.close();
  });

  it('takes a config.json and puts its shape into the link', async () => {
    const o = await opened();
    const { page, incidents } = o;
    const answer = await answerAfter(page, () =>
      page.locator('#p-file').setInputFiles({
        name: 'config.json',
        mimeType: 'application/json',
        buffer: Buffer.from(JSON.stringify({ ...OURO, _name_or_path: 'me/Mine' })),
      }),
    );
    expect(answer).toContain('Mine on one NVIDIA H200');
    expect(await textOf(page, 'link')).toContain('/config=');
    await expectSame(page);
    await page.locator('[name="workload.requests"]').fill('20');
    await page.locator('#p-run').click();
    await page.waitForSelector('#p-served-text pre', { timeout: 30_000 });
    const simulated = ((await page.locator('#p-served-text code').textContent()) ?? '').replaceAll("'", '').split(' ');
    const run = await inProcess('simulate', ...simulated.slice(2));
    expect(wordsOf((await page.locator('#p-served-text pre').textContent()) ?? ''), run.err).toBe(wordsOf(run.out));
    expect(await textOf(page, 'link')).toContain('workload.requests=20');
    await answerAfter(page, () => page.locator('[name=ctx]').fill('2k'));
    expect(await textOf(page, 'served-text')).toBe('');
    await page.locator('#p-form summary', { hasText: 'Paste' }).click();
    await page.locator('#p-paste').fill('{"model_type":"mamba"}');
    await page.locator('#p-take').click();
    await expect.poll(() => textOf(page, 'status')).toMatch(/^Not read: .*model_type must be one of/);
    expect(incidents.filter((x) => !x.startsWith('request: blob:'))).toEqual([]);
    await o.close();
  });

  it('compares two settings, and says which one is wrong', async () => {
    const o = await opened();
    const { page, incidents } = o;
    await page.locator('#p-keep').click();
    await answerAfter(page, () => page.locator('[name=device]').selectOption('b200'));
    await page.waitForSelector('#p-sides .differs');
    const rows = await page.locator('#p-sides tbody tr').allInnerTexts();
    expect(rows[0]).toMatch(/--device h200[\s\S]*--device b200/);
    expect(
      rows.some((r) => /^Deploy: fits, run\s+\d+, \d+\s+\d+, \d+/.test(r)),
      rows.join('\n'),
    ).toBe(true);
    await answerAfter(page, () => page.locator('#p-back').click());
    expect(await page.locator('[name=device]').inputValue()).toBe('h200');
    const before = await page.locator('#p-answer').innerText();
    await page.locator('[name=tpot]').fill('soon');
    await expect.poll(() => textOf(page, 'status')).toMatch(/^Not planned: --tpot must be/);
    // The answer of the question before is still there, and looks like it; its command is not to be copied.
    expect(await page.locator('#p-answer').innerText()).toBe(before);
    expect(await page.locator('#p-answer').getAttribute('class')).toContain('stale');
    expect(await page.locator('#p-take-away').isVisible()).toBe(false);
    await answerAfter(page, () => page.locator('[name=tpot]').fill('50ms'));
    expect(await page.locator('#p-take-away').isVisible()).toBe(true);
    await page.locator('[name=device]').selectOption('…');
    await answerAfter(page, () => page.locator('input[name=device]').fill('h100,b200'));
    await page.waitForSelector('#p-sides .differs');
    expect(await page.locator('#p-sides').innerText()).toContain('B200');
    await answerAfter(page, () => page.locator('[data-question="0"]').click());
    expect(await page.locator('select[name=device]').count()).toBe(1);
    expect(incidents).toEqual([]);
    await o.close();
  });

  it('ranks every codec as the command that it names does, and clears the ranking of another question', async () => {
    const o = await opened('#v0.1.0/device=h100/tpot=50ms/keep=0.95/stack=sglang');
    const { page, incidents } = o;
    await page.locator('#p-rank').click();
    await page.waitForSelector('#p-ranked pre', { timeout: 30_000 });
    const words = ((await page.locator('#p-ranked code').textContent()) ?? '').replaceAll("'", '').split(' ');
    const command = await inProcess(words[1] ?? '', ...words.slice(2));
    expect(wordsOf((await page.locator('#p-ranked pre').textContent()) ?? '')).toBe(wordsOf(command.out));
    await answerAfter(page, () => page.locator('[name=device]').selectOption('b200'));
    expect(await textOf(page, 'ranked')).toBe('');
    expect(incidents).toEqual([]);
    await o.close();
  });

  it('simulates beside the page, with progress, and stops', async () => {
    const o = await opened('#v0.1.0/ctx=4096/device=h200/codec=full/workload.requests=300/workload.output-tokens=32');
    const { page, incidents } = o;
    await page.locator('#p-run').click();
    await page.waitForSelector('#p-served-text pre', { timeout: 30_000 });
    const command = (await page.locator('#p-served-text code').innerText()).split(' ');
    expect(command.join(' ')).toContain('--requests 300');
    // A plan's context is none of a run of requests, and the command would be refused.
    expect(command.join(' ')).not.toContain('--ctx');
    const cli = await inProcess('simulate', ...command.slice(2));
    expect(wordsOf(await page.locator('#p-served-text pre').innerText())).toBe(wordsOf(cli.out));
    expect(await page.locator('#p-served canvas').count()).toBe(2);
    await page.locator('#p-ways').click();
    await page.waitForFunction(
      () => document.querySelector('#p-served-text code')?.textContent?.endsWith(' --ways') === true,
      null,
      { timeout: 120_000 },
    );
    const asked = (await page.locator('#p-served-text code').innerText()).split(' ');
    const ways = await inProcess('simulate', ...asked.slice(2));
    expect(wordsOf(await page.locator('#p-served-text pre').innerText())).toBe(wordsOf(ways.out));
    expect(await page.locator('#p-served canvas').count()).toBe(1);
    await page.locator('#p-rate').click();
    await page.locator('#p-stop').click();
    expect(await textOf(page, 'served-status')).toBe('Stopped.');
    expect(incidents.filter((x) => !x.startsWith('request: blob:'))).toEqual([]);
    await o.close();
  });

  it('has a name for every control, a keyboard way to all of them, and fits 400 px', async () => {
    const o = await open(browser, file, { viewport: { width: 400, height: 800 }, colorScheme: 'dark' });
    await o.page.waitForSelector('#p-near-rows tbody tr');
    // Pictures far below are drawn when a reader comes near, or prints.
    const drawn = (): Promise<boolean> =>
      o.page.evaluate(() => [...document.querySelectorAll('canvas')].every((canvas) => canvas.width !== 300));
    expect(await drawn()).toBe(false);
    await expect
      .poll(async () => {
        await o.page.evaluate(() => dispatchEvent(new Event('beforeprint')));
        return drawn();
      })
      .toBe(true);
    const lacking = await o.page.evaluate(() => {
      for (const details of document.querySelectorAll('details')) details.open = true;
      const wide = [...document.querySelectorAll<HTMLElement>('main *')].filter(
        (e) =>
          e.closest('.scroll, pre') === null &&
          e.getBoundingClientRect().right > document.documentElement.clientWidth + 1,
      );
      const unnamed = [...document.querySelectorAll<HTMLInputElement>('input, select, textarea')].filter(
        (e) => (e.labels?.length ?? 0) === 0 || e.tabIndex < 0,
      );
      return [...wide, ...unnamed].map((e) => `${e.tagName}#${e.id}`);
    });
    expect(lacking).toEqual([]);
    expect(await o.page.evaluate(() => document.documentElement.scrollWidth)).toBeLessThanOrEqual(400);
    expect(o.incidents).toEqual([]);
    await o.close();
  });
});

/** Equal but for the last digits of exp and log, which differ between a browser and Node. */
function expectClose(got: string, want: string): void {
  const rounded = (text: string): unknown =>
    JSON.parse(text, (_, v: unknown) => (typeof v === 'number' ? Number(v.toPrecision(9)) : v));
  expect(rounded(got)).toEqual(rounded(want));
}
