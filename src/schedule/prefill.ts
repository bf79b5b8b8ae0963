/**
 * The operations of a prompt's prefill (cost/memory.ts, prefillPeaks): layer by layer over a run of its tokens, products and
 * attention in chunks, with the K and V of one (layer, loop) in 16 bits (32 where the cache has 32). Pass 1 is the exact
 * forward; it writes the cache, latents after their loops have accumulated. Pass 2 takes the run again on what the cache holds,
 * which is what decoding continues: latents are read back and reconstructed. Codecs without latents need no pass 2. `accumulated`
 * takes the whole prompt as one run. `chunked` has a run for each chunk, which attends to those before it in the cache.
 */
import { CODECS, isLatent } from '../codecs/registry.js';
import { blocksOf } from '../geometry/geometry.js';
import { headsPerGpu, op, perHead, project, storageOf, type Configuration, type Op, type When } from './configuration.js';
import { branchKeyTime, branchWidth, closingTime, readsLatents } from './eviction-ops.js';
import { groupOf } from './kernels.js';
import { attendOps, encoders, readBackOps, turnsQueries } from './prefill-attend.js';
import { stayingOps } from './prefill-staying.js';
import { chunksOf, keepsRows, PREFILL_CHUNK_TOKENS, prefillRowType, runsOf, setsRowsAside, type Chunk, type Pass, type WholePrompt } from './prefill-pass.js';
import { exchanges, type Schedule, type Stage } from './schedule.js';

export { turnsQueries } from './prefill-attend.js';
export { heldOf, keepsRows, PREFILL_CHUNK_TOKENS, prefillRowType, runsOf, setsRowsAside, shiftOf, type Chunk, type WholePrompt } from './prefill-pass.js';

/**
 * Lists the operations that prefill `batch` prompts of `promptTokens` each (both ≥ 1). Where tokens are
 * evicted, a run's rows join the cache when all have attended to what it held before; H2O's choice among them is not listed: it has no
 * kernel for whole prompts.
 */
export function prefillSchedule(c: Configuration, promptTokens: number, batch: number, chunkTokens = PREFILL_CHUNK_TOKENS, method: WholePrompt = 'accumulated'): Schedule {
  const runs = runsOf(method, 0, promptTokens, chunkTokens);
  const parts = runs.map((run, i) => runSchedule(c, run, batch, chunkTokens, i === runs.length - 1));
  return { stages: parts.flatMap((part) => part.stages), collectives: parts.flatMap((part) => part.collectives) };
}

/**
 * Lists the operations of one run of tokens, whose positions begin behind those that the caches hold. A run behind others is a chunk.
 * @param ends the prompts end with it: logits of their last tokens are wanted
 */
export function runSchedule(c: Configuration, run: Chunk, batch: number, chunkTokens: number, ends: boolean): Schedule {
  const g = c.geometry;
  const passes = isLatent(c.codec) ? 2 : 1;
  const chunks = chunksOf({ from: 0, tokens: run.tokens }, chunkTokens);
  const rows = batch * run.tokens;
  const stages: Stage[] = [];
  for (let pass = 1; pass <= passes; pass++) {
    stages.push({ kind: 'once', ops: [op('embedding', 'embed', 'f16', { rows, width: g.hidden })] });
    for (const block of blocksOf(g)) {
      const core = block.name === 'core';
      const adapter = core && g.adapter ? over(chunks, (chunk) => project(c, 'adapter', batch * chunk.tokens, 2 * g.hidden, Math.ceil(g.hidden / c.gpus))) : [];
      const loopNorm = core && g.normAfterEachLoop ? [op('loop-norm', 'rmsnorm', 'norm', { rows, width: g.hidden })] : [];
      stages.push({ kind: 'stack', block, loopStart: adapter, layer: layerOps({ c, block, run, batch, again: pass === 2, chunkTokens }, chunks), loopEnd: loopNorm });
    }
  }
  if (ends) stages.push({ kind: 'once', ops: headOps(c, batch) });
  const exchanged = exchanges(c, { rows, encoded: rows, logits: batch, mass: 0, passes });
  return { stages, collectives: exchanged.filter(({ label }) => ends || label !== 'logits') };
}

/** Only the last token's logits are wanted, of the last pass. */
function headOps(c: Configuration, batch: number): Op[] {
  const g = c.geometry;
  return [
    ...(g.normAfterEachLoop ? [] : [op('final-norm', 'rmsnorm', 'norm', { rows: batch, width: g.hidden })]),
    ...project(c, 'lm-head', batch, g.hidden, Math.ceil(g.vocab / c.gpus)),
    op('sample', 'sample', 'greedy', { rows: batch, vocab: g.vocab }),
  ];
}

/** Operations of every chunk, one chunk after the other. */
const over = (chunks: readonly Chunk[], list: (chunk: Chunk) => readonly Op[]): Op[] => chunks.flatMap((chunk) => list(chunk).map((o) => ({ from: chunk.from, ...o })));

function layerOps(p: Pass, chunks: readonly Chunk[]): Op[] {
  const { c, batch, run } = p;
  const g = c.geometry;
  const mlp = Math.ceil(g.mlpHidden / c.gpus);
  const norm = (label: string, variant: string) => op(label, 'rmsnorm', variant, { rows: batch * run.tokens, width: g.hidden });
  const afterBranch = g.normsPerLayer === 4 ? 'norm-add' : 'add';
  return [
    norm('attention-norm', 'norm'),
    ...over(chunks, (chunk) => attentionOps(p, chunk)),
    norm('attention-residual', afterBranch),
    norm('mlp-norm', 'norm'),
    ...over(chunks, (chunk) => [
      ...(g.mlp === 'gated' ? project(c, 'gate-up', batch * chunk.tokens, g.hidden, 2 * mlp) : project(c, 'up', batch * chunk.tokens, g.hidden, mlp)),
      op('swiglu', 'swiglu', 'f32', { rows: batch * chunk.tokens, width: mlp }),
      ...project(c, 'down', batch * chunk.tokens, mlp, g.hidden),
    ]),
    norm('mlp-residual', afterBranch),
  ];
}

/** Attention of a chunk, from its projections to that of its output. */
function attentionOps(p: Pass, chunk: Chunk): Op[] {
  const { c, block, batch, again } = p;
  const g = c.geometry;
  const d = g.headDim;
  const heads = headsPerGpu(g.heads, c.gpus);
  const kvHeads = headsPerGpu(g.kvHeads, c.gpus);
  const rows = batch * chunk.tokens;
  const shares = block.name === 'core' && c.codec.kind === 'cla';
  const owning: When = shares ? 'owning-layer' : 'always';
  const branch = branchWidth(c, block);
  const branchHeads = c.branch.perHead ? kvHeads : 1;
  const rotate = (label: string, count: number, width: number, when: When = 'always') => op(label, 'rope', g.rope.pairing, { rows, heads: count, headDim: width }, when);
  const keep = (label: string) => op(label, 'append', prefillRowType(c), { rows, heads: kvHeads, width: d, groupSize: 0 }, owning);
  const keyed = again && !readsLatents(c, block) ? 0 : kvHeads;
  const turned = turnsQueries(p);
  return [
    ...(shares ? [...project(c, 'q', rows, g.hidden, heads * d), ...project(c, 'kv', rows, g.hidden, 2 * kvHeads * d, owning)] : project(c, 'qkv', rows, g.hidden, (heads + 2 * kvHeads) * d + branch * heads)),
    ...(branch > 0 && !again ? project(c, 'branch-key', rows, g.hidden, branch * branchHeads, branchKeyTime(c)) : []),
    ...(again ? readBackOps(p, rows) : encodeOps(p, chunk, kvHeads)),
    ...(branch > 0 ? [rotate('rope-branch', heads, branch), ...(again ? [] : [rotate('rope-branch-key', branchHeads, branch, branchKeyTime(c))])]
      : shares || turned ? [...(turned ? [] : [rotate('rope', heads, d)]), ...(keyed > 0 ? [rotate('rope-k', kvHeads, d, owning)] : [])] : [rotate('rope', heads + keyed, d)]),
    ...(again || (c.eviction !== null && !setsRowsAside(c)) ? [] : appendOps(p, chunk, kvHeads)),
    ...(keepsRows(c) ? [keep('keep-k'), keep('keep-v')] : []),
    ...attendOps(p, chunk),
    ...(again ? [] : closingOps(p, chunk, kvHeads)),
    ...project(c, 'attention-out', rows, heads * d, g.hidden),
    ...stayingOps(p, chunk),
  ];
}

/** Encoding of exact keys and values in one loop. */
function encodeOps(p: Pass, chunk: Chunk, kvHeads: number): Op[] {
  const { c, block, batch } = p;
  const rows = batch * chunk.tokens;
  if (block.name !== 'core' || !isLatent(c.codec)) return [];
  const { rankK = 0, rankV = 0 } = c.codec;
  const [groups, width] = encoders(c, kvHeads);
  return [perHead('encode-k', groups, rows, width, rankK), perHead('encode-v', groups, rows, width, rankV)];
}

const appendOf = (c: Configuration, label: string, rows: number, heads: number, width: number, when: When): Op =>
  op(label, 'append', storageOf(c), { rows, heads, width, groupSize: groupOf(storageOf(c), c.choice.groupSize) }, when);

/** Writing of rows of full width, before attention may read them. */
function appendOps(p: Pass, chunk: Chunk, kvHeads: number): Op[] {
  const { c, block, batch } = p;
  const rows = batch * chunk.tokens;
  if (block.name === 'core' && isLatent(c.codec)) return [];
  const when: When = block.name === 'core' && c.codec.kind === 'cla' ? 'owning-layer' : closingTime(c, block);
  return [appendOf(c, 'append-k', rows, kvHeads, c.geometry.headDim, when), appendOf(c, 'append-v', rows, kvHeads, c.geometry.headDim, when)];
}

/** Writing of latents that are complete, or of the rows of all their loops on the fast path. */
function closingOps(p: Pass, chunk: Chunk, kvHeads: number): Op[] {
  const { c, block, batch } = p;
  const rows = batch * chunk.tokens;
  if (block.name !== 'core' || !isLatent(c.codec)) return [];
  const { kind, rankK = 0, rankV = 0 } = c.codec;
  const d = c.geometry.headDim;
  const when = closingTime(c, block);
  if (c.path === 'fast') {
    const loops = CODECS[kind].loopAxis ? block.loops : 1;
    const [groups, width] = encoders(c, kvHeads);
    return [
      perHead('restore-k', groups, rows, rankK, loops * width, when),
      op('rope-write', 'rope', c.geometry.rope.pairing, { rows, heads: loops * kvHeads, headDim: d }, when),
      appendOf(c, 'append-k', rows, loops * kvHeads, d, when),
      perHead('restore-v', groups, rows, rankV, loops * width, when),
      appendOf(c, 'append-v', rows, loops * kvHeads, d, when),
    ];
  }
  const latents = kind === 'lla' ? kvHeads : 1;
  const branch = branchWidth(c, block);
  return [appendOf(c, 'append-k', rows, latents, rankK, when), appendOf(c, 'append-v', rows, latents, rankV, when), ...(branch > 0 ? [appendOf(c, 'append-branch', rows, c.branch.perHead ? kvHeads : 1, branch, when)] : [])];
}
