/** `plan --users` with a workload: how many replicas its users need, by simulation. */
import { expect, it } from 'vitest';
import { readSources } from '../../src/plan/ask/on-disk.js';
import { planFleet, type PlannedFleet } from '../../src/plan/decide/fleet.js';
import { fleetJson } from '../../src/report/plan-json.js';
import { fleetText } from '../../src/report/text/fleet-text.js';
import type { Scenario } from '../../src/schema/settings.js';
import { simulateFleet } from '../../src/serving/fleet.js';
import type { SimulatedFleet } from '../../src/serving/types.js';

const USERS = 60;
const SCENARIO: Scenario = {
  device: 'h200',
  codec: ['full', 'lla'],
  ratio: [10.67],
  path: ['full', 'block-absorbed'],
  gpus: 1,
  tpot: '25ms',
  ttft: '1s',
  workload: { arrivals: 'poisson', rate: 3, promptTokens: 500, outputTokens: 50, requests: 300, think: '100ms' },
};

async function simulated(scenario: Scenario, users: number): Promise<{ planned: PlannedFleet; found: SimulatedFleet }> {
  const sources = await readSources(scenario);
  const planned = planFleet(scenario, users, sources);
  return { planned, found: simulateFleet(scenario, planned, sources) };
}

const textOf = ({ fleet, reports }: PlannedFleet, found: SimulatedFleet): string =>
  fleetText(fleet, reports[0]!, { width: 400, colour: false, best: false }, found);

it('the fewest replicas whose users meet the targets at the slow end, and the answer says so', async () => {
  const { planned, found } = await simulated(SCENARIO, USERS);
  const deploy = found.deploy!;
  expect(deploy).toMatchObject({ slowEnd: true, tensorParallel: 1, gpus: deploy.replicas });
  expect(deploy.replicas).toBeGreaterThan(1);
  expect(deploy.usersPerReplica).toBe(Math.ceil(USERS / deploy.replicas));
  expect(deploy.usersPerReplica).toBeLessThanOrEqual(deploy.mostUsersPerReplica);
  // One replica less would have more users than meet the targets.
  expect(Math.ceil(USERS / (deploy.replicas - 1))).toBeGreaterThan(deploy.mostUsersPerReplica);
  expect(deploy.high.p99_tpot_ms!).toBeLessThanOrEqual(25 * 1.002);
  expect(deploy.high.p99_ttft_ms!).toBeLessThanOrEqual(1000 * 1.002);
  expect(deploy.estimate.p99_tpot_ms!).toBeLessThan(deploy.high.p99_tpot_ms!);
  // At the slow end tuned kernels of latents are too late for this target.
  expect(found.tried).toEqual({ today: ['full cache'], unwritten: ['lla-10.67x by block-absorbed'] });
  expect(found.upside).toBeNull();
  const text = textOf(planned, found);
  expect(text).toMatch(
    new RegExp(`^Deploy +${deploy.gpus} h200 by simulation: ${deploy.replicas} replicas of 1 GPU`, 'm'),
  );
  expect(text).toMatch(/^Upside +none for this workload: of lla-10\.67x by block-absorbed none needs fewer GPUs/m);
  expect(text).toMatch(/^ouro-1.4b: 60 users, prompts 500, outputs 50 tokens, on NVIDIA H200/);
  expect(text).toMatch(/^Serve +vllm serve \S+ --max-num-seqs 1024 --max-model-len 32768 /m);
  expect(text).toMatch(/^Tested +published first tokens of vLLM .*; published steps of /m);
  expect(text).toContain('thinks 100 ms');
  expect(text).toContain('Targets: TTFT 1 s and TPOT 25 ms for 99 % of the requests');
  expect(fleetJson([{ ...planned, simulated: found }])).toMatchObject({
    runs: [{ simulated: { deploy: { gpus: deploy.gpus } } }],
  });
  expect(JSON.stringify(fleetJson([planned]))).not.toContain('simulated');
});

it('a plan that gives not one user the targets serves nobody', async () => {
  const { planned, found } = await simulated(
    { ...SCENARIO, ttft: '150ms', workload: { ...SCENARIO.workload, promptTokens: 20_000 } },
    3,
  );
  expect(planned.fleet.deploy).not.toBeNull();
  expect(found.deploy).toBeNull();
  expect(textOf(planned, found)).toContain('not one user gets the targets on any number of GPUs');
});

it('with replicas that prefill, groups as the question has them: all of their GPUs are counted and told', async () => {
  const server = { replicas: 2, prefillReplicas: 1, transferRate: '25GB/s' };
  const { ratio: _ratio, ...others } = SCENARIO;
  const full: Scenario = { ...others, codec: ['full'], path: ['full'] };
  const { planned, found } = await simulated({ ...full, server }, 90);
  const deploy = found.deploy!;
  expect(deploy.replicas).toBe(2 * deploy.prefillReplicas);
  expect(deploy.gpus).toBe(deploy.replicas + deploy.prefillReplicas);
  expect(deploy.usersPerReplica * deploy.replicas).toBeGreaterThanOrEqual(90);
  // Of users who are all there: the run begins before they are, and ends with the last of them.
  const rate = deploy.outputTokensPerSecond / deploy.prefillReplicas;
  expect(rate).toBeGreaterThan(deploy.estimate.output_throughput);
  expect(rate).toBeLessThan(2 * deploy.estimate.output_throughput);
  const text = (of: SimulatedFleet): string => textOf(planned, of);
  expect(text(found)).toContain(
    `${deploy.gpus} replicas of 1 GPU (${deploy.replicas} decode, ${deploy.prefillReplicas} prefill)`,
  );
  expect(text(found)).toContain('NixlConnector');
  expect(text(found)).not.toContain('--transfer-rate');
  const { transferRate: _rate, ...open } = server;
  const assumed = await simulated({ ...full, server: open }, 90);
  expect(text(assumed.found)).toContain('--transfer-rate sets what you measured');
  const tuned = await simulated({ ...full, server: { ...open, transferRate: '49GB/s' } }, 90);
  expect(tuned.found.deploy!.gpus).toBeLessThan(assumed.found.deploy!.gpus);
  expect(text(assumed.found)).toContain(
    `if the cache moved at 49 GB/s, ${tuned.found.deploy!.gpus} GPUs would be enough`,
  );
});

it('a server that is simulated as it is by default is started without further options', async () => {
  // TensorRT-LLM divides prompts only where it is told to.
  const told: Readonly<Record<string, string>> = { trtllm: '--enable_chunked_prefill' };
  for (const stack of ['vllm', 'sglang', 'trtllm']) {
    const { found } = await simulated(
      {
        ...{ device: 'h200', model: 'ledger/models/llama-3.1-8b.json', codec: ['full'], stack, tpot: '50ms' },
        workload: { rate: 1, promptTokens: 200, outputTokens: 20, requests: 50 },
      },
      4,
    );
    expect(found.deploy!.serve, stack).toMatch(/MODEL/);
    const serve = found.deploy!.serve!.split(' ').filter((word) => word !== told[stack]);
    expect(serve.join(' '), stack).not.toMatch(/not here|batched|chunked|max_num_tokens|--no-|disable|block|page/);
  }
});
