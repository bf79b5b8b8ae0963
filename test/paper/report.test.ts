/**
 * The comparison itself: what it must say, that each verdict depends on the planner, and that its numbers are right.
 */
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';
import type { Geometry } from '../../src/geometry/geometry.js';
import { findPreset } from '../../src/geometry/presets.js';
import { answer } from '../../src/paper/answers.js';
import { readBytesPerToken } from '../../src/paper/beyond.js';
import { breakEvenContext, breakEvenRatio } from '../../src/paper/break-even.js';
import { PAPER_FIGURES } from '../../src/paper/figures.js';
import { judge } from '../../src/paper/judge.js';
import { PaperModel } from '../../src/paper/model.js';
import { paperPart } from '../../src/paper/part.js';
import { paperDevice } from '../../src/paper/pricing.js';
import { paperHtml } from '../../src/paper/print-html.js';
import { paperMarkdown } from '../../src/paper/print-markdown.js';
import { paperTable } from '../../src/paper/print-table.js';
import { qualityTables } from '../../src/paper/quality-tables.js';
import { holds, paperReport } from '../../src/paper/report.js';
import { readSources } from '../../src/plan/ask/on-disk.js';
import { escapeHtml } from '../../src/report/html/html.js';
import type { Beyond, Comparison, PaperFigure, PaperReport, Verdict } from '../../src/paper/types.js';
import { words } from '../cli/program.js';
import { checkPublished } from '../cli/published.js';
import { SEED } from '../gpu/random.js';
import { H200, slower } from './devices.js';

const MODEL = new PaperModel(H200);
const REPORT = paperReport(MODEL);
const by = (r: PaperReport, id: string): Comparison => r.comparisons.find((c) => c.id === id) as Comparison;
const verdictOf = (id: string, model = MODEL): Verdict => {
  const f = PAPER_FIGURES.find((x) => x.id === id) as PaperFigure;
  return judge(f, answer(model, f.subject)).verdict;
};
const beyond = (id: string): Beyond => REPORT.beyond.find((b) => b.id === id) as Beyond;
const cell = (b: Beyond, row: string, column: string, among = 0): number => {
  const found = b.rows.filter((r) => r.includes(row))[among] as Beyond['rows'][number];
  return found[b.columns.findIndex((c) => c.name === column)] as number;
};
/** A planner whose preset of this name is another shape. */
const reshaped = (name: string, change: Partial<Geometry>): PaperModel =>
  new PaperModel(H200, (n) => (n === name ? { ...findPreset(n), ...change } : findPreset(n)));

describe('against the datasheet', () => {
  it('nothing that must be exact is wrong and nothing is unexplained', () => {
    expect(
      REPORT.comparisons
        .filter((c) => c.verdict === 'wrong' || c.verdict === 'unexplained')
        .map((c) => `${c.id}: ${c.model?.text}`),
    ).toEqual([]);
    expect(holds(REPORT)).toBe(true);
    expect(Object.values(REPORT.verdicts).reduce((a, b) => a + b)).toBe(REPORT.comparisons.length);
    for (const v of ['exact', 'by-definition', 'inside', 'explained', 'not-predictable'] as const)
      expect(REPORT.verdicts[v], v).toBeGreaterThan(5);
  });

  it.each([
    ['memory/kv-per-token/ouro-1.4b/teacher', 'exact'],
    ['memory/kv-at-1m/evicted', 'exact'],
    ['memory/max-batch/ouro-1.4b/LLA 21.3×', 'exact'],
    ['memory/batch-gain', 'explained'],
    ['memory/latency/teacher', 'undecided'],
    ['memory/latency/fast', 'undecided'],
    ['memory/throughput/teacher', 'inside'],
    ['memory/throughput/lla-21.33x', 'explained'],
    ['absorbed/262144/teacher', 'inside'],
    ['absorbed/32768/over-teacher', 'explained'],
    ['huginn/32x/whole', 'explained'],
    ['experiments/huginn-lla-2d', 'explained'],
    ['experiments/2.6b-lla-2d', 'explained'],
    ['tier4/4.00x/ratio', 'by-definition'],
    ['ratios/ouro-1.4b/lla-5.33x', 'by-definition'],
    ['prefill/one-shot/64k', 'exact'],
    ['evict/budget', 'by-definition'],
  ] as [string, Verdict][])('%s is %s', (id, verdict) => expect(by(REPORT, id).verdict).toBe(verdict));

  it('every reason is one line, every explained one names numbers', () => {
    for (const c of REPORT.comparisons) {
      expect(c.reason, c.id).toMatch(/^\S.*\S$/);
      expect(c.reason, c.id).not.toMatch(/NaN|undefined|Infinity|\n/);
      if (c.verdict === 'explained') expect(c.reason, c.id).toMatch(/\d/);
    }
  });
});

describe('each verdict depends on the planner', () => {
  it('a wrong head width makes exact figures wrong', () => {
    const r = paperReport(reshaped('ouro-1.4b', { headDim: 120 }));
    expect(holds(r)).toBe(false);
    for (const id of [
      'memory/kv-per-token/ouro-1.4b/teacher',
      'memory/kv-at-1m/teacher',
      'tier4/4.00x/ratio',
      'tier4/2.67x/ranks',
    ])
      expect(by(r, id).verdict, id).toBe('wrong');
    expect(by(r, 'memory/kv-per-token/ouro-2.6b/teacher').verdict).toBe('exact');
  });

  it('twice the weights make capacity wrong', () => {
    expect(verdictOf('memory/max-batch/ouro-1.4b/teacher', reshaped('ouro-1.4b', { vocab: 9_000_000 }))).toBe('wrong');
  });

  it('times that are five times longer reach the paper’s latency; a hundred times longer pass it', () => {
    expect(verdictOf('memory/latency/teacher', new PaperModel(slower(5)))).toBe('inside');
    expect(verdictOf('memory/latency/teacher', new PaperModel(slower(100)))).toBe('unexplained');
    expect(verdictOf('memory/throughput/teacher', new PaperModel(slower(100)))).toBe('unexplained');
    expect(verdictOf('absorbed/262144/teacher', new PaperModel(slower(100)))).toBe('unexplained');
    expect(verdictOf('absorbed/262144/absorbed', new PaperModel(slower(0.01)))).toBe('unexplained');
  });

  it('host time that leaves room for the published peak is a reason; more of it is refuted by that peak', () => {
    const f = PAPER_FIGURES.find((x) => x.id === 'memory/latency/teacher') as PaperFigure;
    const at = (ms: number): Verdict => judge({ ...f, value: ms * 1e-3 }, answer(MODEL, f.subject)).verdict;
    expect([at(45), at(63.6)]).toEqual(['explained', 'undecided']);
  });

  it('infeasible is what training does not fit, not what has more parameters than the model', () => {
    for (const id of ['experiments/huginn-lla-2d', 'experiments/2.6b-lla-2d']) {
      const f = PAPER_FIGURES.find((x) => x.id === id) as PaperFigure;
      const other = f.text === 'infeasible' ? 'trained' : 'infeasible';
      expect(judge({ ...f, text: other }, answer(MODEL, f.subject)).verdict, id).toBe('unexplained');
    }
  });

  it('by definition is what passes with any label: the label goes in and comes out', () => {
    for (const ratio of [1024 / 500, 1024 / 300, 1024 / 96, 1024 / 72, 1024 / 40]) {
      const label = { ...(PAPER_FIGURES.find((x) => x.id === 'ratios/ouro-1.4b/lla-4x') as PaperFigure), value: ratio };
      const subject = { ...label.subject, ratio } as PaperFigure['subject'];
      expect(judge({ ...label, precision: 0.01 }, answer(MODEL, subject)).verdict).toBe('by-definition');
    }
    // A figure that is called exact has no other label that passes.
    for (const f of PAPER_FIGURES) {
      const c = by(REPORT, f.id);
      if (c.verdict !== 'exact' || f.value === null) continue;
      expect(judge({ ...f, value: f.value * 1.5 + 1 }, answer(MODEL, f.subject)).verdict, f.id).toBe('wrong');
    }
  });

  it('the largest batches in the contradictions are the planner’s own', () => {
    const text = REPORT.quality.contradictions.find((c) => c.id === 'batch-768')?.explanation;
    const most = (materialised: boolean): number =>
      MODEL.plan('ouro-1.4b', { codec: MODEL.codec('ouro-1.4b', 'lla', 64 / 3), path: 'reconstruct', materialised })
        .maxBatch.exact;
    const full = MODEL.plan('ouro-1.4b', { codec: { kind: 'full' }, path: 'full' });
    const latent = MODEL.plan('ouro-1.4b', { codec: MODEL.codec('ouro-1.4b', 'lla', 64 / 3), path: 'reconstruct' });
    const alone = [latent, full].map(({ memory: x }) =>
      Math.floor((143_771 * 2 ** 20 - x.weightsBytes - x.codecBytes) / x.kvBytesPerSequence),
    );
    expect(text).toContain(`${alone[0]} and ${alone[1]} in the 143,771 MiB`);
    expect(text).toContain(`it is ${most(false)} and ${full.maxBatch.exact} (${most(true)} where`);
  });

  it('no layer around the loop, no difference on Huginn', () => {
    expect(verdictOf('huginn/32x/whole', reshaped('huginn-3.5b', { preludeLayers: 0, codaLayers: 0 }))).toBe('exact');
  });

  it('the 2.6B prefill out of memory: at half the context not even full-width K/V beside it explains that', () => {
    const f = PAPER_FIGURES.find((x) => x.id === 'prefill/by-layer/64k/2.6b') as PaperFigure;
    const subject = { ...f.subject, contextTokens: 32_768 } as PaperFigure['subject'];
    expect(judge(f, answer(MODEL, f.subject)).verdict).toBe('explained');
    expect(judge(f, answer(MODEL, subject)).verdict).toBe('unexplained');
  });

  it('a published value three times as large is explained by none of the reasons', () => {
    for (const f of PAPER_FIGURES) {
      if (by(REPORT, f.id).verdict !== 'explained' || f.value === null) continue;
      const c = judge({ ...f, value: f.value * 3 }, answer(MODEL, f.subject));
      expect(['unexplained', 'inside'], `${f.id}: ${c.verdict}, ${c.reason}`).toContain(c.verdict);
    }
  });
});

describe('the arithmetic, done again', () => {
  const KIB = 1024;
  it('reads are T/ρ for ranks that nobody published', () => {
    const full = readBytesPerToken(MODEL, 'ouro-1.4b', { codec: { kind: 'full' }, path: 'full' });
    expect(full).toBe(2 * 4 * 16 * 128 * 24 * 2);
    for (let i = 0; i < 8; i++) {
      const rankK = 1 + ((SEED >>> i) % 200);
      const rankV = 1 + ((SEED >>> (2 * i)) % 300);
      const own = readBytesPerToken(MODEL, 'ouro-1.4b', { codec: { kind: 'lla', rankK, rankV }, path: 'reconstruct' });
      expect(own / full, `seed ${SEED}, ranks ${rankK}/${rankV}`).toBeCloseTo((rankK + rankV) / 256, 9);
    }
  });

  it('reads, parity and sizes as worked out by hand', () => {
    const reads = beyond('reads');
    expect(cell(reads, 'lla-4x', 'readShare')).toBe(1);
    expect(cell(reads, 'lla-21.33x', 'readShare')).toBeCloseTo(48 / 256, 12);
    expect(cell(reads, 'cla-4x', 'readShare')).toBe(1);
    expect(cell(reads, 'mla-head-4x', 'readShare')).toBeCloseTo(1 / 4, 12);
    expect(reads.text).toContain('parity at ρ = T (lla-4x)');
    expect(cell(beyond('in-flight'), 'ouro-1.4b', 'bytesPerSequence', 0)).toBe(256 * 16 * 24 * 4);
    expect(cell(beyond('in-flight'), 'ouro-1.4b', 'bytesPerSequence', 1)).toBe(48 * 16 * 24 * 4);
    // Per layer, head and axis: W_down 512 × r, W_up 4 × 128 × r, μ 512.
    expect(cell(beyond('codec-parameters'), 'ouro-1.4b', 'parameters', 1)).toBe(24 * 16 * (2 * 512 * 256 + 2 * 512));
    expect(cell(beyond('codec-parameters'), 'ouro-1.4b', 'bytes', 1)).toBe(
      24 * 16 * (2 * 512 * 256 * 2 + 2 * 512 * 4) + 24 * 16 * 256 * 4,
    ); // and a constant a latent
    expect(cell(beyond('codec-parameters'), 'lla-2d-16x', 'parameters') / 3_564_976_800).toBeCloseTo(8.008, 2);
  });

  it('one-shot prefill of 32k keeps two f32 copies of everything: 96 GiB and the activations', () => {
    const bytes = cell(beyond('prefill-peaks'), 'lla-4x', 'one-shot', 0);
    const captures = 32_768 * 2 * (2 * 4 * 16 * 128 * 24) * 4;
    expect(captures).toBe(96 * 2 ** 30);
    expect(bytes).toBeGreaterThan(captures);
    expect(bytes).toBeLessThan(captures * 1.01);
    const kinds = words('one-shot by-layer by-layer accumulated by-layer');
    expect(beyond('prefill-peaks').rows.map((r) => r.at(-1))).toEqual(kinds);
  });

  it('teacher’s layer at 262,144 tokens: 8.6 GB in four loops, the paper’s time is 40 % of 4.8 TB/s', () => {
    const bytes = 262_144 * 16 * 256 * 2 * 4;
    expect(bytes / 4.46e-3 / 4.8e12).toBeCloseTo(0.401, 3);
    expect(by(REPORT, 'absorbed/262144/teacher').reason).toContain('40.1 % of the bandwidth');
    expect(by(REPORT, 'absorbed/262144/teacher').model?.low).toBeCloseTo(bytes / 4.8e12, 4);
  });

  it('the stored ratio of absorbed attention: 2·512 over 256 latents and the branch of 1 or 16 heads in 16', () => {
    const c = by(REPORT, 'absorbed/less-cache');
    expect(c.model?.value).toBeCloseTo(1024 / (256 + 64 / 16), 9);
    expect(c.reason).toContain(`one a head ${1024 / (256 + 64)}×`);
  });

  it('kv-quant at 4 bits stores 64 × 4 bits and 2 bytes a group', () =>
    expect(by(REPORT, 'ratios/ouro-1.4b/kv-quant-4x').model?.value).toBeCloseTo(128 / (32 + 2), 9));

  it('KV a token in the paper’s unit', () =>
    expect(by(REPORT, 'memory/kv-per-token/ouro-2.6b/teacher').model).toMatchObject({
      text: '1536 KiB',
      value: 1536 * KIB,
    }));

  it('at the fast end a path breaks even where its reads do; break-even points separate slower from faster', () => {
    expect(breakEvenRatio(MODEL, 'ouro-1.4b', { path: 'reconstruct' }).low).toBe(4);
    expect(breakEvenRatio(MODEL, 'ouro-1.4b', { path: 'absorbed' }).low).toBeCloseTo(1024 / 252, 6);
    expect(breakEvenRatio(MODEL, 'ouro-1.4b', { path: 'reconstruct', materialised: true })).toEqual({
      low: null,
      estimate: null,
      high: null,
    });
    const decoding = { codec: MODEL.codec('ouro-1.4b', 'lla', 64 / 3), path: 'block-absorbed' } as const;
    const at = breakEvenContext(MODEL, 'ouro-1.4b', decoding, 1);
    const full = { codec: { kind: 'full' }, path: 'full' } as const;
    for (const end of ['low', 'estimate', 'high'] as const) {
      const context = at[end] as number;
      expect(MODEL.step('ouro-1.4b', decoding, 1, context)[end]).toBeLessThanOrEqual(
        MODEL.step('ouro-1.4b', full, 1, context)[end],
      );
      expect(MODEL.step('ouro-1.4b', decoding, 1, context - 1)[end]).toBeGreaterThan(
        MODEL.step('ouro-1.4b', full, 1, context - 1)[end],
      );
    }
  });
});

describe('a calibration', () => {
  const bundled = fileURLToPath(new URL('../../calibrations/mesa-llvmpipe.json', import.meta.url));
  const folder = mkdtempSync(join(tmpdir(), 'lla-sim-paper-'));
  const claimed = (device: object): string => {
    const calibration = JSON.parse(readFileSync(bundled, 'utf8')) as { device: object };
    mkdirSync(folder, { recursive: true });
    const at = join(folder, `${Object.values(device).join('-').replace(/\W+/g, '_')}.json`);
    writeFileSync(at, JSON.stringify({ ...calibration, device: { ...calibration.device, ...device } }));
    return at;
  };
  it('of an H200 prices the latencies, and memory stays as it is', async () => {
    const r = paperReport(new PaperModel(await paperDevice(claimed({ description: 'NVIDIA H200', software: false }))));
    rmSync(folder, { recursive: true, force: true });
    expect(r.device.pricing).toMatch(/\.json$/);
    expect(r.device.calibration?.adapter).toBe('NVIDIA H200');
    expect(holds(r)).toBe(true);
    expect(by(r, 'memory/latency/teacher').model?.value).not.toBe(by(REPORT, 'memory/latency/teacher').model?.value);
    expect(by(r, 'memory/kv-at-1m/teacher')).toEqual(by(REPORT, 'memory/kv-at-1m/teacher'));
  });
  it('of an H200 that prices a report prices its comparison; any other leaves it to the datasheet', async () => {
    const prices = (text: string): string => /decode latency, teacher \| 63.6 ms \| ([^|]+) \|/.exec(text)?.[1] ?? '';
    const datasheet = paperPart(await readSources({ device: 'h200' })).markdown;
    expect(prices(datasheet)).toBe('8.07 (3.84–22.2) ms');
    expect(paperPart(await readSources({ calibration: bundled })).markdown).toBe(datasheet);
    const measured = await readSources({ calibration: claimed({ description: 'NVIDIA H200', software: false }) });
    const named = {
      ...measured,
      calibration: { ...(measured.calibration as NonNullable<typeof measured.calibration>), file: '<img src=x>.json' },
    };
    const { html, markdown } = paperPart(named);
    expect(prices(markdown)).not.toBe(prices(datasheet));
    for (const text of [html.text, markdown]) {
      expect(text).not.toContain('<img');
      expect(text).toMatch(/img src=x.{1,6}\.json/);
    }
    rmSync(folder, { recursive: true, force: true });
  });
  it('of a software adapter or another device is refused', async () => {
    await expect(paperDevice(bundled)).rejects.toThrow(/software adapter.*cannot price the paper's NVIDIA H200/);
  });
});

describe('printing', () => {
  it('fits 100 columns, with colour only where it is asked for', () => {
    const text = paperTable(REPORT, { colour: false });
    for (const line of text.split('\n')) expect(line.length, line).toBeLessThanOrEqual(100);
    expect(text).not.toMatch(/\u001b|NaN|undefined|Infinity/);
    expect(paperTable(REPORT, { colour: true })).toContain('\u001b[');
  });

  it('shows what is wrong in capitals and counts it', () => {
    const text = paperTable(paperReport(reshaped('ouro-1.4b', { headDim: 120 })), { colour: false });
    expect(text).toMatch(/768 KiB +720 KiB WRONG/);
    expect(text).toMatch(/\d+ WRONG/);
  });

  it('JSON is as its published schema says, with the parts beyond the paper and a cell for each column', () => {
    checkPublished(JSON.stringify(REPORT));
    const ids = 'reads equal-memory break-even-ratios break-even-contexts prefill-peaks codec-parameters in-flight';
    expect(REPORT.beyond.map((b) => b.id)).toEqual(words(`${ids} missing-cells`));
    for (const b of REPORT.beyond) for (const row of b.rows) expect(row.length, b.id).toBe(b.columns.length);
  });

  it('every published quality figure is in a table, every contradiction in the list', () => {
    const tables = qualityTables(REPORT.quality.figures);
    const cells = tables.flatMap((t) => t.rows.flatMap((r) => r.cells)).filter((c) => c !== '–');
    expect(cells.flatMap((c) => c.split(' / ')).length).toBe(REPORT.quality.figures.length);
    expect(cells.filter((c) => c.includes(' / '))).toEqual([]);
    expect(tables.find((t) => t.source === 'Table scale')?.contradictions.map((c) => c.id)).not.toContain(
      'matched-budget',
    );
    expect(tables.find((t) => t.source === 'Table isocache')?.contradictions.map((c) => c.id)).toContain('gsm8k-4x');
    const markdown = paperMarkdown(REPORT);
    for (const c of REPORT.quality.contradictions)
      expect(markdown).toContain(`- **${c.subject.replace(/[\\`*_{}[\]<>#|!&]/g, '\\$&')}**`);
  });

  it('the part of a page has every figure with its verdict and reason, every table, every contradiction', () => {
    const page = paperHtml(REPORT).text;
    for (const c of REPORT.comparisons) {
      for (const text of [c.quantity, c.published.text, c.model?.text ?? '–', c.reason, c.source])
        expect(page, c.id).toContain(`>${escapeHtml(text)}<`);
    }
    const rows = [...page.matchAll(/<tr>(?!<th scope="col")/g)].length;
    expect(rows).toBe(
      REPORT.comparisons.length +
        REPORT.beyond.reduce((n, b) => n + b.rows.length, 0) +
        qualityTables(REPORT.quality.figures).reduce((n, t) => n + t.rows.length, 0),
    );
    for (const c of REPORT.quality.contradictions) expect(page).toContain(`<strong>${escapeHtml(c.subject)}</strong>`);
    expect(page.match(/<details>/g)?.length).toBe(page.match(/<\/details>/g)?.length);
    expect(paperHtml(paperReport(reshaped('ouro-1.4b', { headDim: 120 }))).text).toContain(
      '<span class="evidence wrong">WRONG</span>',
    );
  });

  it('as a part of another document its headings lie deeper, and nothing else differs', () => {
    expect(paperMarkdown(REPORT, 2).replaceAll(/^##/gm, '#')).toBe(paperMarkdown(REPORT));
  });

  it('the Markdown is the golden one', () => {
    const file = fileURLToPath(new URL('./paper.golden.md', import.meta.url));
    const text = paperMarkdown(REPORT);
    if (process.env['UPDATE_GOLDEN'] === '1') writeFileSync(file, text);
    expect(existsSync(file), 'no golden: run UPDATE_GOLDEN=1 npx vitest run test/paper and read the difference').toBe(
      true,
    );
    expect(text).toBe(readFileSync(file, 'utf8'));
  });
});
