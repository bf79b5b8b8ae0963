/** A plan in a server's words: only documented flags, only for what that server runs. */
import { describe, expect, it } from 'vitest';
import { findPreset, isPreset } from '../../src/geometry/presets.js';
import { readModelFile } from '../../src/geometry/hf-config.js';
import { plan } from '../../src/index.js';
import { serveCommand, SERVE_WORDS, type ServeRequest } from '../../src/stacks/serve-command.js';

const BASE: ServeRequest = {
  stack: 'vllm',
  model: 'ouro-1.4b',
  sequences: 32,
  contextTokens: 4096,
  gpus: 1,
  cacheType: 'f16',
  neededBytes: 106e9,
  vramBytes: 141e9,
};

describe('the command of a server', () => {
  it('vLLM at the operating batch, with its default share of the memory', () => {
    const c = serveCommand(BASE);
    expect(c?.line).toBe(
      'vllm serve ByteDance/Ouro-1.4B --max-num-seqs 32 --max-model-len 4096 --gpu-memory-utilization 0.92 --trust-remote-code',
    );
    expect([c?.notes, c?.source.date]).toEqual([[], '2026-11-22']);
  });

  it('says more GPUs and an fp8 cache where they are asked for', () => {
    const line = serveCommand({ ...BASE, gpus: 2, cacheType: 'fp8' })?.line;
    expect(line).toContain('--tensor-parallel-size 2 --kv-cache-dtype fp8 ');
    expect(serveCommand({ ...BASE, model: 'nanbeige4.2-3b', stack: 'sglang', cacheType: 'fp8' })?.line).toBe(
      'python -m sglang.launch_server --model-path Nanbeige/Nanbeige4.2-3B --max-running-requests 32 --context-length 4096 --mem-fraction-static 0.9 --kv-cache-dtype fp8_e4m3 --trust-remote-code',
    );
  });

  it('a batch beyond the default share raises it, and says so', () => {
    const c = serveCommand({ ...BASE, sequences: 42, neededBytes: 138.2e9 });
    expect(c?.line).toContain('--gpu-memory-utilization 0.99 ');
    expect(c?.notes).toHaveLength(1);
    expect(c?.notes[0]).toMatch(/42 sequences need 0.99 .*vLLM takes 0.92/);
    // Rounded up: the share never holds fewer than were asked for.
    for (let share = 0.93; share < 1; share += 0.0037) {
      const given = serveCommand({ ...BASE, neededBytes: share * BASE.vramBytes })?.flags.find((f) =>
        f.flag.startsWith('--gpu-memory'),
      );
      expect(Number(given?.value)).toBeGreaterThanOrEqual(share - 1e-9);
    }
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
        for (const f of serveCommand({ ...BASE, stack, model, gpus: 4 })?.flags ?? [])
          expect(Object.values(words.flags), `${stack} ${f.flag}`).toContain(f.flag);
    }
  });
});

describe('the line in an answer', () => {
  it('is for the batch that the answer deploys, and missing where nothing is served', async () => {
    const { answer } = await plan({ device: 'h200', context: 4096, codec: ['full', 'lla'], ratio: [4] });
    expect(answer.serve).toContain(`--max-num-seqs ${answer.deploy?.batch} --max-model-len 4096 `);
    const whole = await plan({ device: 'h200', batch: 42, codec: ['full'] });
    expect(whole.answer.serve).toMatch(
      /--max-num-seqs 42 .*--gpu-memory-utilization 0\.98 .*; 42 sequences need 0\.98/,
    );
    expect((await plan({ device: 'h200', model: 'huginn-3.5b', codec: ['full'] })).answer.serve).toBeUndefined();
  });
});

describe('Hugging Face ids', () => {
  it('of a preset are that preset, in a plan too', async () => {
    expect(findPreset('ByteDance/Ouro-1.4B').name).toBe('ouro-1.4b');
    expect(isPreset('ByteDance/Ouro-1.4B')).toBe(true);
    for (const other of ['meta-llama/Llama-3.1-8B', './ouro-1.4b', 'models/config.json', 'ouro-9b'])
      expect(isPreset(other), other).toBe(false);
    const report = await plan({ model: 'ByteDance/Ouro-2.6B-Thinking', vram: '80GB', codec: ['full'] });
    expect(report.model.name).toBe('ouro-2.6b');
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
