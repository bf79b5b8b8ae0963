/// <reference lib="dom" />
/** Parts of the page by name. */
import type { Html } from '../report/html/html.js';

export function element<T extends HTMLElement>(id: string): T {
  const found = document.getElementById(`p-${id}`);
  if (!found) throw new Error(`the page lacks #p-${id}`);
  return found as T;
}

// Sections escape every value (html.ts); the page's content policy runs no other script either way.
export const fill = (id: string, content: Html): void => void (element(id).innerHTML = content.text);
