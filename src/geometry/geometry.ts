/** The shape of a looped transformer, and counts that follow from it alone. All counts are in scalars (not bytes). */

/** One run of layers. The core runs `loops` times with the same weights; prelude and coda are ordinary layers. */
export interface LayerBlock {
  readonly name: 'prelude' | 'core' | 'coda';
  readonly layers: number;
  /** T for the core, 1 for prelude and coda. */
  readonly loops: number;
}

export interface Geometry {
  readonly name: string;
  /** Layers before the loop, inside it (D) and after it. */
  readonly preludeLayers: number;
  readonly layers: number;
  readonly codaLayers: number;
  /** Passes over the core: T. An ordinary transformer has 1. */
  readonly loops: number;
  readonly heads: number;
  readonly kvHeads: number;
  readonly headDim: number;
  readonly hidden: number;
  readonly mlpHidden: number;
  /** `gated`: gate, up and down projections (SwiGLU). `plain`: up and down. */
  readonly mlp: 'gated' | 'plain';
  readonly vocab: number;
  readonly tiedEmbeddings: boolean;
  /** RMSNorms a layer: 2 (before attention and MLP) or 4 (sandwich: also after each). */
  readonly normsPerLayer: 2 | 4;
  /**
   * What the norms after attention and MLP take: the branch before it is added, x + n(y) (Ouro; unless given), or the
   * sum, n(x + y) (Huginn).
   */
  readonly outputNorm?: 'branch' | 'sum';
  /** Extra learned scalars of a layer beside projections and norms (q/k/v biases, q/k norms, ...). */
  readonly extraParametersPerLayer: number;
  /** A 2·hidden → hidden projection that mixes the prelude's output in before every loop (Huginn). */
  readonly adapter: boolean;
  /** The final norm also runs after every loop and feeds the next one (Ouro). */
  readonly normAfterEachLoop: boolean;
  /** The final norm also runs between the last loop and the coda (Huginn). */
  readonly normAfterCore?: boolean;
  /** A hidden → 1 gate after every loop (Ouro's early exit; never fires at its default threshold). */
  readonly exitGate: boolean;
  readonly rope: { readonly theta: number; readonly pairing: 'half-split' | 'adjacent' };
  readonly maxPositions: number;
  /** Element type of the published weights. */
  readonly weightType: 'bf16' | 'f16' | 'f32';
  /** Where the facts come from. */
  readonly source: string;
}

/** The blocks of a model in execution order; empty ones are left out. */
export function blocksOf(g: Geometry): LayerBlock[] {
  const blocks: LayerBlock[] = [
    { name: 'prelude', layers: g.preludeLayers, loops: 1 },
    { name: 'core', layers: g.layers, loops: g.loops },
    { name: 'coda', layers: g.codaLayers, loops: 1 },
  ];
  return blocks.filter((b) => b.layers > 0);
}

/** Extras of a layer beside projections and norms: biases of q, k, v, o and the MLP, norms of query and key heads. */
export interface LayerExtras {
  readonly biases: readonly string[];
  readonly headNorms: boolean;
}

const ATTENTION_BIASES = [[], ['q', 'k'], ['q', 'k', 'v'], ['q', 'k', 'v', 'o']] as const;
const extrasKnown = new WeakMap<Geometry, LayerExtras | null>();

/**
 * Which extras a layer has. A geometry counts their parameters only; the count identifies the extras of the known
 * classes.
 * @returns null where no known class has as many
 */
export function layerExtras(g: Geometry): LayerExtras | null {
  const known = extrasKnown.get(g);
  if (known !== undefined) return known;
  const found = countedExtras(g);
  extrasKnown.set(g, found);
  return found;
}

function countedExtras(g: Geometry): LayerExtras | null {
  const parameters: Readonly<Record<string, number>> = {
    q: g.heads * g.headDim,
    k: g.kvHeads * g.headDim,
    v: g.kvHeads * g.headDim,
    o: g.hidden,
    mlp: (g.mlp === 'gated' ? 2 : 1) * g.mlpHidden + g.hidden,
  };
  for (const headNorms of [false, true]) {
    for (const mlp of [[], ['mlp']]) {
      for (const attention of ATTENTION_BIASES) {
        const biases = [...attention, ...mlp];
        const count = biases.reduce((sum, bias) => sum + (parameters[bias] ?? 0), headNorms ? 2 * g.headDim : 0);
        if (count === g.extraParametersPerLayer) return { biases, headNorms };
      }
    }
  }
  return null;
}

/** Parameters of one layer: attention and MLP projections, norms, extras. */
export function layerParameters(g: Geometry): number {
  const attention = g.hidden * g.headDim * (2 * g.heads + 2 * g.kvHeads);
  const mlp = (g.mlp === 'gated' ? 3 : 2) * g.hidden * g.mlpHidden;
  return attention + mlp + g.normsPerLayer * g.hidden + g.extraParametersPerLayer;
}

/** All parameters of the model. */
export function parameterCount(g: Geometry): number {
  const layers = (g.preludeLayers + g.layers + g.codaLayers) * layerParameters(g);
  const embeddings = g.vocab * g.hidden * (g.tiedEmbeddings ? 1 : 2);
  const adapter = g.adapter ? 2 * g.hidden * g.hidden : 0;
  const gate = g.exitGate ? g.hidden + 1 : 0;
  return layers + embeddings + adapter + gate + g.hidden;
}

/** (layer, loop) pairs that each hold a K/V cache of their own: D·T for the core plus prelude and coda layers. */
export function cacheSlots(g: Geometry): number {
  return g.preludeLayers + g.layers * g.loops + g.codaLayers;
}
