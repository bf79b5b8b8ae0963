/// <reference lib="dom" />
/** Parts of the page by name. */
import type { Drawing } from '../report/html/charts.js';
import { finder } from '../report/html/dom.js';
import type { Html } from '../report/html/html.js';
import { figuresSection } from '../report/html/sections.js';
import type { Picture } from '../report/pictures/picture.js';
import type { Later } from './later.js';

export const element = finder('p-');

// Sections escape every value (html.ts); the page's content policy runs no other script either way.
export const fill = (id: string, content: Html): void => void (element(id).innerHTML = content.text);

/** When all of the page is there: tables and the second script come after the program. */
export const whole = (): Promise<void> =>
  document.readyState === 'loading'
    ? new Promise((resolve) => document.addEventListener('DOMContentLoaded', () => resolve(), { once: true }))
    : Promise.resolve();

/** What the second script brings. */
export async function later(): Promise<Later> {
  const page = globalThis as { later?: Later };
  if (!page.later) await whole();
  if (!page.later) throw new Error('the page lacks its second script');
  return page.later;
}

/** Figures of pictures, in place of those before. A picture that stays keeps its canvas, and so its chart. */
export function showFigures(id: string, pictures: readonly Picture[]): void {
  const place = element(id);
  const chartOf = (figure: Element): Element | null => figure.querySelector('.chart');
  const before = new Map([...place.children].map((figure) => [figure.id, chartOf(figure)]));
  fill(id, figuresSection(pictures));
  for (const figure of place.children) {
    const [drawn, fresh] = [before.get(figure.id), chartOf(figure)];
    if (!drawn || !fresh) continue;
    const words = fresh.firstElementChild?.getAttribute('aria-label') ?? '';
    drawn.firstElementChild?.setAttribute('aria-label', words);
    fresh.replaceWith(drawn);
  }
}

/** Draws pictures into their canvases once these come near to the screen, with what the second script brings. */
export function drawingLater(id: string): { draw(pictures: readonly Picture[]): Promise<void> } {
  let drawing: Drawing | null = null;
  let due: readonly Picture[] | null = null;
  let isNear = false;
  const draw = (): void => {
    if (due) drawing?.draw(due);
    due = null;
  };
  // Half a screen ahead of a reader who scrolls.
  const near = new IntersectionObserver(
    (seen) => {
      isNear = seen.at(-1)?.isIntersecting ?? false;
      if (isNear) draw();
    },
    { rootMargin: '50%' },
  );
  // Before the drawing's own, which takes the colours of paper.
  addEventListener('beforeprint', draw);
  return {
    async draw(pictures) {
      due = pictures;
      if (!drawing) {
        drawing = (await later()).drawing();
        near.observe(element(id));
      }
      if (isNear) draw();
    },
  };
}
