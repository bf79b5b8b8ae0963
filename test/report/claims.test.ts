/** The paper's claims as a part of a report: every verdict with its effect, interval and control, and hostile words. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { claimsPart, joined } from '../../src/report/claims.js';
import { html } from '../../src/report/html/html.js';
import { readClaims } from '../../src/schema/claims.js';

const folder = mkdtempSync(join(tmpdir(), 'claims-'));
afterAll(() => rmSync(folder, { recursive: true }));

const claim = (verdict: string, name: string, low: number | null) => ({
  claim: name,
  verdict,
  effect: low === null ? '' : 'KL of a − KL of b, nats',
  estimate: low === null ? null : { estimate: low + 0.1234, low, high: low + 0.25 },
  control: low === null ? null : { estimate: 0, low: -0.5, high: 0.5 },
  note: low === null ? 'needs <b>training</b> | more' : '',
});

const written = {
  schema: 'lla-sim/claims',
  schemaVersion: 2,
  model: { name: 'mine', fingerprint: 'a'.repeat(64), trained: true },
  device: 'an adapter',
  claims: [claim('agree', 'first', 0.5), claim('disagree', 'second', -2), claim('cannot tell', 'third', null)],
};

const read = (content: unknown): ReturnType<typeof readClaims> => {
  const file = join(folder, 'claims.json');
  writeFileSync(file, JSON.stringify(content));
  return readClaims(file);
};

describe('claims', () => {
  it('are shown with effect, interval and control, on the page and in Markdown', () => {
    const part = joined(claimsPart(read(written)), { html: html`<p>after</p>`, markdown: '## After' });
    const page = part.html.text.replace(/\s+/g, ' ');
    expect(page).toContain('1 agree, 1 disagree, 1 cannot tell: on mine (aaaaaaaaaaaa…)');
    expect(page).toContain(
      '<th scope="row">disagree</th><td>second</td><td>KL of a − KL of b, nats</td><td>-1.88 (-2 to -1.75)</td><td>0 (-0.5 to 0.5)</td>',
    );
    expect(page).toContain('<th scope="row">cannot tell</th><td>third</td><td></td><td>–</td><td>–</td>');
    expect(page).toContain('needs &#60;b&#62;training&#60;/b&#62; | more');
    expect(page.indexOf('after')).toBeGreaterThan(page.indexOf('third'));
    expect(part.markdown).toContain(
      '| agree | first | KL of a − KL of b, nats | 0.623 (0.5 to 0.75) | 0 (-0.5 to 0.5) |',
    );
    expect(part.markdown).toContain('needs &lt;b&gt;training&lt;/b&gt; \\| more |');
    expect(part.markdown.split('\n').filter((l) => l.startsWith('| ')).length).toBe(4);
  });

  it('of another shape are refused in one line', () => {
    for (const wrong of [
      { ...written, schema: 'lla-sim/fidelity' },
      { ...written, claims: [{ ...claim('agree', 'x', 1), verdict: 'maybe' }] },
      { ...written, model: { ...written.model, fingerprint: 'A' } },
      [],
    ])
      expect(() => read(wrong)).toThrow(/^claims file [^\n]+$/);
  });
});
