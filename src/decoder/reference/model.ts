/** A model's weights in float64, gathered from named tensors. */
import { layerExtras, storedLayers, type Geometry } from '../../geometry/geometry.js';
import {
  ADAPTER,
  biasedProjections,
  CHANGE_BIAS,
  CHANGE_DOWN,
  CHANGE_RATES,
  CHANGE_UP,
  CORE_NORM,
  EMBEDDING,
  EMBEDDING_UP,
  FINAL_NORM,
  HEAD,
  HEAD_DOWN,
  KEY_NORM,
  layerTensor,
  LOOP_GATE_NORM,
  loopGateTensor,
  LOW_STATE,
  modelTensors,
  QUERY_NORM,
  requireTensors,
} from '../tensors.js';
import type { TensorSource } from '../weights.js';
import type { Matrix, Vector } from './arithmetic.js';

export interface LayerWeights {
  /**
   * n1 and n3, before attention and MLP; n2 and n4 after them, in sandwich layers, or without those before (OLMo-2).
   */
  readonly attentionNorm?: Vector;
  readonly attentionOutNorm?: Vector;
  readonly mlpNorm?: Vector;
  readonly mlpOutNorm?: Vector;
  /** Of attention's output, a scalar each. */
  readonly attentionGate?: Matrix;
  readonly query: Matrix;
  readonly key: Matrix;
  readonly value: Matrix;
  readonly queryBias?: Vector;
  readonly keyBias?: Vector;
  readonly valueBias?: Vector;
  /** Of each head of queries and keys, or of their rows. */
  readonly queryNorm?: Vector;
  readonly keyNorm?: Vector;
  /** Of each head, between the first loop's rows and a window of a later one. */
  readonly loopGate?: { readonly weight: Matrix; readonly bias: Vector; readonly norm?: Vector };
  readonly output: Matrix;
  readonly gate: Matrix;
  readonly up: Matrix;
  readonly down: Matrix;
}

export interface Model {
  readonly geometry: Geometry;
  /** ε of every RMSNorm. */
  readonly normEpsilon: number;
  readonly embedding: Matrix;
  /** From rows of a lower rank to the hidden width, and back for the head. */
  readonly embeddingUp?: Matrix;
  readonly headDown?: Matrix;
  /** Prelude, core and coda, each layer once. */
  readonly layers: readonly LayerWeights[];
  readonly norm: Vector;
  /** Between the last loop and the coda, in models that norm there. */
  readonly coreNorm?: Vector;
  readonly adapter?: Matrix;
  /** Of what a loop changed: how much of each scalar is kept. */
  readonly change?: { readonly down: Matrix; readonly up: Matrix; readonly bias: Vector; readonly logRate: Vector };
  /** The low stack's first state, where a pass runs stacks in turn. */
  readonly lowState?: Vector;
  /** The embedding itself where the two are tied. */
  readonly head: Matrix;
}

/** A tensor in float64. */
export const vectorOf = (source: TensorSource, name: string): Vector => Float64Array.from(source.read(name));

/** A tensor of two dimensions in float64. */
export function matrixOf(source: TensorSource, name: string): Matrix {
  const [rows, columns] = source.shapes.get(name) as [number, number];
  return { rows, columns, data: vectorOf(source, name) };
}

/**
 * Gathers a model. The exit gate is left out: it never fires at its default threshold, and changes nothing else.
 * @throws UserError for a tensor that is missing or of another shape, and as `biasedProjections`
 */
export function loadModel(g: Geometry, source: TensorSource, normEpsilon = 1e-6): Model {
  const biased = biasedProjections(g);
  const norms = layerExtras(g)?.norms;
  requireTensors(modelTensors(g), source.shapes, `the weights of ${g.name}`);
  const vector = (name: string): Vector => vectorOf(source, name);
  const norm = (name: string): Vector => (g.plainNorms ? new Float64Array(g.hidden).fill(1) : vector(name));
  const matrix = (name: string): Matrix => matrixOf(source, name);
  const embedding = matrix(EMBEDDING);
  const layers = Array.from({ length: storedLayers(g) }, (_, i): LayerWeights => {
    const at = (part: string): string => layerTensor(i, part);
    return {
      ...(g.normsOfBranches
        ? {}
        : {
            attentionNorm: norm(at('input_layernorm.weight')),
            mlpNorm: norm(at('post_attention_layernorm.weight')),
          }),
      ...(g.normsPerLayer === 4 || g.normsOfBranches
        ? {
            attentionOutNorm: norm(at('input_layernorm_2.weight')),
            mlpOutNorm: norm(at('post_attention_layernorm_2.weight')),
          }
        : {}),
      ...(g.attentionGate ? { attentionGate: matrix(at('self_attn.gate_proj.weight')) } : {}),
      query: matrix(at('self_attn.q_proj.weight')),
      key: matrix(at('self_attn.k_proj.weight')),
      value: matrix(at(`self_attn.${g.copiesKeys ? 'k' : 'v'}_proj.weight`)),
      ...(biased.includes('q') ? { queryBias: vector(at('self_attn.q_proj.bias')) } : {}),
      ...(biased.includes('k') ? { keyBias: vector(at('self_attn.k_proj.bias')) } : {}),
      ...(biased.includes('v') ? { valueBias: vector(at('self_attn.v_proj.bias')) } : {}),
      ...(norms ? { queryNorm: vector(at(QUERY_NORM)) } : {}),
      ...(norms && norms !== 'query-heads' ? { keyNorm: vector(at(KEY_NORM)) } : {}),
      ...(g.laterLoopsWindow === undefined
        ? {}
        : {
            loopGate: {
              weight: matrix(loopGateTensor(i, 'weight')),
              bias: vector(loopGateTensor(i, 'bias')),
              ...(g.loopGateOfInput ? { norm: vector(at(LOOP_GATE_NORM)) } : {}),
            },
          }),
      output: matrix(at('self_attn.o_proj.weight')),
      gate: matrix(at('mlp.gate_proj.weight')),
      up: matrix(at('mlp.up_proj.weight')),
      down: matrix(at('mlp.down_proj.weight')),
    };
  });
  return {
    geometry: g,
    normEpsilon,
    embedding,
    ...(g.embeddingRank === undefined ? {} : { embeddingUp: matrix(EMBEDDING_UP), headDown: matrix(HEAD_DOWN) }),
    layers,
    norm: norm(FINAL_NORM),
    ...(g.normAfterCore ? { coreNorm: norm(CORE_NORM) } : {}),
    ...(g.stacks ? { lowState: g.extraParameters === undefined ? new Float64Array(g.hidden) : vector(LOW_STATE) } : {}),
    ...(g.changeRank === undefined
      ? {}
      : {
          change: {
            down: matrix(CHANGE_DOWN),
            up: matrix(CHANGE_UP),
            bias: vector(CHANGE_BIAS),
            logRate: vector(CHANGE_RATES),
          },
        }),
    ...(g.adapter ? { adapter: matrix(ADAPTER) } : {}),
    head: g.tiedEmbeddings ? embedding : matrix(HEAD),
  };
}
