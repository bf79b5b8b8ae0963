import { describe, expect, it } from 'vitest';
import { byCheckpoint, checkpointOf } from '../../src/quality/checkpoints.js';
import type { QualityFigure } from '../../src/quality/figure.js';
import { FIGURES, qualityOf, type QualityQuery } from '../../src/quality/quality.js';
import { HLA_SOURCE } from '../../src/quality/tables/others.js';

const LLA_4X: QualityQuery = { model: 'ouro-1.4b', codec: 'lla', ratio: 4, pathClass: 'full-rope', eviction: null };
const OFF_POLICY = (f: QualityFigure): boolean => f.variant === 'off-policy';

/** Checkpoints of a configuration, each with the tables of its figures. */
const sourcesOf = (query: Partial<QualityQuery>): Record<string, string[]> =>
  Object.fromEntries(
    [...byCheckpoint(qualityOf({ ...LLA_4X, ...query }).filter((f) => f.source !== HLA_SOURCE))].map(
      ([name, figures]) => [
        String(name),
        [...new Set(figures.map((f) => (f.variant === null ? f.source : `${f.source}, ${f.variant}`)))].filter(
          (s) => !/^text|^caption|decoupled/.test(s),
        ),
      ],
    ),
  );

describe('byCheckpoint', () => {
  it('keeps apart what the paper calls two, and counts an unnamed fit for both', () => {
    const {
      'Tables tier4 and broadsuite': cold,
      'Table isocache': iso,
      'Table onpolicy, on-policy': on,
    } = sourcesOf({});
    expect(cold).toEqual(['Table tier4', 'Table broadsuite', 'Table onpolicy, off-policy', 'Table passkey']);
    expect(iso).toEqual(['Table onpolicy, off-policy', 'Table isocache', 'Table passkey']);
    expect(on).toEqual(['Table onpolicy, on-policy', 'Table passkey']);
  });

  it('names the off-policy fit by its table where neither sweep has the ratio', () => {
    expect(sourcesOf({ ratio: 32 / 3 })).toEqual({
      'Table onpolicy, off-policy': ['Table onpolicy, off-policy', 'Table passkey'],
      'Table onpolicy, on-policy': ['Table onpolicy, on-policy', 'Table passkey'],
    });
    const onPolicy = 'Table onpolicy, on-policy';
    expect(Object.keys(sourcesOf({ ratio: 3.2 }))).toEqual(['Tables tier4 and broadsuite', onPolicy]);
    expect(Object.keys(sourcesOf({ ratio: 64 / 3 }))).toEqual(['Table isocache', onPolicy]);
  });

  it('takes the generation and the multiple-choice table of 2.6B as one', () => {
    for (const codec of ['lla', 'mla-head', 'lla-2d'] as const)
      expect(sourcesOf({ model: 'ouro-2.6b', codec })).toEqual({
        'Tables scale and scale_mc': ['Table scale', 'Table scale_mc'],
      });
  });

  it('has one nameless group of what is not trained, with every score', () => {
    const figures = qualityOf({ ...LLA_4X, model: 'ouro-2.6b', codec: 'kv-quant', ratio: 16 / 3 });
    expect(new Set(figures.map((f) => f.source))).toEqual(new Set(['Table scale', 'Table scale_mc']));
    expect([...byCheckpoint(figures)]).toEqual([[null, figures]]);
    expect(sourcesOf({ codec: 'final-loop' })).toEqual({ null: ['Table isocache'] });
  });

  it('has evicted LLA 4× as the iso-cache checkpoint, and nothing of nothing', () => {
    const evicted = FIGURES.filter((f) => f.source === 'Table evict' && f.codec === 'lla');
    expect([...byCheckpoint(evicted)]).toEqual([['Table isocache', evicted]]);
    expect([...byCheckpoint([])]).toEqual([]);
  });

  it('gives a codec that a table made for itself nothing of another source', () => {
    const groups = byCheckpoint(qualityOf(LLA_4X));
    const ablated = [...groups].filter(([name]) => name?.startsWith('Table ablations'));
    expect(ablated.length).toBe(7);
    for (const [name, figures] of ablated)
      expect([name, figures.map((f) => f.metric)]).toEqual([name, ['ablation-kl']]);
    // KL 0.059 says which codec the reference of decoupled RoPE is; its agreement is of no other.
    const agreeing = [...groups].filter(([, figures]) => figures.some((f) => f.metric === 'top-1'));
    expect(agreeing.map(([name]) => name)).toEqual(['Table isocache']);
    const adapted = byCheckpoint(qualityOf({ ...LLA_4X, pathClass: 'absorbed' }));
    expect(adapted.get('Table decoupled_char, query adapter')?.map((f) => f.value)).toEqual([0.34, 0.84]);
  });

  it('keeps another group’s training apart: the paper’s scores say nothing of it', () => {
    const hla = byCheckpoint(qualityOf(LLA_4X)).get(HLA_SOURCE) ?? [];
    expect(hla.length).toBe(6);
    expect(new Set(hla.map((f) => f.source))).toEqual(new Set([HLA_SOURCE]));
  });

  it('loses no figure, and gives none to a checkpoint that its table does not score', () => {
    const configurations = new Map(FIGURES.map((f) => [JSON.stringify([f.model, f.codec, f.ratio, f.pathClass]), f]));
    for (const f of configurations.values()) {
      const figures = qualityOf(f);
      const groups = byCheckpoint(figures);
      expect(new Set([...groups.values()].flat())).toEqual(new Set(figures));
      for (const [name, own] of groups)
        for (const x of own.filter((y) => !OFF_POLICY(y))) expect([name, null]).toContain(checkpointOf(x));
    }
  });
});
