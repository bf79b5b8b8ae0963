/** What the program proposes where nothing fits: each change is planned before it is named. */
import { expect, it } from 'vitest';
import { ask, readSources } from '../../src/plan/ask/on-disk.js';
import { hasSolution } from '../../src/plan/plan.js';
import { remedyWords } from '../../src/plan/decide/remedies.js';
import type { Scenario } from '../../src/schema/settings.js';
import { parseTokens } from '../../src/numbers/units.js';

/** Positions of Ouro-1.4B. */
const TRAINED = 65536;

const words = async (s: Scenario): Promise<string> => remedyWords(s, await readSources(s));
/** True where a sequence fits with room for a prompt beside it, which is taken in chunks where that helps. */
async function fits(s: Scenario): Promise<boolean> {
  const reports = await Promise.all(
    [s, { ...s, prefill: 'chunked' as const }].map((of) => ask(of, { everyRow: false })),
  );
  return reports.some((report) => hasSolution(report) && report.plans.some((p) => p.prefill.fits));
}

it.each([
  { device: 'rtx-4090', context: '1M' },
  { device: 'rtx-4090', context: '64k', codec: ['full'] },
] as Scenario[])(
  '%j: the fewest GPUs and the longest trained context that fit, with room for a prompt, and no ratio',
  async (scenario) => {
    const said = await words(scenario);
    const gpus = Number(/--gpus (\d+)/.exec(said)?.[1]);
    expect([await fits({ ...scenario, gpus }), await fits({ ...scenario, gpus: gpus / 2 })]).toEqual([true, false]);
    const context = parseTokens(/--ctx (\w+)/.exec(said)?.[1] ?? '', '--ctx');
    expect(await fits({ ...scenario, context })).toBe(true);
    expect(context === TRAINED || !(await fits({ ...scenario, context: 2 * context })), said).toBe(true);
    expect(said).not.toContain('ratio');
    expect(said.includes('without --codec')).toBe(scenario.codec !== undefined);
  },
);

it('8-bit weights alone, or on fewer GPUs than 16-bit ones need', async () => {
  const model = 'ledger/models/qwen3-32b.json';
  const gpus = (said: string): number => Number(/--gpus (\d+) --weight-type fp8/.exec(said)?.[1] ?? 1);
  for (const [device, needs] of [
    ['l40s', 1],
    ['rtx-4090', 2],
  ] as const) {
    const said = await words({ model, device, context: 8192 });
    expect(said).toContain('--weight-type fp8');
    expect(gpus(said), said).toBe(needs);
    const small: Scenario = { model, device, context: 8192, weightType: 'fp8' };
    expect([await fits({ ...small, gpus: needs }), needs > 1 && (await fits({ ...small, gpus: needs / 2 }))]).toEqual([
      true,
      false,
    ]);
  }
  expect(await words({ model, device: 'l4', context: 8192, weightType: 'fp8' })).not.toContain('weight-type');
});

it('names nothing that does not help', async () => {
  expect(await words({ device: 'h100', context: '1M', codec: ['full'] })).not.toContain('--gpus');
  expect(await words({ vram: '64MB' })).toBe('take a larger GPU');
  // What cannot be asked of a model does not hide why nothing fits.
  expect(await words({ model: 'iquest-coder-v1-40b-loop', device: 'l4' })).toBe(
    'what fits: --gpus 8; or --gpus 4 --weight-type fp8',
  );
});
