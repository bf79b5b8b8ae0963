/** What `fidelity` judges on; `-o` goes on with a file of the same question, and with no other. */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { Args } from '../../src/commands/command.js';
import { earlier, inputsOf } from '../../src/commands/model/fidelity-rows.js';
import { calibrationWindows, itemsOf, longRolloutsOf, teacherOf } from '../../src/commands/model/fit-question.js';
import { inProcess } from '../cli/program.js';
import { removeTemporary, temporaryFolder } from '../decoder/files.js';

const folder = temporaryFolder();
removeTemporary();
const file = join(folder, 'fidelity.json');

const argsOf = (flags: Args['flags']): Args => new Args(flags);

describe('a text of one’s own', () => {
  const tokens = Array.from({ length: 4096 }, (_, i) => (i * i + 7 * i) % 128);
  const text = join(folder, 'own.txt');
  writeFileSync(text, tokens.join(' '));
  const windows = Array.from({ length: 16 }, (_, i) => tokens.slice(256 * i, 256 * (i + 1)));

  it('is what the bundled model is judged on, too: its last quarter, and the rest is fitted to', () => {
    const [own, given] = [argsOf({}), argsOf({ tokens: text })];
    const loaded = teacherOf(own);
    try {
      expect(calibrationWindows(given, loaded)).toEqual(windows.slice(0, 12));
      const judged = windows.slice(12).map((window) => JSON.stringify(window).slice(0, 60));
      for (const items of [itemsOf(given, loaded, 0), longRolloutsOf(given, loaded, 0)]) {
        expect(items.length).toBeGreaterThan(0);
        for (const item of items) expect(judged).toContain(JSON.stringify(item.prompt).slice(0, 60));
      }
      expect(itemsOf(own, loaded, 0).some((item) => item.kind === 'passkey')).toBe(true);
      const short = argsOf({ tokens: text, window: '64' });
      expect(() => itemsOf(short, loaded, 0)).toThrow(/no window of \d+ tokens to judge on/);
      const few = argsOf({ 'max-tokens': '300', window: '200' });
      expect(calibrationWindows(few, loaded).map(({ length }) => length)).toEqual([200]);
      expect(calibrationWindows(argsOf({ 'max-tokens': '10' }), loaded).flat()).toHaveLength(10);
    } finally {
      loaded.close();
    }
  });
});

describe('a file that exists', () => {
  const head = { model: { fingerprint: 'a'.repeat(64) }, weights: 'f16' as const, inputs: 'b'.repeat(64) };
  const MINE = { name: 'mine', trained: true };
  const begun = { schema: 'lla-sim/fidelity', schemaVersion: 1, device: 'an adapter' };
  const kept = { ...begun, fittedTokens: 1, seed: 0, rows: [] };
  const write = (changes: object): void =>
    writeFileSync(file, JSON.stringify({ ...kept, ...head, model: { ...head.model, ...MINE }, ...changes }));

  it('is continued only for the same model, weights and inputs', () => {
    write({});
    const nothing = { rows: [], acceptance: null };
    expect(earlier(file, head)).toEqual(nothing);
    expect(earlier(join(folder, 'none.json'), head)).toEqual(nothing);
    const share = { estimate: 0.5, low: 0.25, high: 0.75 };
    const places = { acceptance: share, byPlace: [share, null], tokensPerRound: share };
    const loops = [{ draftLoops: 1, rounds: 9, ...places, draftAcceptance: 0.5 }];
    const acceptance = { draftTokens: 2, texts: 3, tokensEach: 8, loops, notMeasured: null };
    write({ acceptance });
    expect(earlier(file, head)).toEqual({ rows: [], acceptance });
    const fingerprint = 'c'.repeat(64);
    for (const other of [{ inputs: fingerprint }, { weights: 'f32' }, { model: { ...MINE, fingerprint } }]) {
      write(other);
      expect(() => earlier(file, head)).toThrow(/is of another model, text, seed or codec/);
    }
  });

  it('is refused by the command before anything is decoded', async () => {
    write({});
    const { code, err } = await inProcess('fidelity', '-o', file);
    expect([code, err]).toEqual([2, expect.stringMatching(/fidelity\.json is of another model, text, seed or codec/)]);
  });

  it('names inputs that differ by text, seed, tokens and codec weights, and by nothing else', () => {
    const loaded = teacherOf(argsOf({}));
    try {
      const text = join(folder, 'tokens.txt');
      writeFileSync(text, Array.from({ length: 600 }, (_, i) => (7 * i) % 100).join(' '));
      const tensors = (value: number) => ({ shapes: new Map([['w', [1]]]), read: () => Float32Array.of(value) });
      const of = (flags: Args['flags'], seed = 0, value?: number): string =>
        inputsOf(argsOf(flags), loaded, seed, value === undefined ? undefined : tensors(value));
      const few = { 'max-tokens': '512' };
      const all = [of(few), of(few, 1), of({ 'max-tokens': '768' }), of({ tokens: text }), of({}, 0, 1), of({}, 0, 2)];
      expect(new Set(all).size).toBe(all.length);
      expect([of(few), of(few, 1), of({}, 0, 2)]).toEqual([all[0], all[1], all[5]]);
    } finally {
      loaded.close();
    }
  });
});
