/** Prices of GPUs by tables of serving stacks and by laws of tuned kernels. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';
import { CODEC_KINDS } from '../../src/codecs/codec.js';
import { pricePrompt, priceStep } from '../../src/cost/latency.js';
import { DEVICES, type DeviceSpec as Spec } from '../../src/devices/catalogue.js';
import { findDevice } from '../../src/devices/find.js';
import { KERNEL_NAMES, KERNELS, workOf } from '../../kernels/registry.js';
import { listed, TUNED_CLASSES } from '../../kernels/tuned.js';
import { prepare } from '../../src/plan/ask/prepare.js';
import { ask, readSources } from '../../src/plan/ask/on-disk.js';
import { configurationOf } from '../../src/plan/evaluate/evaluate.js';
import type { Plan } from '../../src/plan/types.js';
import { randomFrom } from '../../src/numbers/random.js';
import { forEachOp } from '../../src/schedule/expand.js';
import { schedule } from '../../src/schedule/schedule.js';
import { attainableSeconds, lawsOf, type AttainableFile } from '../../src/stacks/attainable.js';
import {
  busyTimes,
  isInside,
  measuredTimes,
  tunedTimes,
  widened,
  type Measured,
} from '../../scripts/fit-attainable.js';
import { servedBy, STACKS } from '../../src/stacks/serving.js';
import type { StackFile } from '../../src/stacks/stack-schema.js';

const CALIBRATIONS = fileURLToPath(new URL('../../calibrations/', import.meta.url));
const read = <T>(name: string): T => JSON.parse(readFileSync(CALIBRATIONS + name, 'utf8')) as T;
const laws = read<AttainableFile>('attainable.json');
const seed = Date.now() % 2 ** 31;

describe('what a tuned kernel would do', () => {
  it('is stated by every kernel for every call of every combination, and is never more work than ours', async () => {
    const seen = new Set<string>();
    const every = [['none'], ['streaming:4+252'], ['h2o:128+128']];
    for (const [model, evictions] of [
      ['ouro-1.4b', every],
      ['huginn-3.5b', every],
      ['nanbeige4.2-3b', every],
      ['hrm-text-1b', every],
      ['loopcoder-v2-7b', [['none']]],
      ['loopus-qwen3-1.7b', [['none']]],
      ['parcae-140m', [['none']]],
    ] as const)
      for (const eviction of evictions) {
        const scenario = { device: 'h200', model, eviction: [...eviction], codec: [...CODEC_KINDS] };
        const { request } = prepare(scenario, await readSources(scenario));
        for (const candidate of request.candidates) {
          const c = configurationOf(request, candidate);
          forEachOp(c, schedule(c, 3, 2000), (op) => {
            seen.add(op.kernel);
            const tuned = KERNELS[op.kernel].tuned(op.shape, op.variant);
            if (!tuned) return;
            const { bytes, operations, vectorOperations = 0 } = tuned.work;
            const ours = workOf(op);
            const label = `${op.kernel} ${op.variant} ${JSON.stringify(op.shape)}`;
            expect(bytes, label).toBeGreaterThanOrEqual(0);
            // A tile of 64 columns, and the new token that tables count with the context.
            expect(bytes, label).toBeLessThanOrEqual(1.1 * (ours.readBytes + ours.writeBytes) + 64 * 2 * 8192);
            // Block vectors on matrix units take twice the multiply-adds.
            expect(operations + vectorOperations, label).toBeLessThanOrEqual(2.1 * ours.flops + 1e7);
          });
        }
      }
    expect(KERNEL_NAMES.filter((k) => !seen.has(k) && !/prefill|carried|chunk|kept|load/.test(k))).toEqual([]);
  });
});

/** Weights of a projection, or cached rows of full width in 16 bits; 0 of others. */
function streamedBytes(kernel: string, variant: string, s: Readonly<Record<string, number>>): number {
  if (variant !== 'f16') return 0;
  if (kernel === 'matmul') return s['groups'] === 1 ? 2 * s['k']! * s['n']! : 0;
  const isListed = kernel === 'attend' && s['keyWidth'] === 128 && s['valueWidth'] === 128;
  return isListed ? 2 * s['sequences']! * s['kvHeads']! * s['context']! * 256 : 0;
}

describe(`fast ends (seed ${seed})`, () => {
  it('are no faster than memory delivers weights, caches, what else no L2 holds; some are at that bound', async () => {
    const random = randomFrom(seed);
    let bound = 0;
    for (const device of ['rtx-4090', 'l40s', 'h200', 'b200', 'a100-40']) {
      const scenario = { device, model: random() < 0.5 ? 'ouro-1.4b' : 'nanbeige4.2-3b', codec: [...CODEC_KINDS] };
      const { request } = prepare(scenario, await readSources(scenario));
      const { memoryBytesPerSecond, l2Bytes } = findDevice(device);
      for (const candidate of request.candidates) {
        const c = configurationOf(request, candidate);
        const [batch, context] = [2 ** Math.floor(8 * random()), 2 ** (9 + Math.floor(8 * random()))];
        forEachOp(c, schedule(c, batch, context), (op) => {
          const bytes = KERNELS[op.kernel].tuned(op.shape, op.variant)?.work.bytes ?? 0;
          // A step finds neither weights nor its cache in the L2, however large that is.
          const streamed = streamedBytes(op.kernel, op.variant, op.shape);
          const least = Math.max(streamed, bytes - l2Bytes!) / memoryBytesPerSecond;
          const { low } = request.pricer!.price(op);
          expect(low, `${op.kernel} ${JSON.stringify(op.shape)}`).toBeGreaterThanOrEqual(least * (1 - 1e-9));
          if (least > 0 && Math.abs(low / least - 1) < 1e-9) bound++;
        });
      }
    }
    expect(bound).toBeGreaterThan(0);
  });
});

describe('prompts that are taken position by position', () => {
  it.each(['final-loop', 'mean-loop'])('of %s cost the steps that decode them', async (kind) => {
    const scenario = { device: 'h200', codec: [kind], shared: ['all'] };
    const { request } = prepare(scenario, await readSources(scenario));
    const c = configurationOf(request, request.candidates[0]!);
    const promptTokens = 300 + (seed % 3000);
    const { estimate } = pricePrompt(c, request.pricer!, { method: 'accumulated', promptTokens });
    let steps = 0;
    for (let n = 1; n <= promptTokens; n++) steps += priceStep(c, request.pricer!, 1, n).estimate;
    // Each step has logits; a prompt has those of its last token.
    expect(estimate / steps, `${promptTokens} tokens`).toBeGreaterThan(0.9);
    expect(estimate / steps, `${promptTokens} tokens`).toBeLessThan(1.02);
  });
});

describe('laws of attainable times', () => {
  it('exist for every class, in order, and never beat the datasheet by more than their widening', () => {
    for (const of of [laws.pooled, ...Object.values(laws.devices)])
      for (const [name, bracket] of Object.entries(of)) {
        expect(bracket.fast.floorSeconds).toBeLessThan(bracket.slow.floorSeconds);
        // Small kernels read what the L2 holds.
        expect(bracket.fast.bandwidthShare).toBeLessThanOrEqual(name === 'small' ? 4 : 1);
        expect(bracket.slow.floorSeconds).toBeLessThan(1e-3);
      }
    expect(Object.keys(laws.pooled).sort()).toEqual([...TUNED_CLASSES].sort());
  });

  it('are of kernels that use the GPU: not of one that takes as long for one sequence as for eight', () => {
    const time = (rows: number, bytes: number, seconds: number) => ({
      work: { rows, bytes, operations: bytes },
      seconds,
    });
    const [idle, half, busy] = [time(1, 1e6, 1e-3), time(4, 4e6, 1e-3), time(8, 8e6, 1e-3)];
    const [split, short] = [time(8, 8e6, 0.4e-3), time(16, 1e5, 1e-3)];
    expect(busyTimes([idle, half, busy])).toEqual([idle, half, busy]);
    // As much work in less than half of the time; more rows are more work.
    expect(busyTimes([idle, half, busy, split, short])).toEqual([split, short]);
    const products = [idle, split].map(({ work: { rows: _, ...work }, seconds }) => ({ work, seconds }));
    expect(busyTimes(products)).toEqual(products);
  });

  it('are not of a kernel that another stack on the same GPU beats threefold', () => {
    const files = ['l40s-trtllm', 'l40s-sglang', 'h200-trtllm'].map((name) => read<StackFile>(`stacks/${name}.json`));
    const latents = (times: readonly Measured[], device: string): Measured[] =>
      times.filter((t) => t.class === 'latent-attention' && t.device === device);
    const [all, kept] = [files.flatMap(measuredTimes), tunedTimes(files)];
    expect(latents(kept, 'h200')).toEqual(latents(all, 'h200'));
    const [own, others] = [latents(kept, 'l40s'), latents(all, 'l40s')];
    expect(own.length).toBeLessThan(others.length);
    for (const { work, seconds } of own)
      for (const other of others)
        if (3 * other.seconds < seconds)
          expect(
            other.work.bytes < work.bytes || other.work.operations < work.operations || other.work.rows! < work.rows!,
          ).toBe(true);
  });

  it('have a slow end slower than the estimate and a fast end faster, whichever part sets the time', () => {
    for (const brackets of [laws.pooled, ...Object.values(laws.devices)])
      for (const { fast, middle, slow } of Object.values(brackets))
        for (const [quicker, slower] of [
          [fast, middle],
          [middle, slow],
        ] as const) {
          expect(slower.floorSeconds).toBeGreaterThanOrEqual(quicker.floorSeconds);
          expect(slower.bandwidthShare).toBeLessThanOrEqual(quicker.bandwidthShare);
          expect(slower.peakShare).toBeLessThanOrEqual(quicker.peakShare);
          expect(slower.rowSeconds ?? 0).toBeGreaterThanOrEqual(quicker.rowSeconds ?? 0);
        }
  });

  it('of latents span less than a factor of twenty on GPUs without tables, at any length of context', () => {
    const pooled = lawsOf(laws, findDevice('mi300x'));
    const rates = { memoryBytesPerSecond: 5.3e12, linkBytesPerSecond: 1e11, operationsPerSecond: 1.3e15 };
    for (let context = 4096; context <= 2 ** 20; context *= 4)
      for (const batch of [1, 16, 128]) {
        const call = listed('decode-attention-latent', {
          heads: 16,
          batch,
          context,
          latentWidth: 512,
          branchWidth: 64,
        });
        const { low, high } = attainableSeconds(pooled, call, rates);
        expect(high / low, `${batch} × ${context}`).toBeLessThan(20);
      }
  });

  it('hold the times that they were fitted to', () => {
    for (const name of ['h200-vllm.json', 'h100-trtllm.json', 'b200-sglang.json']) {
      const file = read<StackFile>(`stacks/${name}`);
      const own = laws.devices[file.device]!;
      const times = measuredTimes(file).filter((t) => own[t.class]);
      const inside = times.filter((t) => isInside(own[t.class]!, t)).length / times.length;
      expect(inside, name).toBeGreaterThan(0.85);
      // The check can fail: laws that are off by half hold few.
      const off =
        times.filter((t) => isInside(widened(own[t.class]!, { fast: -0.4, slow: -0.4 }, t.class), t)).length /
        times.length;
      expect(off, name).toBeLessThan(0.6);
    }
  });

  it('a slower clock lengthens floors, fewer units lengthen rows, and products reach what was measured', () => {
    const [h100, a100, rtx] = ['h100', 'a100-80', 'rtx-4090'].map((id) => findDevice(id)) as [Spec, Spec, Spec];
    const decode = (spec: Spec) => lawsOf(laws, spec).pooled['decode-attention'].middle;
    const clocks = 1.98 / 1.41;
    expect(decode(a100).floorSeconds / decode(h100).floorSeconds).toBeCloseTo(clocks, 2);
    expect(decode(a100).rowSeconds! / decode(h100).rowSeconds!).toBeCloseTo((clocks * 132) / 108, 2);
    expect(decode(a100).bandwidthShare).toBe(decode(h100).bandwidthShare);
    const product = (spec: Spec) => lawsOf(laws, spec).pooled.product;
    expect(product(h100).middle.peakShare).toBeLessThan(0.85);
    const { productFlopsPerSecond: _, ...unmeasured } = rtx;
    expect(product(unmeasured).middle.peakShare).toBeGreaterThan(1);
    const reached = ({ productFlopsPerSecond: a, matrixFlopsPerSecond: b }: Spec): number => a! / b;
    expect(product(rtx).middle.peakShare / product(h100).middle.peakShare).toBeCloseTo(reached(rtx) / reached(h100), 6);
    expect(product(rtx).fast.peakShare).toBeLessThanOrEqual(1.05);
    const link = (spec: Spec) => lawsOf(laws, spec).pooled['all-reduce'].middle;
    expect(link(a100)).toEqual(link(h100));
  });

  it('a call inside a neighbour pays no launch', () => {
    const of = lawsOf(laws, findDevice('h200'));
    const rates = { memoryBytesPerSecond: 4.8e12, linkBytesPerSecond: 450e9, operationsPerSecond: 989e12 };
    const call = { class: 'product', work: { bytes: 1e3, operations: 1e3 } } as const;
    const alone = attainableSeconds(of, call, rates);
    const inside = attainableSeconds(of, { ...call, inside: true }, rates);
    expect(alone.estimate - inside.estimate).toBeCloseTo(of.own.product!.middle.floorSeconds, 12);
  });
});

describe('the stack of a plan', () => {
  const full = async (scenario: object): Promise<{ plan: Plan; notes: string; stack: string | null }> => {
    const report = await ask({ codec: ['full'], ...scenario });
    return { plan: report.plans[0]!, notes: report.notes.join('\n'), stack: report.device.stack };
  };

  it('prices the full cache of a served model by measured kernels, within 25 %', async () => {
    const { plan, stack } = await full({ vram: '141GB', context: 4096 });
    const { estimate, low, high } = plan.decode.secondsPerStep!;
    expect(stack).toBe('vllm');
    expect(plan.servedBy).toMatch(/^vLLM \d/);
    expect(low).toBeGreaterThan(0.75 * estimate);
    expect(high).toBeLessThan(1.25 * estimate);
    expect(plan.breakEven).toBeNull();
  });

  it('is the first with tables where nobody serves the model, and says so', async () => {
    const { plan, notes, stack } = await full({ device: 'h100', model: 'huginn-3.5b' });
    expect(stack).toBe('vllm');
    expect(plan.servedBy).toBeNull();
    expect(notes).toContain('neither vLLM, SGLang nor TRT-LLM runs huginn-3.5b');
  });

  it('is attainable where nobody has measured, and says whose GPUs it rests on', async () => {
    const { plan, notes, stack } = await full({ device: 'mi300x' });
    expect(stack).toBe('attainable');
    expect(plan.decode.evidence).toBe('attainable');
    expect(notes).toContain('all of them by NVIDIA');
  });

  it('takes the tables of the same chip, but not those of its link', async () => {
    for (const [device, chip] of [
      ['a800', 'a100-80'],
      ['h800', 'h100'],
    ] as const)
      for (const stack of [undefined, 'sglang', join(CALIBRATIONS, `stacks/${chip}-vllm.json`)]) {
        const asked = { context: 300 + (seed % 5000), batch: 4, ...(stack === undefined ? {} : { stack }) };
        const step = async (of: object) => (await full({ ...asked, ...of })).plan.decode;
        const [one, known] = [await step({ device }), await step({ device: chip })];
        expect(one.secondsPerStep!.estimate).toBe(known.secondsPerStep!.estimate);
        expect(one.evidence).toBe(known.evidence);
        const sum = async (of: string) => {
          const { request } = prepare({ ...asked, device: of }, await readSources({ ...asked, device: of }));
          return request.pricer!.collective('all-reduce', 1e6, 2)!;
        };
        expect((await sum(device)).by).toBe('attainable');
        const faster = await sum(chip);
        expect(faster.by).not.toBe('attainable');
        const slower = await sum(device);
        for (const end of ['low', 'estimate', 'high'] as const)
          expect(slower[end], end).toBeGreaterThanOrEqual(faster[end]);
        expect((await full({ ...asked, device })).notes).toContain(`those of the ${chip}, which has the same chip`);
      }
  });

  it('is no faster than the memory, however far whole servers were off', async () => {
    for (const device of ['l4', 'h100-pcie', 'mi300x', 'rtx-6000-ada']) {
      const { plan } = await full({ device, context: 4096, batch: 4 });
      const { secondsPerStep, floor } = plan.decode;
      expect(secondsPerStep!.low, device).toBeGreaterThanOrEqual(floor!.memory);
      expect(secondsPerStep!.low).toBeLessThan(secondsPerStep!.estimate);
    }
  });

  it('never shows as served what no stack runs', async () => {
    const report = await ask({ device: 'h200', eviction: ['none', 'streaming:4+252'] });
    for (const p of report.plans)
      if (p.codec.kind !== 'full' || p.eviction !== null) expect(p.servedBy, p.id).toBeNull();
    const int8 = await ask({ device: 'h200', codec: ['full'], cacheType: 'int8' });
    expect(int8.plans[0]!.servedBy).toBeNull();
  });

  it('refuses what is not there in one line', async () => {
    for (const [scenario, words] of [
      [{ device: 'h200', stack: 'lla-sim' }, /needs a calibration/],
      [{ device: 'h200', stack: 'nope' }, /knows no "nope"/],
      [{ device: 'mi300x', stack: 'trtllm' }, /TRT-LLM does not run on AMD/],
      [{ device: 'm4-max', stack: 'vllm-rlt' }, /vllm-rlt does not run on Apple M4 Max$/],
      [{ vram: '37GB', stack: 'vllm' }, /needs a device/],
      [{ device: 'h100', stack: `${CALIBRATIONS}stacks/h200-vllm.json` }, /times of h200, not of h100/],
      [{ device: 'h100', stack: `${CALIBRATIONS}mesa-llvmpipe.json` }, /stack file/],
    ] as const)
      await expect(ask(scenario), JSON.stringify(scenario)).rejects.toThrow(words);
  });

  it.each(['vllm', 'sglang', 'trtllm', 'vllm-rlt'])(
    'prices a chunk after others no lower than alone, with an interval: %s',
    async (stack) => {
      const random = randomFrom(seed);
      const asked = { device: 'b300', codec: ['full'] as const, model: 'ouro-1.4b', stack };
      const { pricer } = prepare(asked, await readSources(asked)).request;
      for (let i = 0; i < 200; i++) {
        const queries = 1 + Math.floor(2 ** (11 * random()));
        const shape = { sequences: 1, kvHeads: 16, group: 1, queries, context: 0, keyWidth: 128, valueWidth: 128 };
        const at = (context: number) =>
          pricer!.price({ kernel: 'attend_prefill', variant: 'f16', shape: { ...shape, context } });
        const context = Math.ceil(2 ** (14 * random()));
        const { estimate, low, high } = at(context);
        const label = `${queries} after ${context}, seed ${seed}`;
        expect(estimate, label).toBeGreaterThanOrEqual(at(0).estimate * (1 - 1e-9));
        expect(low, label).toBeLessThan(estimate);
        expect(high, label).toBeGreaterThan(estimate);
      }
    },
  );

  it('prices every device and codec with finite intervals, and break-even shares that hold', async () => {
    const random = randomFrom(seed);
    for (const device of DEVICES) {
      const stack = random() < 0.3 ? 'attainable' : undefined;
      const report = await ask({
        device: device.id,
        context: 2 ** (8 + Math.floor(random() * 10)),
        ...(stack ? { stack } : {}),
      });
      const fullPlan = report.plans.find((p) => p.codec.kind === 'full')!;
      for (const p of report.plans) {
        const d = p.decode;
        if (!d.secondsPerStep) continue;
        const label = `${device.id} ${p.id} seed ${seed}`;
        expect(d.secondsPerStep.low, label).toBeGreaterThan(0);
        expect(d.secondsPerStep.high, label).toBeLessThan(1e5);
        if (!p.breakEven || p.breakEven.cannot) continue;
        // At that share of the rate the unmeasured kernels take so much longer, and both are as fast.
        const [own, full] = p.knee ? [p.knee, fullPlan.knee ?? fullPlan.decode] : [d, fullPlan.decode];
        const slowed = own.secondsPerStep!.estimate + own.unmeasured!.estimate * (1 / p.breakEven.estimate - 1);
        expect(own.batch / slowed / full.tokensPerSecond!.estimate, label).toBeCloseTo(1, 9);
      }
    }
  });

  it('knows which stack serves a preset', () => {
    expect(STACKS.filter((s) => servedBy('ouro-1.4b', s))).toEqual(['vllm']);
    expect(servedBy('huginn-3.5b', 'vllm')).toBeNull();
    expect(servedBy(null, 'vllm')).toBeNull();
  });
});

it(`a sequence more makes no step faster where the L2 may have held measured caches (seed ${seed})`, async () => {
  const random = randomFrom(seed);
  for (const [device, stack] of [
    ['l40s', 'vllm'],
    ['l40s', 'trtllm'],
    ['rtx-5090', 'trtllm'],
    ['rtx-pro-6000', 'sglang'],
  ] as const) {
    const scenario = { device, stack, model: 'ouro-1.4b', codec: ['full' as const] };
    const { request } = prepare(scenario, await readSources(scenario));
    const c = configurationOf(request, request.candidates[0]!);
    const context = Math.floor(400 + 1500 * random());
    let before = 0;
    for (let batch = 4; batch <= 48; batch++) {
      const { estimate } = priceStep(c, request.pricer!, batch, context);
      expect(estimate / before, `${device} ${stack} ${batch} × ${context}`).toBeGreaterThan(0.94);
      before = estimate;
    }
  }
});
