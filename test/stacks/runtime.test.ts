/**
 * The program around the kernels: its numbers, its formulas against plain ones, and what a plan and a run make of it.
 */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { accuracy, ownLedger } from '../../src/accuracy/report.js';
import { priceStep } from '../../src/cost/latency.js';
import { clockOf, DEVICES } from '../../src/devices/catalogue.js';
import { findDevice } from '../../src/devices/find.js';
import { findPreset } from '../../src/geometry/presets.js';
import { plan } from '../../src/index.js';
import type { Interval } from '../../src/cost/evidence.js';
import { prepare, type Sources } from '../../src/plan/ask/prepare.js';
import { runsOf } from '../../src/plan/ask/runs.js';
import { readSources } from '../../src/plan/ask/on-disk.js';
import { configurationOf } from '../../src/plan/evaluate/evaluate.js';
import type { Scenario } from '../../src/schema/settings.js';
import { simulate } from '../../src/serving/answer.js';
import { forEachOp } from '../../src/schedule/expand.js';
import { schedule } from '../../src/schedule/schedule.js';
import {
  besideHost,
  Runtime,
  withDividingAttention,
  type RuntimeChoice,
  type RuntimeSource,
} from '../../src/stacks/runtime.js';
import { runtimeFor } from '../../src/stacks/runtime-pricer.js';
import { type RuntimeFile, runtimeFileSchema } from '../../src/stacks/runtime-schema.js';
import { median } from '../../src/numbers/statistics.js';
import { readLedger } from '../../src/schema/ledger-file.js';
import { inProcess, ROOT } from '../cli/program.js';
import { randomOf, SEED } from '../gpu/random.js';

const file = JSON.parse(readFileSync(join(ROOT, 'calibrations/runtimes.json'), 'utf8')) as RuntimeFile;
const terms = file.runtimes['vllm-rlt'];
const random = randomOf(SEED);
const MODELS = ['ouro-1.4b', 'huginn-3.5b', 'nanbeige4.2-3b'] as const;
const near = (a: number, b: number, share: number): void =>
  expect(Math.abs(a / b - 1), `${a} for ${b}, seed ${SEED}`).toBeLessThan(share);

async function requestOf(scenario: Scenario) {
  const asked = { codec: ['full'], stack: 'vllm-rlt', ...scenario };
  const { request } = prepare(asked, await readSources(asked));
  return { request, c: configurationOf(request, request.candidates[0]!) };
}
const stepOf = async (scenario: Scenario, batch: number, context: number) => {
  const { request, c } = await requestOf({ device: 'b300', ...scenario });
  return priceStep(c, request.pricer!, batch, context);
};

describe('runtimes.json', () => {
  it('is as its schema says, with hosts of the catalogue, and its default spans them', () => {
    expect(runtimeFileSchema.safeParse(file).error?.message).toBeUndefined();
    const { measured, others } = file.hosts;
    const known = new Set(DEVICES.map(({ id }) => id));
    for (const [device, { secondsPerLaunch }] of Object.entries(measured)) {
      expect(known).toContain(device);
      expect(secondsPerLaunch).toBeGreaterThanOrEqual(others.low);
      expect(secondsPerLaunch).toBeLessThanOrEqual(others.high);
    }
  });

  it('takes no host from a row that judges', () => {
    const { rows } = readLedger(join(ROOT, 'ledger/vllm-rlt.json'));
    for (const { row } of Object.values(file.hosts.measured)) {
      const name = row.replace('vllm-rlt: ', '').split(',')[0];
      const found = rows.filter(({ id, campaign }) => id === name || campaign === name);
      expect(found.length, row).toBeGreaterThan(0);
      for (const { use } of found) expect(use, row).toBe('fits');
    }
  });

  it('gives back what it was fitted to', async () => {
    const { figures } = await accuracy(ownLedger(), 'b300-decode');
    expect(figures.length).toBeGreaterThan(90);
    expect(median(figures.map((f) => Math.abs(f.error)))).toBeLessThan(0.04);
  });

  it('is refused with a field missing, below zero, or a default that is not listed', () => {
    const broken = (change: (copy: Record<string, never>) => void): boolean => {
      const copy = structuredClone(file) as never;
      change(copy);
      return runtimeFileSchema.safeParse(copy).success;
    };
    const name = random.pick(Object.keys(terms.launches));
    const of = (copy: never): never => copy['runtimes']['vllm-rlt'] as never;
    expect(broken((copy) => delete (of(copy as never)['launches'] as never)[name])).toBe(false);
    expect(broken((copy) => ((of(copy as never)['launches'] as Record<string, number>)[name] = -1))).toBe(false);
    expect(broken((copy) => ((of(copy as never)['defaults'] as Record<string, string>)['attention'] = 'x'))).toBe(
      false,
    );
    expect(broken(() => {})).toBe(true);
  });
});

describe('a pass', () => {
  it('is the longer of host and GPU, counted launch by launch', () => {
    for (let i = 0; i < 200; i++) {
      const g = findPreset(random.pick(MODELS));
      const attentionName = random.pick(Object.keys(terms.attention));
      const choice: RuntimeChoice = {
        execution: random.pick(['eager', 'loop-graphs']),
        attentionName,
        attention: terms.attention[attentionName]!,
        asynchronous: random.pick([true, false]),
      };
      const host = { estimate: 1e-5, low: 1e-5, high: 1e-5 };
      const runtime = new Runtime({ name: 'vllm-rlt', device: 'b300', terms, host, hostFrom: null }, choice, g);
      const launch = random.whole(2, 40) * 1e-6;
      const kernels = random.whole(1, 40_000) * 1e-6;
      const rows = random.whole(1, 300);
      const replayed = choice.execution === 'loop-graphs' && rows <= terms.mostReplayedRows;
      // Each norm and what else a layer has, one after the other.
      let launches = 0;
      let unseen = 0;
      for (let layer = 0; layer < g.layers; layer++) {
        launches += 24 + choice.attention.callLaunches;
        unseen += 24 - 7;
        for (let norm = 0; norm < g.normsPerLayer; norm++) {
          launches += 8;
          unseen += 7;
        }
      }
      const launching = launch * (replayed ? terms.launches.replay : launches + terms.launches.loop);
      const gpu = kernels + unseen * (replayed ? terms.gapSeconds.replayed : terms.gapSeconds.eager);
      const books = launch * rows * terms.launches.row;
      const expected = choice.asynchronous ? Math.max(launching + books, gpu) : books + Math.max(launching, gpu);
      near(runtime.pass(rows, { kernels, launch }), expected, 1e-9);
      const tokens = random.whole(1, 4000);
      const runs = g.layers * g.loops + g.preludeLayers + g.codaLayers;
      const each = launches / g.layers;
      const prompt = runs * each + g.loops * (25 + tokens * choice.attention.promptTokenLaunches) + 51;
      const gaps = ((runs * unseen) / g.layers) * terms.gapSeconds.eager;
      near(runtime.chunk(tokens, { kernels, launch }), Math.max(launch * prompt, kernels + gaps), 1e-9);
    }
  });
});

describe('attention without splits', () => {
  it('walks a sequence block by block, and waits for neighbours', async () => {
    const spec = findDevice(random.pick(['b300', 'h100', 'a100-80', 'rtx-5090']));
    const scenario = { device: spec.id, model: random.pick(['ouro-1.4b', 'nanbeige4.2-3b'] as const) };
    const { request, c } = await requestOf({ ...scenario, attention: 'triton' });
    const batch = random.whole(1, 64);
    const context = random.whole(20_000, 60_000);
    let seconds = 0;
    forEachOp(c, schedule(c, batch, context), (op) => {
      if (op.label === 'attend') seconds = Math.max(seconds, request.pricer!.price(op).estimate);
    });
    const { secondsPerToken, secondsPerTokenOfOthers, clockHertz } = terms.attention['triton']!.unsplit!;
    const blocks = (batch * c.geometry.heads) / spec.units;
    const alone = context * secondsPerToken;
    const shared = context * secondsPerTokenOfOthers * blocks;
    const least = (Math.sqrt(alone ** 2 + shared ** 2) * clockHertz) / clockOf(spec);
    expect(seconds, `seed ${SEED}`).toBeGreaterThan(0.999 * least);
    // Memory may be slower than the walk, on small GPUs and large batches alone.
    if (batch === 1) near(seconds, least, 0.02);
  });

  it('is far slower than a kernel with splits where contexts are long and sequences few', async () => {
    const context = random.whole(16_000, 60_000);
    const triton = await stepOf({ attention: 'triton' }, 1, context);
    const flash = await stepOf({ attention: 'flash-attn-4' }, 1, context);
    expect(triton.estimate, `seed ${SEED}`).toBeGreaterThan(2 * flash.estimate);
  });
});

describe('prompts as rows', () => {
  it('cost as many sequences that read their own cache, and far more than a kernel for prompts', async () => {
    const [queries, context] = [random.whole(256, 2048), random.whole(8000, 16_000)];
    const shape = { sequences: 1, kvHeads: 16, group: 1, queries, context, keyWidth: 128, valueWidth: 128 };
    const prompt = { kernel: 'attend_prefill', variant: 'f16', shape } as const;
    const priceOf = async (scenario: Scenario) => (await requestOf({ device: 'b300', ...scenario })).request.pricer!;
    const rows = (await priceOf({ attention: 'flash-attn-4-rows' })).price(prompt).estimate;
    const { queries: _queries, ...own } = { ...shape, sequences: queries, context: context + queries / 2 };
    const read = { ...own, branchWidth: 0, branchHeads: 1, groupSize: 0, splits: 1 };
    const each = (await priceOf({ stack: 'vllm' })).price({ kernel: 'attend', variant: 'f16', shape: read }).estimate;
    near(rows, each, 1e-9);
    expect(rows).toBeGreaterThan(10 * (await priceOf({ attention: 'flash-attn-4' })).price(prompt).estimate);
  });
});

describe('steps', () => {
  it('grow with rows and contexts, shrink with graphs and signals read later, and hold their estimate', async () => {
    const model = random.pick(MODELS);
    const batch = random.whole(1, 60);
    const context = random.whole(10, 3000);
    const eager = await stepOf({ model }, batch, context);
    for (const price of [eager, await stepOf({ model, device: 'rtx-5090' }, batch, context)]) {
      expect(price.low).toBeLessThan(price.estimate);
      expect(price.high).toBeGreaterThan(price.estimate);
      const shares = Object.values(price.pricedBy).reduce((a, b) => a + b, 0);
      near(shares, 1, 1e-6);
    }
    expect((await stepOf({ model }, 2 * batch, context)).estimate).toBeGreaterThan(eager.estimate);
    expect((await stepOf({ model }, batch, 20 * context)).estimate).toBeGreaterThanOrEqual(eager.estimate);
    expect((await stepOf({ model, execution: 'loop-graphs' }, 1, context)).estimate).toBeLessThan(
      (await stepOf({ model }, 1, context)).estimate,
    );
    const later = await stepOf({ model, server: { asyncScheduling: 'on' } }, batch, context);
    expect(later.estimate).toBeLessThanOrEqual(eager.estimate);
  });

  it('cost more where a codec has more kernels to launch, and a slow host launches them', async () => {
    const asked = { device: 'b300', stack: 'vllm-rlt', context: 1024, batch: 1, path: ['full', 'rotated'] };
    const { plans } = await plan({ ...asked, codec: ['full', 'hla'], ratio: [10.67] });
    const [full, hla] = ['full', 'hla'].map((kind) => plans.find((p) => p.codec.kind === kind)!.decode.secondsPerStep!);
    expect(hla!.estimate).toBeGreaterThan(1.05 * full!.estimate);
    // Also under another kernel of attention, of the same server and the same plan.
    const scenario: Scenario = { ...asked, codec: ['hla'], ratio: [10.67] };
    const { request: r } = prepare(scenario, await readSources(scenario));
    const c = configurationOf(
      r,
      r.candidates.find(({ codec }) => codec.kind === 'hla')!,
    );
    const other = withDividingAttention(r.runtime!)!;
    expect([r.runtime!, other].map((of) => runtimeFor(of, c).choice)).toEqual([r.runtime!.choice, other.choice]);
  });

  it('cost less where tokens leave early, but not by as many loops as they leave out', async () => {
    const batch = random.whole(8, 64);
    const all = await stepOf({}, batch, 1000);
    const early = await stepOf({ workload: { depth: '0,0.5,0.3,0.2' } }, batch, 1000);
    const told = await plan({
      device: 'b300',
      stack: 'vllm-rlt',
      codec: ['full'],
      workload: { depth: '0,0.5,0.3,0.2' },
    });
    expect(told.answer.question).toContain('2.7 of 4 loops a token');
    expect(told.answer.risks.map(({ code }) => code)).toContain('exits-early');
    // Scores of all loops are none of theirs.
    expect(told.answer.deploy).toBeNull();
    expect(told.plans.every((p) => p.qualityKept === null && p.quality.length === 0)).toBe(true);
    const last = await plan({ device: 'b300', stack: 'vllm-rlt', codec: ['full'], workload: { depth: '0,0,0,1' } });
    expect(last.answer.deploy?.planId).toBe('full/full');
    expect(early.estimate, `seed ${SEED}`).toBeLessThan(all.estimate);
    expect(early.estimate, `seed ${SEED}`).toBeGreaterThan((2.7 / 4) * all.estimate);
  });

  it('take as long in a run as in a plan', async () => {
    const users = random.pick([1, 2, 4, 8]);
    const promptTokens = random.whole(100, 1000);
    const asked = {
      device: 'b300',
      model: 'ouro-1.4b',
      codec: ['full'],
      stack: 'vllm-rlt',
      attention: random.pick(['triton', 'flash-attn-4']),
      workload: { arrivals: 'closed', users, requests: users, ramp: 0, promptTokens, outputTokens: 2000 },
      server: { maxNumBatchedTokens: 8192 },
    } as const;
    const sources = await readSources(asked);
    const none = { findRate: false, skipBad: false, shard: null, progress: () => false };
    const report = await simulate(asked, sources, { ...none, bounds: ['estimate'] });
    // Contexts grow, and the longer of two lines is not their mean.
    const contexts = Array.from({ length: 16 }, (_, i) => promptTokens + Math.round((2000 * (i + 0.5)) / 16));
    const steps = await Promise.all(contexts.map((n) => stepOf({ attention: asked.attention }, users, n)));
    const planned = steps.reduce((sum, { estimate }) => sum + estimate, 0) / steps.length;
    const ran = report.runs[0]!.estimate.median_tpot_ms! / 1e3;
    // The first request begins alone: sequences that are out of step pass their boundaries apart.
    if (users === 1) near(ran, planned, 0.005);
    expect(ran / planned, `seed ${SEED}`).toBeGreaterThan(0.995);
    expect(ran / planned, `seed ${SEED}`).toBeLessThan(1.1);
  });
});

describe('a step that was measured beside the user’s own host', () => {
  const hostOf = async (scenario: Scenario): Promise<RuntimeSource> =>
    (await requestOf(scenario)).request.runtime!.source;

  it('tells that host, whatever the model, the GPU and the graphs of the question', async () => {
    const own = random.whole(12_000, 40_000) * 1e-9;
    const context = random.whole(40, 1000);
    const model = random.pick(MODELS);
    const device = random.pick(['rtx-5090', 'h100', 'a100-80', 'l20x'] as const);
    const base: Scenario = { model, device, codec: ['full'], stack: 'vllm-rlt' };
    const sources = await readSources(base);
    const gpu = { ...sources.gpu!, runtime: besideHost(sources.gpu!.runtime!, own, '') };
    const step = (s: Scenario, from: Sources, batch: number, tokens: number): Interval => {
      const { request } = prepare({ ...base, ...s }, from);
      return priceStep(configurationOf(request, request.candidates[0]!), request.pricer!, batch, tokens);
    };
    const measuredStep = `${1e3 * step({}, { ...sources, gpu }, 1, context).estimate}ms@${context}`;
    for (const execution of ['eager', 'loop-graphs']) {
      const { host, hostFrom } = await hostOf({ ...base, execution, measuredStep });
      near(host.estimate, own, 0.001);
      near(host.high / host.low, Math.exp(0.24), 0.001);
      expect(hostFrom).toEqual({ step: measuredStep });
    }
    const told = step({ measuredStep }, sources, 8, 256);
    near(told.estimate, step({}, { ...sources, gpu }, 8, 256).estimate, 0.002);
    // Narrower than beside a host of which nothing is known.
    const { others } = file.hosts;
    const open = { ...sources.gpu!, runtime: { ...sources.gpu!.runtime!, host: others, hostFrom: null } };
    const unknown = step({}, { ...sources, gpu: open }, 8, 256);
    expect(told.high / told.low).toBeLessThan(unknown.high / unknown.low);
  });

  it('is what the ledger’s row of a machine took: it gives the host that the row gave', async () => {
    const { host } = await hostOf({ device: 'l20x', measuredStep: '59.275ms@160' });
    near(host.estimate, file.hosts.measured['l20x']!.secondsPerLaunch, 0.01);
  });

  it('is refused where no host makes it take so long, where the GPU decides, and without a runtime', async () => {
    const base: Scenario = { device: 'rtx-5090' };
    for (const [scenario, words] of [
      [{ measuredStep: '59ms' }, 'a time and the tokens that were cached, not "59ms"'],
      [{ measuredStep: '59@160' }, 'a time with its unit'],
      [{ measuredStep: '9s@160' }, 'even a slow host takes'],
      [{ measuredStep: '1ms@160' }, 'tells nothing about the host'],
      [{ measuredStep: '300ms@60k' }, 'tells nothing about the host'],
      [
        { measuredStep: '59ms@160', stack: 'vllm' },
        '--measured-step is for servers that are priced with their runtime',
      ],
    ] as [Scenario, string][])
      await expect(requestOf({ ...base, ...scenario }), JSON.stringify(scenario)).rejects.toThrow(words);
    expect(() => runsOf({ device: 'h100,h200', measuredStep: '59ms@160' })).toThrow('belongs to one device');
  });
});

describe('transformers', () => {
  const eager = file.runtimes.transformers;
  const host = file.hosts.measured['h800-pcie']!.secondsPerLaunch;
  const asked = { stack: 'transformers', device: 'h800-pcie' };

  it('takes as long as its host launches, or as its kernels with the cache that is joined anew', async () => {
    const g = findPreset('ouro-1.4b');
    // By hand: 96 runs of a layer with four norms of 8 kernels, a norm and a gate a loop, the step around them.
    const { norm, layer, loop, boundary } = eager.launches;
    const launches = 96 * (4 * norm + layer) + 4 * loop + 2 * boundary;
    expect(g.layers * g.loops * g.normsPerLayer).toBe(96 * 4);
    const { estimate, low, high } = await stepOf(asked, 1, 256);
    near(estimate, launches * host, 0.001);
    expect(high / estimate).toBeGreaterThanOrEqual(1.99);
    expect(estimate / low).toBeGreaterThanOrEqual(1.99);
    // The host hides a few sequences, and no long ones: three times the bytes that attention reads.
    near((await stepOf(asked, 4, 256)).estimate, estimate, 0.001);
    const [batch, context] = [20, 4096];
    const cache = 2 * 96 * 2048 * 2 * batch * context;
    const { memoryBytesPerSecond } = findDevice('h800-pcie');
    expect((await stepOf(asked, batch, context)).estimate).toBeGreaterThan((3 * cache) / memoryBytesPerSecond);
  });

  it('answers one request after another, each as a plan of one sequence', async () => {
    const scenario: Scenario = {
      ...asked,
      codec: ['full'],
      workload: { arrivals: 'closed', users: 3, requests: 6, ramp: 0, promptTokens: '300', outputTokens: '20' },
    };
    const report = await simulate(scenario, await readSources(scenario), {
      findRate: false,
      skipBad: false,
      shard: null,
      progress: () => false,
      bounds: ['estimate'],
    });
    const { median_tpot_ms: tpot, duration } = report.runs[0]!.estimate;
    const { estimate } = await stepOf(asked, 1, 310);
    near(tpot! / 1e3, estimate, 0.005);
    expect(duration).toBeGreaterThan(6 * 19 * estimate);
  });
});

describe('what it does not do', () => {
  it.each([
    ['plan --execution eager', '--stack vllm-rlt'],
    ['plan --attention triton', '--stack vllm-rlt'],
    ['plan --stack vllm-rlt --execution graphs', 'loop-graphs'],
    ['plan --stack vllm-rlt --attention flash-attn-9', 'triton'],
    ['plan --stack vllm-rlt --device rtx-5090 --attention flash-attn-4', 'does not run on rtx-5090'],
    ['plan --stack vllm-rlt --gpus 2', 'one GPU'],
    ['plan --stack transformers --gpus 2', 'one GPU'],
    ['plan --stack transformers --model huginn-3.5b', 'not counted'],
    ['plan --stack transformers --execution loop-graphs', '--execution loop-graphs'],
    ['plan --stack transformers --attention triton', 'sdpa'],
    ['plan --stack transformers --cache-type fp8', '--cache-type fp8'],
    ['plan --stack transformers --weight-type fp8', 'fp8'],
    ['simulate --stack transformers --rate 1 --max-num-seqs 2', 'one at a time'],
    ['simulate --stack transformers --rate 1 --depth 0.5,0.5,0,0', '--depth'],
    ['simulate --stack transformers --rate 1 --draft-tokens 2', '--draft-tokens'],
  ])('%s is refused in one line', async (line, says) => {
    const [command, ...flags] = line.split(' ') as [string, ...string[]];
    const { code, err } = await inProcess(
      command,
      ...(flags.includes('--device') ? [] : ['--device', 'h100']),
      '--codec',
      'full',
      ...flags,
    );
    expect(code).toBe(2);
    expect(err.trim().split('\n')).toHaveLength(1);
    expect(err).toContain(says);
  });
});
