/** Aligned text columns and wrapped paragraphs for terminals. All cells are single-width characters. */

export interface Column<T> {
  readonly title: string;
  readonly align: 'left' | 'right';
  readonly cell: (row: T) => string;
}

/** A column of words, and one of figures. */
export const left = <T>(title: string, cell: (row: T) => string): Column<T> => ({ title, align: 'left', cell });
export const right = <T>(title: string, cell: (row: T) => string): Column<T> => ({ title, align: 'right', cell });

/** Rows as aligned columns with one space between; the header first. */
export function columns<T>(spec: readonly Column<T>[], rows: readonly T[]): string[] {
  const cells = [spec.map((c) => c.title), ...rows.map((row) => spec.map((c) => c.cell(row)))];
  const widths = spec.map((_, i) => Math.max(...cells.map((line) => (line[i] ?? '').length)));
  return cells.map((line) =>
    line
      .map((cell, i) => (spec[i]?.align === 'right' ? cell.padStart(widths[i] ?? 0) : cell.padEnd(widths[i] ?? 0)))
      .join(' ')
      .trimEnd(),
  );
}

/** Paragraphs and tables with an empty line between. */
export const apart = (parts: readonly (readonly string[])[]): string[] =>
  parts.flatMap((lines, i) => [...(i > 0 ? [''] : []), ...lines]);

/** The first of several forms of a table that fits the width, else the last: its columns and its lines. */
export function fitting<T>(forms: Iterable<readonly Column<T>[]>, rows: readonly T[], width: number) {
  let table: { readonly spec: readonly Column<T>[]; readonly lines: readonly string[] } = { spec: [], lines: [] };
  for (const spec of forms) {
    table = { spec, lines: columns(spec, rows) };
    if (table.lines.every((line) => line.length <= width)) break;
  }
  return table;
}

/** Wraps a paragraph to `width` columns, continuation lines indented; a word that no line holds is broken. */
export function wrap(text: string, width: number, indent = ''): string[] {
  const lines: string[] = [];
  let line = '';
  const most = width - indent.length;
  for (const word of text.split(/\s+/).flatMap((w) => (w.length > most ? pieces(w, most) : [w]))) {
    if (line !== '' && line.length + 1 + word.length > width) {
      lines.push(line);
      line = indent + word;
    } else {
      line = line === '' ? word : `${line} ${word}`;
    }
  }
  if (line !== '') lines.push(line);
  return lines;
}

/** Parts of a word of at most so many columns; a character of two units stays whole. */
const pieces = (word: string, most: number): string[] =>
  word.match(new RegExp(`.{1,${Math.max(1, Math.floor(most / 2))}}`, 'gsu')) ?? [];

/** `93 %`: rounded down, so that a share below a limit never looks like the limit. */
export const shareText = (share: number): string => `${Math.floor(share * 100 + 1e-9)} %`;
