/** The Markdown pages for people, taken apart: fenced blocks, the commands in them and inside sentences. */
import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { read, ROOT } from './program.js';

/** Pages that people read: those that programs write (reports/, goldens) are compared elsewhere. */
export const PAGES: readonly string[] = [
  'README.md',
  'DESIGN.md',
  'CHANGELOG.md',
  ...readdirSync(join(ROOT, 'docs'))
    .filter((f) => f.endsWith('.md'))
    .sort()
    .map((f) => `docs/${f}`),
];

export interface Fence {
  readonly page: string;
  readonly line: number;
  /** First word after the fence: sh, text, yaml, ... */
  readonly language: string;
  /** The rest of it: a file's name, or how the block is meant. */
  readonly info: string;
  /** Without the fence's indentation; ends with a newline. */
  readonly text: string;
}

/** @throws for a fence that is not closed */
export function fencesOf(page: string, markdown = read(join(ROOT, page))): Fence[] {
  const fences: Fence[] = [];
  const lines = markdown.split('\n');
  for (let i = 0; i < lines.length; i++) {
    const open = /^( *)```(\S*) ?(.*)$/.exec(lines[i] as string);
    if (!open) continue;
    const [, indent = '', language = '', info = ''] = open;
    const end = lines.findIndex((l, j) => j > i && l.trim() === '```');
    if (end < 0) throw new Error(`${page}:${i + 1}: the fence is not closed`);
    const text = lines
      .slice(i + 1, end)
      .map((l) => `${l.startsWith(indent) ? l.slice(indent.length) : l}\n`)
      .join('');
    fences.push({ page, line: i + 1, language, info: info.trim(), text });
    i = end;
  }
  return fences;
}

/** Commands of a shell block, without comments, lines continued by a backslash joined. */
export const commandsOf = (fence: Fence): string[] =>
  fence.text
    .replaceAll('\\\n', ' ')
    .split('\n')
    .map((line) => line.replace(/(^|\s)#\s.*$/, '').trim())
    .filter((line) => line !== '');

/** The exit code that a command's comment announces (`# exit code 3`); 0 without. */
export function expectedCode(fence: Fence, command: string): number {
  const line =
    fence.text
      .split('\n')
      .find((l) => l.trim().startsWith(command) && /^\s*(#|$)/.test(l.trim().slice(command.length))) ?? '';
  return Number(/# exit code (\d)$/.exec(line)?.[1] ?? 0);
}

/** `npx lla-sim ...` or `lla-sim ...` inside a sentence. */
export function commandsInText(page: string, markdown = read(join(ROOT, page))): string[] {
  const prose = markdown.replace(/^ *```[\s\S]*?^ *```$/gm, '');
  return [...prose.matchAll(/`((?:npx )?lla-sim [^`]+)`/g)].map((m) => (m[1] as string).replace(/\s+/g, ' '));
}

/** Words of a command line as a shell has them, with double quotes only. */
export const wordsOf = (command: string): string[] =>
  [...command.matchAll(/"([^"]*)"|(\S+)/g)].map((m) => m[1] ?? (m[2] as string));

/** Links of a page to other files of the repository. */
export const linksOf = (markdown: string): string[] =>
  [...markdown.matchAll(/\]\(([^)\s]+)\)/g)].map((m) => m[1] as string).filter((l) => !/^[a-z]+:/.test(l));
