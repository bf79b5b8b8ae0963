/**
 * Requests and iterations per second of the simulation, on one core, and how time and memory grow with the number of
 * requests. Run: npm run bench:simulate [-- TRACE]   (after npm run build)
 *
 * Without a trace the requests are made up, as many and as long as those of the Azure conversation trace of 2023
 * (19,366; mean prompt 1,155 and output 211 tokens), from a fixed seed.
 */
import { performance } from 'node:perf_hooks';
import { simulate } from '../dist/src/serving/answer.js';
import { readSources } from '../dist/src/plan/ask/on-disk.js';

const trace = process.argv[2];
const madeUp = (requests) => ({
  rate: 5.5,
  requests,
  promptTokens: 'lognormal:1155:1109',
  outputTokens: 'lognormal:211:163',
});
const candidates = [
  ['full cache', { codec: ['full'] }],
  ['lla-21.33x', { codec: ['lla'], ratio: [21.33], path: ['block-absorbed'] }],
];
const options = { findRate: false, skipBad: false, shard: null, progress: () => false };

for (const [name, filter] of candidates) {
  for (const requests of trace === undefined ? [19_366, 193_660, 1_000_000] : [null]) {
    const workload = trace === undefined ? madeUp(requests) : { trace };
    const scenario = { model: 'ouro-1.4b', device: 'h200', ...filter, workload };
    const sources = await readSources(scenario);
    const begun = performance.now();
    const { runs } = await simulate(scenario, sources, { ...options, bounds: ['estimate'] });
    const seconds = (performance.now() - begun) / 1e3;
    const { completed, iterations } = runs[0];
    const memory = process.memoryUsage();
    const bytes = (n) => `${Math.round(n / 2 ** 20)} MiB`;
    console.log(
      `${name}: ${completed} requests, ${iterations} iterations in ${seconds.toFixed(2)} s, prices included: ` +
        `${Math.round(completed / seconds)} requests/s, ${Math.round(iterations / seconds)} iterations/s; ` +
        `heap ${bytes(memory.heapUsed)}, arrays ${bytes(memory.arrayBuffers)}`,
    );
  }
}
