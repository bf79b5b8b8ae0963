import { describe, expect, it } from 'vitest';
import { UserError } from '../../src/errors.js';
import { cacheSlots, parameterCount } from '../../src/geometry/geometry.js';
import { PRESETS, findPreset, isPreset, withLoops } from '../../src/geometry/presets.js';

/** Full-width K and V of one token, two bytes a scalar. */
const kvBytesPerToken = (name: string): number => {
  const g = findPreset(name);
  return cacheSlots(g) * 2 * g.kvHeads * g.headDim * 2;
};

describe('presets', () => {
  it.each([
    ['ouro-1.4b', 1_434_652_673],
    ['ouro-2.6b', 2_667_974_657],
    ['huginn-3.5b', 3_564_976_800],
    ['nanbeige4.2-3b', 4_169_800_704],
    ['recurrent-llama-3.2-1b', 1_385_228_288],
  ])('%s has exactly its published %i parameters', (name, published) => {
    expect(parameterCount(findPreset(name))).toBe(published);
  });

  it.each([
    ['ouro-1.4b', 768 * 1024],
    ['ouro-2.6b', 1536 * 1024],
    ['huginn-3.5b', 2_787_840],
    ['nanbeige4.2-3b', 44 * 2 * 8 * 128 * 2],
    ['recurrent-llama-3.2-1b', 200 * 2 * 8 * 64 * 2],
  ])('%s caches %i bytes a token', (name, bytes) => {
    expect(kvBytesPerToken(name)).toBe(bytes);
  });

  it('has unique lower-case names, a source each, and whole query groups', () => {
    expect(new Set(PRESETS.map((p) => p.name)).size).toBe(PRESETS.length);
    for (const p of PRESETS) {
      expect(p.name).toMatch(/^[a-z0-9.-]+$/);
      expect(p.source).toMatch(/(huggingface\.co|github\.com)\//);
      expect(p.heads % p.kvHeads).toBe(0);
    }
  });

  it('finds names in any case, aliases, and names with their owner', () => {
    expect(findPreset('Ouro-1.4B').layers).toBe(24);
    expect(findPreset(' OURO-2.6B-Thinking ').name).toBe('ouro-2.6b');
    expect(findPreset('ByteDance/Ouro-1.4B-Thinking').name).toBe('ouro-1.4b-thinking');
    expect(findPreset('ByteDance/Ouro-2.6B-Thinking').name).toBe('ouro-2.6b');
    expect(() => findPreset('models/ouro-1.4b')).toThrow(UserError);
    expect(findPreset('tomg-group-umd/huginn-0125').name).toBe('huginn-3.5b');
  });

  it.each([
    ['sapientinc/HRM-Text-1B', 'hrm-text-1b'],
    ['LLM-OS-Models/KoHRM-Text-1.4B', 'kohrm-1.4b'],
    ['IQuestLab/IQuest-Coder-V1-40B-Loop-Instruct', 'iquest-coder-v1-40b-loop'],
    ['Multilingual-Multimodal-NLP/LoopCoder-V2', 'loopcoder-v2-7b'],
    ['SandyResearch/parcae-140m', 'parcae-140m'],
    ['FrontiersMind/Nandi-Mini-150M', 'nandi-mini-150m'],
    ['Thrillcrazyer/Qwen3_1.7B_LoopUS', 'loopus-qwen3-1.7b'],
    ['irafm-llm/Recurrent-Gemma-2-2b', 'recurrent-gemma-2-2b'],
    ['smcleish/Recurrent-OLMo-2-0425-train-recurrence-32', 'recurrent-olmo-2-1b'],
  ])('finds %s', (id, name) => {
    expect(isPreset(id)).toBe(true);
    expect(findPreset(id).name).toBe(name);
  });

  it('finds checkpoints that were trained with other loops under names that say so', () => {
    const r8 = findPreset('smcleish/Recurrent-TinyLlama-3T-train-recurrence-8');
    expect(r8).toMatchObject({ name: 'recurrent-tinyllama-1.1b-r8', loops: 8 });
    expect(isPreset('smcleish/Recurrent-TinyLlama-3T-train-recurrence-8')).toBe(true);
    expect(() => findPreset('recurrent-llama-3.2-train-recurrence-0')).toThrow(UserError);
  });

  it('gives other loops where whoever runs the model chooses them, and refuses them elsewhere', () => {
    const huginn = findPreset('huginn-3.5b');
    expect(withLoops(huginn, 32)).toBe(huginn);
    const trained = { model: 'huginn-3.5b', loops: 32 };
    expect(withLoops(huginn, 8)).toEqual({ ...huginn, loops: 8, name: 'huginn-3.5b-r8', trained });
    expect(findPreset('recurrent-llama-3.2-1b-train-recurrence-8').trained).toBeUndefined();
    expect(withLoops(findPreset('ouro-1.4b'), 3).loops).toBe(3);
    for (const fixed of ['nanbeige4.2-3b', 'hrm-text-1b', 'iquest-coder-v1-40b-loop', 'nandi-mini-150m'])
      expect(() => withLoops(findPreset(fixed), 3)).toThrow(`${fixed} always runs 2 loops`);
    expect(() => withLoops(findPreset('lumma-0.6b'), 2)).toThrow('lumma-0.6b does not loop');
  });

  it.each([
    ['ouro-1.4', 'ouro-1.4b'],
    ['oruo-1.4b', 'ouro-1.4b'],
    ['ouro2.6b', 'ouro-2.6b'],
    ['nanbeige', 'nanbeige4.2'],
  ])('suggests for %s', (typed, meant) => {
    expect(() => findPreset(typed)).toThrow(UserError);
    try {
      findPreset(typed);
    } catch (error) {
      expect((error as UserError).hint).toContain(`did you mean ${meant}?`);
      expect((error as UserError).exitCode).toBe(2);
      expect((error as UserError).hint).toContain('or give the path of a config.json');
    }
  });

  it.each(['', 'gpt', 'constructor', '__proto__', 'toString', '\u001b[31mred', 'x'.repeat(10_000)])(
    'refuses %j in one printable line',
    (typed) => {
      try {
        findPreset(typed);
        expect.unreachable();
      } catch (error) {
        expect(error).toBeInstanceOf(UserError);
        expect((error as UserError).message.length).toBeLessThan(250);

        expect((error as UserError).message).not.toMatch(/[\u0000-\u001f]/);
      }
    },
  );
});
