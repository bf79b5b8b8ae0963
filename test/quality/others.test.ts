/** Scores that other groups than the paper's publish, each with the codec that it is of. */
import { describe, expect, it } from 'vitest';
import type { Codec } from '../../src/codecs/codec.js';
import { CODECS, coreRatio } from '../../src/codecs/registry.js';
import { findPreset } from '../../src/geometry/presets.js';
import { contradictionsFor } from '../../src/quality/contradictions.js';
import { FIGURES, FIGURES_OF_THE_PAPER, qualityOf, teacherOf } from '../../src/quality/quality.js';

const OURO_SOURCE = 'Ouro (arXiv 2510.25741)';
const HLA_SOURCE = 'HLA (arXiv 2610.07940)';

const figuresOf = ({ kind, shared }: Codec, model = 'ouro-1.4b') => {
  const ratio = coreRatio(findPreset(model), { kind });
  return qualityOf({ model, codec: kind, shared, ratio, pathClass: 'full-rope', eviction: null });
};

describe('scores of loops that share rows', () => {
  it.each<[Codec, string, string[]]>([
    [{ kind: 'final-loop', shared: 'decode' }, OURO_SOURCE, ['gsm8k 0.7885 of 0.7892', 'math500 0.804 of 0.824']],
    [{ kind: 'mean-loop' }, OURO_SOURCE, ['gsm8k 0.7873 of 0.7892', 'math500 0.7852 of 0.824']],
    [
      { kind: 'final-loop', shared: 'decode' },
      HLA_SOURCE,
      [
        ...['ruler 0.19 of 0.895', 'ruler 0.1 of 0.852', 'ruler 0.07 of 0.775'],
        ...['mmlu-pro 0.161 of 0.489', 'bbh 0.433 of 0.71', 'math500 0.459 of 0.759'],
      ],
    ],
  ])('%j, %s', (codec, source, expected) => {
    const found = figuresOf(codec).filter((f) => f.source === source);
    expect(found.map((f) => `${f.metric} ${f.value} of ${teacherOf(f)?.value}`)).toEqual(expected);
  });

  it('of the 2.6B are those of HLA alone', () => {
    const found = figuresOf({ kind: 'final-loop', shared: 'decode' }, 'ouro-2.6b');
    expect(found.map((f) => f.source)).toEqual(Array.from({ length: 6 }, () => HLA_SOURCE));
    expect(found.find((f) => f.metric === 'math500')?.value).toBe(0.739);
    expect(figuresOf({ kind: 'mean-loop' }, 'ouro-2.6b')).toEqual([]);
  });

  it('of the paper are those of two passes alone, which is meant where nothing is given', () => {
    const own = figuresOf({ kind: 'final-loop' });
    expect(own.map((f) => [f.metric, f.value])).toContainEqual(['gsm8k', 0]);
    expect(figuresOf({ kind: 'final-loop', shared: 'two-pass' })).toEqual(own);
    for (const f of own) expect(FIGURES_OF_THE_PAPER).toContain(f);
  });

  it('are unknown of prompts that share too: nobody states a value', () => {
    expect(figuresOf({ kind: 'final-loop', shared: 'all' })).toEqual([]);
    expect(figuresOf({ kind: 'mean-loop', shared: 'all' })).toEqual([]);
  });

  it('are of ways of sharing that the codecs have', () => {
    for (const f of FIGURES.filter(({ shared }) => shared !== undefined))
      expect(CODECS[f.codec as 'final-loop' | 'mean-loop'].sharings).toContain(f.shared);
    expect(FIGURES.filter(({ shared }) => shared !== undefined).length).toBeGreaterThan(15);
  });

  it('contradict each other, which is told of both models', () => {
    for (const model of ['ouro-1.4b', 'ouro-2.6b']) {
      const told = contradictionsFor(model).find((c) => c.id === 'final-loop');
      for (const source of ['Table isocache', OURO_SOURCE, HLA_SOURCE])
        expect(told?.figures.some((f) => f.source.startsWith(source))).toBe(true);
    }
  });
});
