/// <reference lib="dom" />
/** The report's page in a real browser, opened from disk: silent, alone, and with the command line's numbers. */
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Browser, BrowserContextOptions, Page } from 'playwright-core';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import type { PlanReport } from '../../src/plan/types.js';
import type { Scenario } from '../../src/schema/settings.js';
import { OURO_CONFIG, pageProgram, plan, ROOT, scratch, words } from '../cli/program.js';
import { everyNth } from '../gpu/sample.js';
import { noBrowser, open, startBrowser, type Opened } from './browser.js';
import { filesOf, scenarioOf, SERVED_USERS, textOf } from './reports.js';

const FILE = (name: string): string => join(ROOT, 'scenarios', `${name}.yaml`);

/** Equal but for the last digits of exp and log, which differ between a browser and Node. */
function expectClose(got: Awaited<ReturnType<typeof tableOf>>, want: typeof got): void {
  const rounded = (table: typeof got): unknown =>
    JSON.parse(
      JSON.stringify(table, (_, v: unknown) =>
        typeof v === 'string' && v !== '' && Number.isFinite(Number(v)) ? Number(v).toPrecision(9) : v,
      ),
    );
  expect(rounded(got)).toEqual(rounded(want));
}

/** What the table of a page says, by plan and column, unrounded. */
const tableOf = (page: Page): Promise<Record<string, Record<string, string>>> =>
  page.evaluate(() =>
    Object.fromEntries(
      [...document.querySelectorAll<HTMLTableRowElement>('#plans tbody tr')].map((row) => [
        row.dataset['id'] ?? '',
        {
          state: row.dataset['state'] ?? '',
          ...Object.fromEntries([...row.cells].map((c) => [c.dataset['key'] ?? '', c.dataset['value'] ?? ''])),
        },
      ]),
    ),
  );

/** The page's figures are those of a report: every plan, batch, byte and second. */
function expectSame(table: Record<string, Record<string, string>>, report: PlanReport): void {
  for (const p of report.plans) {
    const row = table[p.id];
    if (!row) throw new Error(`the page has no ${p.id}`);
    const d = p.knee ?? p.decode;
    expect(row['state'], p.id).not.toBe('removed');
    expect(Number(row['batch']), p.id).toBe(p.maxBatch.exact);
    expect(Number(row['kv']), p.id).toBe(p.memory.kvBytesPerToken);
    for (const [key, value] of [
      ['time', d.secondsPerStep?.estimate],
      ['rate', d.tokensPerSecond?.estimate],
    ] as const) {
      // Another version of V8 may round exp and log otherwise in the last place.
      if (value === undefined) expect(row[key], `${p.id} ${key}`).toBe('');
      else expect(Math.abs(Number(row[key]) / value - 1), `${p.id} ${key}`).toBeLessThan(1e-12);
    }
  }
  expect(Object.values(table).filter((r) => r['state'] !== 'removed').length).toBe(report.plans.length);
}

describe.skipIf(noBrowser !== null)(`pages (${noBrowser ?? 'in Chromium'})`, () => {
  const folder = scratch();
  let browser: Browser;
  let script: string;
  beforeAll(async () => {
    [browser, script] = await Promise.all([startBrowser(), pageProgram()]);
  });
  afterAll(async () => {
    await browser?.close();
    folder.remove();
  });

  let opened: Opened[] = [];
  /** A page of a test, which logs and asks for nothing, and is closed after it. */
  async function show(file: string | Promise<string>, options: BrowserContextOptions = {}): Promise<Opened> {
    const o = await open(browser, await file, options);
    opened.push(o);
    return o;
  }
  afterEach(async () => {
    const [all] = [opened, (opened = [])];
    await Promise.all(all.map((o) => o.close()));
    for (const { incidents } of all) expect(incidents).toEqual([]);
  });
  /** The report that a command prints. */
  const planned = async (...argv: string[]): Promise<PlanReport> =>
    JSON.parse((await plan(...argv, '--format', 'json')).out) as PlanReport;

  const written = new Map<string, Promise<string>>();
  /** The page of a scenario, written once. */
  function pageOf(scenario: Scenario, file: string | null = null): Promise<string> {
    const key = JSON.stringify([scenario, file]);
    const known = written.get(key) ?? write(scenario, file, join(folder.path, `${written.size}.html`));
    written.set(key, known);
    return known;
  }
  async function write(scenario: Scenario, file: string | null, path: string): Promise<string> {
    writeFileSync(path, textOf(await filesOf(scenario, { script, file }), 'report.html'));
    return path;
  }
  const change = async (page: Page, name: string, value: string): Promise<void> => {
    const status = page.locator('#status');
    await page.evaluate(() => {
      (document.getElementById('status') as HTMLElement).textContent = '';
    });
    const control = page.locator(`[name=${name}]`);
    if (['model', 'device', 'stack'].includes(name)) await control.selectOption(value);
    else await control.fill(value);
    await expect.poll(() => status.textContent()).toMatch(/anew|Not changed/);
  };

  /** Prints the first page of a report: on one sheet, whatever is asked. */
  async function expectOneSheet(page: Page): Promise<void> {
    // 18.2 cm by 26.9 cm at 96 dots an inch: A4 less its margins.
    await page.setViewportSize({ width: 688, height: 1017 });
    await page.emulateMedia({ media: 'print' });
    await page.evaluate(() => dispatchEvent(new Event('beforeprint')));
    const height = await page.evaluate(() => document.querySelector('.sheet')?.getBoundingClientRect().height);
    expect(height).toBeLessThan(1017);
  }

  const others = ['huginn-h100', 'tensor-parallel-2xh100', 'million-tokens'];
  it.each(everyNth(['chat-h200', 'nothing-fits', ...others], 5))(
    '%s opens without a message or a request, with its pictures drawn, and prints its first page on one sheet',
    async (name) => {
      const o = await show(pageOf(scenarioOf(name)));
      const drawn = await o.page.evaluate(() =>
        [...document.querySelectorAll('canvas')].map((c) => {
          const pixels = c.getContext('2d')?.getImageData(0, 0, c.width, c.height).data ?? [];
          const colours = new Set<number>();
          for (let i = 0; i < pixels.length; i += 4)
            if ((pixels[i + 3] ?? 0) > 200)
              colours.add(((pixels[i] ?? 0) << 16) + ((pixels[i + 1] ?? 0) << 8) + (pixels[i + 2] ?? 0));
          return colours.size;
        }),
      );
      expect(drawn.length).toBe(await o.page.locator('figure').count());
      for (const colours of drawn) expect(colours).toBeGreaterThan(10);
      await expectOneSheet(o.page);
    },
  );

  it('gives the numbers of the command that it names when a control changes', async () => {
    const o = await show(pageOf(scenarioOf('chat-h200'), 'scenarios/chat-h200.yaml'));
    const steps: [string, string, string[]][] = [
      ['gpus', '2', ['--gpus', '2']],
      ['context', '64k', ['--ctx', '64k']],
      ['batch', '3', ['--batch', '3']],
      ['tpot', '150ms', ['--tpot', '150ms']],
      ['stack', 'sglang', ['--stack', 'sglang']],
      ['usdPerHour', '2.25', ['--usd-per-hour', '2.25']],
      ['min', 'gsm8k@isocache=0.75', ['--min', 'gsm8k@isocache=0.75']],
      ['model', 'ouro-2.6b', ['--model', 'ouro-2.6b']],
    ];
    const unchanged = await o.page.locator('#command').textContent();
    const flags = new Map<string, string[]>();
    // A change takes a page seconds: each run makes a part of them.
    for (const [name, value, words] of everyNth(steps, 4)) {
      flags.set(name, words);
      await change(o.page, name, value);
      // The command that the page shows has all that was changed, and gives these numbers.
      const command = (await o.page.locator('#command').textContent()) ?? '';
      for (const word of [...flags.values()].flat()) expect(command.split(' ')).toContain(word);
      expectSame(await tableOf(o.page), await planned(...command.split(' ').slice(2)));
    }
    await o.page.locator('button[type=reset]').click();
    await expect.poll(() => o.page.locator('#command').textContent()).toBe(unchanged);
    expectSame(await tableOf(o.page), await planned(FILE('chat-h200')));
  });

  it('shows what was simulated of its own question only, and again once it is back at that', async () => {
    const path = join(folder.path, 'simulated.html');
    writeFileSync(path, textOf(await filesOf(SERVED_USERS, { script, simulate: true }), 'report.html'));
    const o = await show(path);
    const answer = (): Promise<string> => o.page.locator('#answer').innerText();
    const own = await answer();
    expect(await o.page.locator('#command').innerText()).toMatch(/^lla-sim (plan|report) /);
    expect(own).toMatch(/Workload simulated: each user asks/);
    await change(o.page, 'usdPerHour', '2');
    expect(await answer()).not.toContain('Workload');
    // The command is that of the plan that is shown now: --ttft is of a prompt, not of requests.
    expect(await o.page.locator('#command').innerText()).toMatch(/^lla-sim plan .*--usd-per-hour 2/);
    await o.page.locator('button[type=reset]').click();
    await expect.poll(answer).toBe(own);
  });

  it('another device comes with its own memory, name and kernels', async () => {
    const o = await show(pageOf({ vram: '60GB', device: 'h200', context: 4096 }));
    await change(o.page, 'device', 'b200');
    const command = (await o.page.locator('#command').textContent()) ?? '';
    expect(command).toBe('lla-sim plan --ctx 4096 --device b200');
    expect(await o.page.locator('#question').textContent()).toContain('B200');
    expectSame(await tableOf(o.page), await planned(...command.split(' ').slice(2)));
  });

  it('says what is wrong with a control and keeps its answer', async () => {
    const o = await show(pageOf(scenarioOf('huginn-h100')));
    const before = await tableOf(o.page);
    for (const [name, value] of [
      ['gpus', 'many'],
      ['usdPerHour', 'much'],
      ['context', '-1'],
      ['min', 'taste=1'],
      ['tpot', '80'],
      ['retrieval', '<b>x'],
      ['batch', '1.5'],
      ['users', '0'],
    ] as const) {
      const was = await o.page.locator(`[name=${name}]`).inputValue();
      await change(o.page, name, value);
      expect(await o.page.locator('#status').textContent()).toMatch(/^Not changed: .+/);
      expectClose(await tableOf(o.page), before);
      // Set back without an event: nothing is asked.
      await o.page.locator(`[name=${name}]`).evaluate((e, v) => ((e as HTMLInputElement).value = v), was);
    }
    await o.page.locator('button[type=reset]').click();
    await expect.poll(() => o.page.locator('#status').textContent()).toMatch(/anew/);
    expectClose(await tableOf(o.page), before);
  });

  it('sorts by every column in both directions, and filters', async () => {
    const o = await show(pageOf(scenarioOf('nanbeige-a100')));
    const { page } = o;
    await page.locator('#state').selectOption('');
    const titles = await page.locator('#plans thead button').allTextContents();
    expect(titles.length).toBeGreaterThan(10);
    for (const title of everyNth(titles, 3)) {
      const button = page.locator('#plans thead button', {
        hasText: new RegExp(`^${title.replace(/[$.]/g, '\\$&')}$`),
      });
      for (const direction of ['ascending', 'descending']) {
        // By keyboard: the header is a button.
        await button.focus();
        await page.keyboard.press('Enter');
        expect(await button.locator('..').getAttribute('aria-sort')).toBe(direction);
        const numeric = (await button.getAttribute('data-numeric')) === 'yes';
        const values = (
          await page.evaluate(
            (column) =>
              [...document.querySelectorAll<HTMLTableRowElement>('#plans tbody tr')].map(
                (r) => r.cells[column]?.dataset['value'] ?? '',
              ),
            titles.indexOf(title),
          )
        ).filter((v) => v !== '');
        const order = numeric ? [...values].sort((a, b) => Number(a) - Number(b)) : [...values].sort();
        expect(values, `${title} ${direction}`).toEqual(direction === 'ascending' ? order : order.reverse());
      }
    }
    await page.locator('#find').fill('lla block');
    const visible = (): Promise<string[]> =>
      page
        .locator('#plans tbody tr:visible')
        .evaluateAll((rows) => rows.map((r) => (r as HTMLElement).dataset['id'] ?? ''));
    const found = await visible();
    expect(found.length).toBeGreaterThan(0);
    for (const id of found) expect(id).toMatch(/lla.*block/);
    await page.locator('#find').fill('');
    await page.locator('#kind').selectOption('kv-quant');
    for (const id of await visible()) expect(id).toMatch(/^kv-quant/);
    await expectOneSheet(page);
  });

  it('saves the plans that it shows as the command prints them', async () => {
    const o = await show(pageOf(scenarioOf('edge-rtx-4090')));
    await change(o.page, 'context', '2k');
    const [download] = await Promise.all([o.page.waitForEvent('download'), o.page.locator('#save').click()]);
    const saved = JSON.parse(readFileSync(await download.path(), 'utf8')) as PlanReport;
    const cli = await planned(FILE('edge-rtx-4090'), '--ctx', '2k');
    expect(saved.plans.map((p) => p.maxBatch)).toEqual(cli.plans.map((p) => p.maxBatch));
    expect(saved.answer).toEqual(cli.answer);
  });

  it('fits narrow screens, and can be read in the dark and on paper', async () => {
    const o = await show(pageOf(scenarioOf('chat-h200')));
    for (const width of [768, 390, 320]) {
      await o.page.setViewportSize({ width, height: 800 });
      // What is drawn to the width follows a frame later.
      await expect
        .poll(() => o.page.evaluate(() => document.documentElement.scrollWidth), { message: `at ${width}` })
        .toBeLessThanOrEqual(width);
    }
    await o.page.setViewportSize({ width: 1280, height: 900 });
    const contrast = (page: Page): Promise<number[]> =>
      page.evaluate(() => {
        const channels = (colour: string): number[] =>
          (/rgba?\(([^)]+)\)/.exec(colour)?.[1] ?? '0,0,0').split(',').slice(0, 3).map(Number);
        const light = (colour: string): number => {
          const [r = 0, g = 0, b = 0] = channels(colour).map((c) =>
            c / 255 <= 0.03928 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4,
          );
          return 0.2126 * r + 0.7152 * g + 0.0722 * b;
        };
        const paper = light(getComputedStyle(document.body).backgroundColor);
        return ['body', 'figcaption', '.units', '.source', 'dt', 'caption', '.why', 'label small']
          .map((s) => light(getComputedStyle(document.querySelector(s) ?? document.body).color))
          .map((ink) => (Math.max(ink, paper) + 0.05) / (Math.min(ink, paper) + 0.05));
      });
    for (const colorScheme of ['light', 'dark'] as const) {
      await o.page.emulateMedia({ media: 'screen', colorScheme });
      // WCAG AA for text.
      for (const ratio of await contrast(o.page)) expect(ratio, colorScheme).toBeGreaterThan(4.5);
      await o.page.emulateMedia({ media: 'print', colorScheme });
      expect(await o.page.locator('form').isVisible()).toBe(false);
      expect(await o.page.evaluate(() => getComputedStyle(document.body).backgroundColor)).toBe('rgb(255, 255, 255)');
      // Backgrounds are left out on paper: a badge must be readable without its own.
      expect(
        await o.page.evaluate(() => [
          ...new Set([...document.querySelectorAll('.evidence')].map((e) => getComputedStyle(e).color)),
        ]),
      ).toEqual(['rgb(0, 0, 0)']);
    }
    expect((await o.page.pdf({ format: 'A4' })).subarray(0, 4).toString()).toBe('%PDF');
  });

  it('can be used by keyboard alone: every control is reached, in order, and shows that it is', async () => {
    const o = await show(pageOf(scenarioOf('huginn-h100')));
    const reached: string[] = [];
    for (let i = 0; i < 60; i++) {
      await o.page.keyboard.press('Tab');
      const at = await o.page.evaluate(() => {
        const e = document.activeElement as HTMLElement;
        return {
          name: e.getAttribute('name') ?? (e.id || e.textContent || e.tagName),
          outline: getComputedStyle(e).outlineStyle,
        };
      });
      reached.push(at.name);
      expect(at.outline, at.name).not.toBe('none');
      if (at.name === 'evidence') break;
    }
    const controls = 'model device users gpus stack usdPerHour context batch tpot retrieval min find kind state save';
    expect(reached).toEqual(expect.arrayContaining(words(`${controls} rows codec evidence`)));
  });

  it('holds the paper against the model in tables that open by keyboard, with and without a program', async () => {
    const file = await pageOf(scenarioOf('nanbeige-a100'));
    for (const javaScriptEnabled of [true, false]) {
      const o = await show(file, { javaScriptEnabled });
      const parts = o.page.locator('#paper-part details');
      const first = parts.first();
      expect(await o.page.locator('#paper-part tr:visible').count()).toBe(0);
      await first.locator('summary').focus();
      await o.page.keyboard.press('Enter');
      await expect.poll(() => first.locator('tbody tr:visible').count()).toBe(10);
      expect(await first.locator('tbody tr').first().innerText()).toMatch(
        /^KV\/token, 1\.4B, teacher\s+768 KiB\s+768 KiB\s+exact\s/,
      );
      expect(await o.page.locator('nav a[href="#paper"]').count()).toBe(1);
      if (javaScriptEnabled) {
        const before = await o.page.locator('#paper-part').innerHTML();
        await change(o.page, 'context', '8k');
        expect(await o.page.locator('#paper-part').innerHTML()).toBe(before);
        await o.page.setViewportSize({ width: 320, height: 800 });
        await o.page.evaluate(() => {
          for (const d of document.querySelectorAll('details')) d.open = true;
        });
        await expect.poll(() => o.page.evaluate(() => document.documentElement.scrollWidth)).toBeLessThanOrEqual(320);
      }
    }
  });

  it('runs nothing that a scenario or model name holds', async () => {
    const hostile =
      '</script><script>alert(1)</script><img src=x ' +
      `onerror=alert(2)>"'\`><svg/onload=alert(3)>\${alert(4)}{{alert(5)}}<!--]]>`;
    const config = JSON.stringify({ ...(JSON.parse(OURO_CONFIG) as object), _name_or_path: hostile });
    const directory = join(folder.path, '<img src=x onerror=alert(6)>');
    mkdirSync(directory);
    writeFileSync(join(directory, 'config.json'), config);
    const model = join(directory, 'config.json');
    const o = await show(pageOf({ name: hostile, description: hostile, device: 'h200', model }, hostile));
    expect(await o.page.locator('h1').textContent()).toBe(hostile.replace(/\s+/g, ' '));
    await change(o.page, 'context', hostile);
    await change(o.page, 'context', '8k');
    expect(
      await o.page.evaluate(() => ({
        scripts: document.scripts.length,
        images: document.images.length,
        vectors: document.querySelectorAll('svg').length,
        handlers: document.querySelectorAll('[onerror],[onload]').length,
      })),
    ).toEqual({ scripts: 2, images: 0, vectors: 0, handlers: 0 });
    expect(o.incidents).toEqual([]);
    // Were markup to get in all the same, the content policy stops it.
    await o.page.evaluate(() => {
      document.body.insertAdjacentHTML('beforeend', '<img src="https://example.org/x.png" onerror="document.title=1">');
    });
    await expect.poll(() => o.incidents.join('\n')).toMatch(/Content Security Policy/);
    expect(o.incidents.splice(0).join('\n')).not.toMatch(/dialog/);
  });
});
