/** What an answer says of --tpot beside the prompts of others, and how a fleet takes it. */
import { describe, expect, it } from 'vitest';
import { ask, readSources } from '../../src/plan/ask/on-disk.js';
import { randomOf, SEED } from '../gpu/random.js';
import { planFleet } from '../../src/plan/decide/fleet.js';
import { answersBesidePrompts, promptsRisk } from '../../src/plan/decide/risks.js';
import { fleetText } from '../../src/report/text/fleet-text.js';
import type { PlanRequest } from '../../src/plan/types.js';
import type { Scenario } from '../../src/schema/settings.js';

const exactly = (estimate: number) => ({ estimate, low: estimate, high: estimate });
const asked = (contextTokens: number): Pick<PlanRequest, 'targets' | 'contextTokens'> => ({
  contextTokens,
  targets: { secondsPerToken: 0.04, secondsToFirstToken: null, minimums: [], retrievalTokens: null },
});

describe('answers that keep to --tpot beside prompts', () => {
  it('are told by the slow end where such an answer fits --ctx, else by the estimate', () => {
    const step = { estimate: 0.03, low: 0.02, high: 0.039 };
    // 10 · 0.2 s / 1 ms, and / 10 ms.
    expect(answersBesidePrompts(asked(4096), 10, step, exactly(0.2))?.tokens).toBeCloseTo(2000, 6);
    expect(answersBesidePrompts(asked(1024), 10, step, exactly(0.2))).toMatchObject({ end: 'estimate' });
    expect(answersBesidePrompts(asked(1024), 10, step, exactly(0.2))?.tokens).toBeCloseTo(200, 6);
    expect(answersBesidePrompts(asked(1024), 10, exactly(0.05), exactly(0.2))?.tokens).toBe(Infinity);
    expect(answersBesidePrompts(asked(1024), 10, step, null)).toBeNull();
  });

  it('are never longer than the context: then the risk says that there are none', () => {
    const risk = (tokens: number) => promptsRisk('full cache', { tokens, end: 'high' }, 4096)?.message;
    expect(risk(20)).toBeUndefined();
    expect(risk(2345)).toBe('beside prompts full cache keeps to --tpot where answers have 2400 tokens or more');
    expect(risk(4090)).toMatch(/have 4096 tokens or more$/);
    for (const tokens of [5000, 2.2e6, Infinity])
      expect(risk(tokens)).toBe(
        'beside prompts of 4096 tokens no answer that fits --ctx keeps full cache to --tpot: ' +
          'ask lla-sim simulate with your lengths',
      );
  });

  it('so does a plan', async () => {
    const s: Scenario = { model: 'ouro-2.6b', device: 'b200', gpus: 8, context: '64', tpot: '17ms', confidence: 0.5 };
    const { answer } = await ask({ ...s, codec: ['full'] });
    expect(answer.risks.find(({ code }) => code === 'prompts-between')?.message).toMatch(/no answer that fits --ctx/);
  });
});

describe('a fleet', () => {
  it('names no answers longer than its context, and of as many GPUs takes those that keep to --tpot', async () => {
    for (const device of ['l40s', 'a100-80']) {
      const s: Scenario = { device, context: 4096, tpot: '40ms', codec: ['full'] };
      const { fleet, reports } = planFleet(s, 300, await readSources(s));
      const tokens = fleet.deploy?.besidePrompts?.tokens as number;
      expect(tokens).toBeLessThanOrEqual(4096);
      const text = fleetText(fleet, reports[0]!, { width: 400, colour: false, best: true });
      const said = Number(/where answers have (\d+) tokens or more/.exec(text)?.[1]);
      expect(said).toBeGreaterThanOrEqual(tokens);
      expect(said).toBeLessThanOrEqual(4096);
    }
  });

  it('takes more GPUs where with fewer no answer keeps to --tpot, and says so where none does', async () => {
    const of = async (s: Scenario, users: number) => {
      const { fleet } = planFleet(s, users, await readSources(s));
      const alone = await Promise.all(
        [1, 2, 4, 8].map(async (gpus) => {
          const one = { ...s, gpus };
          return planFleet(one, users, await readSources(one)).fleet.deploy;
        }),
      );
      return { deploy: fleet.deploy!, alone: alone.filter((row) => row !== null) };
    };
    for (const [tpot, users] of [
      ['17ms', 100],
      ['14ms', 100],
      ['30ms', 61],
    ] as const) {
      const s: Scenario = { device: 'h100', context: 512, tpot, codec: ['full'] };
      const { deploy, alone } = await of(s, users);
      const beyond = (row: typeof deploy): boolean => (row.besidePrompts?.tokens ?? 0) > 512;
      const fine = alone.filter((row) => !beyond(row));
      expect(beyond(deploy)).toBe(fine.length === 0);
      expect(deploy.gpus).toBe(Math.min(...(fine.length > 0 ? fine : alone).map(({ gpus }) => gpus)));
    }
  });

  it('never needs fewer GPUs for more users, nor more than twice as many for twice the users', async () => {
    const random = randomOf(SEED);
    for (let i = 0; i < 6; i++) {
      const s: Scenario = {
        model: random.pick(['nanbeige4.2-3b', 'loopcoder-v2-7b', 'ouro-1.4b']),
        device: random.pick(['l40s', 'h100', 'h200']),
        context: random.pick([1024, 2048, 4096]),
        tpot: random.pick(['15ms', '25ms', '60ms']),
        codec: ['full'],
        // Four GPUs serve 17 beside prompts, and by their steps alone 21.
        ...(i === 0 ? { model: 'nanbeige4.2-3b', device: 'l40s', context: 1024, tpot: '15ms' } : {}),
      };
      const sources = await readSources(s);
      const gpusOf = (users: number): number | null => {
        const [row] = planFleet(s, users, sources).fleet.rows;
        return row?.gpus ?? null;
      };
      let before: number | null = 0;
      for (const users of [
        random.whole(2, 19),
        20,
        random.whole(33, 80),
        random.whole(81, 400),
        random.whole(401, 2000),
      ]) {
        const [gpus, twice] = [gpusOf(users), gpusOf(2 * users)];
        const because = `${JSON.stringify(s)}, ${users} users, seed ${SEED}`;
        if (gpus === null || twice === null || before === null) continue;
        expect(gpus, because).toBeGreaterThanOrEqual(before);
        expect(twice, because).toBeGreaterThanOrEqual(gpus);
        expect(twice, because).toBeLessThanOrEqual(2 * gpus);
        before = gpus;
      }
    }
  });
});
