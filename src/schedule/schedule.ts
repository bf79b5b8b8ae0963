/**
 * The operations of one decode step, in order. The cost model prices this list, the benchmarks measure the shapes that
 * it contains and the decoder executes it. layer.ts lists a layer.
 */
import { CODECS, isLatent } from '../codecs/registry.js';
import { keptTokens } from '../eviction/policy.js';
import { blocksOf, type LayerBlock } from '../geometry/geometry.js';
import { op, project, type Configuration, type Op, type When } from './configuration.js';
import { evictingRows } from './eviction-ops.js';
import { layerOps } from './layer.js';

export {
  headsPerGpu,
  MAX_SPLITS,
  MIN_SPLIT_TOKENS,
  splitCount,
  type Configuration,
  type Op,
  type When,
} from './configuration.js';

/** `once`: run in order. `stack`: for every loop, `loopStart`, then `layer` for every layer, then `loopEnd`. */
export type Stage =
  | { readonly kind: 'once'; readonly ops: readonly Op[] }
  | {
      readonly kind: 'stack';
      readonly block: LayerBlock;
      readonly loopStart: readonly Op[];
      readonly layer: readonly Op[];
      readonly loopEnd: readonly Op[];
    };

/** How GPUs exchange: every one gets the sum of all, or the parts of all side by side. */
export type CollectiveKind = 'all-reduce' | 'all-gather';

export interface Collective {
  readonly label: string;
  readonly kind: CollectiveKind;
  readonly calls: number;
  /** Bytes of the result on each GPU. */
  readonly bytesEach: number;
}

export interface Schedule {
  readonly stages: readonly Stage[];
  /** Exchanges between GPUs: none on one GPU. */
  readonly collectives: readonly Collective[];
}

/**
 * Lists the operations of one decode step.
 * @param batch sequences decoded together (≥ 1)
 * @param context tokens of each sequence before this step, evicted ones included (≥ 1)
 * @param slots tokens that each cached row has room for: as many as it keeps unless given
 */
export function schedule(
  c: Configuration,
  batch: number,
  context: number,
  slots = keptTokens(c.eviction, context),
): Schedule {
  const g = c.geometry;
  const stages: Stage[] = [{ kind: 'once', ops: [op('embedding', 'embed', 'f16', { rows: batch, width: g.hidden })] }];
  for (const block of blocksOf(g)) {
    const core = block.name === 'core';
    stages.push({
      kind: 'stack',
      block,
      loopStart: core && g.adapter ? project(c, 'adapter', batch, 2 * g.hidden, Math.ceil(g.hidden / c.gpus)) : [],
      layer: layerOps(c, block, batch, context, slots),
      loopEnd: core ? loopEnd(c, batch) : [],
    });
  }
  const tail = [
    ...project(c, 'lm-head', batch, g.hidden, Math.ceil(g.vocab / c.gpus)),
    op('sample', 'sample', 'greedy', { rows: batch, vocab: g.vocab }),
  ];
  if (!g.normAfterEachLoop) tail.unshift(op('final-norm', 'rmsnorm', 'norm', { rows: batch, width: g.hidden }));
  stages.push({ kind: 'once', ops: tail });
  return {
    stages,
    collectives: exchanges(c, {
      rows: batch,
      encoded: batch,
      logits: batch,
      mass: batch * keptTokens(c.eviction, context),
      passes: 1,
    }),
  };
}

function loopEnd(c: Configuration, batch: number): Op[] {
  const g = c.geometry;
  const ops: Op[] = [];
  if (g.normAfterEachLoop) ops.push(op('loop-norm', 'rmsnorm', 'norm', { rows: batch, width: g.hidden }));
  if (g.exitGate) ops.push(...project(c, 'exit-gate', batch, g.hidden, 1));
  return ops;
}

/**
 * Rows of what GPUs exchange: `rows` of activations, `encoded` latents, `logits`, f32 `mass` of H2O; and how often all
 * of it is.
 */
export interface Exchanged {
  readonly rows: number;
  readonly encoded: number;
  readonly logits: number;
  readonly mass: number;
  readonly passes: number;
}

/**
 * Exchanges of a step or prefill: the embedding (its vocabulary is divided), attention and MLP of every layer run, the
 * adapter's columns, the logits. A latent that all heads share is a sum over the heads of all GPUs: over the loops too
 * (LLA-2D) it is exchanged once complete, in the last loop; for each loop (mla-head), in every one. H2O's mass of rows
 * that all heads share is summed as often as they evict.
 */
export function exchanges(c: Configuration, n: Exchanged): Collective[] {
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
  const { kind, rankK = 0, rankV = 0 } = c.codec;
  const calls = g.layers * (CODECS[kind].loopAxis ? 1 : g.loops);
  if (kind !== 'lla')
    list.push({ label: 'encode', kind: 'all-reduce', calls, bytesEach: n.encoded * (rankK + rankV) * 4 });
  const core = blocksOf(g).find((b) => b.name === 'core');
  const pooled = core !== undefined && c.path !== 'fast' && g.kvHeads > 1 && evictingRows(c, core) === 1;
  if (n.mass > 0 && c.eviction?.policy === 'h2o' && pooled)
    list.push({ label: 'mass', kind: 'all-reduce', calls, bytesEach: n.mass * 4 });
  return list;
}

/** How often an operation of a stage's `layer` list runs in a step. */
export function layerCalls(c: Configuration, block: LayerBlock, when: When): number {
  if (when === 'first-loop' || when === 'last-loop') return block.layers;
  if (when === 'owning-layer' || when === 'closing-layer')
    return (block.layers / (c.codec.shareLayers ?? 1)) * block.loops;
  return block.layers * block.loops;
}

/** Visits every operation with the number of times that it runs in one step. */
export function forEachOp(c: Configuration, s: Schedule, visit: (op: Op, calls: number) => void): void {
  for (const stage of s.stages) {
    if (stage.kind === 'once') {
      for (const o of stage.ops) visit(o, o.repeat);
      continue;
    }
    for (const o of stage.loopStart) visit(o, stage.block.loops * o.repeat);
    for (const o of stage.layer) visit(o, layerCalls(c, stage.block, o.when) * o.repeat);
    for (const o of stage.loopEnd) visit(o, stage.block.loops * o.repeat);
  }
}
