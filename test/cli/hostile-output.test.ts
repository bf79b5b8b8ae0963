/** Text that comes from a model, a driver or a file's name, in what the GPU commands print: it stays text. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { runText, type RunReport } from '../../src/commands/model/run-report.js';
import type { ValidationReport } from '../../src/validate/report.js';
import { validationMarkdown, validationTable } from '../../src/validate/print.js';
import { SEED } from '../gpu/random.js';

const TEXT = fc.oneof(
  fc.string({ unit: 'binary', maxLength: 60 }),
  fc.constantFrom(
    '\u001b[2J\u001b]0;x\u0007',
    '\u009b31m',
    '\u202eevil',
    'a\r\nb',
    '<img src=x onerror=y>',
    '![x](http://x)',
    '| a | b |',
    '`code`',
    '# heading',
  ),
);

const run = (text: string): RunReport => ({
  schema: 'lla-sim/run',
  schemaVersion: 1,
  model: { name: 'm', layers: 1, loops: 1, weights: 'checkpoint', codecWeights: 'none', seed: 0 },
  device: { description: 'd', software: false },
  id: 'full/full',
  batch: 1,
  promptTokens: 1,
  asked: null,
  filledTokens: 0,
  tokens: [[1]],
  text: [text],
  prefillSeconds: 1,
  prefillMethod: 'by-token',
  promptTokensPerSecond: 1,
  tokensPerSecond: 1,
  secondsPerStep: 1,
  speculation: null,
  cache: { allocatedBytes: 1, bytesPerToken: 1, tokensKept: [1] },
  memory: {
    ...{ weightsBytes: 1, codecBytes: 0, inFlightBytes: 0, evictionBytes: 0, workspaceBytes: 0, controlBytes: 0 },
    totalBytes: 1,
  },
  warnings: [],
});

const validation = (text: string): ValidationReport => ({
  schema: 'lla-sim/validate',
  schemaVersion: 1,
  program: 'lla-sim 0',
  device: { description: text, driver: text, software: false, clock: 'wall' },
  calibration: { file: text, stale: [], difference: text },
  quick: true,
  seed: 1,
  elapsedSeconds: 1,
  checks: [],
  correctness: null,
  memory: null,
  latency: null,
  capacity: null,
  longContext: null,
  serving: null,
  notes: [text],
});

describe(`hostile text (seed ${SEED})`, () => {
  it('that a model writes moves no terminal, and keeps its lines', () => {
    fc.assert(
      fc.property(TEXT, (text) => {
        const shown = runText(run(text));
        expect(shown).not.toMatch(/[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u2028\u2029\u202a-\u202e\u2066-\u2069]/);
        expect(shown.split('\n').length).toBe(text.split('\n').length + runText(run('x')).split('\n').length - 1);
      }),
      { seed: SEED, numRuns: 300 },
    );
  });

  it('in the Markdown of a validation is no markup', () => {
    fc.assert(
      fc.property(TEXT, (text) => {
        const shown = validationMarkdown(validation(text));
        expect(shown).not.toMatch(/<(?!br)|(?<!\\)!\[|(?<!\\)`/);
        expect(shown.match(/^#/gm)).toEqual(validationMarkdown(validation('x')).match(/^#/gm));
      }),
      { seed: SEED, numRuns: 300 },
    );
  });

  it('a validation has its notes, each with a full stop, and no heading without one', () => {
    expect(validationTable(validation('one'))).toMatch(/^Notes\n\n?one\.$/m);
    expect(validationTable({ ...validation('x'), notes: [] })).not.toContain('Notes');
  });
});
