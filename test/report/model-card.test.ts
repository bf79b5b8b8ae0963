/** `models NAME`: every figure of a model, once, compared within its own table. */
import { describe, expect, it } from 'vitest';
import { Args } from '../../src/commands/command.js';
import { command as modelsCommand } from '../../src/commands/models.js';
import { findPreset, PRESET_NAMES } from '../../src/geometry/presets.js';
import { presetSource } from '../../src/plan/ask/prepare.js';
import { CONTRADICTIONS } from '../../src/quality/contradictions.js';
import { FIGURES } from '../../src/quality/quality.js';
import { modelCard, modelCardTable, type PublishedFigure } from '../../src/report/text/model-card.js';
import { inProcess, OURO_CONFIG, scratch } from '../cli/program.js';

const figuresOf = (name: string): PublishedFigure[] =>
  modelCard(presetSource(name)).quality.flatMap((s) => [...s.figures]);

describe('a model’s card', () => {
  it('has every published figure once, and none of another model', () => {
    for (const name of PRESET_NAMES) {
      const key = (f: object): string => {
        const { teacher: _t, share: _s, disputed: _d, ...published } = f as PublishedFigure;
        return JSON.stringify(published);
      };
      const wanted = FIGURES.filter((f) => f.model === name).map((f) => JSON.stringify(f));
      expect(figuresOf(name).map(key).sort(), name).toEqual(wanted.sort());
    }
    expect(FIGURES.length).toBeGreaterThan(300);
  });

  it('compares with the teacher of the same table, and shows disputed values below each other', () => {
    const gsm8k = modelCard(presetSource('ouro-1.4b'))
      .quality.find((s) => s.setting === 'lla-4x')
      ?.figures.filter((f) => f.metric === 'gsm8k');
    expect(gsm8k?.map((f) => [f.source, f.value, f.teacher, f.disputed])).toEqual([
      ['Table tier4', 0.59, 0.82, true],
      ['Table broadsuite', 0.59, 0.794, true],
      ['Table isocache', 0.8, 0.794, true],
    ]);
    for (const name of PRESET_NAMES)
      for (const { setting, figures } of modelCard(presetSource(name)).quality) {
        const tasks = figures.map((f) => `${f.metric} ${f.contextTokens}`);
        const runs = tasks.filter((t, i) => t !== tasks[i - 1]);
        expect(new Set(runs).size, `${name} ${setting}`).toBe(runs.length);
      }
  });

  it('has cache sizes worked out by hand, ranks and codec matrices', () => {
    const { cache, model } = modelCard(presetSource('ouro-1.4b'));
    const of = (codec: string) => cache.find((c) => c.codec === codec);
    expect(model.kvBytesPerToken).toBe(768 * 1024);
    expect(of('lla-4x')).toMatchObject({ ranks: '96/160', kvBytesPerToken: 192 * 1024, kvBytesAt1M: 192 * 2 ** 30 });
    expect(of('lla-2d-4x')?.codecParameters).toBeCloseTo(1.61e9, -7);
    expect(of('full')).toMatchObject({ ranks: null, codecParameters: 0 });
  });

  it('prints within 100 columns, with the contradictions of that model only', () => {
    for (const name of PRESET_NAMES) {
      const text = modelCardTable(modelCard(presetSource(name)), 100);
      for (const line of text.split('\n')) expect(line.length, line).toBeLessThanOrEqual(100);
      expect(text).not.toMatch(/NaN|undefined|Infinity/);
      for (const c of CONTRADICTIONS)
        expect(text.replace(/\s+/g, ' ').includes(`. ${c.subject}: `), `${name} ${c.id}`).toBe(
          c.models.some((m) => m === name),
        );
    }
  });

  it('rounds shares to the nearest, as the paper does: 0.68 of 0.794 is 86 %; and names the decoder', () => {
    const text = modelCardTable(modelCard(presetSource('ouro-1.4b')), 100);
    expect(text.split('\nmla-head-21.33x\n')[1]?.split('\n')[1]).toMatch(
      /gsm8k +0\.68 +0\.794 +86 % isocache \(two-pass\)$/,
    );
  });

  it('of a config.json has its cache, and no figures of a preset', async () => {
    const folder = scratch();
    const shape = { total_ut_steps: 6, num_hidden_layers: 12, num_key_value_heads: 4, head_dim: 128 };
    const own = { ...(JSON.parse(OURO_CONFIG) as object), _name_or_path: 'ouro-1.4b', ...shape };
    const { code, out } = await inProcess('models', folder.file('config.json', JSON.stringify(own)));
    folder.remove();
    expect(code).toBe(0);
    // 2 · 6 loops · 12 layers · 4 heads · 128 · 2 bytes.
    expect(out).toMatch(/^full +– +144 KiB +144 GiB +–$/m);
    expect(out).toContain('Quality: nothing is published for this model under any codec.');
  });

  it('an unknown name is refused with the nearest one; hub ids are names', async () => {
    const args = (positional: string) => new Args({ quiet: true }, positional);
    await expect(modelsCommand.run(args('ouro-1.4'))).rejects.toThrow(/unknown model "ouro-1.4"/);
    await expect(modelsCommand.run(args('ouro-1.4'))).rejects.toMatchObject({ hint: /did you mean ouro-1.4b/ });
    expect(findPreset('ByteDance/Ouro-1.4B').name).toBe('ouro-1.4b');
  });
});
