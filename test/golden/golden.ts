/** Texts that are kept beside the tests: UPDATE_GOLDEN=1 rewrites them; read the difference. */
import { readFileSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { expect } from 'vitest';

/** What to do where a difference is wanted. */
export const REWRITE =
  'read the difference; where it is meant: UPDATE_GOLDEN=1 npx vitest run test/golden test/ranking';

/** @param name of a file in this folder, which holds one line for each */
export function expectGolden(name: string, lines: readonly string[]): void {
  const file = fileURLToPath(new URL(name, import.meta.url));
  const text = `${lines.join('\n')}\n`;
  if (process.env['UPDATE_GOLDEN'] === '1') writeFileSync(file, text);
  expect(text, REWRITE).toBe(readFileSync(file, 'utf8'));
}
