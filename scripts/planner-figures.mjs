/**
 * How long the planner's page takes in Chromium, by hand: until its first answer, and from a changed setting to the end
 * of its answer, pictures included. Wall time, and processor time of the page's thread, which a busy machine disturbs
 * less. Run
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
const changed = { words: [], drawn: [], thread: [] };
for (let i = 0; i < times; i++) {
  const page = await browser.newPage();
  const cdp = await page.context().newCDPSession(page);
  await cdp.send('Performance.enable', { timeDomain: 'threadTicks' });
  const threadMs = async () => {
    const { metrics } = await cdp.send('Performance.getMetrics');
    return 1e3 * metrics.find((m) => m.name === 'TaskDuration').value;
  };
  // Said by the page itself: a condition that is asked from outside takes tens of milliseconds of the page's thread.
  await page.addInitScript(() => {
    new MutationObserver((_, observer) => {
      if (!document.querySelector('#p-answer .verdict')) return;
      observer.disconnect();
      console.log(performance.now());
    }).observe(document, { childList: true, subtree: true });
    // A picture that changes keeps its canvas: it is drawn when text has been written into it.
    const { fillText } = CanvasRenderingContext2D.prototype;
    CanvasRenderingContext2D.prototype.fillText = function (...words) {
      window.drawn = performance.now();
      return fillText.apply(this, words);
    };
  });
  const before = await threadMs();
  const [said] = await Promise.all([
    page.waitForEvent('console'),
    page.goto(`file://${file}`, { waitUntil: 'commit' }),
  ]);
  opened.thread.push((await threadMs()) - before);
  opened.wall.push(Number(said.text()));
  await page.waitForSelector('#p-pictures canvas');
  // Pictures are drawn where a reader sees them.
  await page.locator('#p-pictures').scrollIntoViewIfNeeded();
  await page.waitForFunction(() => window.drawn !== undefined);
  for (const context of ['8k', '32k', '5000', '4096', '16k']) {
    const began = await threadMs();
    const [words, drawn] = await page.evaluate(async (value) => {
      const begun = performance.now();
      let answered = begun;
      new MutationObserver((_, observer) => {
        answered = performance.now();
        observer.disconnect();
      }).observe(document.querySelector('#p-answer'), { childList: true });
      document.querySelector('[name=ctx]').value = value;
      document.querySelector('#p-form').requestSubmit();
      while (window.drawn < begun) await new Promise((done) => setTimeout(done));
      const drawn = performance.now() - begun;
      // What is still to do is charged to this setting.
      await new Promise((done) => setTimeout(done, 200));
      return [answered - begun, drawn];
    }, context);
    changed.words.push(words);
    changed.drawn.push(drawn);
    changed.thread.push((await threadMs()) - began);
  }
  await page.close();
}
await browser.close();
console.log(
  `first answer: wall ${words(opened.wall)}; the page's thread until then and a little longer ${words(opened.thread)}`,
);
console.log(
  `changed setting: its answer ${words(changed.words)}; with its pictures ${words(changed.drawn)}; the page's ` +
    `thread, table included, ${words(changed.thread)}`,
);
