/** How the intervals of calls become the interval of a step: what shapes have in common adds up, what each has of its own does not. */
import { describe, expect, it } from 'vitest';
import { priceStep, type Pricer } from '../../src/cost/latency.js';
import { findPreset } from '../../src/geometry/presets.js';
import { mix } from '../../src/hash.js';
import type { KernelCall } from '../../src/schedule/kernels.js';
import { forEachOp, schedule, type Configuration } from '../../src/schedule/schedule.js';
import { lla } from '../contract/geometries.js';
import { randomOf, SEED } from '../gpu/random.js';

const geometry = findPreset('ouro-1.4b');
const c: Configuration = {
  geometry, codec: lla(96, 160), path: 'reconstruct', materialised: false, choice: { storage: 'f16', groupSize: 64 }, branch: { width: 64, perHead: false },
  eviction: null, gpus: 1, targetWorkgroups: 512, bindingBytes: Infinity,
};
const keyOf = ({ kernel, variant, shape }: KernelCall): string => JSON.stringify([kernel, variant, Object.entries(shape).sort()]);

/** Prices that depend on nothing but the shape. */
const pricer = (ownShareOf: (own: number) => number): Pricer => ({
  price: (call) => {
    const random = randomOf(mix(SEED + [...keyOf(call)].reduce((sum, char) => mix(sum + char.charCodeAt(0)), 0)));
    const estimate = random.whole(10, 1000) * 1e-6;
    return { estimate, low: estimate * (1 - random.whole(1, 30) / 100), high: estimate * (1 + random.whole(1, 60) / 100), evidence: 'interpolated', octavesOutside: 0, ownShare: ownShareOf(random.whole(0, 100) / 100) };
  },
  stepOverhead: { estimate: 1e-5, low: 5e-6, high: 2e-5, evidence: 'measured' },
  collective: () => null,
  source: 'made up',
});

/** The same, written out: a covariance between any two calls of a kernel. */
function halfWidths(p: Pricer): { below: number; above: number } {
  const calls: { key: string; kernel: string; below: number; above: number; own: number }[] = [];
  forEachOp(c, schedule(c, 3, 1000), (op, times) => {
    const { estimate, low, high, ownShare } = p.price(op);
    calls.push({ key: keyOf(op), kernel: op.kernel, below: times * (estimate - low), above: times * (high - estimate), own: ownShare });
  });
  const variance = (end: 'below' | 'above'): number =>
    calls.reduce((sum, a) => sum + calls.filter((b) => b.kernel === a.kernel).reduce((own, b) => own + a[end] * b[end] * (Math.sqrt((1 - a.own) * (1 - b.own)) + (a.key === b.key ? a.own : 0)), 0), 0);
  return { below: Math.sqrt(variance('below') + 5e-6 ** 2), above: Math.sqrt(variance('above') + 1e-5 ** 2) };
}

describe(`interval of a step (LLA_SIM_SEED=${SEED})`, () => {
  for (const [name, share] of [['nothing', () => 0], ['everything', () => 1], ['a part', (own: number) => own]] as const) {
    it(`is that of correlated errors, where shapes have ${name} of their own`, () => {
      const p = pricer(share);
      const { estimate, low, high } = priceStep(c, p, 3, 1000);
      const expected = halfWidths(p);
      expect((estimate - low) / expected.below).toBeCloseTo(1, 9);
      expect((high - estimate) / expected.above).toBeCloseTo(1, 9);
    });
  }
  it('is narrower the more shapes have of their own', () => {
    const width = (own: number): number => priceStep(c, pricer(() => own), 3, 1000).high;
    expect(width(1)).toBeLessThan(width(0.5));
    expect(width(0.5)).toBeLessThan(width(0));
  });
});
