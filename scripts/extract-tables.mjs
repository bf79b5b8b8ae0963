/**
 * Writes src/quality/paper-tables.ts: the cells of every table of the paper (Looped Latent Attention), from its TeX.
 * Run: node scripts/extract-tables.mjs PAPER.tex [--check]. With --check nothing is written, and a difference is an
 * error. The TeX is no part of this repository.
 */
import { readFileSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

const TARGET = fileURLToPath(new URL('../src/quality/paper-tables.ts', import.meta.url));
const SYMBOLS = {
  times: '×',
  rho: 'ρ',
  Delta: 'Δ',
  lambda: 'λ',
  approx: '≈',
  uparrow: '',
  downarrow: '',
  lla: 'LLA',
};

/** A cell as it is printed: without markup, and without the arrows that say which way is better. */
function printed(tex) {
  return tex
    .replace(/\\rowcolor\{\w+\}|\\(?:top|mid|bottom)rule/g, '')
    .replace(/\\multicolumn\{\d+\}\{\w+\}/g, '')
    .replace(/\\(?:textbf|emph|rm)\b ?/g, '')
    .replace(/\\([A-Za-z]+)(?:\{\})?/g, (all, name) => SYMBOLS[name] ?? all)
    .replace(/\\([_ %])/g, '$1')
    .replace(/[${}]/g, '')
    .replace(/ ;/g, ';')
    .replace(/\s+/g, ' ')
    .trim();
}

/** Rows of cells of each table, by its label. @returns {Map<string, string[][]>} */
export function tablesIn(tex) {
  const tables = new Map();
  for (const [table] of tex.matchAll(/\\begin\{table\}[\s\S]*?\\end\{table\}/g)) {
    const label = /\\label\{tab:(\w+)\}/.exec(table)?.[1];
    const body = /\\begin\{tabular\}\{\w+\}([\s\S]*?)\\end\{tabular\}/.exec(table)?.[1];
    if (label === undefined || body === undefined) throw new Error(`a table without a label or cells: ${table}`);
    const rows = body.split('\\\\').map((row) => row.split('&').map(printed));
    tables.set(
      label,
      rows.filter((cells) => cells.some((cell) => cell !== '')),
    );
  }
  return tables;
}

/** The module that holds them. */
export function moduleOf(tables) {
  const left = [...tables].flatMap(([label, rows]) =>
    rows.flat().flatMap((cell) => (/[\\`|]/.test(cell) ? [`${label}: ${cell}`] : [])),
  );
  if (left.length > 0) throw new Error(`markup that this script does not know: ${left.join('; ')}`);
  const text = [...tables].map(([label, rows]) => `  ${label}: \`\n${rows.map((r) => r.join(' | ')).join('\n')}\`,\n`);
  return `/**
 * The cells of the paper's tables by LaTeX label, as printed: a line a row, the first one its titles. Written by
 * scripts/extract-tables.mjs from the TeX of Looped Latent Attention (O'Neill, Reid); not edited by hand.
 */
export const PAPER_TABLES = {
${text.join('')}} as const;
`;
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const [file, check] = process.argv.slice(2);
  if (file === undefined || !['--check', undefined].includes(check)) {
    console.error('usage: node scripts/extract-tables.mjs PAPER.tex [--check]');
    process.exit(2);
  }
  const text = moduleOf(tablesIn(readFileSync(file, 'utf8')));
  if (check === undefined) writeFileSync(TARGET, text);
  else if (text !== readFileSync(TARGET, 'utf8')) {
    console.error(`${TARGET} is not what ${file} has; run without --check`);
    process.exit(1);
  }
}
