/**
 * Every scenario is a golden test: what it answers is stored in golden/NAME.json, or in reports/NAME (which
 * report/committed.test.ts compares). Sizes must agree exactly, times to
 * 1e-9 (the last digits of exp and log differ between machines). UPDATE_GOLDEN=1 rewrites the files; read the
 * difference.
 */
import { existsSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';
import type { PlanReport } from '../../src/plan/types.js';
import { expectSoundJson, plan } from '../cli/program.js';
import { REWRITE } from './golden.js';

const SCENARIOS = fileURLToPath(new URL('../../scenarios/', import.meta.url));
const REPORTS = fileURLToPath(new URL('../../reports/', import.meta.url));
const GOLDEN = fileURLToPath(new URL('./', import.meta.url));

const names = readdirSync(SCENARIOS)
  .filter((n) => n.endsWith('.yaml'))
  .map((n) => n.replace(/\.yaml$/, ''))
  .filter((n) => !existsSync(join(REPORTS, n)))
  .sort();

/** A report without the published figures, which have tests of their own: the rest is what a buyer reads. */
function essence(code: number, report: PlanReport): unknown {
  return {
    exitCode: code,
    model: report.model.name,
    device: report.device,
    contextTokens: report.contextTokens,
    settings: report.settings,
    plans: report.plans.map(({ quality, ...p }) => ({
      ...p,
      gsm8k: quality.filter((q) => q.metric === 'gsm8k').map((q) => `${q.value} (${q.source})`),
    })),
    answer: report.answer,
    removed: report.removed,
    refused: report.refused,
    contradictions: report.contradictions.map((c) => c.id),
    notes: report.notes,
  };
}

/** Arrays of plans on many lines, their inner objects on one each: a difference then names the field. */
function write(value: unknown): string {
  return `${JSON.stringify(value, null, 1)}\n`;
}

function expectClose(got: unknown, want: unknown, path: string): void {
  if (typeof got === 'number' && typeof want === 'number') {
    const close = Math.abs(got - want) <= (Number.isInteger(want) ? 0 : 1e-9 * Math.abs(want));
    if (!close) throw new Error(`${path} is ${got}, was ${want}; ${REWRITE}`);
    return;
  }
  if (typeof got === 'object' && typeof want === 'object' && got !== null && want !== null) {
    expect(Object.keys(got), `${path}: fields; ${REWRITE}`).toEqual(Object.keys(want));
    for (const key of Object.keys(got))
      expectClose((got as Record<string, unknown>)[key], (want as Record<string, unknown>)[key], `${path}.${key}`);
    return;
  }
  expect(got, `${path}; ${REWRITE}`).toEqual(want);
}

describe('scenarios', () => {
  it('there are at least six', () => expect(names.length).toBeGreaterThanOrEqual(6));

  it('every golden belongs to a scenario', () => {
    const goldens = readdirSync(GOLDEN)
      .filter((n) => n.endsWith('.json'))
      .map((n) => n.replace(/\.json$/, ''));
    expect(goldens.filter((n) => !names.includes(n))).toEqual([]);
  });

  it.each(names)('%s', async (name) => {
    const o = await plan(join(SCENARIOS, `${name}.yaml`), '--format', 'json');
    expect([0, 3]).toContain(o.code);
    expectSoundJson(o.out);
    expect(o.code).toBe(name === 'nothing-fits' ? 3 : 0);
    const text = write(essence(o.code, JSON.parse(o.out) as PlanReport));
    // Nothing in a golden may depend on where the checkout lies.
    expect(text).not.toMatch(/"(\/|[A-Z]:\\\\)[^"]*"|\/work\/|\/home\/|\/tmp\//);
    const file = join(GOLDEN, `${name}.json`);
    if (process.env['UPDATE_GOLDEN'] === '1') writeFileSync(file, text);
    expect(existsSync(file), `no golden for ${name}: run UPDATE_GOLDEN=1 npx vitest run test/golden`).toBe(true);
    expectClose(JSON.parse(text), JSON.parse(readFileSync(file, 'utf8')), name);
  });

  it('a flag overrides the file, a file says what it is', async () => {
    const o = await plan(join(SCENARIOS, 'chat-h200.yaml'), '--ctx', '8k', '--format', 'json');
    expect(JSON.parse(o.out)).toMatchObject({
      contextTokens: 8192,
      scenario: { name: 'Chat on one H200, with --ctx 8k' },
    });
    for (const name of names)
      expect(readFileSync(join(SCENARIOS, `${name}.yaml`), 'utf8')).toMatch(/^name: .+\ndescription: >\n/);
  });
});
