/**
 * The operations of one decode step, in order. The cost model prices this list, the benchmarks measure the shapes that
 * it contains and the decoder executes it. layer.ts lists a layer.
 */
import { pathSpec } from '../codecs/paths.js';
import { codecSpec, isHybrid, isLatent } from '../codecs/registry.js';
import { keptTokens, weighsTokens } from '../eviction/policy.js';
import { blocksOf, type LayerBlock } from '../geometry/geometry.js';
import type { Configuration } from './configuration.js';
import { evictingRows } from './facts.js';
import { layerOps } from './layer.js';
import {
  adapterOps,
  embeddingOps,
  exitGate,
  firstState,
  headOps,
  loopChange,
  loopNorm,
  loopState,
  shiftOps,
  stackOps,
  type Choice,
} from './network.js';
import type { Op } from './op.js';

export type { Choice } from './network.js';
export { headsPerGpu, type Configuration } from './configuration.js';
export type { Op } from './op.js';
export { MAX_SPLITS, splitCount } from '../../kernels/shared/attention/splits.js';

/**
 * `once`: run in order. `stack`: for every loop, `loopStart`, then `layer` for every layer, then `loopEnd`. Where each
 * layer runs all its loops before the next, `loopStart` comes before the first layer, and `loopEnd` after the last one.
 */
export type Stage =
  | { readonly kind: 'once'; readonly ops: readonly Op[] }
  | {
      readonly kind: 'stack';
      readonly block: LayerBlock;
      readonly loopStart: readonly Op[];
      readonly layer: readonly Op[];
      /** Before and after each run of a stack, where a pass runs stacks in turn. */
      readonly runStart?: readonly Op[];
      readonly runEnd?: readonly Op[];
      readonly loopEnd: readonly Op[];
    };

/** How GPUs exchange: each gets the sum of all, or the concatenated parts of all. */
export type CollectiveKind = 'all-reduce' | 'all-gather';

export interface Collective {
  readonly label: string;
  readonly kind: CollectiveKind;
  readonly calls: number;
  /** Bytes of the result on each GPU. */
  readonly bytesEach: number;
}

/** The operations of one decode step. */
export interface Schedule {
  readonly stages: readonly Stage[];
  /** Exchanges between GPUs: none on one GPU. */
  readonly collectives: readonly Collective[];
}

/** Options of a step that are not part of its configuration. */
export interface StepOptions {
  /** Tokens that each cached row has room for: as many as it keeps unless given. */
  readonly slots?: number;
  /** How tokens are chosen; greedily unless given. */
  readonly choice?: Choice;
  /** Rows are tokens that follow each other (verification): each joins the cache before the next one attends. */
  readonly inTurn?: boolean;
}

/**
 * Lists the operations of one decode step.
 * @param batch sequences decoded together (≥ 1)
 * @param context tokens of each sequence before this step, evicted ones included (≥ 1)
 */
export function schedule(
  c: Configuration,
  batch: number,
  context: number,
  { slots = keptTokens(c.eviction, context), choice = 'greedy', inTurn = false }: StepOptions = {},
): Schedule {
  const stages: Stage[] = [{ kind: 'once', ops: embeddingOps(c, batch) }];
  for (const block of blocksOf(c.geometry)) {
    stages.push({
      kind: 'stack',
      block,
      loopStart: [
        ...adapterOps(c, block, batch),
        ...firstState(c, block, batch),
        ...loopState(c, block, batch),
        ...shiftOps(c, block, batch),
      ],
      ...stackOps(c, block, batch),
      layer: layerOps(c, block, batch, context, slots, inTurn),
      loopEnd: [...loopChange(c, block, batch), ...loopNorm(c, block, batch), ...exitGate(c, block, batch)],
    });
  }
  stages.push({ kind: 'once', ops: headOps(c, batch, choice) });
  return {
    stages,
    collectives: exchanges(c, {
      rows: batch,
      logits: batch,
      mass: batch * keptTokens(c.eviction, context),
      passes: 1,
    }),
  };
}

/**
 * Exchanges of a step or prefill: the embedding (its vocabulary is divided), attention and MLP of every layer run, the
 * adapter's columns, the logits. A latent that all heads share is a sum over the heads of all GPUs: over the loops too
 * (LLA-2D) it is exchanged once complete, in the last loop; for each loop (mla-head), in every one. H2O's mass of rows
 * that all heads share is summed as often as they evict.
 * @param n rows of activations and encoded latents, of logits, of H2O's f32 mass; and how often all of it is exchanged
 */
export function exchanges(
  c: Configuration,
  n: Readonly<Record<'rows' | 'logits' | 'mass' | 'passes', number>>,
): Collective[] {
  const g = c.geometry;
  if (c.gpus === 1) return [];
  const hidden = n.rows * g.hidden * 4;
  const layerRuns = blocksOf(g).reduce((sum, b) => sum + b.layers * b.loops, 0);
  const list: Collective[] = [
    { label: 'embedding', kind: 'all-reduce', calls: n.passes, bytesEach: hidden },
    { label: 'attention-out', kind: 'all-reduce', calls: n.passes * layerRuns, bytesEach: hidden },
    { label: 'down', kind: 'all-reduce', calls: n.passes * layerRuns, bytesEach: hidden },
    { label: 'logits', kind: 'all-gather', calls: 1, bytesEach: n.logits * g.vocab * 4 },
  ];
  if (g.adapter) list.push({ label: 'adapter', kind: 'all-gather', calls: n.passes * g.loops, bytesEach: hidden });
  if (!isLatent(c.codec)) return list;
  const { rankK = 0, rankV = 0 } = c.codec;
  const { loopAxis, latentFor } = codecSpec(c.codec);
  const calls = g.layers * (loopAxis ? 1 : g.loops);
  // Attention's input, which these encode, is whole on every GPU.
  if (latentFor === 'all-heads' && !isHybrid(c.codec))
    list.push({ label: 'encode', kind: 'all-reduce', calls, bytesEach: n.rows * (rankK + rankV) * 4 });
  const core = blocksOf(g).find((b) => b.name === 'core');
  const pooled = core !== undefined && !pathSpec(c.path).restores && g.kvHeads > 1 && evictingRows(c, core) === 1;
  if (n.mass > 0 && weighsTokens(c.eviction) && pooled)
    list.push({ label: 'mass', kind: 'all-reduce', calls, bytesEach: n.mass * 4 });
  return list;
}
