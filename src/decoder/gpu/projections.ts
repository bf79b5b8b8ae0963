/** The tensors of each projection, as they lie side by side in its matrix. */
import { tableWidth, type Geometry } from '../../geometry/geometry.js';
import type { Projection, WeightRef } from '../../schedule/bind/refs.js';
import type { Configuration } from '../../schedule/schedule.js';
import {
  ADAPTER,
  branchTensor,
  CHANGE_DOWN,
  CHANGE_UP,
  EMBEDDING,
  EMBEDDING_UP,
  HEAD,
  HEAD_DOWN,
  layerTensor,
  loopGateTensor,
} from '../tensors.js';

/** A run of rows of a tensor [outputs, inputs], in a matrix that has the outputs of several side by side. */
export interface Piece {
  readonly tensor: string;
  readonly outputs: number;
  /** It belongs to the codec. */
  readonly codec?: true;
}

export type ProjectionRef = Extract<WeightRef, { weights: 'projection' }>;

/** Projections that a model has once, by the name of their matrix. */
const ONCE: Partial<Record<Projection, string>> = {
  'embedding-up': 'embedding up',
  adapter: 'adapter',
  'change-down': 'change down',
  'change-up': 'change up',
  'exit-gate': 'exit gate',
  'head-down': 'head down',
  head: 'head',
};
export const labelOf = ({ of, stored, layer }: ProjectionRef): string =>
  ONCE[of] ?? (of === 'branch-key' ? `branch key ${layer}` : `${of} ${stored}`);

type PiecesOf = (c: Configuration, ref: ProjectionRef) => Piece[];

const attentionPieces =
  (letters: string): PiecesOf =>
  ({ geometry: { heads, kvHeads, headDim, copiesKeys } }, { stored }) =>
    [...letters].map((letter) => ({
      tensor: layerTensor(stored, `self_attn.${copiesKeys && letter === 'v' ? 'k' : letter}_proj.weight`),
      outputs: (letter === 'q' ? heads : kvHeads) * headDim,
    }));

/** A tensor that is a projection by itself, with as many outputs as the stream is wide unless given. */
const whole =
  (
    tensorOf: (ref: ProjectionRef, c: Configuration) => string,
    outputs: (g: Geometry) => number = ({ hidden }) => hidden,
  ): PiecesOf =>
  (c, ref) => [{ tensor: tensorOf(ref, c), outputs: outputs(c.geometry) }];
const one = (): number => 1;

/** The tensors of each projection, whose outputs lie side by side: a gate of attention's output before its queries. */
export const PIECES: Readonly<Record<Projection, PiecesOf>> = {
  qkv: (c, ref) => {
    const { heads, headDim, attentionGate } = c.geometry;
    const gate = { tensor: layerTensor(ref.stored, 'self_attn.gate_proj.weight'), outputs: heads * headDim };
    const branch = { tensor: branchTensor(ref.layer, 'query'), outputs: ref.branch * heads, codec: true as const };
    return [...(attentionGate ? [gate] : []), ...attentionPieces('qkv')(c, ref), ...(ref.branch > 0 ? [branch] : [])];
  },
  q: attentionPieces('q'),
  kv: attentionPieces('kv'),
  'attention-out': whole(({ stored }) => layerTensor(stored, 'self_attn.o_proj.weight')),
  'gate-up': ({ geometry: { mlpHidden } }, { stored }) =>
    ['gate', 'up'].map((part) => ({ tensor: layerTensor(stored, `mlp.${part}_proj.weight`), outputs: mlpHidden })),
  down: whole(({ stored }) => layerTensor(stored, 'mlp.down_proj.weight')),
  'branch-key': ({ geometry: { kvHeads }, branch }, { layer }) => [
    { tensor: branchTensor(layer, 'key'), outputs: (branch.perHead ? kvHeads : 1) * branch.width, codec: true },
  ],
  'embedding-up': whole(() => EMBEDDING_UP),
  adapter: whole(() => ADAPTER),
  'exit-gate': whole(() => 'model.early_exit_gate.weight', one),
  'loop-gate': whole(
    ({ stored }) => loopGateTensor(stored, 'weight'),
    ({ heads }) => heads,
  ),
  'change-down': whole(
    () => CHANGE_DOWN,
    ({ changeRank }) => changeRank as number,
  ),
  'change-up': whole(() => CHANGE_UP),
  'head-down': whole(() => HEAD_DOWN, tableWidth),
  head: whole(
    (_, { geometry }) => (geometry.tiedEmbeddings ? EMBEDDING : HEAD),
    ({ vocab }) => vocab,
  ),
};
