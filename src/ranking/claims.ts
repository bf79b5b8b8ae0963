/**
 * What the authors of codecs publish of size and speed, beside what this program says of the same: repeated or not.
 * Scores cannot be repeated without the weights; they are in the plan's tables.
 */
import { FLASHLOOP, flashloopBytes, packedTokens } from '../codecs/flashloop.js';
import { codecParameters, CODECS, coreRatio, layoutOf } from '../codecs/registry.js';
import { bytesPerToken } from '../codecs/layout.js';
import type { Codec } from '../codecs/codec.js';
import type { Geometry } from '../geometry/geometry.js';
import { formatNumber } from '../numbers/units.js';

/**
 * `within the estimate`: of times, which nobody measured here: the published one lies in the interval of tuned kernels.
 * `in part`: at some of the lengths that the source measured. `not tried`: here is nothing to compare it with.
 */
type Verdict = 'repeated' | 'within the estimate' | 'in part' | 'not repeated' | 'not tried';

export interface Claim {
  readonly codec: Codec['kind'];
  readonly source: string;
  readonly what: string;
  readonly published: string;
  readonly here: string;
  readonly verdict: Verdict;
  /** Why, where it was not repeated. */
  readonly why: string | null;
}

/** A number that is counted, beside the one as printed: repeated where that is its rounding. */
interface Counted extends Pick<Claim, 'codec' | 'source' | 'what' | 'published'> {
  readonly models: readonly string[];
  readonly here: (g: Geometry) => number | null;
  /** What the source leaves open, where the number differs. */
  readonly open?: string;
}

const OUROS = ['ouro-1.4b', 'ouro-2.6b'];
const F16 = { storage: 'f16', groupSize: 64 } as const;
const BRANCH = { width: 64, perHead: false };
const atRatio = (g: Geometry, kind: Codec['kind'], ratio: number): Codec => {
  const codec = CODECS[kind].fromRatio(g, ratio);
  if (typeof codec === 'string') throw new Error(codec);
  return codec;
};
const bytesOf = (g: Geometry, codec: Codec): number =>
  bytesPerToken(layoutOf(g, codec, CODECS[codec.kind].paths[0]!, F16, BRANCH));
const fullBytes = (g: Geometry): number => bytesOf(g, { kind: 'full' });

/** Times smaller than the full cache, of a prompt of `tokens`. */
function flashloopRatio(g: Geometry, tokens: number): number {
  const packed = packedTokens(tokens);
  const [third, fourth] = FLASHLOOP.rows.slice(2).map((share) => Math.ceil(share * tokens)) as [number, number];
  // The last token, which is always selected, lies in the tail; so may others. All are counted as packed.
  const { streams, index, tail } = flashloopBytes(g, { packed, third, fourth, tail: tokens - packed });
  return (tokens * fullBytes(g)) / (streams + index + tail);
}

const HLA = 'HLA (arXiv 2610.07940)';
const FLASH = 'FlashLoop (arXiv 2609.29812), project page';
const OPEN_FLASH =
  'the code’s layout gives one number for both Ouro models; which prompt, and which tokens were generated, is not said';
const MELT = 'MELT (arXiv 2605.07721), a summary';
const RESIDUAL = 'ResidualQuant (arXiv 2610.10381)';

const COUNTED: readonly Counted[] = [
  {
    models: OUROS,
    codec: 'hla',
    source: HLA,
    what: 'times smaller a token',
    published: '10.7',
    here: (g) => fullBytes(g) / bytesOf(g, atRatio(g, 'hla', 32 / 3)),
  },
  {
    models: ['ouro-1.4b'],
    codec: 'hla',
    source: HLA,
    what: 'parameters',
    published: '352321536',
    here: (g) => codecParameters(g, atRatio(g, 'hla', 32 / 3), 'rotated', BRANCH),
  },
  ...(
    [
      ['ouro-1.4b', '5.85'],
      ['ouro-2.6b', '6.06'],
    ] as const
  ).flatMap(([model, published]) =>
    [8192, 32_768].map((tokens): Counted => ({
      models: [model],
      codec: 'flashloop',
      source: FLASH,
      what: `times smaller, a prompt of ${tokens / 1024}k`,
      published,
      here: (g) => flashloopRatio(g, tokens),
      open: OPEN_FLASH,
    })),
  ),
  {
    models: ['huginn-3.5b'],
    codec: 'flashloop',
    source: FLASH,
    what: 'times smaller',
    published: '5.18',
    here: () => null,
    open: 'which of its 32 loops are anchors is not said, and groups of 64 channels do not divide heads of 96',
  },
  {
    models: ['ouro-1.4b'],
    codec: 'flashloop',
    source: 'FlashLoop (arXiv 2609.29812), a summary',
    what: 'percent of the cache saved at 32k',
    published: '82.8',
    here: (g) => 100 * (1 - 1 / flashloopRatio(g, 32_768)),
    open: 'it is what a prompt of 8k saves',
  },
  ...(
    [
      ['ouro-1.4b', '1.59'],
      ['ouro-2.6b', '1.64'],
      ['huginn-3.5b', '1.52'],
    ] as const
  ).map(([model, published]): Counted => ({
    models: [model],
    codec: 'flashloop',
    source: FLASH,
    what: 'times faster, one sequence on an A100',
    published,
    here: () => null,
    open: 'the lengths, and whether prompts count, are not said',
  })),
  {
    models: ['ouro-1.4b'],
    codec: 'melt',
    source: MELT,
    what: 'GB of 32,000 tokens',
    published: '6.29',
    here: (g) => (32_000 * bytesOf(g, { kind: 'melt' })) / 1e9,
  },
  ...(
    [
      ['mixed-g32', '3.09'],
      ['int2-g32', '2.59'],
      ['mixed-g16', '3.47'],
    ] as const
  ).map(([residual, published]): Counted => ({
    models: ['ouro-1.4b'],
    codec: 'residual-quant',
    source: RESIDUAL,
    what: `bits a value, ${residual}`,
    published,
    here: (g) => 16 / coreRatio(g, { kind: 'residual-quant', residual }),
  })),
];

/** Half a unit of the last digit that is printed; ties of binary fractions count as printed. */
const precisionOf = (text: string): number => 0.5 * 10 ** -(text.split('.')[1]?.length ?? 0) + 1e-9;

/** Sizes that the program counts. */
export const countedClaims = (g: Geometry): Claim[] =>
  COUNTED.filter(({ models }) => models.includes(g.name)).map(
    ({ codec, source, what, published, open, ...c }): Claim => {
      const here = c.here(g);
      const same = here !== null && Math.abs(here - Number(published)) <= precisionOf(published);
      return {
        ...{ codec, source, what, published },
        here: here === null ? 'unknown' : Number.isInteger(here) ? String(here) : formatNumber(here),
        verdict: here === null ? 'not tried' : same ? 'repeated' : 'not repeated',
        why: same ? null : (open ?? 'unexplained'),
      };
    },
  );
