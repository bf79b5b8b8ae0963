/**
 * The division of a batch where bindings and workgroups end: every part within them, and all of the work listed once.
 */
import { describe, expect, test } from 'vitest';
import { type Eviction, parseEviction } from '../../src/eviction/policy.js';
import { blocksOf } from '../../src/geometry/geometry.js';
import { findPreset } from '../../src/geometry/presets.js';
import { listCandidates } from '../../src/plan/ask/candidates.js';
import type { Candidate } from '../../src/plan/types.js';
import { cacheParts, sequenceBytes } from '../../src/schedule/cache-parts.js';
import { evictingRows } from '../../src/schedule/facts.js';
import { forEachOp } from '../../src/schedule/expand.js';
import { schedule, type Configuration, type Op } from '../../src/schedule/schedule.js';
import { configurationFor } from '../../src/validate/grid.js';
import { randomOf, SEED } from '../gpu/random.js';

const GEOMETRY = findPreset('ouro-1.4b');
const EVICTIONS = ['none', 'streaming:4+508', 'h2o:512+512', 'h2o:64+64'].map((text) =>
  parseEviction(text, 'eviction'),
);
const CANDIDATES: readonly Candidate[] = listCandidates(GEOMETRY, {
  kinds: null,
  ratios: null,
  ranks: null,
  paths: null,
  evictions: EVICTIONS,
}).candidates;
const BINDING_BYTES = 2 ** 31 - 4;
const [BLOCK] = blocksOf(GEOMETRY) as [ReturnType<typeof blocksOf>[number]];
/** Whole tiles that a row keeps at 4096 tokens. */
const slotsOf = (eviction: Eviction | null): number =>
  eviction === null ? 4096 : eviction.policy === 'h2o' ? eviction.budgetTokens + 32 : eviction.budgetTokens;

/** Rows that an operation works on in a step. */
function rowsOf(c: Configuration, batch: number, kernel: Op['kernel'], dimension: string): number {
  let rows = 0;
  forEachOp(
    c,
    schedule(c, batch, 4096, { slots: slotsOf(c.eviction) }),
    (op, calls) => (rows += op.kernel === kernel ? calls * (op.shape[dimension] as number) : 0),
  );
  return rows;
}

describe(`parts of a batch (LLA_SIM_SEED=${SEED})`, () => {
  test('hold all sequences, within a binding and the workgroups of a dimension', () => {
    const random = randomOf(SEED);
    expect(CANDIDATES.length).toBeGreaterThan(50);
    for (const candidate of CANDIDATES) {
      const c = configurationFor(GEOMETRY, candidate, random.pick([BINDING_BYTES, 2 ** 27, Infinity]));
      const slots = slotsOf(c.eviction);
      const [batch, bytes] = [random.whole(1, 12_000), sequenceBytes(c, BLOCK, slots)];
      const parts = cacheParts(c, BLOCK, batch, slots);
      expect(parts.reduce((sum, { size, repeat }) => sum + size * repeat, 0)).toBe(batch);
      for (const { size } of parts) {
        expect(size * bytes).toBeLessThanOrEqual(c.bindingBytes);
        if (c.eviction?.policy === 'h2o') expect(size * evictingRows(c, BLOCK)).toBeLessThanOrEqual(65_535);
        if (c.path === 'block-absorbed') expect(size * GEOMETRY.heads).toBeLessThanOrEqual(65_535);
      }
      if (parts.length === 1 && parts[0]?.repeat === 1) continue;
      // Queries, maxima and sums, scores and positions of the second part begin where a binding may.
      const first = parts[0]?.size as number;
      for (const words of [
        GEOMETRY.heads * GEOMETRY.headDim,
        ...(c.eviction?.policy === 'h2o' ? [2 * GEOMETRY.heads, GEOMETRY.heads * slots] : []),
      ])
        expect((4 * words * first) % 256).toBe(0);
    }
  });

  test('list the mass and the exchanges of every row once', () => {
    const random = randomOf(SEED);
    for (const candidate of CANDIDATES.filter(({ eviction }) => eviction?.policy === 'h2o')) {
      const batch = random.whole(1000, 4000);
      const [whole, divided] = [Infinity, 2 ** 28].map((bindingBytes) =>
        configurationFor(GEOMETRY, candidate, bindingBytes),
      ) as [Configuration, Configuration];
      for (const kernel of ['mass', 'evict'] as const)
        expect(rowsOf(divided, batch, kernel, 'rows')).toBe(rowsOf(whole, batch, kernel, 'rows'));
    }
  });

  test('thousands of sequences of small evicted caches are divided by a GPU with 141 GB', () => {
    const { candidates } = listCandidates(GEOMETRY, {
      kinds: ['lla'],
      ratios: [64 / 3],
      ranks: null,
      paths: null,
      evictions: [parseEviction('h2o:512+512', 'eviction')],
    });
    expect(candidates.length).toBeGreaterThan(2);
    for (const candidate of candidates) {
      const c = configurationFor(GEOMETRY, candidate, BINDING_BYTES);
      const slots = slotsOf(c.eviction);
      const parts = cacheParts(c, BLOCK, 4000, slots);
      expect(parts.reduce((sum, { repeat }) => sum + repeat, 0)).toBe(c.path === 'fast' || c.materialised ? 9 : 2);
      for (const { size } of parts) expect(size * sequenceBytes(c, BLOCK, slots)).toBeLessThanOrEqual(BINDING_BYTES);
    }
  });
});
