/**
 * Tensors of published models, by their own names, as those of the decoder. A class needs the names alone: tensors of
 * the decoder that share a name lie in one published tensor, one after the other.
 */
import { UserError, show } from '../errors.js';
import { storedCoreLayers, type Geometry, type LayerBlock } from '../geometry/geometry.js';
import type { OpenTensors } from './checkpoint.js';
import {
  CHANGE_BIAS,
  CHANGE_DOWN,
  CHANGE_RATES,
  CHANGE_UP,
  elementsOf,
  EMBEDDING,
  FINAL_NORM,
  HEAD,
  layerPart,
  LOOP_GATE_NORM,
  modelTensors,
  type TensorSpec,
} from './tensors.js';
import { checkedLength } from './weights.js';

/** Where a tensor of the decoder lies: elements of a published one, times a factor. */
export interface Piece {
  readonly tensor: string;
  readonly from: number;
  readonly factor: number;
}

export interface Layout {
  readonly published: readonly TensorSpec[];
  readonly pieces: ReadonlyMap<string, Piece>;
}

/**
 * @param specs the decoder's tensors
 * @param nameOf the published name of one
 * @param factors of its elements, 1 unless given
 */
export function layoutOf(
  specs: readonly TensorSpec[],
  nameOf: (name: string) => string,
  factors: Readonly<Record<string, number>> = {},
): Layout {
  const published = new Map<string, TensorSpec>();
  const pieces = new Map<string, Piece>();
  for (const spec of specs) {
    const name = nameOf(spec.name);
    const before = published.get(name)?.shape;
    const [rows, ...row] = spec.shape as [number, ...number[]];
    pieces.set(spec.name, { tensor: name, from: before ? elementsOf(before) : 0, factor: factors[spec.name] ?? 1 });
    published.set(name, { ...spec, name, shape: [(before?.[0] ?? 0) + rows, ...row] });
  }
  return { published: [...published.values()], pieces };
}

/** The block of a stored layer, and its number there. */
export function blockOf(g: Geometry, stored: number): { readonly block: LayerBlock['name']; readonly layer: number } {
  const core = stored - g.preludeLayers;
  if (core < 0) return { block: 'prelude', layer: stored };
  const coda = core - storedCoreLayers(g);
  return coda < 0 ? { block: 'core', layer: core } : { block: 'coda', layer: coda };
}

/**
 * HRM-Text (github.com/sapientinc/HRM-Text at 00b4fe5, conversion/convert_to_hf.py and models/layers.py, Apache-2.0;
 * transformers writes the same): gate, queries, keys and values are one matrix, as are gate and up. The embedding is a
 * row times embedding_scale.
 */
export function hrmLayout(g: Geometry, config: Readonly<Record<string, unknown>>, where: string): Layout {
  const scale = config['embedding_scale'];
  if (typeof scale !== 'number' || !(scale > 0 && scale < 1e4) || g.tiedEmbeddings)
    throw new UserError(
      `${where}: embedding_scale must be a number over 0, of an embedding apart from the head, not ${show(scale)}`,
      'choose a model as its publishers converted it',
    );
  const low = g.stacks?.[0]?.layers ?? 0;
  const nameOf = (name: string): string => {
    const at = layerPart(name);
    if (!at) return name;
    const place = at.stored < low ? `L_module.layers.${at.stored}` : `H_module.layers.${at.stored - low}`;
    const part = at.part
      .replace(/^self_attn\.(gate|[qkv])_proj/, 'attn.gqkv_proj')
      .replace(/^self_attn/, 'attn')
      .replace(/^mlp\.(gate|up)_proj/, 'mlp.gate_up_proj');
    return `model.${place}.${part}`;
  };
  return layoutOf(modelTensors(g), nameOf, { [EMBEDDING]: scale });
}

/**
 * LoopCoder-V2: gates of loops are part of attention, whichever input they are of (load_weights of
 * github.com/yxing-bj/vllm, Apache-2.0).
 */
export const pltLayout = (g: Geometry): Layout =>
  layoutOf(modelTensors(g), (name) =>
    name
      .replace(/^model\.gate_projections\.(\d+)/, 'model.layers.$1.self_attn.plt_gate')
      .replace(LOOP_GATE_NORM, 'self_attn.plt_gate.gate_norm.weight'),
  );

/** Parts of LoopUS, and what tells when to stop, which is not decoded. */
const LDS: Readonly<Record<string, string>> = {
  [EMBEDDING]: 'encoder.embed_tokens.weight',
  [CHANGE_DOWN]: 'reasoning.gate.dt_input_proj.weight',
  [CHANGE_UP]: 'reasoning.gate.delta_proj.weight',
  [CHANGE_BIAS]: 'reasoning.gate.delta_proj.bias',
  [CHANGE_RATES]: 'reasoning.gate.A_log',
  [FINAL_NORM]: 'decoder.norm.weight',
  [HEAD]: 'decoder.lm_head.weight',
};

/**
 * LoopUS (github.com/Thrillcrazyer/LoopUS at 349669d, models/modeling_lds.py, Apache-2.0): its base in three blocks.
 * Phi-3 (transformers, modeling_phi3.py, Apache-2.0) has queries, keys and values in one matrix, and gate and up in
 * another.
 * @param base its own config.json
 */
export function ldsLayout(g: Geometry, base: Readonly<Record<string, unknown>>): Layout {
  const partOf = (part: string): string =>
    base['model_type'] === 'phi3'
      ? part.replace(/^self_attn\.[qkv]_proj/, 'self_attn.qkv_proj').replace(/^mlp\.(gate|up)_proj/, 'mlp.gate_up_proj')
      : part;
  const { published, pieces } = layoutOf(modelTensors(g), (name) => {
    const at = layerPart(name);
    if (!at) return LDS[name] ?? name;
    const { block, layer } = blockOf(g, at.stored);
    return `${{ prelude: 'encoder', core: 'reasoning', coda: 'decoder' }[block]}.layers.${layer}.${partOf(at.part)}`;
  });
  const row = { shape: [g.hidden], role: 'norm' } as const;
  const stop: TensorSpec[] = [
    { ...row, name: 'q_head.0.weight' },
    { ...row, name: 'q_head.0.bias' },
    { name: 'q_head.1.weight', shape: [1, g.hidden], role: 'matrix' },
    { name: 'q_head.1.bias', shape: [1], role: 'bias' },
  ];
  return { published: [...published, ...stop], pieces };
}

/** Published tensors under the decoder's names. @param source has those of the layout */
export function publishedTensors(g: Geometry, { pieces }: Layout, source: OpenTensors): OpenTensors {
  const shapes = new Map(modelTensors(g).map(({ name, shape }) => [name, shape]));
  return {
    shapes,
    read(name, from = 0, count) {
      const piece = pieces.get(name);
      if (!piece) throw new RangeError(`no tensor ${name}`);
      const length = checkedLength(name, elementsOf(shapes.get(name) ?? []), from, count);
      const values = source.read(piece.tensor, piece.from + from, length);
      if (piece.factor !== 1) values.forEach((value, i) => (values[i] = value * piece.factor));
      return values;
    },
    close: () => source.close(),
  };
}
