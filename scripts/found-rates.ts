/**
 * How often a found rate is missed by other draws of the same traffic: rates are searched with one seed, and each is
 * simulated with further seeds, with the prices of its own end. A draw misses where more requests miss than may.
 *
 *   npx esbuild scripts/found-rates.ts --bundle --platform=node --format=esm --packages=external \
 *     --outfile=dist/scripts/found-rates.mjs && node dist/scripts/found-rates.mjs
 */
import { candidateOf } from '../src/plan/ask/candidates.js';
import { readSources } from '../src/plan/ask/on-disk.js';
import type { Scenario } from '../src/schema/settings.js';
import { settle } from '../src/serving/answer.js';
import { Service, type Setting } from '../src/serving/candidate.js';
import { findRate } from '../src/serving/find-rate.js';
import { whole } from '../src/serving/trial.js';

const DRAWS = 24;
/** Further draws have so many times the requests of the first whole run. */
const LENGTHS = [1, 4];

const CHAT = { arrivals: 'poisson', promptTokens: 'lognormal:1155:1109', outputTokens: 'lognormal:211:163' } as const;
const CASES: readonly (readonly [name: string, scenario: Scenario])[] = [
  ['chat, full cache, H200', { device: 'h200', codec: ['full'], workload: CHAT }],
  ['chat, lla-21.33x, H200', { device: 'h200', codec: ['lla'], ratio: [21.33], workload: CHAT }],
  [
    'bursts, full cache, H100',
    { device: 'h100', codec: ['full'], workload: { ...CHAT, arrivals: 'gamma', burstiness: 0.3 } },
  ],
  [
    'equal lengths, full cache, A100',
    { device: 'a100-80', codec: ['full'], workload: { promptTokens: 512, outputTokens: 128 } },
  ],
  [
    'conversations, full cache, H200',
    { device: 'h200', codec: ['full'], workload: { ...CHAT, turns: 4, think: '5s' } },
  ],
  [
    '2 replicas, kv-quant 4, H200',
    { device: 'h200', codec: ['kv-quant'], ratio: [4], workload: CHAT, server: { replicas: 2 } },
  ],
];

const setUp = async (scenario: Scenario, seed: number): Promise<{ setting: Setting; service: Service }> => {
  const own = { ...scenario, workload: { ...scenario.workload, seed } };
  const { setting, plan } = settle(own, await readSources(own), { skipBad: false });
  const row = plan.plans[0]!;
  return { setting, service: new Service(setting, candidateOf(setting.request, row.id)!, row) };
};

const seed = Number(process.argv[2] ?? 1);
const missed = LENGTHS.map(() => 0);
for (const [name, scenario] of CASES) {
  const began = performance.now();
  const { setting, service } = await setUp(scenario, seed);
  const found = await findRate(service, setting, () => Promise.resolve(false));
  const seconds = (performance.now() - began) / 1e3;
  const { low, estimate, high } = found!.requestsPerSecond;
  const least = whole(setting, service);
  const counts: number[] = [];
  for (const [i, times] of LENGTHS.entries()) {
    let own = 0;
    for (let draw = 0; draw < DRAWS && low > 0; draw++) {
      const fresh = await setUp(scenario, 1000 * (seed + 1) + draw);
      const requested = fresh.setting.workload.source(low, {
        requests: times * least.requests,
        seconds: times * least.seconds,
      });
      const { metrics: m } = fresh.service.run('high', requested, () => false);
      if (m.completed - m.good + m.rejected > (1 - setting.targets.share) * requested.requests) own++;
    }
    missed[i]! += own;
    counts.push(own);
  }
  process.stdout.write(
    `${name}: ${[low, estimate, high].map((r) => r.toFixed(2)).join(', ')} a second in ${seconds.toFixed(1)} s; ` +
      `missed by ${counts.join(' and ')} of ${DRAWS}\n`,
  );
}
process.stdout.write(
  `all: ${missed.join(' and ')} of ${CASES.length * DRAWS}, of ${LENGTHS.join(' and ')} times the length; seed ` +
    `${seed}\n`,
);
