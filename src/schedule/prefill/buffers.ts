/** Buffers of a prompt's prefill, as buffers.ts lists those of a step: they exist for one call. */
import { bytesPerToken, pagedTokens } from '../../codecs/layout.js';
import { pathSpec } from '../../codecs/paths.js';
import { anchoredLoops, averagesLoops, codecSpec, isHybrid, isLatent, isPacked } from '../../codecs/registry.js';
import { reindexes, weighsTokens } from '../../eviction/policy.js';
import { keepsState } from '../../geometry/geometry.js';
import { headsOf, kvHeadsOf, latentsOf, spansLoops, storageOf, type Configuration } from '../configuration.js';
import { storedBytes, TILE_TOKENS } from '../../../kernels/spec.js';
import { meanRow } from '../facts.js';
import { massRows } from './h2o.js';
import { keepsRows, keptRowType, setsRowsAside, storesRun, type CapturingKind, type PromptExtent } from './pass.js';
import {
  WORD,
  control,
  hasBranch,
  restores,
  branchKeyScalars,
  accumulatingLayers,
  addHybridLatents,
  type BufferRow,
  layoutPerGpu,
  packedRow,
} from '../buffers.js';

/** Tokens and positions of a run of a prompt, and tables. */
export const promptControls = (c: Configuration, { room, chunk, captures }: PromptExtent): BufferRow[] => [
  ...(captures && isLatent(c.codec) && !pathSpec(c.path).branch
    ? [control('inverse rotary table', 0, { anglesOf: c.geometry.headDim, back: true })]
    : []),
  control('next tokens', 1),
  control('draws', 2),
  control('tokens', room),
  control('positions', chunk, 'numbers'),
  // It holds zeros.
  ...(reindexes(c.eviction) ? [control('one position', chunk)] : []),
];

/**
 * Rows of full width that are alive at once, of each layer, loop and pass: one where latents accumulate; all, of both
 * passes, for `one-shot`; those of the loops before the last that is encoded with them, and the layer at which that is,
 * for `by-layer`.
 */
function slotsAlive(c: Configuration, captures: CapturingKind | undefined): number {
  const { layers, loops } = c.geometry;
  // A token that does not run a loop keeps the rows of the loop before.
  if (isPacked(c.codec)) return layers;
  if (captures === 'one-shot') return 2 * layers * loops;
  const together = spansLoops(c) ? loops : anchoredLoops(c.geometry, c.codec);
  return captures === 'by-layer' ? (together - 1) * layers + 1 : 1;
}

/** Rows in tiles of the cache's layout, kept until the run has joined the cache. */
export const ASIDE = 'set aside';

/** Buffers of a prefill, which exist for one call. Prompts are prefilled one after the other. */
export function prefillBuffers(c: Configuration, { room, rows, chunk, captures, carries }: PromptExtent): BufferRow[] {
  const g = c.geometry;
  const [heads, kvHeads, d] = [headsOf(c), kvHeadsOf(c), g.headDim];
  const mlp = Math.ceil(g.mlpHidden / c.gpus);
  const { rankK = 0, rankV = 0 } = c.codec;
  const latent = isLatent(c.codec);
  const hybrid = isHybrid(c.codec);
  const list: BufferRow[] = [];
  const addBytes = (label: string, bytes: number, count?: number): void =>
    void list.push({ kind: 'prefill', label, count, fixedBytes: bytes, sequenceBytes: 0, binding: 'whole' });
  const add = (label: string, floats: number, count?: number): void => addBytes(label, WORD * floats, count);
  const weighs = weighsTokens(c.eviction);
  // The residual and its norm; an adapter mixes the prelude's output in, which stays; stacks have two states.
  add('residual', room * g.hidden, g.adapter || keepsState(g) ? 3 : 2);
  // Queries, keys and values, later gate and up; on the fast path the rows of every loop that the last one writes.
  const restored = restores(c) && spansLoops(c) ? g.loops * kvHeads * d : 0;
  add('projections', chunk * Math.max(2 * mlp, packedRow(c), restored));
  // Attention's output, the MLP's, before these a token's key or value latents.
  const latents = latent && !hybrid ? latentsOf(c) * Math.max(rankK, rankV) : 0;
  add('results', chunk * Math.max(mlp, heads * d, latents));
  add('logits', Math.ceil(g.vocab / c.gpus));
  if (keepsRows(c)) {
    const bytes = pagedTokens(rows, TILE_TOKENS) * kvHeads * d * (keptRowType(c, captures) === 'f32' ? 4 : 2);
    addBytes('kept keys', bytes, slotsAlive(c, captures));
    addBytes('kept values', bytes, slotsAlive(c, captures));
  }
  if (hybrid) addHybridLatents(c, room, add);
  else if (latent && !captures) {
    add('latent key', room * latentsOf(c) * rankK, accumulatingLayers(c));
    add('latent value', room * latentsOf(c) * rankV, accumulatingLayers(c));
  }
  // Of one axis.
  const anchored = anchoredLoops(g, c.codec);
  if (anchored > 1) add('held rows', (chunk * anchored * meanRow(c)) / 2);
  if (averagesLoops(c.codec)) add('mean rows', room * meanRow(c), g.layers);
  if (codecSpec(c.codec).gatesState) add('gated states', room * g.hidden, g.layers);
  if (latent && hasBranch(c)) add('branch key', rows * branchKeyScalars(c), accumulatingLayers(c));
  if (setsRowsAside(c)) addBytes(ASIDE, Math.ceil(bytesPerToken(layoutPerGpu(c)) * pagedTokens(rows, TILE_TOKENS)));
  if (weighs) {
    // Statistics of a chunk's queries, and the H2O scores by which tokens are chosen.
    add('statistics', 2 * heads * chunk);
    for (const [i, evicting] of massRows(c).entries()) add(`run mass ${i}`, rows * evicting);
    if (storesRun(c)) {
      const row = storedBytes(storageOf(c), d, c.choice.groupSize);
      for (const role of ['key', 'value']) addBytes(`stored ${role}`, kvHeads * row * pagedTokens(rows, TILE_TOKENS));
    }
  } else if (carries && keepsRows(c)) {
    // Attention in several calls: statistics of its queries, and latents and branch keys of a piece of earlier tokens.
    add('statistics', 2 * heads * room);
    if (latent && !restores(c)) {
      add('earlier latents', room * latents);
      if (hasBranch(c)) add('earlier branch keys', room * branchKeyScalars(c));
    }
  }
  return list;
}
