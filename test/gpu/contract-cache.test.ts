/** Kernels that write caches, against float64: every word is compared, also those that must not change. */
import type { AppendOptions } from '../../kernels/cache-options.js';
import './narrow.js';
import { expect, test } from 'vitest';
import { mix } from '../../src/numbers/hash.js';
import { putRow, slotOf, storedGroup } from '../../kernels/shared/cache/cache.reference.js';
import {
  cacheRow,
  capacityOf,
  codeValue,
  fieldsOf,
  putComponent,
  putScale,
  rowLayout,
  scaleField,
  storedBits,
  type RowLayout,
} from '../../kernels/host/cache-layout.js';
import { halfValue } from '../../kernels/host/half.js';
import { planOperation, type Device } from '../../src/gpu/index.js';
import { KERNELS, type KernelCall } from '../../kernels/registry.js';
import { isQuantised, STORAGE_BITS, STORAGES, storedBytes, type Storage, TILE_TOKENS } from '../../kernels/spec.js';
import { expectContract } from './contract-run.js';
import { describeGpu } from './device.js';
import { randomOf, SEED, type Random } from './random.js';
import { expectWords, randomSingles, randomWords, runPlan, wordsIn } from './run-plan.js';

const WIDTHS = [1, 2, 18, 27, 30, 32, 45, 64, 96, 128, 160] as const;

test.each(STORAGES)(
  '%s: every bit of a tile belongs to one component or scale, and bytes are those of the memory model',
  (storage) => {
    for (const width of WIDTHS) {
      const layout = rowLayout(storage, width, 32);
      // The second row's second tile of rows of two.
      const first = 3 * layout.tileWords;
      const owners = new Uint8Array(32 * layout.tileWords);
      let outside = 0;
      const own = (f: { word: number; shift: number; bits: number }): void => {
        if (f.word < first || f.word >= first + layout.tileWords) outside++;
        else for (let b = 32 * (f.word - first) + f.shift, n = 0; n < f.bits; n++) owners[b + n] = owners[b + n]! + 1;
      };
      for (let t = 0; t < TILE_TOKENS; t++) {
        for (let c = 0; c < width; c++) fieldsOf(layout, 64, 1, TILE_TOKENS + t, c).forEach(own);
        for (let g = 0; g < layout.groups; g++) own(scaleField(layout, 64, 1, TILE_TOKENS + t, g));
      }
      expect({ outside, once: owners.every((n) => n === 1) }, `width ${width}`).toEqual({ outside: 0, once: true });
      expect(4 * layout.tileWords).toBe(TILE_TOKENS * storedBytes(storage, width, 32));
    }
  },
);

test.each(STORAGES)('%s: a component is read where it was put, and its neighbours keep their bits', (storage) => {
  const random = randomOf(mix(SEED + STORAGE_BITS[storage]));
  for (const width of WIDTHS) {
    const capacity = 64;
    const layout = rowLayout(storage, width, 32);
    const words = randomWords(mix(SEED + width), 2 * 2 * layout.tileWords);
    const [row, token, c] = [random.whole(0, 1), random.whole(0, capacity - 1), random.whole(0, width - 1)];
    const before = words.slice();
    const old = storedBits((i) => before[i]!, fieldsOf(layout, capacity, row, token, c));
    const put = isQuantised(storage) ? random.whole(0, 2 ** layout.bits - 1) : 0.625;
    putComponent(words, layout, capacity, row, token, c, put);
    if (isQuantised(storage)) putScale(words, layout, capacity, row, token, Math.floor(c / 32), 0.25);
    const value = cacheRow((i) => words[i]!, storage, width, 32, capacity)(row, token, c);
    expect(value, `width ${width}, LLA_SIM_SEED=${SEED}`).toBe(
      isQuantised(storage) ? codeValue(put, 0.25, layout.bits) : 0.625,
    );
    // Put back, the buffer is as it was.
    const fields = fieldsOf(layout, capacity, row, token, c);
    let rest = old;
    for (const f of fields) {
      const mask = f.bits === 32 ? 0xffffffff : 2 ** f.bits - 1;
      words[f.word] = (words[f.word]! & ~((mask << f.shift) >>> 0)) | ((rest % 2 ** f.bits) << f.shift);
      rest = Math.floor(rest / 2 ** f.bits);
    }
    if (isQuantised(storage)) putScale(words, layout, capacity, row, token, Math.floor(c / 32), 0.25);
    const scale = isQuantised(storage) ? scaleField(layout, capacity, row, token, Math.floor(c / 32)).word : -1;
    const changed = words.findIndex((w, i) => i !== scale && w !== before[i]);
    expect(changed, `width ${width}, LLA_SIM_SEED=${SEED}`).toBe(-1);
  }
});

test('a group size that would split words is an input error', () => {
  for (const size of [0, 16, 48, 100, NaN]) expect(() => rowLayout('q4', 64, size)).toThrow(/multiple of 32/);
});

interface AppendCase {
  storage: Storage;
  sequences: number;
  heads: number;
  width: number;
  groupSize: number;
  options: Required<Pick<AppendOptions, 'chunk' | 'pinned' | 'ring' | 'sinks' | 'rowOffset' | 'rowStride'>> &
    AppendOptions;
}

function appendCase(random: Random, storage: Storage, width: number): AppendCase {
  const capacity = capacityOf(random.pick([1, 32, 33, 100, 200]));
  const pinned = random.pick([0, 0, 4, 37]) % capacity;
  const heads = random.whole(1, 3);
  return {
    storage,
    sequences: random.whole(1, 3),
    heads,
    width,
    groupSize: isQuantised(storage) ? random.pick([32, 64, 96]) : 0,
    options: {
      capacity,
      chunk: random.pick([1, 1, 2, 31, 70, 300]),
      pinned,
      ring: random.pick([capacity - pinned, Math.ceil((capacity - pinned) / 2)]),
      sinks: random.pick([0, pinned]),
      bias: random.pick([true, false]),
      rowOffset: random.whole(0, 5),
      rowStride: heads * width + random.whole(0, 7),
    },
  };
}

/** Takes the stored scale and codes of a token where f32 rounding allows them, so that words can be compared. */
function acceptNeighbours(
  expected: Uint32Array,
  actual: Uint32Array,
  layout: RowLayout,
  capacity: number,
  row: number,
  slot: number,
  values: readonly number[],
): void {
  for (let from = 0; from < layout.width; from += layout.groupSize) {
    const right = storedGroup(values.slice(from, from + layout.groupSize), layout.bits);
    const field = scaleField(layout, capacity, row, slot, from / layout.groupSize);
    const scale = halfValue((actual[field.word]! >>> field.shift) & 0xffff);
    if (!right.scales.includes(scale)) continue;
    putScale(expected, layout, capacity, row, slot, from / layout.groupSize, scale);
    right.codes(scale).forEach((codes, i) => {
      const code = storedBits((w) => actual[w]!, fieldsOf(layout, capacity, row, slot, from + i));
      putComponent(expected, layout, capacity, row, slot, from + i, codes.includes(code) ? code : codes[0]!);
    });
  }
}

async function checkAppend(
  device: Device,
  { storage, sequences, heads, width, groupSize, options }: AppendCase,
  seed: number,
): Promise<void> {
  const { chunk } = options;
  const capacity = capacityOf(options.capacity);
  const layout = rowLayout(storage, width, groupSize);
  const plan = planOperation(
    { kernel: 'append', variant: storage, shape: { rows: sequences * chunk, heads, width, groupSize } },
    { append: options },
  );
  const random = randomOf(seed);
  const isPlain = options.pinned === 0 && options.ring === capacity && chunk <= capacity;
  const starts = Uint32Array.from({ length: sequences }, () => random.whole(0, isPlain ? capacity - chunk : 1000));
  const rows = randomSingles(mix(seed + 1), wordsIn(plan, 'rows'));
  const bias = randomSingles(mix(seed + 2), heads * width);
  const before = randomWords(mix(seed + 3), wordsIn(plan, 'cache'));
  const rowAt = (sequence: number, token: number): number =>
    options.rowOffset + (sequence * chunk + token) * options.rowStride;
  const valuesOf = (sequence: number, head: number, token: number): number[] =>
    Array.from({ length: width }, (_, c) => {
      // A token of zeros.
      if (token === 1) return 0;
      const x = rows[rowAt(sequence, token) + head * width + c]!;
      return options.bias ? Math.fround(x + bias[head * width + c]!) : x;
    });
  for (let s = 0; s < sequences && chunk > 1; s++)
    for (let i = 0; i < heads * width; i++) rows[rowAt(s, 1) + i] = options.bias ? -bias[i]! : 0;
  const given = { tokens: starts, rows, cache: before, ...(options.bias ? { bias } : {}) };
  const result = await runPlan(device, plan, given);
  const actual = result('cache');
  const expected = before.slice();
  for (let s = 0; s < sequences; s++) {
    for (let head = 0; head < heads; head++) {
      const last = new Map<number, number>();
      for (let i = 0; i < chunk; i++) last.set(slotOf(starts[s]! + i, options), i);
      for (const [slot, i] of last) {
        const values = valuesOf(s, head, i);
        putRow(expected, layout, capacity, s * heads + head, slot, values);
        if (isQuantised(storage)) acceptNeighbours(expected, actual, layout, capacity, s * heads + head, slot, values);
      }
    }
  }
  const where = { sequences, heads, width, groupSize, ...options, starts: [...starts] };
  expectWords(result, [['cache', expected]], `append ${storage} ${JSON.stringify(where)}`);
}

describeGpu('caches against float64', (device) => {
  test.each(KERNELS.append.variants)(
    'append %s: the whole cache is right, all other tokens unchanged',
    async (variant) => {
      const widths = [27, 45, 128, 1, 30, 96, 160, 33];
      for (const [i, width] of widths.entries()) {
        const seed = mix(SEED + i);
        await checkAppend(device, appendCase(randomOf(seed), variant as Storage, width), seed);
      }
    },
  );

  // What `calibrate` and `bench` verify before they time: their checkers have to agree with the kernels as well.
  test.each<KernelCall>([
    ...STORAGES.flatMap((variant): KernelCall[] => {
      const groupSize = isQuantised(variant) ? 32 : 0;
      return [
        { kernel: 'append', variant, shape: { rows: 3, heads: 2, width: 45, groupSize } },
        { kernel: 'evict', variant, shape: { rows: 3, context: 40, width: 55, groupSize } },
      ];
    }),
    { kernel: 'attend_merge', variant: 'f32', shape: { rows: 5, splits: 9, width: 45, keyWidth: 0 } },
    { kernel: 'attend_merge', variant: 'current', shape: { rows: 5, splits: 9, width: 45, keyWidth: 70 } },
    { kernel: 'attend_current', variant: 'f32', shape: { rows: 5, keyWidth: 70, valueWidth: 100 } },
    { kernel: 'attend_current', variant: 'absorbed', shape: { rows: 5, keyWidth: 70, valueWidth: 100 } },
    { kernel: 'attend_join', variant: 'f32', shape: { rows: 5, width: 100 } },
    { kernel: 'mass', variant: 'f32', shape: { rows: 3, group: 2, context: 100 } },
    { kernel: 'sample', variant: 'greedy', shape: { rows: 3, vocab: 3000 } },
  ])('a benchmark verifies $kernel $variant', (call) => expectContract(device, call, {}, SEED));
});
