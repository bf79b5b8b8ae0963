/** Ranks, ratios and sizes of codecs, from the tables of quality. */
import { groups as groupBy } from 'd3-array';
import type { Codec } from '../../codecs/codec.js';
import type { QualityFigure, QualityModel } from '../../quality/figure.js';
import { cellsOf } from '../../quality/printed.js';
import { FIGURES_OF_THE_PAPER } from '../../quality/quality.js';
import type { PaperFigure } from '../types.js';
import {
  OURO,
  OURO_26,
  HUGINN,
  lla,
  latent2d,
  LLA_4X,
  type Where,
  figure,
  exact,
  explained,
  claim,
  CODEC_NAMES,
  MODEL_NAMES,
  quantBits,
} from './figure.js';

/** Table tier4 and Table huginn print ranks beside ratios; Table ablations two splits of one budget. */
export function ranks(): PaperFigure[] {
  const tables = [
    [OURO, 'tier4'],
    [HUGINN, 'huginn'],
  ] as const;
  const rows = tables.flatMap(([model, table]) =>
    cellsOf(table).flatMap(([label = '', pair = '']) => {
      const [, rankK, rankV] = /^\(?(\d+)[,/](\d+)\)?$/.exec(pair) ?? [];
      const [, ratio] = /([\d.]+)×$/.exec(label) ?? [];
      return rankK && rankV && ratio ? [[model, table, ratio, Number(rankK), Number(rankV)] as const] : [];
    }),
  );
  const where = (table: string): Where => ({
    section: table === 'huginn' ? 'Huginn' : 'Ranks and ratios',
    source: `Table ${table}`,
  });
  const core = (model: QualityModel): string => (model === HUGINN ? ', looped core' : '');
  return [
    ...rows.map(([model, table, ratio, rankK, rankV]) =>
      figure(
        where(table),
        `${table}/${ratio}x/ratio`,
        `ρ of ranks ${rankK}/${rankV}${core(model)}`,
        exact(`${ratio}×`, 'ratio'),
        { of: 'ratio', model, codec: lla(rankK, rankV) },
      ),
    ),
    ...rows.map(([model, table, ratio, rankK, rankV]) =>
      claim(where(table), `${table}/${ratio}x/ranks`, `ranks of ${ratio}×${core(model)}`, `${rankK}/${rankV}`, {
        of: 'ranks',
        model,
        ratio: Number(ratio),
      }),
    ),
    ...rows
      .filter(([model]) => model === HUGINN)
      .map(([model, table, ratio, rankK, rankV]) =>
        figure(
          where(table),
          `${table}/${ratio}x/whole`,
          `${ratio}× on the whole cache`,
          explained(`${ratio}×`, 'ratio'),
          { of: 'stored-ratio', model, codec: lla(rankK, rankV), path: 'reconstruct' },
        ),
      ),
  ];
}

const SOURCES = [...new Set(FIGURES_OF_THE_PAPER.map((f) => f.source))];
/** By the table that has the ratio first, then by codec. */
const order = ([f]: readonly QualityFigure[]): number =>
  f ? SOURCES.indexOf(f.source) * 100 + Object.keys(CODEC_NAMES).indexOf(f.codec) : 0;

/**
 * Ratios under which codecs are compared, from the quality tables themselves: one figure for each model, codec and
 * ratio.
 */
export function comparedRatios(): PaperFigure[] {
  // The evicted baseline is printed by its bits, not by a ratio; Huginn's ratios stand with their ranks.
  const compared = FIGURES_OF_THE_PAPER.filter(
    (f) => f.codec !== 'full' && f.model !== HUGINN && (f.codec !== 'kv-quant' || f.source !== 'Table evict'),
  );
  return groupBy(compared, (f) => `${f.model}/${f.codec}-${Number(f.ratioLabel)}x`)
    .sort(([, a], [, b]) => order(a) - order(b))
    .map(([key, list]) => {
      const { model, codec, ratioLabel, ratio } = list[0] as QualityFigure;
      const where = { section: 'Ratios under comparison', source: (list[0] as QualityFigure).source };
      const quantity = `${CODEC_NAMES[codec] ?? codec} on ${MODEL_NAMES[model]}`;
      const text = `${Number(ratioLabel)}×`;
      if (codec === 'kv-quant')
        return figure(where, `ratios/${key}`, quantity, explained(text, 'ratio'), {
          of: 'stored-ratio',
          model,
          codec: quantBits(ratio),
          path: 'full',
        });
      return figure(where, `ratios/${key}`, quantity, exact(text, 'ratio'), {
        of: 'reached-ratio',
        model,
        kind: codec,
        ratio,
      });
    });
}

export function otherRatios(): PaperFigure[] {
  const appendix = { section: 'Ratios under comparison', source: 'text, Section expdetails' };
  const passkey = { section: 'Ratios under comparison', source: 'text, Section onpolicy' };
  return [
    figure(passkey, 'ratios/ouro-1.4b/lla-15.5x', 'LLA on 1.4B', exact('15.5×', 'ratio'), {
      of: 'reached-ratio',
      model: OURO,
      kind: 'lla',
      ratio: 15.5,
    }),
    ...[4, 6, 12, 24].map((s) =>
      figure(appendix, `expdetails/cla-${s}`, `cla over s = ${s} layers`, exact(`${s}×`, 'ratio'), {
        of: 'reached-ratio',
        model: OURO,
        kind: 'cla',
        ratio: s,
      }),
    ),
    figure(appendix, 'expdetails/kv-quant-limit', 'most that kv_quant reaches (2 bits)', explained('~8×', 'ratio'), {
      of: 'stored-ratio',
      model: OURO,
      codec: quantBits(8),
      path: 'full',
    }),
    figure(
      { section: 'Ranks and ratios', source: 'Table ablations' },
      'ablations/matched-scalars',
      'scalars of 96/160 over 128/128',
      exact('1 (matched)', 'ratio'),
      { of: 'scalar-ratio', model: OURO, codec: LLA_4X, over: lla(128, 128) },
    ),
  ];
}

/** What the paper says about codecs by their parameters: one called infeasible, two that it trained. */
function parameterClaims(): PaperFigure[] {
  const text = { section: 'Codec sizes', source: 'text, Section experiments' };
  const rows: readonly (readonly [Where, string, string, string, QualityModel, Codec])[] = [
    [text, 'huginn-lla-2d', 'LLA-2D on Huginn at 16×', 'infeasible', HUGINN, latent2d(7040, 14_080)],
    [text, 'huginn-lla', 'LLA on Huginn at 16×', 'avoids this cost', HUGINN, lla(128, 256)],
    [
      { ...text, source: 'Table scale' },
      '2.6b-lla-2d',
      'LLA-2D on 2.6B at 4×',
      'trained',
      OURO_26,
      latent2d(1536, 2560),
    ],
  ];
  return rows.map(([where, id, quantity, words, model, codec]) =>
    claim(where, `experiments/${id}`, quantity, words, { of: 'codec-trainable', model, codec }, 'explained'),
  );
}

export function codecSizes(): PaperFigure[] {
  const at = (source: string): Where => ({ section: 'Codec sizes', source });
  return [
    figure(at('text, Section intro'), 'intro/cache-slots', 'cached layers of Ouro-1.4B', exact('96-layer', 'count'), {
      of: 'cache-slots',
      model: OURO,
    }),
    figure(
      at('text, Section serving_details'),
      'serving/factor-h',
      'LLA over LLA-2D at equal ranks (H)',
      exact('16×', 'ratio'),
      { of: 'scalar-ratio', model: OURO, codec: LLA_4X, over: latent2d(96, 160) },
    ),
    figure(
      at('text, Section experiments'),
      'experiments/final-loop-parameters',
      'parameters of final-loop reuse',
      exact('0', 'count'),
      { of: 'codec-parameters', model: OURO, codec: { kind: 'final-loop' } },
    ),
    ...parameterClaims(),
  ];
}
