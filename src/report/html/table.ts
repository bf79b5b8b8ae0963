/// <reference lib="dom" />
/** Sorting and filtering of the table's rows, in the page. */

/** Column and direction that stay when the page plans again. */
let sorted: { title: string; descending: boolean } | null = null;

const bodyRows = (): HTMLTableRowElement[] => [...document.querySelectorAll<HTMLTableRowElement>('#plans tbody tr')];

/**
 * Sorts by the column of a header's button; again by the one chosen before where `button` is null. Unknown values stay
 * last.
 */
export function sortRows(button: HTMLButtonElement | null): void {
  const buttons = [...document.querySelectorAll<HTMLButtonElement>('#plans thead button')];
  const chosen = button ?? buttons.find((b) => b.textContent === sorted?.title);
  if (!chosen) return;
  const title = chosen.textContent ?? '';
  const descending =
    button === null ? sorted?.descending === true : sorted?.title === title ? !sorted.descending : false;
  sorted = { title, descending };
  const column = buttons.indexOf(chosen);
  const numeric = chosen.dataset['numeric'] === 'yes';
  for (const b of buttons)
    b.parentElement?.setAttribute('aria-sort', b === chosen ? (descending ? 'descending' : 'ascending') : 'none');
  const value = (row: HTMLTableRowElement): string => row.cells[column]?.dataset['value'] ?? '';
  const rows = bodyRows().sort((a, b) => {
    const [x, y] = [value(a), value(b)];
    if (x === '' || y === '') return Number(x === '') - Number(y === '');
    const order = numeric ? Number(x) - Number(y) : x < y ? -1 : x > y ? 1 : 0;
    return descending ? -order : order;
  });
  rows[0]?.parentElement?.append(...rows);
}

/** Hides rows that do not match; every word of `find` must occur in a row. */
export function filterRows(by: { find: string; kind: string; state: string }): { shown: number; of: number } {
  const words = by.find
    .toLowerCase()
    .split(/\s+/)
    .filter((w) => w !== '');
  const rows = bodyRows();
  let shown = 0;
  for (const row of rows) {
    const text = `${row.dataset['id'] ?? ''} ${row.textContent ?? ''}`.toLowerCase();
    const state = row.dataset['state'] ?? '';
    const matches =
      words.every((w) => text.includes(w)) &&
      (by.kind === '' || row.dataset['kind'] === by.kind) &&
      (by.state === '' || (by.state === 'kept' ? state !== 'removed' : state === 'pareto' || state === 'recommended'));
    row.hidden = !matches;
    if (matches) shown++;
  }
  return { shown, of: rows.length };
}
