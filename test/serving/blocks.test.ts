/** The paged cache beside a plain one: a list of blocks, of which the first is taken and the last was given back. */
import fc from 'fast-check';
import { expect, it } from 'vitest';
import { BlockPool } from '../../src/serving/scheduler/blocks.js';

/** Blocks one by one, as vLLM's v1/core/block_pool.py has them; null: nobody can ask for it. */
class Plain {
  readonly row: (number | null)[];
  readonly users = new Map<number, number>();
  constructor(
    total: number,
    readonly unitBlocks: number,
  ) {
    this.row = Array<null>(total).fill(null);
  }
  take(blocks: number): void {
    for (const identity of this.row.splice(0, blocks)) {
      if (identity === null) continue;
      this.users.delete(identity);
      for (const [i, other] of this.row.entries()) if (other === identity) this.row[i] = null;
    }
  }
  give(blocks: number): void {
    this.row.push(...Array<null>(blocks).fill(null));
  }
  use(identity: number): void {
    const users = this.users.get(identity)!;
    this.users.set(identity, users + 1);
    if (users === 0) this.row.splice(this.row.indexOf(identity), this.unitBlocks);
  }
  leave(identity: number): void {
    const users = this.users.get(identity)! - 1;
    this.users.set(identity, users);
    if (users === 0) this.row.push(...Array<number>(this.unitBlocks).fill(identity));
  }
}

const IDENTITIES = [0, 1, 2, 3, 4];
const step = fc.record({
  what: fc.constantFrom('take', 'give', 'name', 'use', 'leave'),
  blocks: fc.integer({ min: 0, max: 6 }),
  identity: fc.constantFrom(...IDENTITIES),
});

it('what was given back first is taken first, with an identity or without', () => {
  let forgotten = 0;
  fc.assert(
    fc.property(
      fc.integer({ min: 1, max: 20 }),
      fc.integer({ min: 1, max: 3 }),
      fc.array(step, { minLength: 50, maxLength: 200, size: 'max' }),
      (total, unitBlocks, steps) => {
        const [pool, plain] = [new BlockPool(total, unitBlocks), new Plain(total, unitBlocks)];
        let own = 0;
        for (const { what, blocks, identity } of steps) {
          const known = plain.users.has(identity);
          if (what === 'take' && blocks <= plain.row.length) {
            const before = plain.users.size;
            pool.take(blocks);
            plain.take(blocks);
            own += blocks;
            forgotten += before - plain.users.size;
          } else if (what === 'give' && blocks <= own) {
            pool.give(blocks);
            plain.give(blocks);
            own -= blocks;
          } else if (what === 'name' && own >= unitBlocks) {
            expect(pool.name(identity)).toBe(!known);
            if (known) continue;
            plain.users.set(identity, 1);
            own -= unitBlocks;
          } else if (what === 'use' && known) {
            pool.use(identity);
            plain.use(identity);
          } else if (what === 'leave' && (plain.users.get(identity) ?? 0) > 0) {
            pool.leave(identity);
            plain.leave(identity);
          }
          const cached = IDENTITIES.filter((id) => pool.has(id));
          expect({
            available: pool.available,
            used: pool.used,
            idle: cached.map((id) => [id, pool.isIdle(id)]),
          }).toEqual({
            available: plain.row.length,
            used: total - plain.row.length,
            idle: [...plain.users].sort(([a], [b]) => a - b).map(([id, users]) => [id, users === 0]),
          });
        }
      },
    ),
    { numRuns: 100 },
  );
  expect(forgotten).toBeGreaterThan(20);
});
