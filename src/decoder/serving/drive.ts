/** Requests that come on a clock, and what became of them. */
import type { Iteration, LoopRequest, ServingLoop } from './loop.js';

export interface TimedRequest extends LoopRequest {
  /** Arrival, seconds. */
  readonly time: number;
}

/** A request that has ended. Seconds on the clock. */
export interface Served {
  readonly id: number;
  readonly arrival: number;
  readonly firstToken: number;
  readonly lastToken: number;
  readonly tokens: readonly number[];
  readonly preemptions: number;
}

/**
 * Serves requests until all have ended. The clock is advanced by iterations, and jumps to the next arrival where
 * nothing is left to do.
 * @param requests by arrival
 * @param secondsOf what an iteration counts on the clock; its device's seconds unless given
 * @param stop asked after each iteration; true ends the run
 * @returns the requests that ended, in the order of their last tokens
 */
export async function drive(
  loop: ServingLoop,
  requests: readonly TimedRequest[],
  secondsOf: (iteration: Iteration) => Promise<number> | number = ({ seconds }) => seconds,
  stop: () => boolean = () => false,
): Promise<Served[]> {
  const open = new Map<number, { arrival: number; firstToken: number; tokens: number[]; preemptions: number }>();
  const ended: Served[] = [];
  let next = 0;
  let now = 0;
  while (!stop()) {
    const first = requests[next];
    if (loop.active === 0) {
      if (!first) break;
      now = Math.max(now, first.time);
    }
    // What comes at the very end of an iteration waits for the next one's end, as in the simulation.
    const isHere = ({ time }: TimedRequest): boolean => time < now || (loop.active === 0 && time === now);
    for (let request = requests[next]; request && isHere(request); request = requests[++next]) {
      loop.submit(request);
      open.set(request.id, { arrival: request.time, firstToken: NaN, tokens: [], preemptions: 0 });
    }
    const iteration = await loop.step();
    if (!iteration) continue;
    now += await secondsOf(iteration);
    for (const id of iteration.preempted) open.get(id)!.preemptions++;
    for (const { id, token, ended: last } of iteration.tokens) {
      const request = open.get(id)!;
      if (request.tokens.length === 0) request.firstToken = now;
      request.tokens.push(token);
      if (!last) continue;
      open.delete(id);
      ended.push({ id, lastToken: now, ...request });
    }
  }
  return ended;
}
