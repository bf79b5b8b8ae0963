/** How many replicas serve a rate that one hardly serves alone. */
import { expect, it } from 'vitest';
import type { Interval } from '../../src/cost/evidence.js';
import { plan } from '../../src/index.js';
import { readSources } from '../../src/plan/ask/on-disk.js';
import type { Scenario } from '../../src/schema/settings.js';
import { simulate } from '../../src/serving/answer.js';

it('a short run at a rate that a server does not sustain is not said to be sure', async () => {
  const scenario: Scenario = {
    device: 'h200',
    codec: ['full'],
    workload: { rate: 18, promptTokens: 512, outputTokens: 256, requests: 500 },
  };
  const options = { findRate: false, skipBad: false, shard: null, progress: () => false };
  const sureAt = async (rate: number): Promise<boolean> => {
    const at = { ...scenario, workload: { ...scenario.workload, rate } };
    return (await simulate(at, await readSources(at), options)).runs[0]!.sure;
  };
  expect([await sureAt(12), await sureAt(18)]).toEqual([true, false]);
});

it('a few replicas do where one is too slow only for requests that meet, however low its own rate', async () => {
  const asked: Scenario = { model: 'ouro-1.4b', device: 'h200', stack: 'vllm', codec: ['full'] };
  const { plans } = await plan({ ...asked, context: 2048 });
  const { high } = plans[0]?.prefill.secondsToFirstToken as Interval;
  const scenario: Scenario = {
    ...asked,
    ttft: `${(high * 1.08 * 1e3).toFixed(1)}ms`,
    workload: { rate: 4, promptTokens: 2048, outputTokens: 32 },
    server: { prefixCaching: 'off' },
  };
  const options = { findRate: true, skipBad: false, shard: null, progress: () => false };
  const found = (await simulate(scenario, await readSources(scenario), options)).candidates![0]!;
  // One replica is alone with a request hardly ever; of six, one is always free.
  expect(4 / found.requestsPerSecond.low).toBeGreaterThan(100);
  expect(found.replicasFor!.replicas.high).toBeLessThan(10);
});
