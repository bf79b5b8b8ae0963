/// <reference lib="dom" />
/**
 * The static site in a real browser: every page silent and alone, its links, its contrast, narrow screens, the search.
 */
import { execFileSync } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import type { Browser } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { parse } from 'yaml';
import { ROOT, scratch } from './cli/program.js';
import { SEED } from './gpu/random.js';
import { noBrowser, open, startBrowser } from './report/browser.js';

/** Text on its ground, as WCAG 2 asks of small text. */
const LEAST_CONTRAST = 4.5;

describe.skipIf(noBrowser !== null)(`the site (${noBrowser ?? 'in Chromium'})`, () => {
  const folder = scratch();
  const site = join(folder.path, 'site');
  let browser: Browser;
  beforeAll(async () => {
    const node = (...args: string[]): unknown => execFileSync(process.execPath, args, { cwd: ROOT, stdio: 'pipe' });
    if (!existsSync(join(ROOT, 'dist/plan.html'))) node('scripts/build.mjs', '--checked');
    node('scripts/site.mjs', site);
    browser = await startBrowser();
  });
  afterAll(async () => {
    await browser?.close();
    folder.remove();
  });

  it('shows every document without a message, with links that lead somewhere, and text that can be read', async () => {
    const seen = new Set<string>();
    const due = [join(site, 'index.html')];
    const ids = new Map<string, Set<string>>();
    const wanted: { from: string; file: string; id: string }[] = [];
    const follow = (file: string, text: string): void => {
      ids.set(file, new Set([...text.matchAll(/ id="([^"]+)"/g)].map((m) => m[1]!)));
      const links = [...text.matchAll(/<a [^>]*href="([^"]+)"/g)].map((m) => new URL(m[1]!, pathToFileURL(file)).href);
      for (const link of links.filter((l) => l.startsWith('file:'))) {
        const [address = '', id = ''] = link.split('#');
        const to = fileURLToPath(address);
        expect(existsSync(to), `${file} links to ${link}`).toBe(true);
        if (to.endsWith('.html')) due.push(to);
        if (id !== '') wanted.push({ from: file, file: to, id: decodeURIComponent(id) });
      }
    };
    for (const file of due) {
      if (seen.has(file)) continue;
      seen.add(file);
      // Pages of their own have tests of their own.
      if (/\/(plan|measure)\.html$|\/reports\//.test(file)) continue;
      // A browser shows a sixth of them in each run; of the others the text is read.
      if ((seen.size + SEED) % 6 > 0) {
        follow(file, readFileSync(file, 'utf8'));
        continue;
      }
      const colorScheme = seen.size % 2 === 0 ? 'dark' : 'light';
      const o = await open(browser, file, { viewport: { width: 400, height: 800 }, colorScheme });
      const found = await o.page.evaluate(
        (least) => {
          const channels = (colour: string): number[] => {
            const values = (colour.match(/[\d.]+/g) ?? []).map(Number);
            return colour.startsWith('color(') ? values.map((v, i) => (i < 3 ? 255 * v : v)) : values;
          };
          const light = (colour: string): number =>
            channels(colour)
              .slice(0, 3)
              .map((v) => (v / 255 <= 0.04045 ? v / 255 / 12.92 : ((v / 255 + 0.055) / 1.055) ** 2.4))
              .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i]!, 0);
          const ground = (e: Element | null): string => {
            const own = e === null ? 'rgb(255, 255, 255)' : getComputedStyle(e).backgroundColor;
            const opacity = channels(own)[3] ?? 1;
            return opacity > 0.99 ? own : ground(e?.parentElement ?? null);
          };
          const faint = [...document.querySelectorAll('body *')]
            .filter((e) => [...e.childNodes].some((n) => n.nodeType === 3 && n.textContent?.trim()))
            .filter((e) => least > 0 && !['SCRIPT', 'STYLE'].includes(e.tagName))
            .filter((e) => {
              const [a, b] = [light(getComputedStyle(e).color), light(ground(e))];
              return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05) < least;
            });
          const wide = [...document.querySelectorAll('main *')].filter(
            (e) => e.closest('.scroll, pre') === null && e.getBoundingClientRect().right > innerWidth + 1,
          );
          return {
            wrong: [...faint, ...wide].map((e) => `${e.tagName}: ${e.textContent?.slice(0, 40)}`),
            width: document.documentElement.scrollWidth,
          };
          // One style serves all: some pages show it.
        },
        seen.size % 6 < 2 ? LEAST_CONTRAST : 0,
      );
      expect(found.wrong, file).toEqual([]);
      expect(found.width, file).toBeLessThanOrEqual(400);
      expect(
        o.incidents.filter((i) => !/^request: .*\.png$/.test(i)),
        file,
      ).toEqual([]);
      follow(file, readFileSync(file, 'utf8'));
      await o.close();
    }
    expect(seen.size).toBeGreaterThan(18);
    for (const { from, file, id } of wanted.filter((w) => ids.has(w.file)))
      expect(ids.get(file)?.has(id), `${from} links to ${pathToFileURL(file).href}#${id}`).toBe(true);
  });

  it('finds sections by their words', async () => {
    const o = await open(browser, join(site, 'search.html'));
    await o.page.locator('#find').fill('exact Bytes');
    expect(await o.page.locator('#found li').count()).toBeGreaterThan(2);
    await o.page.locator('#found a').first().click();
    expect(o.page.url()).toMatch(/\.html#/);
    expect(o.incidents.filter((i) => !i.startsWith('request: file:'))).toEqual([]);
    await o.close();
  });
});

it('is built by the workflow that publishes it', () => {
  const workflow = parse(readFileSync(join(ROOT, '.github/workflows/site.yml'), 'utf8')) as {
    jobs: Record<string, { steps: { run?: string; with?: Record<string, unknown> }[] }>;
  };
  const { scripts } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')) as {
    scripts: Record<string, string>;
  };
  const runs = Object.values(workflow.jobs).flatMap((job) => job.steps.flatMap((s) => s.run ?? []));
  const asked = runs.flatMap((run) => [...run.matchAll(/npm run ([\w:]+)/g)].map((m) => m[1] ?? ''));
  expect(asked).toEqual(['build', 'site']);
  for (const name of asked) expect(scripts).toHaveProperty(name);
});
