/**
 * The operations of the `accumulated` prefill (cost/memory.ts, prefillPeaks): layer by layer over the whole prompt, in
 * chunks of tokens, with the K and V of one (layer, loop) in 16 bits. Pass 1 is the exact forward; latent codecs encode in
 * it, loops accumulating, and pass 2 runs the prompt again on their reconstruction, which is what decoding continues.
 * Codecs without latents write their cache in pass 1 and need no other.
 */
import { CODECS, isLatent } from '../codecs/registry.js';
import { keptTokens } from '../eviction/policy.js';
import { blocksOf, type LayerBlock } from '../geometry/geometry.js';
import { headsPerGpu, op, perHead, project, storageOf, type Configuration, type Op, type When } from './configuration.js';
import { branchKeyTime, branchWidth, closingTime, readsLatents } from './eviction-ops.js';
import { groupOf } from './kernels.js';
import { exchanges, type Schedule, type Stage } from './schedule.js';

/** Prompt tokens that are worked on at once. */
export const PREFILL_CHUNK_TOKENS = 2048;

/** A run of equal chunks of a prompt. */
interface Run {
  readonly tokens: number;
  readonly repeat: number;
}

/** Whole chunks of `tokens` a sequence, and the rest. */
function chunksOf(tokens: number): Run[] {
  const whole = Math.floor(tokens / PREFILL_CHUNK_TOKENS);
  const rest = tokens % PREFILL_CHUNK_TOKENS;
  return [...(whole > 0 ? [{ tokens: PREFILL_CHUNK_TOKENS, repeat: whole }] : []), ...(rest > 0 ? [{ tokens: rest, repeat: 1 }] : [])];
}

/**
 * Lists the operations that prefill `batch` prompts of `promptTokens` each (both ≥ 1). Under StreamingLLM only the tokens
 * that stay are encoded and written; H2O's choice among them is not listed: it has no kernel for whole prompts.
 */
export function prefillSchedule(c: Configuration, promptTokens: number, batch: number): Schedule {
  const g = c.geometry;
  const passes = isLatent(c.codec) ? 2 : 1;
  const stages: Stage[] = [];
  for (let pass = 1; pass <= passes; pass++) {
    stages.push({ kind: 'once', ops: [op('embedding', 'embed', 'f16', { rows: batch * promptTokens, width: g.hidden })] });
    for (const block of blocksOf(g)) {
      const core = block.name === 'core';
      const adapter = core && g.adapter ? overChunks(promptTokens, (run) => project(c, 'adapter', batch * run.tokens, 2 * g.hidden, Math.ceil(g.hidden / c.gpus))) : [];
      const loopNorm = core && g.normAfterEachLoop ? [op('loop-norm', 'rmsnorm', 'norm', { rows: batch * promptTokens, width: g.hidden })] : [];
      stages.push({ kind: 'stack', block, loopStart: adapter, layer: layerOps(c, block, promptTokens, batch, pass), loopEnd: loopNorm });
    }
  }
  // Only the last token's logits are wanted, of the last pass.
  const head = [...project(c, 'lm-head', batch, g.hidden, Math.ceil(g.vocab / c.gpus)), op('sample', 'sample', 'greedy', { rows: batch, vocab: g.vocab })];
  if (!g.normAfterEachLoop) head.unshift(op('final-norm', 'rmsnorm', 'norm', { rows: batch, width: g.hidden }));
  stages.push({ kind: 'once', ops: head });
  return { stages, collectives: exchanges(c, { rows: batch * promptTokens, encoded: batch * keptTokens(c.eviction, promptTokens), logits: batch, mass: 0, passes }) };
}

/** Operations of every chunk, equal ones as one that is repeated. */
const overChunks = (tokens: number, list: (run: Run) => Op[]): Op[] => chunksOf(tokens).flatMap((run) => list(run).map((o) => ({ ...o, repeat: o.repeat * run.repeat })));

function layerOps(c: Configuration, block: LayerBlock, tokens: number, batch: number, pass: number): Op[] {
  const g = c.geometry;
  const d = g.headDim;
  const heads = headsPerGpu(g.heads, c.gpus);
  const kvHeads = headsPerGpu(g.kvHeads, c.gpus);
  const mlp = Math.ceil(g.mlpHidden / c.gpus);
  const latent = block.name === 'core' && isLatent(c.codec);
  const shares = block.name === 'core' && c.codec.kind === 'cla';
  const norm = (label: string, variant: string) => op(label, 'rmsnorm', variant, { rows: batch * tokens, width: g.hidden });
  const afterBranch = g.normsPerLayer === 4 ? 'norm-add' : 'add';
  const branch = branchWidth(c, block);
  const branchKeys = c.branch.perHead ? kvHeads : 1;
  const rotate = (label: string, count: number, width: number, when: When = 'always') => op(label, 'rope', g.rope.pairing, { rows: batch * tokens, heads: count, headDim: width }, when);
  const products = (label: string, k: number, n: number, when: When = 'always') => overChunks(tokens, (run) => project(c, label, batch * run.tokens, k, n, when));
  const rebuilt = latent && pass === 2;
  return [
    norm('attention-norm', 'norm'),
    ...(shares ? [...products('q', g.hidden, heads * d), ...products('kv', g.hidden, 2 * kvHeads * d, 'owning-layer')]
      : rebuilt ? products('q', g.hidden, heads * d + branch * heads) : products('qkv', g.hidden, (heads + 2 * kvHeads) * d + branch * heads)),
    ...(branch > 0 && !rebuilt ? products('branch-key', g.hidden, branch * branchKeys, branchKeyTime(c)) : []),
    ...(latent ? (rebuilt ? codecProducts(c, 'reconstruct', tokens, batch, kvHeads) : codecProducts(c, 'encode', keptTokens(c.eviction, tokens), batch, kvHeads)) : []),
    ...(branch > 0 ? [rotate('rope-branch', heads, branch), ...(rebuilt ? [] : [rotate('rope-branch-key', branchKeys, branch, branchKeyTime(c))])]
      : shares ? [rotate('rope', heads, d), rotate('rope-k', kvHeads, d, 'owning-layer')] : [rotate('rope', heads + kvHeads, d)]),
    ...attention(c, block, tokens, batch, heads, kvHeads),
    ...appendOps(c, block, keptTokens(c.eviction, tokens), batch, kvHeads, pass),
    ...products('attention-out', heads * d, g.hidden),
    norm('attention-residual', afterBranch),
    norm('mlp-norm', 'norm'),
    ...(g.mlp === 'gated' ? products('gate-up', g.hidden, 2 * mlp) : products('up', g.hidden, mlp)),
    op('swiglu', 'swiglu', 'f32', { rows: batch * tokens, width: mlp }),
    ...products('down', mlp, g.hidden),
    norm('mlp-residual', afterBranch),
  ];
}

/** Causal attention of each chunk over the tokens before it and its own, on exact rows or on reconstructed ones. */
function attention(c: Configuration, block: LayerBlock, tokens: number, batch: number, heads: number, kvHeads: number): Op[] {
  const d = c.geometry.headDim;
  const ops: Op[] = [];
  for (let context = 0; context < tokens; context += PREFILL_CHUNK_TOKENS) {
    const queries = Math.min(PREFILL_CHUNK_TOKENS, tokens - context);
    ops.push(op('attend', 'attend_prefill', 'f16', { sequences: batch, kvHeads, group: heads / kvHeads, queries, context, keyWidth: d + branchWidth(c, block), valueWidth: d }));
  }
  return ops;
}

/** Encoding of exact keys and values, or their reconstruction in one loop, chunk by chunk. */
function codecProducts(c: Configuration, kind: 'encode' | 'reconstruct', tokens: number, batch: number, kvHeads: number): Op[] {
  const { rankK = 0, rankV = 0 } = c.codec;
  const d = c.geometry.headDim;
  const [groups, width] = c.codec.kind === 'lla' ? [kvHeads, d] : [1, kvHeads * d];
  return overChunks(tokens, (run) =>
    [['k', rankK], ['v', rankV]].map(([axis, rank]) =>
      kind === 'encode' ? perHead(`encode-${axis}`, groups, batch * run.tokens, width, rank as number) : perHead(`reconstruct-${axis}`, groups, batch * run.tokens, rank as number, width)));
}

/** Writing of the tokens that stay: exact rows and latents in pass 1, the reconstructed rows of the fast path in pass 2. */
function appendOps(c: Configuration, block: LayerBlock, tokens: number, batch: number, kvHeads: number, pass: number): Op[] {
  const d = c.geometry.headDim;
  const storage = storageOf(c);
  const append = (label: string, heads: number, width: number, when: When) => op(label, 'append', storage, { rows: batch * tokens, heads, width, groupSize: groupOf(storage, c.choice.groupSize) }, when);
  if (!readsLatents(c, block)) {
    // Rows of prelude and coda are exact but for what the core feeds the coda: the last pass writes them all.
    if (pass !== (isLatent(c.codec) ? 2 : 1)) return [];
    const when = c.path === 'fast' ? 'always' : closingTime(c, block);
    return [append('append-k', kvHeads, d, when), append('append-v', kvHeads, d, when)];
  }
  if (pass === 2) return [];
  const { kind, rankK = 0, rankV = 0 } = c.codec;
  const when: When = CODECS[kind].loopAxis ? 'last-loop' : 'always';
  const rows = kind === 'lla' ? kvHeads : 1;
  const branch = branchWidth(c, block);
  return [append('append-k', rows, rankK, when), append('append-v', rows, rankV, when), ...(branch > 0 ? [append('append-branch', c.branch.perHead ? kvHeads : 1, branch, when)] : [])];
}
