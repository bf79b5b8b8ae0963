/**
 * The looped transformer in float64, with attention left open: `run` asks for it at every (layer, loop), so that the
 * same network serves the exact forward pass, decoding from any cache and both passes of prefill.
 *
 *   layer:  x += n2(attention(n1(x))),  x += n4(mlp(n3(x)));  n2 and n4 are identities in pre-norm layers, n1 and n3
 *           where norms are of the branches alone (OLMo-2)
 *           x = n2(x + attention(n1(x))),  x = n4(x + mlp(n3(x)))  where norms are of the sum (Huginn)
 *   loop:   every core layer in turn, then the shared norm, whose output feeds the next loop (where the geometry
 *           says so), or every layer all its loops before the next layer (Nandi)
 *   model:  embedding · prelude · T loops of the core, each begun by the adapter on [state; prelude's output]
 *           · a norm (Huginn) · coda · norm · head; tables of a lower rank have a projection each (Nandi)
 *
 * HRM-Text has two stacks and a state of each: the embedding is the high stack's. A run of a stack begins with the sum
 * of both states and ends with a norm; the low stack runs several times, then the high one. A gate, σ(W_g n1(x)),
 * multiplies attention's output (transformers, modular_hrm_text.py, Apache-2.0). Its prompts are read causally here.
 *
 * LoopCoder's later loops begin with the embedding and the state that the token before had after the loop before, zero
 * before the first token, each times a number (arXiv 2510.24824).
 *
 * A loop of LoopUS ends with a share of what it changed. All loops run: its own code may stop before.
 *
 * The state of a model with an adapter starts at zero. Huginn's own code draws it from a normal distribution, or takes
 * zeros where it wants the same text again (recurrent-pretraining, Apache-2.0: `input_states` of its converter's test).
 */
import { UserError } from '../../errors.js';
import {
  blocksOf,
  layerRuns,
  stackPlace,
  storedCoreLayers,
  tableWidth,
  type Geometry,
  type LayerBlock,
} from '../../geometry/geometry.js';
import { accumulate, dot, joined, product, rmsNorm, rotate, split, swiglu, type Vector } from './arithmetic.js';
import type { LayerWeights, Model } from './model.js';

export interface Site {
  readonly block: LayerBlock['name'];
  /** Within its block. */
  readonly layer: number;
  readonly loop: number;
}

/** Inputs of attention from one token at a site; nothing is rotated yet. */
export interface Projection {
  readonly position: number;
  /** n1(x), hidden wide: the input of every projection. */
  readonly input: Vector;
  /** One vector of head width a query head, KV head and KV head. */
  readonly queries: readonly Vector[];
  readonly keys: readonly Vector[];
  readonly values: readonly Vector[];
}

/** A token's attention, its query heads end to end. @param head attention of one, and the KV head that it reads */
export function overHeads(
  { heads, kvHeads }: Pick<Geometry, 'heads' | 'kvHeads'>,
  { queries }: Projection,
  head: (query: Vector, head: number, kvHead: number) => Vector,
): Vector {
  const group = heads / kvHeads;
  return joined(queries.map((query, n) => head(query, n, Math.floor(n / group))));
}

/** Attention's output, the query heads end to end, for every token of a pass. */
export type Attention = (site: Site, tokens: readonly Projection[], how?: AttentionOptions) => Vector[];

interface AttentionOptions {
  /** Tokens that each attends to at most, the last, itself included; to all unless given. */
  readonly window?: number;
  /** The site's keys and values were written before: only the queries, of a later loop, are new. */
  readonly rowsWritten?: true;
}

/**
 * Attention of a loop after the first where it reads the first one's rows, and a window of its own: g · global + (1 −
 * g) · local, g = σ(w q + b) of each head, with q rotated (IQuestLoopCoderAttention of its publishers, Apache-2.0), or
 * g = σ(w n(x) + b) of the layer's input x (LoopGateProjection of github.com/yxing-bj/vllm, Apache-2.0).
 * @param states the layer's input
 */
function mixedAttention(
  model: Model,
  {
    gate,
    states,
    firsts,
    attention,
  }: {
    gate: LayerWeights['loopGate'];
    states: readonly Vector[];
    firsts: readonly Projection[];
    attention: Attention;
  },
  site: Site,
  tokens: readonly Projection[],
): Vector[] {
  const { headDim, rope, laterLoopsWindow: window } = model.geometry;
  const { weight, bias, norm } = gate as NonNullable<LayerWeights['loopGate']>;
  const asked = tokens.map((token, n) => ({ ...(firsts[n] as Projection), queries: token.queries }));
  const global = attention({ ...site, loop: 0 }, asked, { rowsWritten: true });
  const local = attention(site, tokens, window === undefined ? {} : { window });
  return tokens.map(({ queries, position }, n) => {
    const input = norm && rmsNorm(states[n] as Vector, norm, model.normEpsilon);
    return joined(
      queries.map((query, head) => {
        const own = weight.data.subarray(head * weight.columns, (head + 1) * weight.columns);
        const g = 1 / (1 + Math.exp(-dot(input ?? rotate(query, position, rope), own) - (bias[head] as number)));
        const part = (of: Vector): Vector => of.subarray(head * headDim, (head + 1) * headDim);
        return part(global[n] as Vector).map((y, i) => g * y + (1 - g) * (part(local[n] as Vector)[i] as number));
      }),
    );
  });
}

/**
 * s + a (x - s), a = exp(-softplus(W_up W_down (x - s) + b) e^r), of the state s with which a loop began and its own x
 * (SelectiveGate of github.com/Thrillcrazyer/LoopUS at 349669d, models/modeling_lds.py, Apache-2.0).
 */
function changed({ down, up, bias, logRate }: NonNullable<Model['change']>, began: Vector, x: Vector): Vector {
  const change = x.map((value, i) => value - (began[i] as number));
  return product(up, product(down, change), bias).map((y, i) => {
    const softplus = Math.max(y, 0) + Math.log1p(Math.exp(-Math.abs(y)));
    const kept = Math.exp(-softplus * Math.exp(logRate[i] as number));
    return (began[i] as number) + kept * (change[i] as number);
  });
}

/** Places of the tokens of a pass that run a loop of the core, ascending. @param states of all tokens before it */
export type RowsOfLoop = (loop: number, states: readonly Vector[]) => readonly number[];

function project(model: Model, layer: LayerWeights, x: Vector, position: number): Projection {
  const { headDim } = model.geometry;
  const normed = (row: Vector, weight: Vector | undefined): Vector =>
    weight ? rmsNorm(row, weight, model.normEpsilon) : row;
  const input = normed(x, layer.attentionNorm);
  // A norm is of a whole row where its weight is as wide.
  const heads = (row: Vector, norm: Vector | undefined): Vector[] =>
    norm?.length === row.length
      ? split(normed(row, norm), headDim)
      : split(row, headDim).map((head) => normed(head, norm));
  return {
    position,
    input,
    queries: heads(product(layer.query, input, layer.queryBias), layer.queryNorm),
    keys: heads(product(layer.key, input, layer.keyBias), layer.keyNorm),
    values: split(product(layer.value, input, layer.valueBias), headDim),
  };
}

export interface RunOptions {
  /** Tokens that run a loop, all unless given; the states of the others stay. */
  readonly rowsOf?: RowsOfLoop;
  /** Loops of the core, after which its output is taken; all unless given. */
  readonly exitAfter?: number;
  /**
   * The state after each loop of the token before the pass, which becomes that of its last one; where later loops begin
   * with it.
   */
  readonly before?: Vector[];
}

/**
 * Runs the network on consecutive tokens, all of them through one layer before the next.
 * @param positions of the tokens
 * @returns logits, vocabulary wide, one vector a token
 * @throws UserError for a token outside the vocabulary
 */
export function run(
  model: Model,
  tokens: readonly number[],
  positions: readonly number[],
  attention: Attention,
  { rowsOf, exitAfter = Infinity, before = [] }: RunOptions = {},
): Vector[] {
  const { geometry: g, normEpsilon, adapter, change, lowState } = model;
  const addBranch = (x: Vector, branch: Vector, weight: Vector | undefined): void => {
    const ofSum = weight !== undefined && g.outputNorm === 'sum';
    accumulate(x, weight && !ofSum ? rmsNorm(branch, weight, normEpsilon) : branch);
    if (ofSum) x.set(rmsNorm(x, weight, normEpsilon));
  };
  const hidden: Vector[] = tokens.map((token) => {
    if (!Number.isInteger(token) || token < 0 || token >= g.vocab)
      throw new UserError(`token ${token} is not one of the model's ${g.vocab}`, 'give token numbers from 0');
    const row = model.embedding.data.slice(token * tableWidth(g), (token + 1) * tableWidth(g));
    return model.embeddingUp ? product(model.embeddingUp, row) : row;
  });
  const all = tokens.map((_, n) => n);
  let firstLayer = 0;
  for (const block of blocksOf(g)) {
    const core = block.name === 'core';
    const preludeOutput = hidden.map((x) => x.slice());
    if (core && adapter) for (const x of hidden) x.fill(0);
    /** States of the stack that does not run. */
    const others: Vector[] = core && lowState ? hidden.map(() => lowState.slice()) : [];
    let stack = 1;
    let rows: readonly number[] = all;
    /** States with which a loop began, where its end takes them in. */
    let began: readonly Vector[] = [];
    const firsts = new Map<number, readonly Projection[]>();
    for (const { layer: i, loop } of layerRuns(g, block)) {
      if (core && loop >= exitAfter) continue;
      const run = core ? stackPlace(g, i) : undefined;
      if (run?.begins)
        for (const [n, other] of others.entries()) {
          if (run.stack !== stack) [hidden[n], others[n]] = [other, hidden[n] as Vector];
          accumulate(hidden[n] as Vector, others[n] as Vector);
        }
      stack = run?.stack ?? stack;
      const shift = g.shiftsLoops;
      if (i === 0 && loop > 0 && core && shift) {
        const states = hidden.map((x) => x.slice());
        hidden.forEach((x, n) => {
          x.set((preludeOutput[n] as Vector).map((e) => e * shift.embedding));
          const state = n > 0 ? states[n - 1] : before[loop - 1];
          if (state) accumulate(x, state, shift.state);
        });
        before[loop - 1] = states.at(-1) as Vector;
      }
      if (i === 0) rows = (core ? rowsOf?.(loop, hidden) : undefined) ?? all;
      const states = rows.map((n) => hidden[n] as Vector);
      if (i === 0 && core && change) began = states.map((x) => x.slice());
      if (i === 0 && core && adapter)
        states.forEach((x, k) => x.set(product(adapter, joined([x, preludeOutput[rows[k] as number] as Vector]))));
      const layer = model.layers[firstLayer + (run?.stored ?? i)] as LayerWeights;
      const projections = states.map((x, k) => project(model, layer, x, positions[rows[k] as number] as number));
      const site = { block: block.name, layer: i, loop };
      if (loop === 0) firsts.set(i, projections);
      const windowed = core && loop > 0 && g.laterLoopsWindow !== undefined;
      const attended = windowed
        ? mixedAttention(
            model,
            { gate: layer.loopGate, states, firsts: firsts.get(i) as readonly Projection[], attention },
            site,
            projections,
          )
        : attention(site, projections);
      attended.forEach((heads, k) => {
        const x = states[k] as Vector;
        if (layer.attentionGate) {
          const gates = product(layer.attentionGate, (projections[k] as Projection).input);
          gates.forEach((gate, j) => (heads[j] = (heads[j] as number) / (1 + Math.exp(-gate))));
        }
        addBranch(x, product(layer.output, heads), layer.attentionOutNorm);
        const input = layer.mlpNorm ? rmsNorm(x, layer.mlpNorm, normEpsilon) : x;
        addBranch(
          x,
          product(layer.down, swiglu(product(layer.gate, input), product(layer.up, input))),
          layer.mlpOutNorm,
        );
      });
      if (change && core && i === block.layers - 1)
        states.forEach((x, k) => x.set(changed(change, began[k] as Vector, x)));
      if (g.stacks ? run?.ends : i === block.layers - 1 && core && g.normAfterEachLoop)
        for (const x of states) x.set(rmsNorm(x, model.norm, normEpsilon));
    }
    if (core && model.coreNorm) for (const x of hidden) x.set(rmsNorm(x, model.coreNorm, normEpsilon));
    firstLayer += core ? storedCoreLayers(g) : block.layers;
  }
  return hidden.map((x) => {
    const last = g.normAfterEachLoop ? x : rmsNorm(x, model.norm, normEpsilon);
    return product(model.head, model.headDown ? product(model.headDown, last) : last);
  });
}
