/** The paper's claims as a part of a report: every verdict with its effect, interval and control, and hostile words. */
import { describe, expect, it } from 'vitest';
import { claimsPart } from '../../src/report/claims.js';
import { readClaims } from '../../src/schema/claims.js';
import { removeTemporary, temporary } from '../decoder/files.js';

removeTemporary();

const claim = (verdict: string, name: string, low: number | null) => ({
  claim: name,
  verdict,
  effect: low === null ? '' : 'KL of a − KL of b, nats',
  estimate: low === null ? null : { estimate: low + 0.1234, low, high: low + 0.25 },
  control: low === null ? null : { estimate: 0, low: -0.5, high: 0.5 },
  beyond: low === null ? null : { estimate: low, low: low - 0.5, high: low + 0.5 },
  paper: `Table of ${name}`,
  note: low === null ? 'needs <b>training</b> | more' : '',
});

const written = {
  schema: 'lla-sim/claims',
  schemaVersion: 2,
  model: { name: 'mine', fingerprint: 'a'.repeat(64), trained: true },
  device: 'an adapter',
  training: { steps: 40, stepTokens: 512 },
  claims: [
    claim('agrees', 'first', 0.5),
    claim('contradicts', 'second', -2),
    claim('not shown by this', 'fourth', 0.25),
    claim('not decided', 'third', null),
  ],
};

const read = (content: unknown): ReturnType<typeof readClaims> =>
  readClaims(temporary(JSON.stringify(content), 'claims.json'));

describe('claims', () => {
  it('are shown with effect, interval and control, on the page and in Markdown', () => {
    const part = claimsPart(read(written));
    const page = part.html.text.replace(/\s+/g, ' ');
    expect(page).toContain('1 agrees, 1 contradicts, 1 not shown by this, 1 not decided: on mine (aaaaaaaaaaaa…)');
    expect(page).toContain('Trained for 40 steps of 512 tokens each');
    expect(page).toContain(
      '<th scope="row">contradicts</th><td>second</td><td>KL of a − KL of b, nats</td><td>-1.88 (-2 to ' +
        '-1.75)</td><td>0 (-0.5 to 0.5)</td><td>-2 (-2.5 to -1.5)</td><td>Table of second</td>',
    );
    expect(page).toContain(
      '<th scope="row">not decided</th><td>third</td><td></td><td>–</td><td>–</td><td>–</td><td>Table of third</td>',
    );
    expect(page).toContain('needs &#60;b&#62;training&#60;/b&#62; | more');
    expect(part.markdown).toContain(
      '| agrees | first | KL of a − KL of b, nats | 0.623 (0.5 to 0.75) | 0 (-0.5 to 0.5) | 0.5 (0 to 1) | Table ' +
        'of first |',
    );
    expect(part.markdown).toContain('needs &lt;b&gt;training&lt;/b&gt; \\| more |');
    expect(part.markdown.split('\n').filter((l) => l.startsWith('| ')).length).toBe(5);
  });

  it('of another shape are refused in one line', () => {
    for (const wrong of [
      { ...written, schema: 'lla-sim/fidelity' },
      { ...written, claims: [{ ...claim('agrees', 'x', 1), verdict: 'maybe' }] },
      { ...written, model: { ...written.model, fingerprint: 'A' } },
      [],
    ])
      expect(() => read(wrong)).toThrow(/^claims file [^\n]+$/);
  });
});
