/** The tensors of each projection, as they lie side by side in its matrix. */
import { tableWidth } from '../../geometry/geometry.js';
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
import type { AllocationKind } from './allocations.js';

/** A run of rows of a tensor [outputs, inputs], in a matrix that has the outputs of several side by side. */
export interface Piece {
  readonly tensor: string;
  readonly outputs: number;
  readonly kind?: AllocationKind;
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

/** A tensor that is a projection by itself. */
const whole =
  (tensorOf: (ref: ProjectionRef, c: Configuration) => string, outputs: (c: Configuration) => number): PiecesOf =>
  (c, ref) => [{ tensor: tensorOf(ref, c), outputs: outputs(c) }];
const hidden = ({ geometry }: Configuration): number => geometry.hidden;

/**
 * The tensors of each projection, whose outputs lie side by side. The gate of attention's output is before its queries.
 */
export const PIECES: Readonly<Record<Projection, PiecesOf>> = {
  qkv: (c, ref) => {
    const { heads, headDim, attentionGate } = c.geometry;
    const gate = { tensor: layerTensor(ref.stored, 'self_attn.gate_proj.weight'), outputs: heads * headDim };
    const branch = { tensor: branchTensor(ref.layer, 'query'), outputs: ref.branch * heads, kind: 'codec' as const };
    return [...(attentionGate ? [gate] : []), ...attentionPieces('qkv')(c, ref), ...(ref.branch > 0 ? [branch] : [])];
  },
  q: attentionPieces('q'),
  kv: attentionPieces('kv'),
  'attention-out': whole(({ stored }) => layerTensor(stored, 'self_attn.o_proj.weight'), hidden),
  'gate-up': ({ geometry: { mlpHidden } }, { stored }) =>
    ['gate', 'up'].map((part) => ({ tensor: layerTensor(stored, `mlp.${part}_proj.weight`), outputs: mlpHidden })),
  down: whole(({ stored }) => layerTensor(stored, 'mlp.down_proj.weight'), hidden),
  'branch-key': ({ geometry: { kvHeads }, branch }, { layer }) => [
    { tensor: branchTensor(layer, 'key'), outputs: (branch.perHead ? kvHeads : 1) * branch.width, kind: 'codec' },
  ],
  'embedding-up': whole(() => EMBEDDING_UP, hidden),
  adapter: whole(() => ADAPTER, hidden),
  'exit-gate': whole(
    () => 'model.early_exit_gate.weight',
    () => 1,
  ),
  'loop-gate': whole(
    ({ stored }) => loopGateTensor(stored, 'weight'),
    ({ geometry }) => geometry.heads,
  ),
  'change-down': whole(
    () => CHANGE_DOWN,
    ({ geometry }) => geometry.changeRank as number,
  ),
  'change-up': whole(() => CHANGE_UP, hidden),
  'head-down': whole(
    () => HEAD_DOWN,
    ({ geometry }) => tableWidth(geometry),
  ),
  head: whole(
    (_, { geometry }) => (geometry.tiedEmbeddings ? EMBEDDING : HEAD),
    ({ geometry }) => geometry.vocab,
  ),
};
