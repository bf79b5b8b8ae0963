/** A plan in a server's words: only documented flags, only for what that server runs. */
import { describe, expect, it } from 'vitest';
import type { Geometry } from '../../src/geometry/geometry.js';
import { geometryFromConfig } from '../../src/geometry/hf-config.js';
import { findPreset, isPreset, presetOfShape } from '../../src/geometry/presets.js';
import { readModelFile } from '../../src/geometry/model-file.js';
import { plan } from '../../src/index.js';
import { weightBytes } from '../../src/cost/memory.js';
import { reserveOf, serverMemory, trtllmFreeShare } from '../../src/stacks/server-memory.js';
import { listedAs } from '../../src/stacks/serving.js';
import { HUGINN, LLAMA, OURO, PUBLISHED } from '../geometry/configs.js';
import { serveCommand, SERVE_WORDS, type ServeRequest } from '../../src/stacks/serve-command.js';

const HOSTED = { geometry: findPreset('ouro-1.4b'), gpus: 1, vramBytes: 141e9, device: 'h200' };
const BASE: ServeRequest = {
  stack: 'vllm',
  version: '0.24.0',
  model: 'ouro-1.4b',
  sequences: 32,
  contextTokens: 4096,
  cacheType: 'f16',
  hosted: HOSTED,
  utilization: 0.92,
  reserveBytes: 3e9,
  server: serverMemory({ stack: 'vllm', version: '0.24.0', name: 'vLLM 0.24.0' }, HOSTED),
  runtime: null,
  speculation: null,
  unlike: {},
};

describe('a model read from a file', () => {
  it('is served as its class is, and told from the preset of its shape', () => {
    const [ouro, preset] = [geometryFromConfig(OURO, 'mine'), findPreset('ouro-1.4b')].map((g) => serveOf(g));
    for (const [name, config] of PUBLISHED) {
      const shaped = presetOfShape(geometryFromConfig(config, 'mine'));
      expect(shaped === undefined || shaped === name || !isPreset(name), name).toBe(true);
    }
    expect(presetOfShape(geometryFromConfig(OURO, 'mine'))).toBe('ouro-1.4b');
    expect(presetOfShape(geometryFromConfig(LLAMA, 'mine'))).toBeUndefined();
    expect(ouro?.line).toBe(preset?.line.replace('ByteDance/Ouro-1.4B', 'MODEL'));
    expect(ouro?.notes[0]).toMatch(/^MODEL /);
    expect(serveOf(geometryFromConfig(LLAMA, 'mine'))?.line).not.toContain('--trust-remote-code');
    expect(serveOf(geometryFromConfig(HUGINN, 'mine'))).toBeNull();
  });
});

const serveOf = (geometry: Geometry) =>
  serveCommand({
    ...BASE,
    model: listedAs({ publishedAs: geometry.modelType === undefined ? geometry.name : null, geometry }),
    hosted: { ...HOSTED, geometry },
  });

describe('the command of a server', () => {
  it('vLLM at the operating batch, with its default share of the memory', () => {
    const c = serveCommand(BASE);
    expect(c?.line).toBe(
      'vllm serve ByteDance/Ouro-1.4B --max-num-seqs 32 --max-model-len 4096 --gpu-memory-utilization ' +
        '0.92 --trust-remote-code',
    );
    expect(c?.source.date).toBe('2026-11-22');
    expect(c?.notes).toEqual(['needs vllm>0.11.0,<=0.26.0']);
    const stays = serveCommand({
      ...BASE,
      model: 'nanbeige4.2-3b',
      hosted: { ...HOSTED, geometry: findPreset('nanbeige4.2-3b') },
    });
    expect(stays?.notes).toEqual([]);
  });

  it('contexts beyond the model’s positions are allowed by the server’s own variable', () => {
    const { maxPositions } = HOSTED.geometry;
    const lineAt = (stack: string, contextTokens: number) =>
      serveCommand({ ...BASE, stack, model: 'nanbeige4.2-3b', contextTokens })?.line;
    expect(lineAt('vllm', maxPositions)).toMatch(/^vllm serve /);
    expect(lineAt('vllm', maxPositions + 1)).toMatch(/^VLLM_ALLOW_LONG_MAX_MODEL_LEN=1 vllm serve /);
    expect(lineAt('sglang', maxPositions + 1)).toMatch(/^SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN=1 python /);
  });

  it('says what a server is to do otherwise than by default, or that its command cannot', () => {
    const unlike = {
      batchedTokens: 512,
      chunked: false,
      prefixCaching: false,
      asynchronous: false,
      blockTokens: 32,
      apart: true,
    } as const;
    const of = (stack: string) => serveCommand({ ...BASE, stack, model: 'nanbeige4.2-3b', unlike })!;
    const [vllm, sglang] = [of('vllm'), of('sglang')];
    for (const words of ['batched-tokens 512', 'no-enable-chunked', 'no-enable-prefix', 'no-async', 'block-size 32'])
      expect(vllm.line).toContain(`-${words}`);
    expect(vllm.line).toContain(`--kv-transfer-config '{"kv_connector":"NixlConnector"`);
    expect(vllm.notes.join()).not.toContain('not here');
    expect(sglang.line).toContain('--chunked-prefill-size 512 --disable-radix-cache --disable-overlap-schedule');
    expect(sglang.notes).toContainEqual('prompts in whole, prefill apart: set in its own configuration, not here');
  });

  it('prompts that are read whole fit into one iteration', () => {
    const hosted = { ...HOSTED, geometry: findPreset('hrm-text-1b') };
    const line = serveCommand({ ...BASE, model: 'hrm-text-1b', hosted })?.line;
    expect(line).toContain(
      'vllm serve sapientinc/HRM-Text-1B --max-num-seqs 32 --max-model-len 4096 --max-num-batched-tokens 4096 ',
    );
    const sglang = serveCommand({ ...BASE, stack: 'sglang', model: 'hrm-text-1b', hosted })?.line;
    expect(sglang).not.toContain('batched');
  });

  it('says more GPUs and an fp8 cache where they are asked for', () => {
    const line = serveCommand({ ...BASE, hosted: { ...HOSTED, gpus: 2 }, cacheType: 'fp8' })?.line;
    expect(line).toContain('--tensor-parallel-size 2 --kv-cache-dtype fp8 ');
    const other: Partial<ServeRequest> = { model: 'nanbeige4.2-3b', stack: 'sglang', utilization: 0.907 };
    expect(serveCommand({ ...BASE, ...other, cacheType: 'fp8' })?.line).toBe(
      'python -m sglang.launch_server --model-path Nanbeige/Nanbeige4.2-3B --max-running-requests 32 ' +
        '--context-length 4096 --mem-fraction-static 0.907 --kv-cache-dtype fp8_e4m3 --trust-remote-code',
    );
  });

  it('a share beyond the default, or less kept than the server keeps, is printed as planned, and said', () => {
    const more = serveCommand({ ...BASE, utilization: 0.97, reserveBytes: 1e9 });
    expect(more?.line).toContain('--gpu-memory-utilization 0.97 ');
    expect(more?.notes.join()).toMatch(/takes 0.92, and 2.58 GB of that for itself/);
    // Rounded up: the share never holds fewer than were asked for.
    for (let share = 0.5; share < 1; share += 0.00371) {
      const given = serveCommand({ ...BASE, utilization: share })?.flags.find((f) => f.flag.startsWith('--gpu-memory'));
      expect(Number(given?.value)).toBeGreaterThanOrEqual(share - 1e-6);
      expect(Number(given?.value)).toBeLessThan(share + 0.0011);
    }
  });

  it('vllm-rlt with what it is started with', () => {
    const own: Partial<ServeRequest> = { stack: 'vllm-rlt', utilization: 0.9, server: null };
    const runtime = { attentionName: 'triton', execution: 'eager', asynchronous: false } as const;
    expect(serveCommand({ ...BASE, ...own, runtime })?.line).toBe(
      'vllm-rlt-serve --model ByteDance/Ouro-1.4B --max-num-seqs 32 --gpu-memory-utilization 0.9 ' +
        '--attention-backend triton',
    );
    const other = { attentionName: 'flash-attn-4', execution: 'loop-graphs', asynchronous: true } as const;
    const speculation = { draftTokens: 4, draftLoops: 2 };
    expect(serveCommand({ ...BASE, ...own, model: 'huginn-3.5b', runtime: other, speculation })?.line).toBe(
      'vllm-rlt-serve --model tomg-group-umd/huginn-0125 --max-num-seqs 32 --gpu-memory-utilization ' +
        '0.9 --attention-backend flash_attn_4 --cuda-graphs --async-scheduling --speculative-tokens 4 ' +
        '--draft-loops 2',
    );
    for (const kind of ['unsplit', 'rows'])
      expect(
        serveCommand({ ...BASE, ...own, runtime: { ...other, attentionName: `flash-attn-4-${kind}` } })?.line,
      ).toContain('--attention-backend flash_attn_4 --cuda-graphs');
    expect(serveCommand({ ...BASE, ...own, runtime, model: 'ouro-2.6b' })).toBeNull();
    expect(serveCommand({ ...BASE, ...own, runtime, cacheType: 'fp8' })).toBeNull();
  });

  it('there is none for what no server runs', () => {
    const none: Partial<ServeRequest>[] = [
      { model: 'huginn-3.5b' },
      { model: null },
      { stack: 'sglang' },
      { stack: 'trtllm' },
      { stack: 'attainable' },
      { stack: 'lla-sim' },
      { cacheType: 'int8' },
      { cacheType: 'int4' },
    ];
    for (const change of none) expect(serveCommand({ ...BASE, ...change }), JSON.stringify(change)).toBeNull();
  });

  it('prints no flag that is not among the documented ones, and every source has a date', () => {
    for (const [stack, words] of Object.entries(SERVE_WORDS)) {
      expect(words.source.date, stack).toMatch(/^\d{4}-\d\d-\d\d$/);
      for (const model of ['ouro-1.4b', 'ouro-2.6b', 'nanbeige4.2-3b'])
        for (const f of serveCommand({ ...BASE, stack, model, hosted: { ...HOSTED, gpus: 4 } })?.flags ?? [])
          expect(Object.values(words.flags), `${stack} ${f.flag}`).toContain(f.flag);
    }
  });
});

describe('the line in an answer', () => {
  it('is for the batch that the answer deploys, and missing where nothing is served', async () => {
    const { answer } = await plan({ device: 'h200', context: 4096, codec: ['full', 'lla'], ratio: [4] });
    expect(answer.serve).toContain(`--max-num-seqs ${answer.deploy?.batch} --max-model-len 4096 `);
    const whole = await plan({ vram: '141GB', batch: 42, codec: ['full'], reserve: '512MiB', utilization: 1 });
    expect(whole.answer.serve).toMatch(
      /--max-num-seqs 42 .*--gpu-memory-utilization 1 .*; by default it takes 0.92, and 2.58 GB/,
    );
    const longest = (maxModelLen: string) =>
      plan({ device: 'rtx-4090', context: 4096, codec: ['full'], server: { maxModelLen } });
    expect((await longest('8k')).answer.serve).toContain('--max-model-len 8192 ');
    // The cache holds fewer.
    expect((await longest('64k')).answer.serve).toContain('--max-model-len 24464 ');
    expect((await longest('2k')).notes.join()).toContain('--max-model-len 2048 refuses the sequences of 4096 tokens');
    expect((await plan({ device: 'h200', model: 'huginn-3.5b', codec: ['full'] })).answer.serve).toBeUndefined();
  });
});

describe('a rule of memory with steps', () => {
  it('is noted where the GPU lies at one of them', async () => {
    const edge = async (vram: string) =>
      (await plan({ device: 'h100', vram, stack: 'sglang', codec: ['full'] })).notes.join('\n');
    expect(await edge('64.5GB')).toContain('keeps more for itself from 60 GiB (64.4 GB)');
    expect(await edge('80GB')).not.toContain('keeps more for itself');
  });
});

describe('Hugging Face ids', () => {
  it('of a preset are that preset', () => {
    expect(findPreset('ByteDance/Ouro-1.4B').name).toBe('ouro-1.4b');
    expect(isPreset('ByteDance/Ouro-1.4B')).toBe(true);
    for (const other of ['meta-llama/Llama-3.1-8B', './ouro-1.4b', 'models/config.json', 'ouro-9b'])
      expect(isPreset(other), other).toBe(false);
  });

  it.each([
    ['0.11.0', true],
    ['0.11.1', false],
    ['0.26.0', false],
    ['0.27.1', true],
  ])('are told of where vLLM %s has no such model: %s', async (serverVersion, told) => {
    const { notes, plans } = await plan({ device: 'h100', codec: ['full'], server: { serverVersion } });
    const said = notes.filter((note) => note.includes('does not run ouro-1.4b (vllm>0.11.0,<=0.26.0 does)'));
    expect(said).toHaveLength(told ? 1 : 0);
    expect(plans[0]!.servedBy).toBe(`vLLM ${serverVersion} with kernels of 0.24.0`);
  });

  it('are served on a GPU whose kernels nobody measured, where the server is known to run there', async () => {
    const asked = async (device: string, model = 'ouro-1.4b') => (await plan({ device, model })).answer;
    const { deploy, serve } = await asked('mi300x');
    expect(deploy).toBeNull();
    expect(serve).toMatch(/^vllm serve ByteDance\/Ouro-1\.4B .*; full cache, whose time there is an estimate$/);
    for (const [device, model] of [
      ['m3-max', 'ouro-1.4b'],
      ['mi300x', 'huginn-3.5b'],
    ] as const)
      expect((await asked(device, model)).serve, device).toBeUndefined();
  });

  it('serve the checkpoint that was asked for, whose scores may be those of another', async () => {
    const ask = { vram: '80GB', codec: ['full'] };
    const base = await plan({ ...ask, model: 'ouro-2.6b' });
    const thinking = await plan({ ...ask, model: 'ByteDance/Ouro-2.6B-Thinking' });
    expect(thinking.model.name).toBe('ouro-2.6b-thinking');
    expect(thinking.answer.serve).toMatch(/^vllm serve ByteDance\/Ouro-2\.6B-Thinking /);
    expect(base.answer.serve).toMatch(/^vllm serve ByteDance\/Ouro-2\.6B /);
    expect(base.notes.join()).toContain('scores of ouro-2.6b are those of ByteDance/Ouro-2.6B-Thinking');
    expect(thinking.notes.join()).not.toContain('scores of ouro-2.6b');
    const rest = ({ model: _m, notes: _n, warnings: _w, answer: _a, ...other }: typeof base): unknown => other;
    expect(rest(thinking)).toEqual(rest(base));
  });

  it('of another model say which file to download; a path does not', () => {
    const hint = /download huggingface\.co\/meta-llama\/Llama-3\.1-8B\/resolve\/main\/config\.json/;
    const refused = (name: string): { message: string; hint: string } => {
      try {
        readModelFile(name);
      } catch (error) {
        return error as { message: string; hint: string };
      }
      throw new Error(`${name} was read`);
    };
    expect(refused('meta-llama/Llama-3.1-8B').hint).toMatch(hint);
    expect(refused('./meta-llama/Llama-3.1-8B').message).toContain('does not exist');
    expect(refused('models/config.json').message).toContain('does not exist');
  });
});

describe('what a server keeps for itself', () => {
  const GIB = 2 ** 30;
  const HIDDEN = 469 / 1024;
  const llama = {
    ...findPreset('ouro-1.4b'),
    layers: 32,
    loops: 1,
    heads: 32,
    kvHeads: 8,
    hidden: 4096,
    mlpHidden: 14336,
    vocab: 128256,
    normsPerLayer: 2 as const,
    exitGate: false,
  };
  const vllm = (version: string, device: string, gib: number, geometry = llama) =>
    serverMemory({ stack: 'vllm', version, name: 'vLLM' }, { geometry, gpus: 1, vramBytes: gib * GIB, device })!;

  // Llama-3-8B (14.96 GiB of weights): what vLLM's own log left for the cache.
  it.each([
    ['h100', 79.22, 53.29, 54.93],
    ['a10', 22.07, 4.6, 4.6],
  ])('leaves on %s what vLLM said in its log, within 4 %%', (device, gib, low, high) => {
    const m = vllm('0.7.0', device, gib);
    // Its share is of what CUDA shows; the driver reports more.
    const left = m.utilization * (gib + HIDDEN) - 14.96 - reserveOf(m) / GIB;
    expect(left).toBeGreaterThan(low * 0.96);
    expect(left).toBeLessThan(high * 1.04);
  });

  it('vLLM counts its graphs from 0.21 on, and its share is larger since', () => {
    const [before, after] = [vllm('0.20.1', 'h200', 140), vllm('0.21.0', 'h200', 140)];
    expect([before.utilization, after.utilization]).toEqual([0.9, 0.92]);
    expect(reserveOf(after) - reserveOf(before)).toBeCloseTo((0.9 + 0.02 * HIDDEN) * GIB, -1);
    expect(vllm('1.2.0', 'h200', 140).utilization).toBe(0.92);
  });

  it('is planned with, is overridden, and is not used without a server', async () => {
    const fits = async (s: Parameters<typeof plan>[0]) => {
      const report = await plan({ vram: '141GB', codec: ['full'], ...s });
      return [report.plans[0]?.maxBatch.exact, report.settings.server?.server, report.settings.pageTokens];
    };
    expect(await fits({})).toEqual([38, 'vLLM 0.24.0', 16]);
    expect(await fits({ reserve: '512MiB', utilization: 1 })).toEqual([42, 'vLLM 0.24.0', 16]);
    expect(await fits({ stack: 'attainable' })).toEqual([42, undefined, 32]);
    expect(await fits({ stack: 'sglang' })).toEqual([38, 'SGLang 0.5.14', 1]);
    expect(await fits({ model: 'nanbeige4.2-3b', stack: 'trtllm' })).toEqual([160, 'TRT-LLM 1.3.0rc20', 32]);
  });

  it("TRT-LLM's flag is its default for its default plan, and moves with the share", () => {
    const server = serverMemory({ stack: 'trtllm', version: '1.3.0', name: 'TRT-LLM' }, HOSTED)!;
    const reserveBytes = reserveOf(server);
    expect(trtllmFreeShare(HOSTED, server.utilization, reserveBytes)).toBeCloseTo(0.9, 9);
    expect(trtllmFreeShare(HOSTED, 1, reserveBytes)).toBe(1);
    // What the flag leaves for the cache is what the plan counts with.
    const free = HOSTED.vramBytes - weightBytes(HOSTED.geometry, 1) - reserveBytes;
    const planned = 0.6 * HOSTED.vramBytes - weightBytes(HOSTED.geometry, 1) - reserveBytes;
    expect(free * trtllmFreeShare(HOSTED, 0.6, reserveBytes)).toBeCloseTo(planned, 0);
  });

  it('a stack of somebody’s own has no rules', () => {
    expect(serverMemory({ stack: 'mine', version: '1', name: 'mine' }, HOSTED)).toBeNull();
    expect(serverMemory({ stack: 'toString', version: '1', name: 'mine' }, HOSTED)).toBeNull();
  });

  it('--device plans with the bytes that the driver reports, --vram with its own', async () => {
    const [device, literal] = [
      await plan({ device: 'h200', codec: ['full'] }),
      await plan({ vram: '141GB', codec: ['full'] }),
    ];
    expect([device.device.vramBytes, literal.device.vramBytes]).toEqual([143_771 * 2 ** 20, 141e9]);
    expect(device.notes.join()).toContain('151 GB that the driver');
    expect(literal.notes.join()).not.toContain('driver');
  });
});
