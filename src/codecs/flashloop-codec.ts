/**
 * FlashLoop (arXiv 2609.29812; code Superone77/FlashLoop, MIT) as a codec of the planner; flashloop.ts has the
 * arithmetic. A token's loops are four streams of 4-bit rows, each the difference to what is rebuilt of the loop
 * before. Loops 3 and 4 of a prompt run on a quarter and a tenth of its tokens, and only these have rows there; a
 * generated token has all four. So a context has a size as a prompt, and a larger one as generated text: what is served
 * lies between. Each is a setting, and both are planned.
 */
import type { Geometry } from '../geometry/geometry.js';
import { sum } from '../numbers/statistics.js';
import { FLASHLOOP_TOKENS, type Codec, type CodecSpec, type FlashloopConstants, type Streams } from './codec.js';
import { constantsOf, constantsRefusal, constantsText } from './flashloop-constants.js';
import { bitsOfLoop, ENTRY_BYTES, FLASHLOOP, PAIR_BYTES, valueStreamBytes } from './flashloop.js';
import { cacheTensor, windowTensors, type CacheTensor } from './layout.js';
import { ROWS } from './uncompressed.js';

const runsOf = ({ loops }: Geometry, codec: Codec): readonly number[] => constantsOf(codec).rows.slice(0, loops);
const storedOf = (g: Geometry, codec: Codec): readonly number[] =>
  codec.tokens === 'generated' ? runsOf(g, codec).map(() => 1) : runsOf(g, codec);

/** Bytes of a head's keys of one token and loop, of whole groups of tokens. */
const keyBytes = (d: number, bits: number, { group }: FlashloopConstants): number =>
  (d * bits) / 8 + (PAIR_BYTES * d) / group;
const valueBytes = (d: number, bits: number, { group }: FlashloopConstants): number =>
  valueStreamBytes(1, d, bits, group);

/** Of each loop, bytes of a head's keys and values of one token. */
function rowsBytes({ loops, headDim: d }: Geometry, codec: Codec): number[] {
  const of = constantsOf(codec);
  return Array.from({ length: loops }, (_, loop) => {
    const bits = bitsOfLoop(loop, of);
    return keyBytes(d, bits, of) + valueBytes(d, bits, of);
  });
}

function streams(g: Geometry, codec: Codec): Streams {
  const { dense, keys, group, tail } = constantsOf(codec);
  const bytes = rowsBytes(g, codec);
  return {
    runs: runsOf(g, codec),
    stored: storedOf(g, codec),
    weights: bytes.map((own) => own / bytes.at(-1)!),
    dense: Math.min(dense, g.loops),
    keys,
    group,
    anchorBits: constantsOf(codec).anchorBits,
    tail: { least: tail, most: tail + group - 1 },
  };
}

/** Bits of the full cache over those of the streams, pairs included. */
function ratioOf(g: Geometry, codec: Codec): number {
  const bytes = rowsBytes(g, codec);
  return (4 * g.loops * g.headDim) / sum(storedOf(g, codec).map((share, loop) => share * bytes[loop]!));
}

const both = FLASHLOOP_TOKENS.map((tokens): Codec => ({ kind: 'flashloop', tokens }));
/** Ratios are printed with two decimals. */
const CLOSE = 0.01;

export const flashloop: CodecSpec = {
  ...ROWS,
  title: 'FlashLoop, loops as packed differences',
  settings: ['tokens', 'constants'],
  untrained: true,
  streams,
  referenceOnly: ({ tokens }) =>
    tokens === 'prompt' ? 'counted as a prompt has no room for the rows of generated tokens' : undefined,
  refusesEviction: 'rows are packed by groups of tokens, and loops after the second select their keys',
  ratio: ratioOf,
  label: ({ kind, tokens, constants }) => `${kind}-${tokens}${constants ? constantsText(constants) : ''}`,
  // Prelude and coda, which have no loops.
  storage: () => 'f16',
  // As a prompt alone nothing is served: its bytes are the least, for those who ask.
  unusual: ({ tokens }) => tokens === 'prompt',
  publishedRatios: (g) => (constantsRefusal(g, FLASHLOOP) === undefined ? both.map((codec) => ratioOf(g, codec)) : []),
  fromRatio: (g, ratio) => {
    const refused = constantsRefusal(g, FLASHLOOP);
    if (refused !== undefined) return refused;
    // Of two loops a prompt's tokens have all, as generated ones do.
    return (
      both.findLast((codec) => Math.abs(ratioOf(g, codec) - ratio) < CLOSE) ??
      `flashloop has the ratios ${both.map((codec) => ratioOf(g, codec).toFixed(2)).join(' (a prompt) and ')} ` +
        `(generated)`
    );
  },
  refuse: (g, codec) =>
    codec.tokens !== undefined && FLASHLOOP_TOKENS.includes(codec.tokens)
      ? constantsRefusal(g, constantsOf(codec))
      : `flashloop counts tokens as ${FLASHLOOP_TOKENS.join(' or ')}, not as ${codec.tokens}`,
  core: (g, core, codec, { storage, groupSize }) => {
    const one = { ...core, loops: 1 };
    const d = g.headDim;
    const of = constantsOf(codec);
    const index = cacheTensor(one, 'index', 1, 0, storage, groupSize);
    const stored = storedOf(g, codec);
    const later = stored.slice(of.dense);
    const rows = (role: 'key' | 'value', bytesOf: typeof keyBytes): CacheTensor => ({
      ...cacheTensor(one, `${role}-stream`, g.kvHeads, sum(stored) * d, 'f16', groupSize),
      packed: { bytes: sum(stored.map((share, loop) => share * bytesOf(d, bitsOfLoop(loop, of), of))), share: 1 },
    });
    return [
      rows('key', keyBytes),
      rows('value', valueBytes),
      // Where a row of the loop is, of each packed token, and of which token each row is.
      ...(later.length > 0 ? [{ ...index, packed: { bytes: ENTRY_BYTES, share: later.length + sum(later) } }] : []),
      // The token that makes a group too many is there until the group is packed.
      ...windowTensors(core, g, { storage: 'f16', groupSize }, streams(g, codec).tail.most + 1),
    ];
  },
};
