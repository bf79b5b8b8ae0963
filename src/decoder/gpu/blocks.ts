/**
 * Execution of block-absorbed attention: the queries' vectors, the basis of every block, and attention over the ring's
 * latents.
 */
import { partOf, type Buffer, type OperationPlan } from '../../gpu/index.js';
import { blockComponents } from '../../../kernels/block_vectors/terms.js';
import { runOf } from './attention.js';
import type { CachePart } from './caches.js';
import { plan, type Executor, type Executors } from './dense.js';
import { placed, type Machine } from './machine.js';
import { rotary } from './rows.js';
import type { DecodeStep } from './step.js';

const vectorsOf = (m: Machine, part: CachePart): Buffer =>
  m.own('block vectors', part, m.c.geometry.heads * m.c.geometry.headDim * blockComponents(m.c.codec.rankK as number));

/** a_m and b_m of every query head: the set-up of block-absorbed attention. */
const blockVectors: Executor<DecodeStep> = async (m, visit) => {
  const place = placed(visit);
  const part = m.partOf(visit);
  return {
    plan: plan(m, visit, { pairing: m.c.geometry.rope.pairing, blockVectors: { group: m.group } }),
    buffers: {
      queries: m.queries(part, m.c.geometry.heads * m.c.geometry.headDim),
      weights: await m.weights.upRows(place.layer, place.loop, 'key'),
      means: await m.weights.mean(place.layer, place.loop, 'key'),
      vectors: vectorsOf(m, part),
    },
  };
};

/** Tables of a block-absorbed operation, which all layers share. */
async function blockTables(m: DecodeStep, planned: OperationPlan): Promise<Record<string, Buffer>> {
  const tables: Record<string, Buffer> = {};
  for (const table of planned.buffers)
    if (table.data) tables[table.name] = await m.table(`${table.name} of blocks`, table);
  return tables;
}

/** The basis of a part's sequences: each part has been attended to before the next one writes its own. */
function basisOf(m: Machine, part: CachePart): Buffer {
  const whole = m.buffer('block basis');
  return partOf(whole, 0, (whole.bytes / m.batch) * part.count);
}

/** The basis of every block of the ring. */
const blockBasis: Executor<DecodeStep> = async (m, visit) => {
  const part = m.partOf(visit);
  const planned = plan(m, visit, { ...rotary(m), run: runOf(m, visit) });
  return {
    plan: planned,
    buffers: {
      vectors: vectorsOf(m, part),
      ...(await blockTables(m, planned)),
      spans: m.spans(part, visit),
      basis: basisOf(m, part),
    },
  };
};

/** Attention over the ring's latents, whose positions follow each other, without rebuilding keys. */
export const attendBlocks: Executor<DecodeStep> = async (m, visit) => {
  const planned = plan(m, visit, { ...rotary(m), run: runOf(m, visit) });
  return {
    plan: planned,
    buffers: {
      basis: basisOf(m, m.partOf(visit)),
      keys: m.cached(visit, 'key-latent'),
      values: m.cached(visit, 'value-latent'),
      ...(await blockTables(m, planned)),
      ...m.attends(visit, planned),
    },
  };
};

export const BLOCK_EXECUTORS: Executors<DecodeStep> = {
  'block-vectors': blockVectors,
  'block-basis': blockBasis,
};
