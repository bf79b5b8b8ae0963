import { expect, test } from 'vitest';
import { makeOperands, mix } from '/work/main/src/bench/inputs.js';
import { relativeError } from '/work/main/src/bench/verify.js';
import { planOperation, type Device, type OperationOptions } from '/work/main/src/gpu/index.js';
import { blockPlan } from '/work/main/src/schedule/block-absorbed.js';
import { describeGpu } from '/work/main/test/gpu/device.js';
import { SEED } from '/work/main/test/gpu/random.js';
async function errorOf(device: Device, call: any, options: OperationOptions, seed: number): Promise<number> {
  const plan = planOperation(call, options);
  console.log(JSON.stringify(plan.tuning));
  const operands = await makeOperands(device, plan, seed);
  try { const steps = await device.bindAll(plan, operands.buffers); await device.run(steps); return await relativeError(device, call, plan, operands, options, seed); } finally { device.free(...operands.buffers.values()); }
}
describeGpu('x', (device) => {
  const L = (x: any) => ({ sequences: 1, kvHeads: 2, latentHeads: 2, group: 1, groupSize: 0, headDim: 128, splits: 2, ...x });
  const cases: [string, any, any?][] = [
    ['f16',L({context: 300, rankK: 96, rankV: 160})],
    ['f16',L({context: 1000, rankK: 27, rankV: 45, group: 3, latentHeads: 1}), {run:{firstPosition: 900_001}, positions: 2**20}],
    ['f32',L({context: 300, rankK: 18, rankV: 30, headDim: 64})],
    ['q4',L({context: 300, rankK: 27, rankV: 45, groupSize: 32, sequences: 2}), {run:{pinned:37,capacity:352,spans:[{pinned:37,firstPosition:1234,ring:300},{pinned:5,firstPosition:7,ring:11}]}}],
    ['q3',L({context: 300, rankK: 96, rankV: 45, groupSize: 32 })],
  ];
  for (const [variant, shape, o] of cases) test(variant + JSON.stringify(shape), { timeout: 120000 }, async () => {
    const t = performance.now();
    shape.blockTokens = o?.B ?? 256; const p = blockPlan(1e6, shape.headDim, shape.blockTokens); shape.macsPerRank = p.macsPerRank; shape.setupPerRank = p.setupPerRank;
    const e = await errorOf(device, { kernel: 'attend_block_absorbed', variant, shape }, { scale: 4 * (shape.rankK * shape.headDim) ** -0.5, ...o }, mix(SEED));
    console.log(variant, e, (performance.now() - t) | 0);
    expect(e).toBeLessThan(1e-5);
  });
  test('vectors', async () => {
    for (const [shape, o] of [[{ heads: 6, kvHeads: 3, rankK: 27, headDim: 64 }, { pairing: 'adjacent' }], [{ heads: 12, kvHeads: 3, rankK: 96, headDim: 128 }, { blockVectors: { group: 2 } }]] as any) {
      const e = await errorOf(device, { kernel: 'block_vectors', variant: 'f16', shape }, o, 5); console.log('vectors', e); expect(e).toBeLessThan(1e-6);
    }
  });
});
