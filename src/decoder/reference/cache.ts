/**
 * The cache of one sequence: rows at the places that the codec's layout (codecs/layout.ts) states, and which tokens are
 * in it.
 *
 * Full-width keys and the rotary branch's keys are cached rotated by their own position; latents are of keys before
 * rotation. A *unit* evicts tokens together: all slots that share a row in any of the block's tensors. So H2O keeps one
 * mass where loops share a latent (lla), loops and heads (lla-2d), heads (mla-head) or layers (cla), and pools over all
 * heads where they share a rotary branch.
 */
import { loopSlot, tensorOfLoop, type CacheLayout, type CacheTensor } from '../../codecs/layout.js';
import { keptPositions, type Eviction } from '../../eviction/policy.js';
import { blocksOf, type Geometry, type LayerBlock } from '../../geometry/geometry.js';
import { rotate, split, type Vector } from './arithmetic.js';
import type { Site } from './network.js';
import { stored, storedTogether, type CacheType } from './storage.js';

export interface Unit {
  /** Tokens in the cache, ascending. */
  positions: number[];
  /**
   * H2O: attention weight that each cached token has received from later ones, summed over steps, query heads, and all
   * that share the unit.
   */
  readonly mass: Map<number, number>;
}

/**
 * Chooses the tokens that a unit keeps.
 * @param chosen those that the policy would keep, ascending
 * @param at a site and KV head of the unit, the first
 */
type Keeps = (chosen: readonly number[], unit: Unit, at: { site: Site; kvHead: number }) => readonly number[];

/**
 * Rounds a row as it is stored.
 * @param rounded the row, rounded to the nearest
 */
type Stores = (
  rounded: Vector,
  exact: Vector,
  at: { role: Role; site: Site; kvHead: number; position: number },
) => Vector;

/** What another decoder decided where rounding decides: to compare what follows. */
export interface Decisions {
  readonly keeps?: Keeps;
  readonly stores?: Stores;
}

type Role = CacheTensor['role'];
type Counts = Pick<CacheTensor, 'layers' | 'loops' | 'heads'>;

/** Slot `index` of `total` when only `slots` are stored. */
const share = (index: number, total: number, slots: number): number => Math.floor((index * slots) / total);

class BlockCache {
  readonly units: Unit[] = [];
  /** Slots of a role, [layer][loop][head] as they are stored. */
  private readonly rows = new Map<CacheTensor, Map<number, Vector>[]>();
  private readonly unitCounts: Counts;

  constructor(
    readonly block: LayerBlock,
    private readonly kvHeads: number,
    private readonly tensors: readonly CacheTensor[],
    private readonly exact: boolean,
  ) {
    const fewest = (dimension: keyof Counts): number => Math.min(...tensors.map((t) => t[dimension]));
    this.unitCounts = { layers: fewest('layers'), loops: fewest('loops'), heads: fewest('heads') };
    const { layers, loops, heads } = this.unitCounts;
    for (let i = 0; i < layers * loops * heads; i++) this.units.push({ positions: [], mass: new Map() });
    for (const t of tensors)
      this.rows.set(
        t,
        Array.from({ length: t.layers * t.loops * t.heads }, () => new Map<number, Vector>()),
      );
  }

  tensor(role: Role, loop = 0): CacheTensor | undefined {
    return tensorOfLoop(this.tensors, this.block.name, role, loop);
  }

  /** The slot that serves a site and KV head: sharing makes several ask for the same. */
  slot(role: Role, site: Site, kvHead: number): Map<number, Vector> {
    const t = this.tensor(role, site.loop) as CacheTensor;
    const at =
      (share(site.layer, this.block.layers, t.layers) * t.loops + loopSlot(t, site.loop, this.block.loops)) * t.heads +
      share(kvHead, this.kvHeads, t.heads);
    return (this.rows.get(t) as Map<number, Vector>[])[at] as Map<number, Vector>;
  }

  type(role: Role): CacheType {
    return this.exact ? 'f64' : (this.tensor(role) as CacheTensor).storage;
  }

  unit(site: Site, kvHead: number): Unit {
    const { layers, loops, heads } = this.unitCounts;
    const at =
      (share(site.layer, this.block.layers, layers) * loops + share(site.loop, this.block.loops, loops)) * heads +
      share(kvHead, this.kvHeads, heads);
    return this.units[at] as Unit;
  }

  get scalars(): number {
    return [...this.rows.values()]
      .flat()
      .flatMap((slot) => [...slot.values()])
      .reduce((sum, row) => sum + row.length, 0);
  }

  /** The first site and KV head of slot `at` of so many. */
  private firstOf(at: number, { layers, loops, heads }: Counts): { site: Site; kvHead: number } {
    return {
      site: {
        block: this.block.name,
        layer: (Math.floor(at / (loops * heads)) * this.block.layers) / layers,
        loop: ((Math.floor(at / heads) % loops) * this.block.loops) / loops,
      },
      kvHead: ((at % heads) * this.kvHeads) / heads,
    };
  }

  placeOf(unit: number): { site: Site; kvHead: number } {
    return this.firstOf(unit, this.unitCounts);
  }

  /** Forgets rows of tokens that their unit has lost. */
  prune(): void {
    for (const t of this.tensors)
      for (const [at, slot] of (this.rows.get(t) as Map<number, Vector>[]).entries()) {
        const { site, kvHead } = this.firstOf(at, t);
        const { positions } = this.unit(site, kvHead);
        const kept = new Set(positions.slice(-(t.windowTokens ?? positions.length)));
        for (const position of slot.keys()) if (!kept.has(position)) slot.delete(position);
      }
  }
}

export class SequenceCache {
  private readonly blocks = new Map<LayerBlock['name'], BlockCache>();
  readonly rope: Geometry['rope'];
  private readonly partsOf = new WeakMap<Vector, readonly Vector[]>();

  /**
   * @param exact rows are kept in float64 instead of the layout's storage type
   * @param decisions those of the policy and of rounding to the nearest unless given
   */
  constructor(
    readonly geometry: Geometry,
    layout: CacheLayout,
    private readonly eviction: Eviction | null,
    exact: boolean,
    private readonly decisions: Decisions = {},
  ) {
    this.rope = geometry.rope;
    for (const block of blocksOf(geometry))
      this.blocks.set(
        block.name,
        new BlockCache(
          block,
          geometry.kvHeads,
          layout.filter((t) => t.block === block.name),
          exact,
        ),
      );
  }

  private block(site: Site): BlockCache {
    return this.blocks.get(site.block) as BlockCache;
  }

  loopsOf(block: LayerBlock['name']): number {
    return (this.blocks.get(block) as BlockCache).block.loops;
  }

  has(role: Role, site: Site): boolean {
    return this.block(site).tensor(role) !== undefined;
  }

  /** Loops and layers that share a row of this role at a site's block. */
  shared(role: Role, site: Site): { layers: number; loops: number } {
    const { block } = this.block(site);
    const t = this.block(site).tensor(role, site.loop) as CacheTensor;
    // Rows of the first loop, and windows of later ones, are each loop's own.
    const { laterLoopsWindow } = this.geometry;
    const loops = site.block === 'core' && laterLoopsWindow !== undefined ? 1 : block.loops / t.loops;
    return { layers: block.layers / t.layers, loops };
  }

  /** True where the loops that share a row lie in it end to end. */
  holdsLoops(site: Site): boolean {
    return this.block(site).tensor('key')?.residual !== undefined;
  }

  write(role: Role, site: Site, kvHead: number, position: number, row: Vector): void {
    const block = this.block(site);
    const { residual, groupSize } = block.tensor(role) as CacheTensor;
    const type = block.type(role);
    const rounded = residual && type !== 'f64' ? storedTogether(row, residual) : stored(row, type, groupSize);
    const { stores } = this.decisions;
    block
      .slot(role, site, kvHead)
      .set(position, stores ? stores(rounded, row, { role, site, kvHead, position }) : rounded);
  }

  /** A key, rotated by its own position before it is stored. */
  writeRotated(role: Role, site: Site, kvHead: number, position: number, key: Vector): void {
    this.write(role, site, kvHead, position, rotate(key, position, this.rope));
  }

  /** The row of a cached token after rounding by its storage; of loops that are stored together the site's own. */
  read(role: Role, site: Site, kvHead: number, position: number): Vector {
    const row = this.block(site).slot(role, site, kvHead).get(position);
    if (!row)
      throw new Error(`no ${role} of position ${position} in ${site.block} layer ${site.layer}, loop ${site.loop}`);
    const { residual } = this.block(site).tensor(role) as CacheTensor;
    return residual ? this.ofLoop(row, site.loop % residual.loops, residual.headDim) : row;
  }

  /** A loop's part of a row: the same one whenever it is read, as what is computed from it is kept. */
  private ofLoop(row: Vector, loop: number, width: number): Vector {
    const parts = this.partsOf.get(row) ?? split(row, width);
    this.partsOf.set(row, parts);
    return parts[loop] as Vector;
  }

  unit(site: Site, kvHead: number): Unit {
    return this.block(site).unit(site, kvHead);
  }

  /**
   * After a step, a chunk or a round: its tokens join the cache, then every unit keeps what the policy keeps. Rows that
   * were written of other tokens are freed.
   */
  join(positions: readonly number[]): void {
    for (const block of this.blocks.values()) {
      for (const [i, unit] of block.units.entries()) {
        const chosen = keptPositions([...unit.positions, ...positions], unit.mass, this.eviction);
        unit.positions = [...(this.decisions.keeps?.(chosen, unit, block.placeOf(i)) ?? chosen)];
        const kept = new Set(unit.positions);
        for (const position of unit.mass.keys()) if (!kept.has(position)) unit.mass.delete(position);
      }
      block.prune();
    }
  }

  get scalars(): number {
    return [...this.blocks.values()].reduce((sum, block) => sum + block.scalars, 0);
  }
}
