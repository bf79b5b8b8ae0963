/** The shape of a looped transformer, and counts that follow from it alone. All counts are in scalars (not bytes). */

/** One run of layers. The core runs `loops` times with the same weights; prelude and coda are ordinary layers. */
export interface LayerBlock {
  readonly name: 'prelude' | 'core' | 'coda';
  readonly layers: number;
  /** T for the core, 1 for prelude and coda. */
  readonly loops: number;
}

/** Stored layers that a pass over the core runs one after the other, all of them `runs` times. */
export interface LayerStack {
  readonly layers: number;
  readonly runs: number;
}

/** Bytes of a published weight. */
export const WEIGHT_BYTES = { bf16: 2, f16: 2, f32: 4 } as const;

/** How weights are stored in fewer bits: bits a scalar, scales and zero points included. */
export interface QuantisedWeights {
  /** Of projections in layers. */
  readonly layerBits: number;
  /** Of the embedding and the head. */
  readonly tableBits: number;
  /** As the file names it, such as `awq 4 bit`. */
  readonly name: string;
  /** 8-bit floats, which kernels multiply as they are; in `blocks` those with a scale a block, not a tensor or row. */
  readonly float8?: true;
  readonly blocks?: true;
  /** Servers write them in 16 bits before each product, which others widen on the way. */
  readonly unpacked?: true;
  /** A server makes them as it loads weights in 16 bits: another model than the one that is stored. */
  readonly whenLoaded?: true;
}

/** Layers whose weights a server quantises to 8-bit floats as it loads them; tables stay as they are. */
export const withFloat8 = (g: Geometry): Geometry => ({
  ...g,
  quantised: { layerBits: 8, tableBits: 8 * WEIGHT_BYTES[g.weightType], name: 'fp8', float8: true, whenLoaded: true },
});

/** The shape of a looped model: counts, and widths in scalars. */
export interface Geometry {
  readonly name: string;
  /** Layers before the loop, that a pass over the core runs (D), and after it. */
  readonly preludeLayers: number;
  readonly layers: number;
  readonly codaLayers: number;
  /** Passes over the core: T. An ordinary transformer has 1. */
  readonly loops: number;
  /** Whoever runs the model chooses the number of loops; `loops` is what it was trained with. */
  readonly loopsAreChosen?: true;
  /** The preset or class that runs other loops than it was trained with, and those. */
  readonly trained?: { readonly model: string; readonly loops: number };
  /** Each core layer runs all its loops before the next layer begins (Nandi). */
  readonly loopsInRow?: true;
  /** What a pass runs where that is not each stored layer once; `layers` is the sum of their runs (HRM-Text). */
  readonly stacks?: readonly LayerStack[];
  /**
   * Loops after the first attend to the rows of the first, and beside them to a window of so many own tokens, which
   * are all that is kept of their rows; a gate of each head mixes the two (IQuest-Coder-Loop, LoopCoder).
   */
  readonly laterLoopsWindow?: number;
  /** That gate is of the layer's input, with a norm of its own, instead of the query (LoopCoder-V2). */
  readonly loopGateOfInput?: true;
  /**
   * Later loops begin with the embedding and the state that the token before had after the loop before, each times a
   * number (LoopCoder).
   */
  readonly shiftsLoops?: { readonly embedding: number; readonly state: number };
  /** Tokens of a prompt attend to all of it: a prompt is read whole, and prompts share no prefix (HRM-Text). */
  readonly promptsBothWays?: true;
  /** Values are the keys before their rotation: neither projected nor cached (Lumma). */
  readonly valuesAreKeys?: true;
  /** The same, where both are cached all the same: as vLLM does, and `kv_cache_mode` "vanilla" (Lumma). */
  readonly copiesKeys?: true;
  readonly heads: number;
  readonly kvHeads: number;
  readonly headDim: number;
  readonly hidden: number;
  readonly mlpHidden: number;
  /** `gated`: gate, up and down projections (SwiGLU). `plain`: up and down. */
  readonly mlp: 'gated' | 'plain';
  readonly vocab: number;
  readonly tiedEmbeddings: boolean;
  /** Width of embedding and head, each with a projection to the hidden width (Nandi, Lumma); hidden unless given. */
  readonly embeddingRank?: number;
  /** RMSNorms a layer: 2 (before attention and MLP) or 4 (sandwich: also after each). */
  readonly normsPerLayer: 2 | 4;
  /** Norms have no weights (HRM-Text). */
  readonly plainNorms?: true;
  /** The two norms of a layer are of the branches, x + n(f(x)), and none before them (OLMo-2). */
  readonly normsOfBranches?: true;
  /**
   * What the norms after attention and MLP take: the branch before it is added, x + n(y) (Ouro; unless given), or the
   * sum, n(x + y) (Huginn).
   */
  readonly outputNorm?: 'branch' | 'sum';
  /** Extra learned scalars of a layer beside projections and norms (q/k/v biases, q/k norms, ...). */
  readonly extraParametersPerLayer: number;
  /**
   * Each loop ends with the state that it began with and a share of what it changed, a share for each scalar, of a
   * projection of the change of this rank (LoopUS).
   */
  readonly changeRank?: number;
  /** A projection of a layer's input whose sigmoid multiplies attention's output, a scalar each (HRM-Text). */
  readonly attentionGate?: true;
  /** Extra learned scalars outside the layers; their operations are not priced (under 1 % of a step). */
  readonly extraParameters?: number;
  /**
   * What mixes the prelude's output in before every loop: a 2·hidden → hidden projection of it and the state (Huginn),
   * or a hidden → hidden one of it alone, added to the decayed state (`input`, Parcae).
   */
  readonly adapter: boolean | 'input';
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
  /** Given where they are stored in fewer bits. */
  readonly quantised?: QuantisedWeights;
  /** `model_type` of the config.json that the shape was read from. */
  readonly modelType?: string;
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

/** A layer and a loop of a block. */
export interface LayerRun {
  readonly layer: number;
  readonly loop: number;
}

/** Layers and loops of a block in execution order: all layers of a loop, or all loops of a layer before the next. */
export function* layerRuns(g: Geometry, { layers, loops }: LayerBlock): Generator<LayerRun> {
  for (let i = 0; i < layers * loops; i++)
    yield g.loopsInRow
      ? { layer: Math.floor(i / loops), loop: i % loops }
      : { layer: i % layers, loop: Math.floor(i / layers) };
}

/** Where a core layer is in the runs of stacks that a pass consists of. */
export interface StackPlace {
  readonly stack: number;
  /** Number of the layer among the stored ones of the core. */
  readonly stored: number;
  /** It is the first or last layer of a run. */
  readonly begins: boolean;
  readonly ends: boolean;
}

/** The place of a core layer; without stacks the pass is one run. */
export function stackPlace({ layers, stacks = [{ layers, runs: 1 }] }: Geometry, layer: number): StackPlace {
  let [first, stored] = [0, 0];
  for (const [stack, own] of stacks.entries()) {
    const within = layer - first;
    if (within < own.layers * own.runs) {
      const at = within % own.layers;
      return { stack, stored: stored + at, begins: at === 0, ends: at === own.layers - 1 };
    }
    first += own.layers * own.runs;
    stored += own.layers;
  }
  throw new RangeError(`a pass has ${layers} layers, no ${layer}`);
}

/** Extras of a layer beside projections and norms: biases of q, k, v, o and the MLP, norms of queries and keys. */
export interface LayerExtras {
  readonly biases: readonly string[];
  /** Norms of each head of queries and keys (Qwen3), of queries alone (Lumma), or of whole rows of both (OLMo-2). */
  readonly norms: 'heads' | 'query-heads' | 'rows' | null;
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

/** Scalars of a layer's gates between the first loop's rows and a window: of each head its width and a bias. */
export const loopGateParameters = (g: Geometry): number =>
  g.loopGateOfInput ? g.heads * (g.hidden + 1) + g.hidden : g.heads * (g.headDim + 1);

function countedExtras(g: Geometry): LayerExtras | null {
  const parameters: Readonly<Record<string, number>> = {
    q: g.heads * g.headDim,
    k: g.kvHeads * g.headDim,
    v: g.kvHeads * g.headDim,
    o: g.hidden,
    mlp: (g.mlp === 'gated' ? 2 : 1) * g.mlpHidden + g.hidden,
  };
  const own = g.extraParametersPerLayer - (g.laterLoopsWindow === undefined ? 0 : loopGateParameters(g));
  // Norms of whole rows have as many weights as biases of queries and keys.
  if (g.normsOfBranches && g.extraParametersPerLayer === (g.heads + g.kvHeads) * g.headDim)
    return { biases: [], norms: 'rows' };
  for (const [norms, count] of [
    [null, 0],
    ['query-heads', g.headDim],
    ['heads', 2 * g.headDim],
  ] as const) {
    for (const mlp of [[], ['mlp']]) {
      for (const attention of ATTENTION_BIASES) {
        const biases = [...attention, ...mlp];
        if (biases.reduce((sum, bias) => sum + (parameters[bias] ?? 0), count) === own) return { biases, norms };
      }
    }
  }
  return null;
}

/** False where values are keys, whatever is cached of them. */
export const projectsValues = ({ valuesAreKeys, copiesKeys }: Geometry): boolean => !valuesAreKeys && !copiesKeys;

/** Scalars of a layer's projections: queries, keys, values, attention's gate and output, and the MLP's. */
export function layerProjections(g: Geometry): number {
  const rows = (g.attentionGate ? 3 : 2) * g.heads + (projectsValues(g) ? 2 : 1) * g.kvHeads;
  return g.hidden * (g.headDim * rows + (g.mlp === 'gated' ? 3 : 2) * g.mlpHidden);
}

/** Parameters of one layer: attention and MLP projections, norms, extras. */
export const layerParameters = (g: Geometry): number =>
  layerProjections(g) + (g.plainNorms ? 0 : g.normsPerLayer * g.hidden) + g.extraParametersPerLayer;

/** True where a state stays beside the stream: of the other stack, or that with which a loop began. */
export const keepsState = ({ stacks, changeRank }: Geometry): boolean =>
  stacks !== undefined || changeRank !== undefined;

/** Core layers that are stored; a pass may run some of them several times. */
export const storedCoreLayers = (g: Geometry): number =>
  g.stacks ? g.stacks.reduce((sum, { layers }) => sum + layers, 0) : g.layers;

/** Layers that are stored: prelude, core and coda. */
export const storedLayers = (g: Geometry): number => g.preludeLayers + storedCoreLayers(g) + g.codaLayers;

/** GPUs that may share the heads: each has as many query heads, and whole KV heads or one that others have, too. */
export const gpuCounts = ({ heads, kvHeads }: Pick<Geometry, 'heads' | 'kvHeads'>): number[] =>
  Array.from({ length: heads }, (_, i) => i + 1).filter(
    (n) => heads % n === 0 && (kvHeads % n === 0 || n % kvHeads === 0),
  );

/** Width of the embedding's and the head's rows. */
export const tableWidth = (g: Geometry): number => g.embeddingRank ?? g.hidden;

/** Scalars of embedding and head, without the projections beside tables of a lower rank. */
export const tableParameters = (g: Geometry): number => g.vocab * tableWidth(g) * (g.tiedEmbeddings ? 1 : 2);

/** Scalars that the adapter has, 0 without. */
const adapterParameters = (g: Geometry): number =>
  g.adapter === false ? 0 : (g.adapter === true ? 2 : 1) * g.hidden * g.hidden;

/** All parameters of the model. */
export function parameterCount(g: Geometry): number {
  const factors = g.embeddingRank === undefined ? 0 : 2 * g.embeddingRank * g.hidden;
  const gate = g.exitGate ? g.hidden + 1 : 0;
  return (
    storedLayers(g) * layerParameters(g) +
    tableParameters(g) +
    factors +
    adapterParameters(g) +
    gate +
    (g.plainNorms ? 0 : g.hidden) +
    (g.extraParameters ?? 0)
  );
}

/**
 * (layer, loop) pairs that each hold rows of all tokens: D·T for the core, D where later loops keep a window, plus
 * prelude and coda layers.
 */
export const cacheSlots = (g: Geometry): number =>
  g.preludeLayers + g.layers * (g.laterLoopsWindow === undefined ? g.loops : 1) + g.codaLayers;

/** Cached rows of a KV head in a slot: key and value, or the key alone. */
export const rowsOfSlot = (g: Geometry): 1 | 2 => (g.valuesAreKeys ? 1 : 2);

/** Scalars that later loops keep of a sequence in their windows, 0 without; fewer where it is shorter. */
export const windowScalars = (g: Geometry): number =>
  rowsOfSlot(g) * g.layers * (g.loops - 1) * (g.laterLoopsWindow ?? 0) * g.kvHeads * g.headDim;

type Blocks = Pick<Geometry, 'preludeLayers' | 'layers' | 'codaLayers' | 'loops' | 'stacks' | 'loopsInRow'>;

/** Layers × loops: `24 × 4`, `2 + 4 × 32 + 2`, `(16 × 3 + 16) × 2`, `16 × 2 in a row`. */
export function layersTimesLoops({ preludeLayers, layers, codaLayers, loops, stacks, loopsInRow }: Blocks): string {
  const pass = stacks
    ? `(${stacks.map((s) => (s.runs === 1 ? String(s.layers) : `${s.layers} × ${s.runs}`)).join(' + ')})`
    : String(layers);
  const core = `${pass} × ${loops}${loopsInRow ? ' in a row' : ''}`;
  return preludeLayers + codaLayers > 0 ? `${preludeLayers} + ${core} + ${codaLayers}` : core;
}
