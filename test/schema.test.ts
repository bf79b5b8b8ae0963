/**
 * Published schemas: that of scenarios is the one that the settings table gives, and what commands print is as theirs
 * say. Every JSON answer of a test that runs a command in its process is checked too (test/cli/program.ts), all golden
 * ones among them.
 */
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { scenarioJsonSchema } from '../src/schema/scenario.js';
import { inProcess, ROOT } from './cli/program.js';
import { checkPublished } from './cli/published.js';

const text = (path: string): string => readFileSync(join(ROOT, path), 'utf8');

it('schemas/scenario.schema.json is up to date (npm run schema)', () => {
  expect(JSON.parse(text('schemas/scenario.schema.json'))).toEqual(JSON.parse(JSON.stringify(scenarioJsonSchema())));
});

describe('schemas of outputs', () => {
  it('are those of what plan, fleets, simulate, models, accuracy and paper print', async () => {
    const full = ['--device', 'h200', '--codec', 'full'];
    for (const argv of [
      ['plan', ...full, '--ctx', '4k,8k', '--sweep'],
      ['plan', ...full, '--users', '30'],
      ['simulate', ...full, '--requests', '20', '--rate', '2'],
      ['models'],
      ['models', '--devices'],
      ['models', 'ouro-1.4b'],
      ['accuracy', '--only', 'hla'],
      ['paper'],
    ]) {
      const { code, out } = await inProcess(...(argv as [string]), '--format', 'json');
      expect(code, argv.join(' ')).toBeLessThan(5);
      checkPublished(out);
    }
  });

  it('are those of committed reports, calibrations and stacks', () => {
    const stacks = readdirSync(join(ROOT, 'calibrations/stacks')).filter((name) => name.endsWith('.json'));
    for (const path of [
      'reports/chat-h200/plans.json',
      'reports/chat-h200/simulation.json',
      'calibrations/mesa-llvmpipe.json',
      ...stacks.slice(0, 3).map((name) => `calibrations/stacks/${name}`),
    ])
      checkPublished(text(path));
  });

  it('refuse another field, a missing one and another kind of value', () => {
    const plan = JSON.parse(text('reports/chat-h200/plans.json')) as Record<string, unknown>;
    const said = (change: object): string => {
      try {
        checkPublished(JSON.stringify({ ...plan, ...change }));
        return 'accepted';
      } catch (error) {
        return (error as Error).message;
      }
    };
    expect(said({})).toBe('accepted');
    expect(said({ plans: undefined })).toMatch(/plans/);
    expect(said({ contextTokens: null })).toMatch(/contextTokens/);
    expect(said({ more: 1 })).toMatch(/more/);
    expect(said({ schema: 'lla-sim/other' })).toMatch(/other/);
  });
});
