/** Latents as they have been built so far, beside what tuned kernels would reach. */
import { describe, expect, it } from 'vitest';
import { reachedBy } from '../../scripts/reached.js';
import { IMPLEMENTATIONS } from '../../src/quality/implementations.js';
import { planOf, row } from './requests.js';

describe('published implementations', () => {
  it.each(IMPLEMENTATIONS.map((i) => [`${i.source}, ${i.contextTokens} tokens, batch ${i.batch}`, i] as const))(
    '%s reached the share that stands beside it',
    async (_name, i) => {
      for (const [path, share] of Object.entries(await reachedBy(i)))
        expect(i.reached[path as keyof typeof i.reached], path).toBeCloseTo(share, 2);
    },
  );

  it('are reproduced where they were measured: LLA 4× rebuilt on an A100, alone and with as many as fit', async () => {
    const asked = { device: 'a100-80', codec: ['full', 'lla'], ratio: [4] };
    const alone = row(await planOf({ ...asked, batch: 1 }), 'lla-4x/reconstruct').asPublished;
    expect(alone?.secondsPerStep.low).toBeLessThanOrEqual(54.1e-3);
    expect(alone?.secondsPerStep.high).toBeGreaterThanOrEqual(54.1e-3);
    const report = await planOf(asked);
    const full = row(report, 'lla-4x/reconstruct').asPublished;
    expect(full?.tokensPerSecond.low).toBeLessThan(27.8);
    expect(full?.tokensPerSecond.high).toBeGreaterThan(27.8);
    expect(full?.ofFull).toBeLessThan(0.2);
  });

  it('say of the paper’s own 108 tok/s at 21.33× on an H200 what they are', async () => {
    const p = row(await planOf({ codec: ['full', 'lla'], ratio: [64 / 3] }), 'lla-21.33x/reconstruct-materialised');
    expect(p.asPublished?.tokensPerSecond.estimate).toBeGreaterThan(0.8 * 108);
    expect(p.asPublished?.tokensPerSecond.estimate).toBeLessThan(1.25 * 108);
  });
});

describe('a plan as published', () => {
  it('is that of its own path, or of the fastest faithful one of its codec where nobody built that', async () => {
    const report = await planOf({ codec: ['full', 'lla', 'lla-2d', 'kv-quant'], ratio: [4, 21.33] });
    const of = (id: string) => row(report, id).asPublished;
    expect(of('lla-4x/reconstruct')?.path).toBe('reconstruct');
    const built = of('lla-4x/block-absorbed');
    expect(['reconstruct', 'materialised']).toContain(built?.path);
    expect(built).toEqual(of(`lla-4x/${built?.path === 'materialised' ? 'reconstruct-materialised' : 'reconstruct'}`));
    // Another computation than the one that was scored: it stands for itself alone.
    expect(of('lla-4x/absorbed')?.path).toBe('absorbed');
    expect(of('lla-4x/absorbed')?.implementations.map((i) => i.ofFull)).toEqual(expect.arrayContaining([0.39, 1.39]));
    for (const id of ['full/full', 'lla-2d-4x/reconstruct', 'kv-quant-4bit/full']) expect(of(id), id).toBeNull();
  });

  it('is never faster than with tuned kernels', async () => {
    for (const device of ['h200', 'a100-80', 'rtx-4090', 'mi300x'])
      for (const p of (await planOf({ device, codec: ['full', 'lla'] })).plans)
        if (p.asPublished && p.knee && p.asPublished.batch === p.knee.batch)
          expect(p.asPublished.tokensPerSecond.high, p.id).toBeLessThanOrEqual(
            (p.knee.tokensPerSecond?.high ?? 0) * 1.001,
          );
  });
});
