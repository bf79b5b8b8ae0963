/** What `fit --spectra` prints: a model beside its untrained twin and the paper's figures. */
import { columns, left } from '../report/text/text.js';
import { formatCount, formatShare } from '../numbers/units.js';
import type { SideSpectra, Spectra } from '../fit/spectra.js';

export interface Studied extends Spectra {
  readonly lensAgreement: readonly number[];
}

export interface SpectraReport {
  readonly schema: 'lla-sim/spectra';
  readonly schemaVersion: 1;
  readonly model: { readonly name: string; readonly fingerprint: string };
  readonly trained: Studied;
  /** The same shape with the weights that training begins with, or fabricated ones. */
  readonly untrained: Studied;
  readonly paper: typeof PAPER;
}

/** The paper's figures: Sec. "Cross-loop structure in the teacher cache", Ouro-1.4B and 2.6B. */
export const PAPER = {
  loopEffectiveRank: '0.61–0.63',
  loopFirstDirection: '60 %',
  keyVarianceAlongLoops: '6 %',
  valueVarianceAlongLoops: '17 %',
} as const;

interface Line {
  readonly what: string;
  readonly paper: string;
  readonly of: (s: Studied) => string;
}

const SIDES = [
  ['K', 'key'],
  ['V', 'value'],
] as const;

export function spectraText(r: SpectraReport): string {
  const axis = (side: SideSpectra, name: string): SideSpectra['axes'][number] | undefined =>
    side.axes.find((a) => a.axis === name);
  const rows: Line[] = SIDES.flatMap(([letter, side]) => [
    ...(['loop', 'head', 'layer'] as const).flatMap((name) => [
      {
        what: `${letter} ${name} axis: effective rank of ${axis(r.trained[side], name)?.places ?? 1}`,
        paper: name === 'loop' ? PAPER.loopEffectiveRank : 'near 1',
        of: (s: Studied) => axis(s[side], name)?.effectiveRank.toFixed(2) ?? 'n/a',
      },
      {
        what: `${letter} ${name} axis: energy in one direction`,
        paper: name === 'loop' ? PAPER.loopFirstDirection : '',
        of: (s: Studied) => {
          const first = axis(s[side], name)?.shares[0];
          return first === undefined ? 'n/a' : formatShare(first);
        },
      },
    ]),
    {
      what: `${letter} variance along the loops`,
      paper: side === 'key' ? PAPER.keyVarianceAlongLoops : PAPER.valueVarianceAlongLoops,
      of: (s: Studied) => formatShare(s[side].varianceAlongLoops),
    },
    {
      what: `${letter} change from loop to loop`,
      paper: 'shrinks',
      of: (s: Studied) => s[side].change.map((v) => v.toFixed(2)).join(' '),
    },
    {
      what: `${letter} cosine to the last loop`,
      paper: 'grows',
      of: (s: Studied) => s[side].cosineToLast.map((v) => v.toFixed(2)).join(' '),
    },
    {
      what:
        `${letter} energy of stacked loops at rank ` +
        `${r.trained[side].energyAtRank.map(({ rank }) => rank).join(' ')}`,
      paper: '',
      of: (s: Studied) => s[side].energyAtRank.map(({ share }) => share.toFixed(2)).join(' '),
    },
  ]);
  return [
    `${r.model.name}: keys and values before RoPE over ${formatCount(r.trained.tokens)} tokens`,
    '',
    ...columns<Line>(
      [
        left('', (row) => row.what),
        left('model', (row) => row.of(r.trained)),
        left('untrained', (row) => row.of(r.untrained)),
        left('paper', (row) => row.paper),
      ],
      [
        ...rows,
        {
          what: 'logit lens: predictions after each loop as after the last',
          paper: '',
          of: (s: Studied) => s.lensAgreement.map((v) => v.toFixed(2)).join(' '),
        },
      ],
    ),
    '',
    ...(r.trained.stacks.studied < r.trained.stacks.all
      ? [
          `Stacked loops, and variance along them: ${r.trained.stacks.studied} of ${r.trained.stacks.all} layers ` +
            `and heads, as many as --memory holds.`,
        ]
      : []),
    'An axis of two places has one direction left once the mean is taken off: its effective rank says nothing.',
    '',
  ].join('\n');
}
