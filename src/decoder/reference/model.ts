/** A model's weights in float64, gathered from named tensors. */
import { storedLayers, type Geometry } from '../../geometry/geometry.js';
import {
  ADAPTER,
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
  readonly attentionNorm: Vector | undefined;
  readonly attentionOutNorm: Vector | undefined;
  readonly mlpNorm: Vector | undefined;
  readonly mlpOutNorm: Vector | undefined;
  /** Of attention's output, a scalar each. */
  readonly attentionGate: Matrix | undefined;
  readonly query: Matrix;
  readonly key: Matrix;
  readonly value: Matrix;
  readonly queryBias: Vector | undefined;
  readonly keyBias: Vector | undefined;
  readonly valueBias: Vector | undefined;
  /** Of each head of queries and keys, or of their rows. */
  readonly queryNorm: Vector | undefined;
  readonly keyNorm: Vector | undefined;
  /** Of each head, between the first loop's rows and a window of a later one. */
  readonly loopGate: { readonly weight: Matrix; readonly bias: Vector; readonly norm: Vector | undefined } | undefined;
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
  readonly embeddingUp: Matrix | undefined;
  readonly headDown: Matrix | undefined;
  /** Prelude, core and coda, each layer once. */
  readonly layers: readonly LayerWeights[];
  readonly norm: Vector;
  /** Between the last loop and the coda, in models that norm there. */
  readonly coreNorm: Vector | undefined;
  readonly adapter: Matrix | undefined;
  /** Of what a loop changed: how much of each scalar is kept. */
  readonly change:
    { readonly down: Matrix; readonly up: Matrix; readonly bias: Vector; readonly logRate: Vector } | undefined;
  /** The low stack's first state, where a pass runs stacks in turn. */
  readonly lowState: Vector | undefined;
  /** The embedding itself where the two are tied. */
  readonly head: Matrix;
}

export const vectorOf = (source: TensorSource, name: string): Vector => Float64Array.from(source.read(name));

export function matrixOf(source: TensorSource, name: string): Matrix {
  const [rows, columns] = source.shapes.get(name) as [number, number];
  return { rows, columns, data: vectorOf(source, name) };
}

/**
 * Gathers a model. The exit gate is left out: it never fires at its default threshold, and changes nothing else.
 * @throws UserError for a tensor that is missing or of another shape, and as `modelTensors`
 */
export function loadModel(g: Geometry, source: TensorSource, normEpsilon = 1e-6): Model {
  const specs = modelTensors(g);
  requireTensors(specs, source.shapes, `the weights of ${g.name}`);
  const names = new Set(specs.map(({ name }) => name));
  const vector = (name: string): Vector => vectorOf(source, name);
  const matrix = (name: string): Matrix => matrixOf(source, name);
  const vectorIf = (name: string): Vector | undefined => (names.has(name) ? vector(name) : undefined);
  const matrixIf = (name: string): Matrix | undefined => (names.has(name) ? matrix(name) : undefined);
  const norm = (name: string): Vector => (g.plainNorms ? new Float64Array(g.hidden).fill(1) : vector(name));
  const normIf = (there: boolean, name: string): Vector | undefined => (there ? norm(name) : undefined);
  const embedding = matrix(EMBEDDING);
  const before = !g.normsOfBranches;
  const after = g.normsPerLayer === 4 || g.normsOfBranches === true;
  const layers = Array.from({ length: storedLayers(g) }, (_, i): LayerWeights => {
    const at = (part: string): string => layerTensor(i, part);
    return {
      attentionNorm: normIf(before, at('input_layernorm.weight')),
      attentionOutNorm: normIf(after, at('input_layernorm_2.weight')),
      mlpNorm: normIf(before, at('post_attention_layernorm.weight')),
      mlpOutNorm: normIf(after, at('post_attention_layernorm_2.weight')),
      attentionGate: matrixIf(at('self_attn.gate_proj.weight')),
      query: matrix(at('self_attn.q_proj.weight')),
      key: matrix(at('self_attn.k_proj.weight')),
      value: matrix(at(`self_attn.${g.copiesKeys ? 'k' : 'v'}_proj.weight`)),
      queryBias: vectorIf(at('self_attn.q_proj.bias')),
      keyBias: vectorIf(at('self_attn.k_proj.bias')),
      valueBias: vectorIf(at('self_attn.v_proj.bias')),
      queryNorm: vectorIf(at(QUERY_NORM)),
      keyNorm: vectorIf(at(KEY_NORM)),
      loopGate:
        g.laterLoopsWindow === undefined
          ? undefined
          : {
              weight: matrix(loopGateTensor(i, 'weight')),
              bias: vector(loopGateTensor(i, 'bias')),
              norm: vectorIf(at(LOOP_GATE_NORM)),
            },
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
    embeddingUp: matrixIf(EMBEDDING_UP),
    headDown: matrixIf(HEAD_DOWN),
    layers,
    norm: norm(FINAL_NORM),
    coreNorm: normIf(g.normAfterCore === true, CORE_NORM),
    adapter: matrixIf(ADAPTER),
    change:
      g.changeRank === undefined
        ? undefined
        : {
            down: matrix(CHANGE_DOWN),
            up: matrix(CHANGE_UP),
            bias: vector(CHANGE_BIAS),
            logRate: vector(CHANGE_RATES),
          },
    lowState: g.stacks && (vectorIf(LOW_STATE) ?? new Float64Array(g.hidden)),
    head: matrixIf(HEAD) ?? embedding,
  };
}
