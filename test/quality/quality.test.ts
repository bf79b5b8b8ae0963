import { describe, expect, it } from 'vitest';
import { CONTRADICTIONS, contradictionsFor } from '../../src/quality/contradictions.js';
import { METRICS, type Metric, type QualityFigure, pathClassOf, showsLoss } from '../../src/quality/figure.js';
import {
  FIGURES,
  FIGURES_OF_THE_PAPER,
  type QualityQuery,
  qualityOf,
  reliableRetrieval,
  teacherOf,
} from '../../src/quality/quality.js';
import { words } from '../cli/program.js';

const LLA_4X: QualityQuery = { model: 'ouro-1.4b', codec: 'lla', ratio: 4, pathClass: 'full-rope', eviction: null };
const EVICTED = { policy: 'streaming', sinkTokens: 4, windowTokens: 256, budgetTokens: 260 } as const;

// Cell by cell against the paper: paper-tables.test.ts.
describe('figures', () => {
  it('marks every other number as text', () => {
    const rest = FIGURES_OF_THE_PAPER.filter((f) => !f.source.startsWith('Table '));
    expect(rest).toHaveLength(13);
    for (const f of rest) expect(f.source).toMatch(/^(text|caption), /);
  });

  it('are in range, consistent and never twice', () => {
    const seen = new Set<string>();
    for (const f of FIGURES) {
      expect(f.value).toBeGreaterThanOrEqual(0);
      if (f.unit === 'fraction') expect(f.value).toBeLessThanOrEqual(1);
      expect(f.unit).toBe(METRICS[f.metric].unit);
      expect(f.ratio).toBeCloseTo(Number(f.ratioLabel), 1);
      expect(f.protocol.length).toBeGreaterThan(10);
      expect(f.isTeacher).toBe(f.codec === 'full');
      expect(f.pathClass === 'uncompressed').toBe(f.codec === 'full');
      expect(f.contextTokens !== null).toBe(['passkey', 'ruler'].includes(f.metric));
      const { model, codec, shared, windowTokens, ratio, pathClass, eviction, metric, contextTokens } = f;
      const setting = [model, codec, shared, windowTokens, ratio, pathClass, eviction];
      const id = JSON.stringify([...setting, metric, contextTokens, f.variant, f.source]);
      expect(seen.has(id), id).toBe(false);
      seen.add(id);
    }
  });

  it('has means that follow from the tasks', () => {
    const tasks = words('arc-e arc-c hellaswag winogrande commonsense-qa mmlu piqa openbook-qa');
    const rows = FIGURES.filter((f) => f.source === 'Table scale_mc' && f.metric === 'mc-avg');
    expect(rows).toHaveLength(15);
    for (const r of rows) {
      const mine = FIGURES.filter(
        (f) => f.source === r.source && f.codec === r.codec && f.ratio === r.ratio && tasks.includes(f.metric),
      );
      expect(mine.reduce((sum, f) => sum + f.value, 0) / 8).toBeCloseTo(r.value, 2.9);
    }
  });
});

describe('qualityOf', () => {
  it.each<[Partial<QualityQuery>, Metric, string, number]>([
    [{}, 'gsm8k', 'Table tier4', 0.59],
    [{}, 'gsm8k', 'Table broadsuite', 0.59],
    [{}, 'gsm8k', 'Table isocache', 0.8],
    [{}, 'humaneval', 'Table broadsuite', 0.61],
    [{ ratio: 3.2 }, 'math500', 'Table broadsuite', 0.72],
    [{ ratio: 1.33 }, 'train-kl', 'Table tier4', 0.0035],
    [{ codec: 'mla-head', ratio: 5.33 }, 'gsm8k', 'Table isocache', 0.18],
    [{ codec: 'cla' }, 'mmlu', 'Table isocache', 0.666],
    [{ codec: 'final-loop' }, 'gsm8k', 'Table isocache', 0],
    [{ codec: 'kv-quant', ratio: 16 / 3 }, 'gsm8k', 'Table isocache', 0.122],
    [{ codec: 'lla-2d', ratio: 64 / 3 }, 'train-kl', 'Table isocache', 0.097],
    [{ model: 'ouro-2.6b', codec: 'lla-2d', ratio: 4 }, 'gsm8k', 'Table scale', 0.66],
    [{ model: 'ouro-2.6b', codec: 'kv-quant', ratio: 5.33 }, 'gsm8k', 'Table scale', 0.351],
    [{ model: 'ouro-2.6b', codec: 'mla-head', ratio: 10.67 }, 'train-kl', 'Table scale', 0.121],
    [{ model: 'Ouro-2.6B-Thinking', codec: 'cla', ratio: 12 }, 'mc-avg', 'Table scale_mc', 0.575],
    [{ model: 'huginn-3.5b', ratio: 64 }, 'top-1', 'Table huginn', 0.834],
    [{ pathClass: 'full-rope' }, 'reconstruction-kl', 'Table decoupled_char', 0.059],
  ])('%j: %s of %s is %d', (query, metric, source, expected) => {
    const found = qualityOf({ ...LLA_4X, ...query }).filter((f) => f.metric === metric && f.source === source);
    expect(found.map((f) => f.value)).toEqual([expected]);
  });

  it('takes a ratio in any of its roundings, and no other ratio', () => {
    const count = (ratio: number): number => qualityOf({ ...LLA_4X, ratio }).length;
    expect(count(64 / 3)).toBeGreaterThan(8);
    for (const rounded of [21.3, 21.33]) expect(count(rounded)).toBe(count(64 / 3));
    expect(count(14.2)).toBe(1);
    expect(count(1024 / 72)).toBe(1);
    for (const other of [1, 3, 4.5, 7, 12, 15.5, 100]) expect(count(other)).toBe(0);
  });

  it('inherits nothing across path classes', () => {
    const absorbed = qualityOf({ ...LLA_4X, pathClass: 'absorbed' });
    expect(new Set(absorbed.map((f) => f.metric))).toEqual(new Set(['reconstruction-kl', 'top-1']));
    expect(absorbed.map((f) => f.value)).toEqual(expect.arrayContaining([0.55, 0.34, 0.3]));
    expect(qualityOf({ ...LLA_4X, ratio: 2, pathClass: 'absorbed' })).toEqual([]);
    expect(qualityOf({ ...LLA_4X, pathClass: 'uncompressed' })).toEqual([]);
  });

  it('inherits nothing across eviction', () => {
    expect(qualityOf({ ...LLA_4X, eviction: EVICTED }).map((f) => [f.metric, f.value])).toEqual([['gsm8k', 0.52]]);
    expect(qualityOf({ ...LLA_4X, codec: 'kv-quant', ratio: 2, eviction: EVICTED }).map((f) => f.value)).toEqual([
      0.51,
    ]);
    expect(qualityOf({ ...LLA_4X, codec: 'kv-quant', ratio: 2 })).toEqual([]);
    expect(qualityOf({ ...LLA_4X, eviction: { ...EVICTED, windowTokens: 1020, budgetTokens: 1024 } })).toEqual([]);
    const h2o = { policy: 'h2o', heavyTokens: 4, recentTokens: 256, budgetTokens: 260 } as const;
    expect(qualityOf({ ...LLA_4X, eviction: h2o })).toEqual([]);
    expect(qualityOf({ ...LLA_4X, codec: 'full', ratio: 1, pathClass: 'uncompressed', eviction: EVICTED })).toEqual([]);
  });

  it('knows nothing of models that were not measured', () => {
    for (const model of ['nanbeige4.2-3b', 'ouro-1.4b-thinking', 'Llama-3.1-8B', '__proto__', ''])
      expect(qualityOf({ ...LLA_4X, model })).toEqual([]);
    expect(qualityOf({ ...LLA_4X, model: 'huginn-3.5b' })).toEqual([]); // Huginn has no 4×
  });

  it('gives each figure the teacher of its own table', () => {
    const teacher = (source: string): number | undefined => {
      const f = qualityOf(LLA_4X).find((x) => x.source === source && x.metric === 'gsm8k');
      return f && teacherOf(f)?.value;
    };
    expect(teacher('Table tier4')).toBe(0.82);
    expect(teacher('Table isocache')).toBe(0.794);
    const passkey = qualityOf(LLA_4X).find((f) => f.contextTokens === 65_536);
    expect(passkey && teacherOf(passkey)?.value).toBe(1);
    const kl = qualityOf(LLA_4X).find((f) => f.metric === 'train-kl');
    expect(kl && teacherOf(kl)).toBeNull();
  });

  it('knows that the head axis is lost on Huginn at the budgets of LLA and beyond, though nothing is scored', () => {
    const heads = (ratio: number): QualityFigure[] =>
      qualityOf({ ...LLA_4X, model: 'huginn-3.5b', codec: 'mla-head', ratio });
    for (const ratio of [16, 32, 42.58, 85.16, 128, 170]) {
      expect(heads(ratio).map((f) => [f.metric, f.value, f.unit, f.source])).toEqual([
        ['error-over-lla', 20, 'times', 'text, Section experiments'],
      ]);
      expect(heads(ratio).some(showsLoss)).toBe(true);
    }
    for (const ratio of [2, 4, 8, 15]) expect(heads(ratio)).toEqual([]);
    for (const f of FIGURES) expect(showsLoss(f), f.source).toBe(f.metric === 'error-over-lla');
  });

  it('calls a path by its class', () => {
    expect(pathClassOf('full', 'full')).toBe('uncompressed');
    expect(pathClassOf('lla', 'absorbed')).toBe('absorbed');
    expect(pathClassOf('kv-quant', 'full')).toBe('full-rope');
    for (const path of ['fast', 'reconstruct', 'block-absorbed'] as const)
      expect(pathClassOf('lla', path)).toBe('full-rope');
  });
});

describe('reliableRetrieval', () => {
  it.each([
    ['ouro-1.4b', 4, 32_768, 'Table passkey'],
    ['ouro-1.4b', 16 / 3, 65_536, 'Table passkey'],
    ['ouro-1.4b', 10.67, 16_384, 'Table passkey'],
    ['ouro-1.4b', 14.2, 8192, 'text, Section onpolicy'],
    ['ouro-1.4b', 21.33, 0, 'Table passkey'],
    ['ouro-2.6b', 10.67, 32_768, 'text, Section onpolicy'],
  ])('%s at %d× reaches %d tokens', (model, ratio, tokens, source) => {
    expect(reliableRetrieval({ ...LLA_4X, model, ratio })).toMatchObject({ tokens, source });
  });

  it('notes that text and table disagree at 4×', () => {
    expect(reliableRetrieval(LLA_4X)?.note).toBe('0.87 at 64k, below 0.9; the text says 64k');
    expect(reliableRetrieval({ ...LLA_4X, ratio: 5.33 })?.note).toBe('no longer context was measured');
  });

  it('is 64k for the uncompressed model', () => {
    expect(reliableRetrieval({ ...LLA_4X, codec: 'full', ratio: 1, pathClass: 'uncompressed' })?.tokens).toBe(65_536);
  });

  it('is unknown where it was not measured', () => {
    const others: Partial<QualityQuery>[] = [{ ratio: 2 }, { pathClass: 'absorbed' }, { eviction: EVICTED }];
    for (const other of [...others, { codec: 'kv-quant' as const }, { model: 'ouro-2.6b' }])
      expect(reliableRetrieval({ ...LLA_4X, ...other })).toBeNull();
  });
});

describe('CONTRADICTIONS', () => {
  it('name their numbers and places', () => {
    expect(new Set(CONTRADICTIONS.map((c) => c.id)).size).toBe(CONTRADICTIONS.length);
    for (const c of CONTRADICTIONS) {
      expect(c.figures.length).toBeGreaterThanOrEqual(2);
      for (const f of c.figures)
        expect(f.source).toMatch(/^(text|caption|arithmetic|Table |Equation |[A-Z]\w+ \(arXiv \d{4}\.\d{5}\))/);
      expect(c.explanation.length).toBeGreaterThan(20);
    }
  });

  it('hold those of accuracy at 4×, passkeys, the batch of 768 and the ratios', () => {
    const ids = CONTRADICTIONS.map((c) => c.id);
    const some = 'gsm8k-4x gsm8k-teacher math500-3.2x code-4x passkey-4x-64k batch-768 huginn-ratio ratio-15.5x';
    expect(ids).toEqual(expect.arrayContaining(words(some)));
  });

  it('are given for the model that they concern', () => {
    expect(contradictionsFor('huginn-3.5b').map((c) => c.id)).toEqual(['huginn-ratio', 'lla-2d-infeasible']);
    expect(contradictionsFor('ouro-2.6b').map((c) => c.id)).toContain('items-scale');
    expect(contradictionsFor('ouro-1.4b')[0]?.id).toBe('gsm8k-4x');
    expect(contradictionsFor('nanbeige4.2-3b')).toEqual([]);
    for (const c of CONTRADICTIONS) expect(c.models.length).toBeGreaterThan(0);
  });

  /** Is `score` a multiple of 1/n, as printed with three decimals? */
  const possible = (score: number, n: number): boolean =>
    [Math.floor(score * n), Math.ceil(score * n)].some((k) => Math.abs(k / n - score) <= 0.00050001);
  const scores = (table: string, metric: Metric): number[] =>
    FIGURES.filter((f) => f.source === `Table ${table}` && f.metric === metric && !f.isTeacher).map((f) => f.value);

  it('on item counts follow from the figures', () => {
    expect(scores('isocache', 'gsm8k').filter((s) => !possible(s, 100))).toEqual([0.522, 0.702, 0.752, 0.122, 0.723]);
    expect(scores('isocache', 'gsm8k').every((s) => possible(s, 1319))).toBe(true);
    expect(scores('broadsuite', 'bbh').filter((s) => !possible(s, 135))).toEqual([0.705, 0.695, 0.677, 0.495, 0.527]);
    expect(scores('broadsuite', 'bbh').every((s) => possible(s, 675))).toBe(true);
    expect(scores('broadsuite', 'gsm8k').every((s) => possible(s, 200))).toBe(true);
    expect([...scores('broadsuite', 'gsm8k')].sort()).toEqual([...scores('tier4', 'gsm8k')].sort());
    expect(scores('broadsuite', 'humaneval').every((s) => possible(s, 164))).toBe(true);
  });
});
