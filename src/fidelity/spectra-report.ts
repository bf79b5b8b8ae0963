/** What `fit --spectra` prints: a model beside its untrained twin and the paper's figures. */
import type { CodecAxis } from '../decoder/tensors.js';
import { columns, left } from '../report/text/text.js';
import { formatCount, formatShare } from '../numbers/units.js';
import { AXES, letterOf } from '../fit/moments.js';
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

export function spectraText(r: SpectraReport): string {
  const axis = (side: SideSpectra, name: string): SideSpectra['axes'][number] | undefined =>
    side.axes.find((a) => a.axis === name);
  const line = (what: string, paper: string, of: Line['of']): Line => ({ what, paper, of });
  const list = (values: readonly number[]): string => values.map((v) => v.toFixed(2)).join(' ');
  const axisLines = (side: CodecAxis): Line[] =>
    (['loop', 'head', 'layer'] as const).flatMap((name) => {
      const [rank, direction] = name === 'loop' ? [PAPER.loopEffectiveRank, PAPER.loopFirstDirection] : ['near 1', ''];
      const places = axis(r.trained[side], name)?.places ?? 1;
      const share = (first: number | undefined): string => (first === undefined ? 'n/a' : formatShare(first));
      return [
        line(
          `${letterOf(side)} ${name} axis: effective rank of ${places}`,
          rank,
          (s) => axis(s[side], name)?.effectiveRank.toFixed(2) ?? 'n/a',
        ),
        line(`${letterOf(side)} ${name} axis: energy in one direction`, direction, (s) =>
          share(axis(s[side], name)?.shares[0]),
        ),
      ];
    });
  const rows = AXES.flatMap((side) => {
    const letter = letterOf(side);
    const along = side === 'key' ? PAPER.keyVarianceAlongLoops : PAPER.valueVarianceAlongLoops;
    const ranks = r.trained[side].energyAtRank.map(({ rank }) => rank).join(' ');
    return [
      ...axisLines(side),
      line(`${letter} variance along the loops`, along, (s) => formatShare(s[side].varianceAlongLoops)),
      line(`${letter} change from loop to loop`, 'shrinks', (s) => list(s[side].change)),
      line(`${letter} cosine to the last loop`, 'grows', (s) => list(s[side].cosineToLast)),
      line(`${letter} energy of stacked loops at rank ${ranks}`, '', (s) =>
        list(s[side].energyAtRank.map(({ share }) => share)),
      ),
    ];
  });
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
      [...rows, line('logit lens: predictions after each loop as after the last', '', (s) => list(s.lensAgreement))],
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
