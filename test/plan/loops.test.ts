/** A model that runs other loops than it was trained with: its quality is that of published scores, or unknown. */
import { describe, expect, it } from 'vitest';
import { findPreset } from '../../src/geometry/presets.js';
import { plan } from '../../src/index.js';
import { LOOP_TABLES, scoresWithLoops } from '../../src/quality/loop-scores.js';

const fullOf = async (model: string, loops: number) => {
  const report = await plan({ model, loops, device: 'h200', codec: ['full'] });
  const [full] = report.plans;
  if (!full) throw new Error(`no full cache of ${model} with ${loops} loops`);
  return { report, full };
};

describe('fewer loops', () => {
  it('three of four keep enough of Ouro, and vLLM is told their number', async () => {
    const { report, full } = await fullOf('ouro-1.4b', 3);
    expect(full.qualityKept).toMatchObject({ share: 0.9, metric: 'gsm8k', value: 0.72, teacher: 0.8 });
    expect(report.answer.deploy?.planId).toBe(full.id);
    expect(report.answer.serve).toContain(`--hf-overrides '{"total_ut_steps": 3}'`);
  });

  it.each([1, 2])('%i of four do not, and nothing is recommended', async (loops) => {
    const { report, full } = await fullOf('ouro-1.4b', loops);
    expect(full.qualityKept?.share).toBeLessThan(0.81);
    expect([report.answer.deploy, report.answer.upside]).toEqual([null, null]);
    // What runs today is named, with its command.
    expect(report.answer.fallback?.planId).toBe(full.id);
    expect(report.answer.serve).toContain(`--hf-overrides '{"total_ut_steps": ${loops}}'`);
  });

  it.each([
    ['ouro-1.4b', 5],
    ['huginn-3.5b', 12],
    ['parcae-140m', 4],
  ])('%s with %i: nobody published what it keeps', async (model, loops) => {
    const { report, full } = await fullOf(model, loops);
    expect(full.qualityKept).toBeNull();
    expect([report.answer.deploy, report.answer.upside]).toEqual([null, null]);
  });

  it('says where no answer that the model writes was scored', async () => {
    const { report } = await fullOf('ouro-2.6b', 3);
    expect(report.answer.risks.map((r) => r.code)).toContain('generation-unknown');
    expect(report.answer.serve).toContain('ByteDance/Ouro-2.6B ');
  });

  it('a compressed cache of fewer loops has no score', async () => {
    const { plans } = await plan({ model: 'ouro-1.4b', loops: 3, device: 'h200', codec: ['hla', 'lla'] });
    expect(plans.map((p) => p.qualityKept)).toEqual(plans.map(() => null));
  });

  it('a checkpoint that was trained with fewer is the model itself', async () => {
    const report = await plan({ model: 'recurrent-llama-3.2-1b-train-recurrence-8', device: 'h200', codec: ['full'] });
    expect(report.plans[0]?.qualityKept?.share).toBe(1);
  });
});

it('every table has the loops that its model was trained with', () => {
  for (const { model, scores } of LOOP_TABLES) {
    const { loops } = findPreset(model);
    expect(scores[loops], model).toBeGreaterThan(0);
    for (const of of Object.keys(scores))
      for (const { value, allLoops } of scoresWithLoops(model, Number(of), loops))
        expect(value).toBeLessThanOrEqual(allLoops);
  }
});

it('what a server rounds to 8 bits as it loads has unknown quality', async () => {
  const { plans, answer } = await plan({ model: 'ouro-1.4b', device: 'h100', codec: ['full'], weightType: 'fp8' });
  expect(plans[0]?.qualityKept).toBeNull();
  expect([answer.deploy, answer.fallback?.planId]).toEqual([null, plans[0]?.id]);
  expect(answer.serve).toContain('--quantization fp8');
});
