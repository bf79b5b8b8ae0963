/** docs/codecs.md is what the program writes today (npm run build && npm run codecs). */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { beforeAll, describe, expect, it } from 'vitest';
import { codecsMarkdown } from '../../src/ranking/page.js';
import { pageOf, type Page } from '../../src/ranking/page-data.js';
import { hereFor, measuredModels, type HereRow } from '../../src/ranking/measured.js';
import { ROOT } from '../cli/program.js';

describe('docs/codecs.md', () => {
  let page: Page;
  beforeAll(async () => {
    page = await pageOf();
  });

  it('is written by the program', () => {
    expect(codecsMarkdown(page), 'npm run build && npm run codecs writes it').toBe(
      readFileSync(join(ROOT, 'docs/codecs.md'), 'utf8'),
    );
  });

  it('takes any number of measured models, a column and a part each', () => {
    const [here] = page.here;
    const twice = codecsMarkdown({ ...page, here: [here!, { ...here!, model: 'another' }] });
    expect(twice.match(/KL on another \|/g)).toHaveLength(page.models.length);
    expect(twice).toContain('## Measured here: another');
    expect(codecsMarkdown({ ...page, here: [] })).not.toContain('KL on');
  });
});

describe('what was measured of bundled models', () => {
  const [tiny] = measuredModels();
  const of = (label: string): HereRow => tiny!.rows.find((r) => r.label === label)!;

  it('has bytes of the model itself, exact windows included', () => {
    // 2 layers, 4 loops, 4 heads of 16, K and V in 16 bits.
    expect(of('full').bytesPerToken).toBe(2 * 2 * 4 * 4 * 16 * 2);
    expect(tiny!.rows.find((r) => r.measured.id === 'lla-4x(12,20)/reconstruct/f16')!.share).toBe(1 / 4);
    // A window of 16 lies in a tile of 32.
    expect(of('hla-4x-w16').bytes).toBe(of('hla-4x-w0').bytes + 32 * of('full').bytesPerToken);
  });

  it('says where LLA loses and where it wins, never against fewer bytes or for more', () => {
    for (const { bytes, lla } of tiny!.rows) {
      if (lla?.verdict === 'better') expect(lla.row.bytes).toBeGreaterThanOrEqual(0.98 * bytes);
      if (lla?.verdict === 'worse') expect(lla.row.bytes).toBeLessThanOrEqual(1.02 * bytes);
    }
    expect(of('kv-quant-4bit').lla?.verdict).toBe('better');
    expect(of('final-loop').lla?.verdict).toBe('worse');
  });

  it('stands beside the codec of a plan of the same setting, or of the same ratio', () => {
    expect(hereFor(tiny!, 'kv-quant-4bit', 'kv-quant', 4)?.label).toBe('kv-quant-4bit');
    expect(hereFor(tiny!, 'lla-5.33x', 'lla', 16 / 3)?.label).toBe('lla-5.33x');
    expect(hereFor(tiny!, 'hla-10.67x', 'hla', 32 / 3)).toBeNull();
    expect(hereFor(tiny!, 'final-loop-all', 'final-loop', 4)).toBeNull();
  });
});
