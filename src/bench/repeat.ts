/** Runs one after the other, by tinybench. */
import { Bench } from 'tinybench';

const MILLISECONDS = 1000;

/**
 * Median seconds of `times` runs. A run says how long it took: by timestamps of the GPU, or without what the host did
 * beside it.
 */
export async function medianOf(times: number, run: () => Promise<number>): Promise<number> {
  const bench = new Bench({ iterations: times, time: 0, warmup: false, throws: true });
  bench.add('run', async () => ({ overriddenDuration: MILLISECONDS * (await run()) }), { async: true });
  const [task] = await bench.run();
  if (task?.result.state !== 'completed') throw new Error(`runs ended as ${task?.result.state}`);
  return task.result.latency.p50 / MILLISECONDS;
}
