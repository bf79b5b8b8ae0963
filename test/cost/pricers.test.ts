/** What joins GPUs, what a step's evidence says of its overhead, and remembered prices. */
import { describe, expect, it } from 'vitest';
import { priceStep } from '../../src/cost/latency.js';
import { datasheetPricer, measuredPricer, remembering } from '../../src/cost/pricers.js';
import { linkRate, type Link } from '../../src/cost/exchange.js';
import { rooflinePrice } from '../../src/cost/roofline.js';
import { findDevice } from '../../src/devices/find.js';
import { randomFrom } from '../../src/numbers/random.js';
import { configuration, lla, OURO_26 } from '../contract/geometries.js';

const linkOf = (device: string): Link => findDevice(device).interconnect as Link;
const RATES = { bytesPerSecond: 4.8e12, f32FlopsPerSecond: 67e12, matrixFlopsPerSecond: 989e12 };

describe('links', () => {
  it('a switch gives the whole rate to any number, a bridge only to the GPUs that it joins', () => {
    for (const gpus of [2, 4, 8]) expect(linkRate(linkOf('h200'), gpus)).toBe(450e9);
    expect(linkRate(linkOf('h100-pcie'), 2)).toBe(300e9);
    expect(linkRate(linkOf('h100-pcie'), 4)).toBe(64e9);
    expect(linkRate(linkOf('rtx-3090'), 4)).toBe(32e9);
    expect(linkRate(linkOf('h200-nvl'), 4)).toBe(450e9);
    expect(linkRate(linkOf('h200-nvl'), 8)).toBe(64e9);
  });
  it('links to single neighbours carry only what the GPUs that take part have between them', () => {
    expect([2, 4, 8].map((gpus) => linkRate(linkOf('mi300x'), gpus))).toEqual([64e9, 192e9, 448e9]);
    expect(linkRate(linkOf('mi300x'), 16)).toBe(64e9);
  });
  it('no link has no rate', () => expect(linkRate(null, 2)).toBeNull());

  it('an all-gather moves half of what an all-reduce of the same result does', () => {
    const pricer = datasheetPricer(RATES, linkOf('h200'));
    const seconds = (kind: 'all-reduce' | 'all-gather') => (pricer.collective(kind, 450e9, 2)?.low ?? 0) - 3e-6;
    expect(seconds('all-reduce')).toBeCloseTo(1, 9);
    expect(seconds('all-gather')).toBeCloseTo(0.5, 9);
  });

  it('over GPUs without a link communication is not priced, as is said; a pair costs less than PCI Express', () => {
    const two = configuration({ geometry: OURO_26, gpus: 2 });
    const four = configuration({ geometry: OURO_26, gpus: 4 });
    expect(priceStep(two, datasheetPricer(RATES, null), 8, 4096).communicationPriced).toBe(false);
    const exchanged = (c: typeof two, link: Link) => {
      const step = priceStep(c, datasheetPricer(RATES, link), 64, 4096);
      expect(step.communicationPriced).toBe(true);
      return step.byKernel.find((k) => k.kernel === 'collective');
    };
    expect(exchanged(two, linkOf('h100-pcie'))?.calls).toBe(2 * 48 * 4 + 2);
    expect(exchanged(four, linkOf('h100-pcie'))?.estimate).toBeGreaterThan(
      exchanged(four, linkOf('h100'))?.estimate as number,
    );
  });
});

describe('variants that were not measured', () => {
  it('attention that writes scores takes what it takes without, less surely; others have a roofline', () => {
    const own = { estimate: 1, low: 0.9, high: 1.1, evidence: 'measured', by: 'lla-sim', octavesOutside: 0 } as const;
    const pricer = measuredPricer({
      predictors: new Map([['attend_rebuild/f16', () => own]]),
      rates: RATES,
      stepOverhead: own,
      link: null,
      source: 'a test',
    });
    const shape = {
      sequences: 1,
      kvHeads: 16,
      latentHeads: 16,
      group: 1,
      context: 512,
      headDim: 128,
      groupSize: 0,
      splits: 2,
    };
    const call = { kernel: 'attend_rebuild', variant: 'f16', shape: { ...shape, rankK: 96, rankV: 160 } } as const;
    expect(pricer.price(call)).toEqual(own);
    const { low, high, ...rest } = pricer.price({ ...call, variant: 'f16+scores' });
    expect(rest).toEqual({ ...rest, estimate: 1, evidence: 'interpolated', by: 'lla-sim' });
    expect(low).toBeLessThan(own.low);
    expect(high).toBeGreaterThan(own.high);
    expect(pricer.price({ ...call, variant: 'q4+scores' }).evidence).toBe('roofline');
  });
});

describe('evidence of a step', () => {
  const c = configuration({ codec: lla(96, 160), path: 'block-absorbed' });
  it('shares sum to one, and an assumed overhead counts as roofline', () => {
    const step = priceStep(c, datasheetPricer(RATES, null), 8, 4096);
    const { roofline, ...rest } = step.evidenceShare;
    expect(roofline).toBeCloseTo(1, 12);
    expect(rest).toEqual({ measured: 0, interpolated: 0, extrapolated: 0, attainable: 0 });
    expect(step.pricedBy).toEqual({ roofline: expect.closeTo(1, 12) as number });
    expect(step.byKernel.find((k) => k.kernel === 'step-overhead')).toMatchObject({
      calls: 1,
      evidence: 'roofline',
      estimate: 30e-6,
    });
    expect(step.byKernel.reduce((sum, k) => sum + k.estimate, 0)).toBeCloseTo(step.estimate, 12);
  });
  it('a measured overhead counts as measured', () => {
    const overhead = { estimate: 1e-3, low: 5e-4, high: 2e-3, evidence: 'measured', by: 'lla-sim' } as const;
    const step = priceStep(
      c,
      measuredPricer({ predictors: new Map(), rates: RATES, stepOverhead: overhead, link: null, source: 'test' }),
      8,
      4096,
    );
    expect(step.evidenceShare.measured).toBeCloseTo(1e-3 / step.estimate, 12);
    expect(step.evidenceShare.measured + step.evidenceShare.roofline).toBeCloseTo(1, 12);
    expect(step.evidence).toBe('roofline');
  });
});

describe('remembered prices', () => {
  it('are those of their own shape, however many there are, and are worked out once while there is room', () => {
    const seed = Math.floor(Math.random() * 2 ** 31);
    const random = randomFrom(seed);
    let asked = 0;
    const price = remembering('rmsnorm', (shape) => {
      asked++;
      return { ...rooflinePrice({ kernel: 'rmsnorm', variant: 'norm', shape }, RATES), estimate: idOf(shape) };
    });
    const idOf = (shape: Readonly<Record<string, number>>): number => shape['rows']! * 2 ** 20 + shape['width']!;
    const drawn = (): number => 1 + Math.floor(random() * 2000);
    const shapes = Array.from({ length: 60_000 }, () => ({ rows: 64 * drawn(), width: 64 * drawn() }));
    const wrong = (list: typeof shapes): number => list.filter((s) => price(s).estimate !== idOf(s)).length;
    expect(wrong([...shapes, ...shapes]), `seed ${seed}`).toBe(0);
    expect(asked, `seed ${seed}`).toBe(new Set(shapes.map(idOf)).size);
    const more = Array.from({ length: 30_000 }, () => ({ rows: drawn(), width: drawn() }));
    expect(wrong([...more, ...shapes]), `seed ${seed}`).toBe(0);
  });
});
