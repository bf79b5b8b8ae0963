/**
 * FlashLoop (arXiv 2609.29812; code Superone77/FlashLoop, MIT) as a codec of the planner; flashloop.ts has the
 * arithmetic. A token's loops are four streams of 4-bit rows, each the difference to what is rebuilt of the loop before.
 * Loops 3 and 4 of a prompt run on a quarter and a tenth of its tokens, and only these have rows there; a generated
 * token has all four. So a context has a size as a prompt, and a larger one as generated text: what is served lies
 * between. Each is a setting, and both are planned.
 */
import type { Geometry } from '../geometry/geometry.js';
import { FLASHLOOP_TOKENS, type Codec, type CodecSpec, type Streams } from './codec.js';
import { FLASHLOOP } from './flashloop.js';
import { cacheTensor, fullTensors } from './layout.js';

/** Loops of which shares are published. */
const MOST_LOOPS = FLASHLOOP.rows.length;
/** Bytes of a pair, scale and lowest value, in f16; of an entry of the index. */
const PAIR = 4;
const ENTRY = 4;

const runsOf = ({ loops }: Geometry): readonly number[] => FLASHLOOP.rows.slice(0, loops);
const storedOf = (g: Geometry, { tokens }: Codec): readonly number[] =>
  tokens === 'generated' ? runsOf(g).map(() => 1) : runsOf(g);

const sum = (shares: readonly number[]): number => shares.reduce((a, b) => a + b, 0);

/** Channels of a value that share a pair; of a narrower head all. */
const channelsOf = ({ headDim }: Pick<Geometry, 'headDim'>): number => Math.min(FLASHLOOP.group, headDim);

/** Bytes of a head's keys of one token and loop: a pair of each channel serves a group of tokens. */
const keyBytes = (d: number): number => (d * FLASHLOOP.bits) / 8 + (PAIR * d) / FLASHLOOP.group;
/** Of its values: a pair serves a group of channels. */
const valueBytes = (d: number): number => (d * FLASHLOOP.bits) / 8 + (PAIR * d) / channelsOf({ headDim: d });

const streams = (g: Geometry, codec: Codec): Streams => ({
  runs: runsOf(g),
  stored: storedOf(g, codec),
  keys: FLASHLOOP.keys,
  tail: { least: FLASHLOOP.tail, most: FLASHLOOP.tail + FLASHLOOP.group - 1 },
});

/** Bits of the full cache over those of the streams, pairs included. */
const ratioOf = (g: Geometry, codec: Codec): number =>
  (4 * g.loops * g.headDim) / (sum(storedOf(g, codec)) * (keyBytes(g.headDim) + valueBytes(g.headDim)));

const both = FLASHLOOP_TOKENS.map((tokens): Codec => ({ kind: 'flashloop', tokens }));
/** Ratios are printed with two decimals. */
const CLOSE = 0.01;

export const flashloop: CodecSpec = {
  title: 'FlashLoop, loops as packed differences',
  paths: ['full'],
  settings: ['tokens'],
  onlyAsked: true,
  untrained: true,
  streams,
  undecodable: 'packs groups of tokens, and selects tokens and keys by scores',
  closes: 'always',
  loopAxis: false,
  refusesEviction: 'rows are packed by groups of tokens, and loops after the second select their keys',
  ratio: ratioOf,
  label: ({ kind, tokens }) => `${kind}-${tokens}`,
  // Prelude and coda, which have no loops.
  storage: () => 'f16',
  publishedRatios: (g) => (refuse(g) === undefined ? both.map((codec) => ratioOf(g, codec)) : []),
  fromRatio: (g, ratio) => {
    const refused = refuse(g);
    if (refused !== undefined) return refused;
    return (
      both.find((codec) => Math.abs(ratioOf(g, codec) - ratio) < CLOSE) ??
      `flashloop has the ratios ${both.map((codec) => ratioOf(g, codec).toFixed(2)).join(' (a prompt) and ')} (generated)`
    );
  },
  refuse: (g, { tokens }) =>
    tokens !== undefined && FLASHLOOP_TOKENS.includes(tokens)
      ? refuse(g)
      : `flashloop counts tokens as ${FLASHLOOP_TOKENS.join(' or ')}, not as ${tokens}`,
  core: (g, core, codec, { storage, groupSize }) => {
    const one = { ...core, loops: 1 };
    const d = g.headDim;
    const index = cacheTensor(one, 'index', 1, 0, storage, groupSize);
    // A packed token has two entries, a selected row one: as many as it has rows.
    return [
      ...storedOf(g, codec).flatMap((share) => [
        { ...cacheTensor(one, 'key', g.kvHeads, d, 'f16', groupSize), packed: { bytes: keyBytes(d), share } },
        { ...cacheTensor(one, 'value', g.kvHeads, d, 'f16', groupSize), packed: { bytes: valueBytes(d), share } },
        { ...index, packed: { bytes: ENTRY, share } },
      ]),
      ...fullTensors(core, g.kvHeads, d, 'f16', groupSize).map((tensor) => ({
        ...tensor,
        windowTokens: streams(g, codec).tail.most,
      })),
    ];
  },
  parameters: () => 0,
};

function refuse({ name, loops, headDim }: Geometry): string | undefined {
  if (loops < 2) return 'flashloop needs a model with at least two loops';
  if (loops > MOST_LOOPS) return `flashloop says which tokens run of ${MOST_LOOPS} loops, and ${name} has ${loops}`;
  return headDim % channelsOf({ headDim }) === 0
    ? undefined
    : `flashloop has groups of ${FLASHLOOP.group} channels, which do not divide heads of ${headDim}`;
}
