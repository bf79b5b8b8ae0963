/** H2O's mass, exchange of tokens and choice among a prompt's against float64; every word of caches is compared. */
import type { EvictedCache } from '../../kernels/cache-options.js';
import './narrow.js';
import { expect, test } from 'vitest';
import { mix } from '../../src/numbers/hash.js';
import { moveOf, nextSlot, type Span } from '../../kernels/evict/reference.js';
import { pooledWeight } from '../../kernels/mass/reference.js';
import { staysBehind } from '../../kernels/shared/cache/evict.reference.js';
import { LOWEST } from '../../kernels/shared/attention/merge.reference.js';
import {
  capacityOf,
  fieldsOf,
  rowLayout,
  scaleField,
  type Field,
  type RowLayout,
} from '../../kernels/host/cache-layout.js';
import { planOperation, type Device } from '../../src/gpu/index.js';
import { runOf } from '../../kernels/shared/cache/evict.terms.js';
import { KERNELS } from '../../kernels/registry.js';
import { isQuantised, type Storage } from '../../kernels/spec.js';
import { describeGpu } from './device.js';
import { randomOf, SEED } from './random.js';
import { expectWords, randomSingles, randomWords, runPlan, wordsIn } from './run-plan.js';

const TOLERANCE = 1e-5;

async function checkMass(
  device: Device,
  shape: { rows: number; group: number; context: number },
  capacity: number,
  seed: number,
): Promise<void> {
  const heads = shape.rows * shape.group;
  const plan = planOperation({ kernel: 'mass', variant: 'f32', shape }, { mass: { capacity } });
  const noise = randomSingles(mix(seed), heads * capacity);
  // Half of the slots hold no token.
  const scores = noise.map((x, i) => (mix(seed + i) % 2 === 0 ? LOWEST : 20 * x));
  const stats = randomSingles(mix(seed + 1), 2 * heads).map((x, i) => (i & 1 ? 1 + 100 * Math.abs(x) : 15 + 10 * x));
  const before = randomSingles(mix(seed + 2), shape.rows * capacity).map(Math.abs);
  const mass = new Float32Array((await runPlan(device, plan, { scores, stats, mass: before }))('mass').buffer);
  let [difference, norm] = [0, 0];
  for (let row = 0; row < shape.rows; row++) {
    const own = Array.from({ length: shape.group }, (_, i) => row * shape.group + i);
    const heads = own.map((head) => ({ m: stats[2 * head]!, l: stats[2 * head + 1]! }));
    for (let slot = 0; slot < capacity; slot++) {
      const at = row * capacity + slot;
      const slotScores = own.map((head) => scores[head * capacity + slot]!);
      const sum = before[at]! + pooledWeight(slotScores, heads);
      difference += (mass[at]! - sum) ** 2;
      norm += sum ** 2;
    }
  }
  expect(Math.sqrt(difference / norm), `mass ${JSON.stringify(shape)}, LLA_SIM_SEED=${SEED}`).toBeLessThanOrEqual(
    TOLERANCE,
  );
}

/** A token's place among cached rows. */
type CachedAt = Readonly<Record<'capacity' | 'row' | 'slot', number>> & { readonly words: Uint32Array };

/** Copies a stored row bit by bit through the addresses of cache-layout.ts. */
function copyRow(layout: RowLayout, from: CachedAt, to: CachedAt): void {
  const copy = (a: Field, b: Field): void => {
    const mask = a.bits === 32 ? 0xffffffff : 2 ** a.bits - 1;
    const value = ((from.words[a.word]! >>> a.shift) & mask) >>> 0;
    to.words[b.word] = (to.words[b.word]! & ~((mask << b.shift) >>> 0)) | ((value << b.shift) >>> 0);
  };
  for (let c = 0; c < layout.width; c++) {
    const target = fieldsOf(layout, to.capacity, to.row, to.slot, c);
    fieldsOf(layout, from.capacity, from.row, from.slot, c).forEach((field, i) => copy(field, target[i]!));
  }
  const scaleOf = ({ capacity, row, slot }: CachedAt, g: number): Field => scaleField(layout, capacity, row, slot, g);
  for (let g = 0; g < layout.groups; g++) copy(scaleOf(from, g), scaleOf(to, g));
}

/** Caches of a token that go together. */
const cachesOf = (r: ReturnType<typeof randomOf>): EvictedCache[] => [
  { name: 'keys', width: r.pick([1, 27, 36, 96]), rows: r.pick([1, 2]) },
  { name: 'values', width: r.pick([2, 45, 60, 128]) },
  ...(r.pick([true, false]) ? [{ name: 'branch', width: r.pick([16, 33]) }] : []),
];

/** The situations a row can be in, one a sequence: room in the ring, room among the pinned, neither. */
const spanOf = (r: ReturnType<typeof randomOf>, situation: number, pinned: number, ring: number): Span =>
  situation === 0
    ? { pinned: 0, first: r.whole(0, 5), ring: r.whole(0, ring - 1) }
    : { pinned: situation === 1 ? r.whole(0, pinned - 1) : pinned, first: r.whole(0, 1000), ring };

async function checkEvict(device: Device, storage: Storage, seed: number): Promise<void> {
  const r = randomOf(seed);
  const [heads, heavy, ring] = [r.whole(1, 3), r.pick([1, 4, 31, 40, 130]), r.pick([1, 5, 33, 64])];
  const pinned = heavy + r.pick([0, 0, 1, 28]);
  const capacity = capacityOf(pinned + ring + r.whole(0, 40));
  const groupSize = isQuantised(storage) ? r.pick([32, 64]) : 0;
  const caches = cachesOf(r);
  const sequences = 4;
  const rows = sequences * heads;
  const width = caches.reduce((sum, c) => sum + c.width * (c.rows ?? 1), 0);
  const plan = planOperation(
    { kernel: 'evict', variant: storage, shape: { rows, context: heavy, width, groupSize } },
    { evict: { heads, pinned, ring, capacity, caches } },
  );
  const spans = Array.from({ length: sequences }, (_, i) => spanOf(r, i % 3, heavy, ring));
  // Few different masses, so that there are ties.
  const mass = Float32Array.from({ length: rows * capacity }, (_, i) => (mix(seed + i) % 5) / 4);
  const before = new Map([
    ['mass', new Uint32Array(mass.buffer)],
    ['positions', randomWords(mix(seed + 1), rows * capacity)],
    ...caches.map((c, i) => [c.name, randomWords(mix(seed + 2 + i), wordsIn(plan, c.name))] as const),
  ] as [string, Uint32Array<ArrayBuffer>][]);
  const given = Uint32Array.from(spans.flatMap((s) => [s.pinned, s.first, s.ring, 0]));
  const result = await runPlan(device, plan, { spans: given, ...Object.fromEntries(before) });
  const expected = new Map([...before].map(([name, words]) => [name, words.slice()]));
  const [masses, positions] = ['mass', 'positions'].map((name) => expected.get(name)) as [Uint32Array, Uint32Array];
  for (let row = 0; row < rows; row++) {
    const span = spans[Math.floor(row / heads)]!;
    const base = row * capacity;
    const move = moveOf([...mass.subarray(base, base + capacity)], span, pinned, ring, heavy);
    if (move) {
      for (const own of [masses, positions]) own[base + move.to] = own[base + move.from]!;
      for (const c of caches) {
        const layout = rowLayout(storage, c.width, groupSize);
        for (let i = 0; i < (c.rows ?? 1); i++) {
          const cached = { words: expected.get(c.name)!, capacity, row: row * (c.rows ?? 1) + i };
          copyRow(layout, { ...cached, slot: move.from }, { ...cached, slot: move.to });
        }
      }
    }
    const next = nextSlot(span, pinned, ring);
    masses[base + next] = 0;
    positions[base + next] = span.first + span.ring;
  }
  const where = { heads, heavy, pinned, ring, capacity, groupSize, caches, spans };
  expectWords(result, expected, `evict ${storage} ${JSON.stringify(where)}`);
}

/** @param behind cached tokens: evict_chunk */
async function checkEvictPrefill(device: Device, storage: Storage, seed: number, behind = false): Promise<void> {
  const r = randomOf(seed);
  const [rows, firstRow] = [r.whole(1, 3), r.whole(0, 2)];
  const [heavy, ring] = [r.pick([0, 1, 4, 31, 40, 130]), r.pick([1, 5, 33, 64])];
  const pinned = heavy + r.pick([0, 0, 1, 28]);
  const capacity = capacityOf(pinned + ring + r.whole(0, 40));
  const position = behind ? r.pick([1, ring, heavy + ring, r.whole(1, 100), r.whole(300, 700)]) : 0;
  const held = Math.min(position, heavy + ring);
  const tokens = held + r.pick([1, ring, heavy + ring, r.whole(1, 100), r.whole(300, 700)]);
  const room = tokens + r.whole(0, 40);
  const runCapacity = capacityOf(room);
  const groupSize = isQuantised(storage) ? r.pick([32, 64]) : 0;
  const caches = cachesOf(r);
  const width = caches.reduce((sum, c) => sum + c.width * (c.rows ?? 1), 0);
  // Few different masses, so that there are ties; or of every magnitude, so that every digit counts.
  const coarse = r.pick([true, false]);
  const runMass = Float32Array.from({ length: rows * room }, (_, i) =>
    coarse ? (mix(seed + i) % 5) / 4 : (mix(seed + i) % 1000) * 2 ** -(mix(i) % 40),
  );
  const stays = Array.from({ length: rows }, (_, row) =>
    staysBehind([...runMass.subarray(row * room, row * room + tokens)], { held, position }, pinned, ring, heavy),
  );
  const kept = stays[0]!.length!;
  const options = { pinned, heavy, ring, capacity, firstRow, room, runCapacity, caches };
  const shape = { rows, context: tokens, kept, width, groupSize };
  const kernel = behind ? 'evict_chunk' : 'evict_prefill';
  const plan = planOperation(
    { kernel, variant: storage, shape: behind ? { ...shape, held } : shape },
    behind ? { evictChunk: { ...options, position } } : { evictPrefill: options },
  );
  const random = new Map(
    ['mass', 'positions', ...caches.flatMap(({ name }) => [name, runOf(name)])].map((name, i) => [
      name,
      randomWords(mix(seed + i), wordsIn(plan, name)),
    ]),
  );
  const result = await runPlan(device, plan, { runMass, ...Object.fromEntries(random) });
  const expected = new Map([...random].map(([name, words]) => [name, words.slice()]));
  const [mass, positions] = ['mass', 'positions'].map((name) => expected.get(name)) as [Uint32Array, Uint32Array];
  const masses = new Uint32Array(runMass.buffer);
  for (const [row, own] of stays.entries()) {
    for (const { token, slot, moves } of own) {
      const at = (firstRow + row) * capacity + slot;
      mass[at] = masses[row * room + token]!;
      if (moves || slot >= pinned) positions[at] = position - held + token;
      if (!moves) continue;
      for (const { name, width, rows: each = 1 } of caches) {
        for (let i = 0; i < each; i++) {
          const from = { words: random.get(runOf(name))!, capacity: runCapacity, row: row * each + i, slot: token };
          const to = { words: expected.get(name)!, capacity, row: (firstRow + row) * each + i, slot };
          copyRow(rowLayout(storage, width, groupSize), from, to);
        }
      }
    }
  }
  const at = { firstRow, room, groupSize, caches, coarse };
  const slots = { held, position, tokens, heavy, pinned, ring, capacity, ...at };
  expectWords(result, expected, `${kernel} ${storage} ${JSON.stringify(slots)}`);
}

const checkEvictChunk = (...of: [Device, Storage, number]): Promise<void> => checkEvictPrefill(...of, true);

describeGpu('eviction against float64', (device) => {
  test('mass', async () => {
    const r = randomOf(SEED);
    for (const [i, group] of [1, 2, 16, r.whole(1, 8)].entries()) {
      const context = r.pick([1, 31, 100, 300]);
      const shape = { rows: r.whole(1, 5), group, context };
      await checkMass(device, shape, capacityOf(context + r.whole(0, 50)), mix(SEED + i));
    }
  });

  for (const [kernel, salt, check] of [
    ['evict', 0, checkEvict],
    ['evict_prefill', 50, checkEvictPrefill],
    ['evict_chunk', 60, checkEvictChunk],
  ] as const)
    test.each(KERNELS[kernel].variants)(`${kernel} %s`, async (variant) => {
      for (let i = 0; i < 5; i++) await check(device, variant as Storage, mix(SEED + salt + i));
    });
});

test('a heavier token replaces the lightest, the lowest slot of equals; one as heavy does not', () => {
  const span: Span = { pinned: 3, first: 10, ring: 2 };
  expect(moveOf([2, 1, 1, 5, 0], span, 3, 2)).toEqual({ from: 3, to: 1 });
  expect(moveOf([2, 1, 1, 1, 0], span, 3, 2)).toBeNull();
  expect(moveOf([2, 1, 1, 0, 0], { ...span, pinned: 2 }, 3, 2)).toEqual({ from: 3, to: 2 });
  expect(moveOf([2, 1, 1, 9, 9], { ...span, ring: 1 }, 3, 2)).toBeNull();
});

test.each(['evict', 'evict_prefill', 'evict_chunk'] as const)(
  '%s refuses slots and widths that do not fit',
  (kernel) => {
    const shape = {
      evict: { context: 4 },
      evict_prefill: { context: 20, kept: 9 },
      evict_chunk: { context: 20, kept: 9, held: 9 },
    }[kernel];
    const slots = { pinned: 4, heavy: 4, ring: 5, capacity: 32 };
    const caches = [
      { name: 'keys', width: 27, rows: 2 },
      { name: 'values', width: 10 },
    ];
    const planned = (width: number, options: Partial<typeof slots>) => (): unknown => {
      const all = { ...slots, caches, ...options };
      return planOperation(
        { kernel, variant: 'f16', shape: { rows: 1, width, groupSize: 0, ...shape } },
        { evict: all, evictPrefill: all, evictChunk: all },
      );
    };
    expect(planned(64, {})).not.toThrow();
    expect(planned(37, {})).toThrow(`${kernel}: the caches hold 64 scalars of a token, not 37`);
    expect(planned(64, { pinned: 3 })).toThrow(`${kernel}: 4 tokens do not fit 3 pinned slots`);
    expect(planned(64, { ring: 0 })).toThrow(`${kernel}: 4 pinned slots and a ring of 0 do not fit 32`);
    expect(planned(64, { ring: 29 })).toThrow(`${kernel}: 4 pinned slots and a ring of 29 do not fit 32`);
  },
);
