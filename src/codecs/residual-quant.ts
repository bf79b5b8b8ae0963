/**
 * residual-quant: the last loop's K (rotated) and V in 4 or 2 bits, and of each loop before it a coefficient and the
 * rest in 2 bits (ResidualQuant, arXiv 2610.10381, without rotation; residual.ts has the arithmetic). No parameters.
 */
import type { Geometry } from '../geometry/geometry.js';
import { anchorGroupOf, residualBytes, type ResidualRow } from '../../kernels/shared/cache/residual.layout.js';
import { RESIDUAL_FORMS, type Codec, type CodecSpec, type ResidualForm } from './codec.js';
import { fullTensors, sharedByLoops } from './layout.js';
import { ROWS } from './uncompressed.js';

const FORMS: Readonly<Record<ResidualForm, Pick<ResidualRow, 'anchorBits' | 'residualGroup'>>> = {
  'mixed-g32': { anchorBits: 4, residualGroup: 32 },
  'int2-g32': { anchorBits: 2, residualGroup: 32 },
  'mixed-g16': { anchorBits: 4, residualGroup: 16 },
};

/** Loops that share an anchor: four, as published of Ouro (T = 4) and Huginn (eight groups of T = 32); else all. */
const anchoredLoops = ({ loops }: Geometry): number => (loops % 4 === 0 ? 4 : loops);

/** A row of one token and head: all loops that share an anchor. */
const rowOf = (g: Geometry, { residual = 'mixed-g32' }: Codec): ResidualRow => ({
  headDim: g.headDim,
  loops: anchoredLoops(g),
  anchorBits: FORMS[residual].anchorBits,
  residualGroup: Math.min(g.headDim, FORMS[residual].residualGroup),
});

/** Heads are whole groups of the anchor, and those are whole words; a narrower head is a group of its own. */
const hasGroups = ({ headDim }: Geometry): boolean => headDim % 16 === 0 && headDim % anchorGroupOf({ headDim }) === 0;

const bitsOf = (g: Geometry, codec: Codec): number => {
  const row = rowOf(g, codec);
  return (8 * residualBytes(row)) / (row.loops * row.headDim);
};

/** Ratios are printed with two decimals. */
const CLOSE = 0.01;

export const residualQuant: CodecSpec = {
  ...ROWS,
  title: 'differences to the last loop, quantised',
  settings: ['residual'],
  untrained: true,
  closes: 'anchor-loop',
  anchoredLoops,
  refusesEviction: 'a row holds all loops of a token, which are written at once',
  ratio: (g, codec) => 16 / bitsOf(g, codec),
  label: ({ kind, residual }) => `${kind}-${residual}`,
  // Prelude and coda, which have no loops.
  storage: () => 'f16',
  publishedRatios: (g) =>
    g.loops > 1 && hasGroups(g)
      ? [...new Set(RESIDUAL_FORMS.map((residual) => 16 / bitsOf(g, { kind: 'residual-quant', residual })))]
      : [],
  fromRatio: (g, ratio) => {
    if (g.loops < 2) return 'residual-quant needs a model with at least two loops';
    const codecs = RESIDUAL_FORMS.map((residual): Codec => ({ kind: 'residual-quant', residual }));
    const ratios = codecs.map((codec) => 16 / bitsOf(g, codec));
    const found = ratios.findIndex((own) => Math.abs(own - ratio) < CLOSE);
    return (
      codecs[found] ?? `residual-quant has the ratios ${[...new Set(ratios.map((own) => own.toFixed(2)))].join(', ')}`
    );
  },
  refuse: (g, { residual }) => {
    if (residual === undefined || !RESIDUAL_FORMS.includes(residual))
      return `residual-quant has the forms ${RESIDUAL_FORMS.join(', ')}, not ${residual}`;
    if (g.loops < 2) return 'residual-quant needs a model with at least two loops';
    return hasGroups(g)
      ? undefined
      : `residual-quant has groups of 32 channels, or of 16, which do not divide heads of ${g.headDim}`;
  },
  core: (g, core, codec, choice) => {
    const row = rowOf(g, codec);
    const anchors = { ...sharedByLoops(core), loops: core.loops / row.loops };
    const wide = { kvHeads: g.kvHeads, headDim: row.loops * g.headDim };
    return fullTensors(anchors, wide, { ...choice, storage: 'f16' }).map((t) => ({ ...t, residual: row }));
  },
};
