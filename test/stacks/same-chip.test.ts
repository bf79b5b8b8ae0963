/** Measured times on another card of the same chip: what must hold of the rule, and how far it is off on two cards. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { classSpec, type OpClass } from '../../kernels/op-classes.js';
import { findDevice } from '../../src/devices/find.js';
import { PACKAGE_ROOT } from '../../src/io/root.js';
import { median, quantile } from '../../src/numbers/statistics.js';
import { TablePredictor, type StackPrice } from '../../src/stacks/predict.js';
import { onOtherCard } from '../../src/stacks/same-chip.js';
import type { StackFile, StackTable } from '../../src/stacks/stack-schema.js';
import { ask } from '../../src/plan/ask/on-disk.js';
import { randomOf, SEED } from '../gpu/random.js';

const random = randomOf(SEED);
const between = (low: number, high: number): number => low + ((high - low) * random.whole(0, 1000)) / 1000;
const price = (estimate: number): StackPrice => ({
  estimate,
  low: estimate / 1.1,
  high: estimate * 1.1,
  evidence: 'measured',
  octavesOutside: 0,
});
const RATES = { memoryBytesPerSecond: 2e12, linkBytesPerSecond: 3e11, operationsPerSecond: 3e14 };

describe('a time on another card', () => {
  it('is the same where no rate differs, and where bytes and operations are nothing', () => {
    const time = price(10 ** between(-6, -2));
    const work = { bytes: 1e9 * between(0.1, 1), operations: 1e12 * between(0.1, 1) };
    expect(onOtherCard(time, work, RATES, { memory: 1, compute: 1, tile: 1 })).toBe(time);
    const idle = onOtherCard(time, { bytes: 1, operations: 1 }, RATES, { memory: 2, compute: 3, tile: 1 });
    expect(idle.estimate / time.estimate, `seed ${SEED}`).toBeCloseTo(1, 6);
    expect(idle.low).toBeLessThan(time.low);
  });

  it('goes by the memory where bytes took it, by products where they did, and lies between elsewhere', () => {
    const ratio = { memory: between(0.5, 2), compute: between(0.5, 2), tile: 1 };
    const seconds = 10 ** between(-4, -2);
    const at = (bytes: number, operations: number): number =>
      onOtherCard(
        price(seconds),
        { bytes: bytes * seconds * 2e12, operations: operations * seconds * 3e14 },
        RATES,
        ratio,
      ).estimate / seconds;
    expect(at(1, 0), `seed ${SEED}`).toBeCloseTo(ratio.memory, 6);
    expect(at(0, 1), `seed ${SEED}`).toBeCloseTo(ratio.compute, 6);
    const [least, most] = [Math.min(1, ratio.memory, ratio.compute), Math.max(1, ratio.memory, ratio.compute)];
    const mixed = at(between(0, 1), between(0, 1));
    expect(mixed, `seed ${SEED}`).toBeGreaterThanOrEqual(least - 1e-9);
    expect(mixed, `seed ${SEED}`).toBeLessThanOrEqual(most + 1e-9);
  });

  it('of an H100 is that of an H200, whose tables tell: their chip is one', () => {
    const read = (device: string): StackFile =>
      JSON.parse(readFileSync(join(PACKAGE_ROOT, `calibrations/stacks/${device}-vllm.json`), 'utf8')) as StackFile;
    const [from, to] = [read('h100'), read('h200')];
    const memory = from.rates.memoryBytesPerSecond / to.rates.memoryBytesPerSecond;
    const judged = (op: OpClass, limits: { half: number; most: number }): void => {
      const tableOf = ({ tables }: StackFile): StackTable =>
        tables.find((t) => t.op === op && (t.fixed['headDim'] ?? 128) === 128)!;
      const [known, own] = [from, to].map((file) => new TablePredictor(tableOf(file), file.rates)) as [
        TablePredictor,
        TablePredictor,
      ];
      const kernels = classSpec(op);
      const errors: number[] = [];
      let inside = 0;
      for (let i = 0; i < 400; i++) {
        const sizes = own.table.axes.map(({ knots }) => knots[random.whole(0, knots.length - 1)]!);
        const shape = { ...own.table.fixed, ...Object.fromEntries(kernels.axes.map((axis, j) => [axis, sizes[j]!])) };
        const [truth, at] = [own.predict(shape), known.predict(shape)];
        if (truth.octavesOutside > 0 || at.octavesOutside > 0) continue;
        const here = onOtherCard(at, kernels.work(shape), from.rates, { memory, compute: 1, tile: 1 });
        errors.push(Math.abs(Math.log(here.estimate / truth.estimate)));
        if (here.low <= truth.estimate && truth.estimate <= here.high) inside++;
      }
      expect(errors.length, op).toBeGreaterThan(50);
      expect(median(errors), `${op}, seed ${SEED}`).toBeLessThan(limits.half);
      expect(quantile(errors, 0.9), `${op}, seed ${SEED}`).toBeLessThan(limits.most);
      expect(inside / errors.length, `${op}, seed ${SEED}`).toBeGreaterThan(0.8);
    };
    judged('decode-attention', { half: 0.04, most: 0.16 });
    judged('prefill-attention', { half: 0.05, most: 0.2 });
    judged('product', { half: 0.1, most: 0.3 });
  });

  it('prices cards that nobody measured: an H100 PCIe between its memory and its products, and says so', async () => {
    const planned = async (device: string) => {
      const { plans, notes } = await ask({ device, codec: ['full'], context: 4096, batch: 16 });
      return { decode: plans[0]!.decode, notes: notes.join('\n') };
    };
    const [card, chip] = [await planned('h100-pcie'), await planned('h100')];
    const slower = card.decode.secondsPerStep!.estimate / chip.decode.secondsPerStep!.estimate;
    const { memoryBytesPerSecond: own } = findDevice('h100-pcie');
    expect(slower).toBeGreaterThan(1.1);
    expect(slower).toBeLessThan(findDevice('h100').memoryBytesPerSecond / own);
    expect(card.notes).toContain('those of the h100, which has the same chip, at the rates of this card');
    expect(card.decode.evidence).toBe('extrapolated');
  });
});
