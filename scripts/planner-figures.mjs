/**
 * How long the planner's page takes in Chromium, by hand: until its first answer, and from a changed setting to the end of
 * its answer, pictures included. Wall time, and processor time of the page's thread, which a busy machine disturbs less. Run
 * `npm run build` first:
 *
 *   node scripts/planner-figures.mjs [TIMES]      10 times
 */
import { fileURLToPath } from 'node:url';
import { chromium } from 'playwright-core';

const file = fileURLToPath(new URL('../dist/plan.html', import.meta.url));
const times = Number(process.argv[2] ?? 10);
const browser = await chromium.launch({
  executablePath: process.env.LLA_SIM_CHROMIUM ?? '/usr/bin/chromium',
  args: ['--no-sandbox', '--disable-gpu'],
});

/** Median and least of milliseconds. */
const words = (all) => {
  const sorted = [...all].sort((a, b) => a - b);
  return `median ${sorted[sorted.length >> 1].toFixed(0)} ms, least ${sorted[0].toFixed(0)} ms`;
};

const opened = { wall: [], thread: [] };
const changed = { words: [], wall: [], thread: [] };
for (let i = 0; i < times; i++) {
  const page = await browser.newPage();
  const cdp = await page.context().newCDPSession(page);
  await cdp.send('Performance.enable', { timeDomain: 'threadTicks' });
  const threadMs = async () => {
    const { metrics } = await cdp.send('Performance.getMetrics');
    return 1e3 * metrics.find((m) => m.name === 'TaskDuration').value;
  };
  await page.addInitScript(() => {
    new MutationObserver((_, observer) => {
      if (!document.querySelector('#p-answer .verdict')) return;
      window.answered = performance.now();
      observer.disconnect();
    }).observe(document, { childList: true, subtree: true });
  });
  const before = await threadMs();
  await page.goto(`file://${file}`, { waitUntil: 'commit' });
  await page.waitForFunction(() => window.answered !== undefined);
  opened.wall.push(await page.evaluate(() => window.answered));
  opened.thread.push((await threadMs()) - before);
  await page.waitForSelector('#p-pictures canvas');
  // Pictures are drawn where a reader sees them.
  await page.locator('#p-pictures').scrollIntoViewIfNeeded();
  for (const context of ['8k', '32k', '5000', '4096', '16k']) {
    const began = await threadMs();
    const [words, wall] = await page.evaluate(async (value) => {
      const begun = performance.now();
      let answered = begun;
      new MutationObserver((_, observer) => {
        answered = performance.now();
        observer.disconnect();
      }).observe(document.querySelector('#p-answer'), { childList: true });
      document.querySelector('[name=ctx]').value = value;
      const before = document.querySelector('#p-pictures canvas');
      // A canvas has this width until it is drawn into.
      const isDrawn = (canvas) => canvas !== null && canvas !== before && canvas.width !== 300;
      document.querySelector('#p-form').requestSubmit();
      while (!isDrawn(document.querySelector('#p-pictures canvas'))) await new Promise((done) => setTimeout(done));
      return [answered - begun, performance.now() - begun];
    }, context);
    changed.words.push(words);
    changed.wall.push(wall);
    changed.thread.push((await threadMs()) - began);
  }
  await page.close();
}
await browser.close();
console.log(
  `first answer: wall ${words(opened.wall)}; the page's thread until then and a little longer ${words(opened.thread)}`,
);
console.log(
  `changed setting: its answer ${words(changed.words)}; with table and pictures ${words(changed.wall)}; the page's thread ${words(changed.thread)}`,
);
