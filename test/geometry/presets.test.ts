import { describe, expect, it } from 'vitest';
import { UserError } from '../../src/errors.js';
import { parameterCount } from '../../src/geometry/geometry.js';
import { PRESETS, findPreset, isPreset, withLoops } from '../../src/geometry/presets.js';

/** The error that looking for a preset gives. */
function refusal(typed: string): UserError {
  try {
    findPreset(typed);
  } catch (error) {
    if (error instanceof UserError) return error;
    throw error;
  }
  return expect.unreachable() as never;
}

describe('presets', () => {
  it.each([
    ['ouro-1.4b', 1_434_652_673],
    ['ouro-2.6b', 2_667_974_657],
    ['huginn-3.5b', 3_564_976_800],
    ['nanbeige4.2-3b', 4_169_800_704],
    ['recurrent-llama-3.2-1b', 1_385_228_288],
    ['hrm-text-1b', 1_182_795_264], // its safetensors
    ['kohrm-1.4b', 1_384_120_320], // model card
  ])('%s has exactly its published %i parameters', (name, published) => {
    expect(parameterCount(findPreset(name))).toBe(published);
  });

  it('has unique lower-case names, a source each, and whole query groups', () => {
    expect(new Set(PRESETS.map((p) => p.name)).size).toBe(PRESETS.length);
    for (const p of PRESETS) {
      expect(p.name).toMatch(/^[a-z0-9.-]+$/);
      expect(p.source).toMatch(/(huggingface\.co|github\.com)\//);
      expect(p.heads % p.kvHeads).toBe(0);
    }
  });

  it.each([
    ['Ouro-1.4B', 'ouro-1.4b'],
    [' OURO-2.6B-Thinking ', 'ouro-2.6b-thinking'],
    ['ByteDance/Ouro-1.4B-Thinking', 'ouro-1.4b-thinking'],
    ['ByteDance/Ouro-2.6B-Thinking', 'ouro-2.6b-thinking'],
    ['tomg-group-umd/huginn-0125', 'huginn-3.5b'],
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
    expect([isPreset(id), findPreset(id).name]).toEqual([true, name]);
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
    const { hint, exitCode } = refusal(typed);
    expect([hint, exitCode]).toEqual([expect.stringContaining(`did you mean ${meant}?`), 2]);
    expect(hint).toContain('or give the path of a config.json');
  });

  it.each(['', 'gpt', 'models/ouro-1.4b', 'constructor', '__proto__', 'toString', '\u001b[31mred', 'x'.repeat(10_000)])(
    'refuses %j in one printable line',
    (typed) => {
      const { message } = refusal(typed);
      expect(message.length).toBeLessThan(250);
      expect(message).not.toMatch(/[\u0000-\u001f]/);
    },
  );
});
