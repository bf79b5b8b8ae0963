/** H2O's mass and exchange of tokens against float64; of the caches every word is compared. */
import { expect, test } from 'vitest';
import { mix } from '../../src/hash.js';
import { moveOf, nextSlot, pooledWeight, type Span } from '../../src/bench/reference/eviction.js';
import { LOWEST } from '../../src/bench/reference/merge.js';
import { capacityOf, fieldsOf, rowLayout, scaleField, type Field, type RowLayout } from '../../src/gpu/cache-layout.js';
import { planOperation, type Device } from '../../src/gpu/index.js';
import type { EvictedCache } from '../../src/gpu/operations/evict.js';
import { isQuantised, KERNELS, type Storage } from '../../src/schedule/kernels.js';
import { describeGpu } from './device.js';
import { randomOf, SEED } from './random.js';
import { randomSingles, randomWords, runPlan, wordsIn } from './run-plan.js';

const TOLERANCE = 1e-5;

async function checkMass(device: Device, shape: { rows: number; group: number; context: number }, capacity: number, seed: number): Promise<void> {
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
    const heads = own.map((head) => ({ m: stats[2 * head] as number, l: stats[2 * head + 1] as number }));
    for (let slot = 0; slot < capacity; slot++) {
      const at = row * capacity + slot;
      const sum = (before[at] as number) + pooledWeight(own.map((head) => scores[head * capacity + slot] as number), heads);
      difference += ((mass[at] as number) - sum) ** 2;
      norm += sum ** 2;
    }
  }
  expect(Math.sqrt(difference / norm), `mass ${JSON.stringify(shape)}, LLA_SIM_SEED=${SEED}`).toBeLessThanOrEqual(TOLERANCE);
}

/** Copies a stored row bit by bit through the addresses of cache-layout.ts. */
function moveRow(words: Uint32Array, layout: RowLayout, capacity: number, row: number, from: number, to: number): void {
  const copy = (a: Field, b: Field): void => {
    const mask = a.bits === 32 ? 0xffffffff : 2 ** a.bits - 1;
    const value = (((words[a.word] as number) >>> a.shift) & mask) >>> 0;
    words[b.word] = ((words[b.word] as number) & ~((mask << b.shift) >>> 0)) | ((value << b.shift) >>> 0);
  };
  for (let c = 0; c < layout.width; c++) {
    const [a, b] = [fieldsOf(layout, capacity, row, from, c), fieldsOf(layout, capacity, row, to, c)];
    a.forEach((field, i) => { copy(field, b[i] as Field); });
  }
  for (let g = 0; g < layout.groups; g++) copy(scaleField(layout, capacity, row, from, g), scaleField(layout, capacity, row, to, g));
}

/** The situations a row can be in, one a sequence: room in the ring, room among the pinned, neither. */
const spanOf = (r: ReturnType<typeof randomOf>, situation: number, pinned: number, ring: number): Span =>
  situation === 0 ? { pinned: 0, first: r.whole(0, 5), ring: r.whole(0, ring - 1) } : { pinned: situation === 1 ? r.whole(0, pinned - 1) : pinned, first: r.whole(0, 1000), ring };

async function checkEvict(device: Device, storage: Storage, seed: number): Promise<void> {
  const r = randomOf(seed);
  const [heads, heavy, ring] = [r.whole(1, 3), r.pick([1, 4, 31, 40, 130]), r.pick([1, 5, 33, 64])];
  const pinned = heavy + r.pick([0, 0, 1, 28]);
  const capacity = capacityOf(pinned + ring + r.whole(0, 40));
  const groupSize = isQuantised(storage) ? r.pick([32, 64]) : 0;
  const caches: EvictedCache[] = [
    { name: 'keys', width: r.pick([1, 27, 36, 96]), rows: r.pick([1, 2]) },
    { name: 'values', width: r.pick([2, 45, 60, 128]) },
    ...(r.pick([true, false]) ? [{ name: 'branch', width: r.pick([16, 33]) }] : []),
  ];
  const sequences = 4;
  const rows = sequences * heads;
  const width = caches.reduce((sum, c) => sum + c.width * (c.rows ?? 1), 0);
  const plan = planOperation({ kernel: 'evict', variant: storage, shape: { rows, context: heavy, width, groupSize } }, { evict: { heads, pinned, ring, capacity, caches } });
  const spans = Array.from({ length: sequences }, (_, i) => spanOf(r, i % 3, heavy, ring));
  // Few different masses, so that there are ties.
  const mass = Float32Array.from({ length: rows * capacity }, (_, i) => (mix(seed + i) % 5) / 4);
  const positions = randomWords(mix(seed + 1), rows * capacity);
  const before = new Map(caches.map((c, i) => [c.name, randomWords(mix(seed + 2 + i), wordsIn(plan, c.name))]));
  const result = await runPlan(device, plan, { spans: Uint32Array.from(spans.flatMap((s) => [s.pinned, s.first, s.ring, 0])), mass, positions, ...Object.fromEntries(before) });
  const expected = { mass: mass.slice(), positions: positions.slice(), caches: new Map([...before].map(([name, words]) => [name, words.slice()])) };
  for (let row = 0; row < rows; row++) {
    const span = spans[Math.floor(row / heads)] as Span;
    const base = row * capacity;
    const move = moveOf([...mass.subarray(base, base + capacity)], span, pinned, ring, heavy);
    if (move) {
      expected.mass[base + move.to] = mass[base + move.from] as number;
      expected.positions[base + move.to] = positions[base + move.from] as number;
      for (const c of caches) {
        const layout = rowLayout(storage, c.width, groupSize);
        for (let i = 0; i < (c.rows ?? 1); i++) moveRow(expected.caches.get(c.name) as Uint32Array, layout, capacity, row * (c.rows ?? 1) + i, move.from, move.to);
      }
    }
    const next = nextSlot(span, pinned, ring);
    expected.mass[base + next] = 0;
    expected.positions[base + next] = span.first + span.ring;
  }
  const where = `evict ${storage} ${JSON.stringify({ heads, heavy, pinned, ring, capacity, groupSize, caches, spans })}, LLA_SIM_SEED=${SEED}`;
  const different = (name: string, right: Uint32Array): void => {
    const actual = result(name);
    expect(right.findIndex((w, i) => w !== actual[i]), `word of ${name}: ${where}`).toBe(-1);
  };
  different('mass', new Uint32Array(expected.mass.buffer));
  different('positions', expected.positions);
  for (const [name, words] of expected.caches) different(name, words);
}

describeGpu('eviction against float64', (device) => {
  test('mass', { timeout: 60_000 }, async () => {
    const r = randomOf(SEED);
    for (const [i, group] of [1, 2, 16, r.whole(1, 8)].entries()) {
      const context = r.pick([1, 31, 100, 300]);
      await checkMass(device, { rows: r.whole(1, 5), group, context }, capacityOf(context + r.whole(0, 50)), mix(SEED + i));
    }
  });

  test.each(KERNELS.evict.variants)('evict %s', { timeout: 60_000 }, async (variant) => {
    for (let i = 0; i < 5; i++) await checkEvict(device, variant as Storage, mix(SEED + i));
  });
});

test('a heavier token replaces the lightest, the lowest slot of equals; one as heavy does not', () => {
  const span: Span = { pinned: 3, first: 10, ring: 2 };
  expect(moveOf([2, 1, 1, 5, 0], span, 3, 2)).toEqual({ from: 3, to: 1 });
  expect(moveOf([2, 1, 1, 1, 0], span, 3, 2)).toBeNull();
  expect(moveOf([2, 1, 1, 0, 0], { ...span, pinned: 2 }, 3, 2)).toEqual({ from: 3, to: 2 });
  expect(moveOf([2, 1, 1, 9, 9], { ...span, ring: 1 }, 3, 2)).toBeNull();
});
