/** Runs of the engine without a cost model: service times are given. */
import type { IterationPricer, MixedBatch } from '../../src/serving/scheduler/batch.js';
import type { Source } from '../../src/serving/engine.js';
import type { ServerOptions } from '../../src/serving/scheduler/options.js';
import type { Draft } from '../../src/serving/scheduler/requests.js';
import { SEED } from '../gpu/random.js';

export const SERVER: ServerOptions = {
  maxNumSeqs: 64,
  maxNumBatchedTokens: 512,
  chunkedPrefill: true,
  promptsFirst: false,
  blockTokens: 16,
  blocks: 400,
  capTokens: Infinity,
  sequenceBlocks: 0,
  prefixCaching: false,
  unitTokens: 16,
  sharedPrefixTokens: 0,
  policy: 'fcfs',
  reserveFullPrompt: true,
  replicas: 1,
  router: 'round-robin',
  maxModelLen: 4096,
  disaggregation: null,
  targets: { ttftSeconds: 1, tpotSeconds: 0.1, share: 0.99 },
};

/** Depths that are drawn, not recorded or published. */
export const PLAIN_DEPTH = { seed: SEED, recorded: null, published: null } as const;

export const KNOTS = Float64Array.from([1, 16, 64, 256, 1024, 8192]);

/** Seconds of an iteration as a function of its batch. */
export const pricerOf = (seconds: (batch: MixedBatch) => number, knots = KNOTS): IterationPricer => ({
  knots,
  seconds,
});

export type GivenRequest = Partial<Draft> & Pick<Draft, 'time' | 'promptTokens' | 'outputTokens'>;

/** Requests one after the other. */
export function given(requests: Iterable<GivenRequest>): Source {
  const left = requests[Symbol.iterator]();
  return {
    next: (draft) => {
      const { value, done } = left.next() as IteratorResult<GivenRequest, undefined>;
      if (done || !value) return false;
      Object.assign(draft, { session: -1, turn: 0, hashes: null }, value);
      return true;
    },
    after: () => false,
  };
}
