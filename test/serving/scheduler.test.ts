/**
 * What holds of every schedule, whatever its options and whichever way it holds sequences: blocks are never lost or
 * given twice, the budget is kept, requests begin in their order, those that were preempted come back, each gets its
 * tokens, and a token leaves the loops after its own number of them.
 */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { SERVER_SETTINGS } from '../../src/schema/serving.js';
import { DepthDraws, type Depth } from '../../src/serving/depth.js';
import { CountedScheduler } from '../../src/serving/scheduler/counted.js';
import { LoopedScheduler } from '../../src/serving/scheduler/looped.js';
import { blocksOf, type ReplicaOptions } from '../../src/serving/scheduler/options.js';
import { emptyDraft, Requests, STATE } from '../../src/serving/scheduler/requests.js';
import type { Listener } from '../../src/serving/scheduler/listener.js';
import type { Scheduler } from '../../src/serving/scheduler/scheduler.js';
import { WaitingQueue } from '../../src/serving/scheduler/waiting.js';
import { acceptedOf } from '../../src/serving/speculation.js';
import { randomOf, SEED } from '../gpu/random.js';
import { PLAIN_DEPTH, SERVER } from './harness.js';

const LOOPS = 4;
const KNOTS = Float64Array.from([1, 16, 24, 64]);
const NO_COUNTS = { preemptions: 0, recomputedTokens: 0, lookedUpTokens: 0, hitTokens: 0 };
const weightOf = (loops: number): number => (1 + loops) / (1 + LOOPS);

const drawn = fc.record({
  kind: fc.constantFrom('counted', 'looped', 'looped', 'speculating'),
  seed: fc.nat(1e6),
  maxNumSeqs: fc.integer({ min: 1, max: 9 }),
  spare: fc.integer({ min: 0, max: 60 }),
  chunkedPrefill: fc.boolean(),
  turns: fc.constantFrom('beside', 'first', 'in turns'),
  promptsRotate: fc.boolean(),
  batchWait: fc.constantFrom(null, null, { iterations: 3, tokens: 6 }),
  blockTokens: fc.constantFrom(1, 4, 16),
  room: fc.integer({ min: 0, max: 14 }),
  sequenceBlocks: fc.constantFrom(0, 0, 2),
  capped: fc.boolean(),
  policy: fc.constantFrom(...SERVER_SETTINGS.policy.choices),
  reserveFullPrompt: fc.boolean(),
  watermark: fc.constantFrom(0, 0, 0.05, 0.4),
  reserveAnswer: fc.constantFrom(false, false, true),
  answerShare: fc.constantFrom(null, null, { initial: 0.7, least: 0.1, steps: 8, mostTokens: 12, ahead: 20 }),
  asyncScheduling: fc.boolean(),
  batching: fc.constantFrom(...SERVER_SETTINGS.depthBatching.choices),
  skippedKv: fc.constantFrom(...SERVER_SETTINGS.skippedKv.choices),
});
type Drawn = typeof drawn extends fc.Arbitrary<infer T> ? T : never;

/** A request as the schedule's listener sees it. */
interface Seen {
  readonly slot: number;
  readonly prompt: number;
  readonly output: number;
  /** How often it got and lost a place. */
  began: number;
  lost: number;
  tokens: number;
  ended: boolean;
  /** Cached tokens, and the same in tokens of all loops, by what its tokens and chunks say. */
  cached: number;
  held: number;
  /** Passes of the token that is in the loops. */
  passes: number;
}

/** Runs requests to their end, and looks at every iteration. @returns preemptions */
function check(d: Drawn): number {
  const random = randomOf(d.seed);
  const counted = d.kind === 'counted';
  const speculation =
    d.kind === 'speculating'
      ? { draftLoops: 2, draftTokens: random.whole(1, 6), acceptance: 0.7, source: null, seed: d.seed }
      : null;
  const depth: Depth = {
    probabilities: speculation ? [0, 0, 0, 1] : [0.3, 0.2, 0.1, 0.4],
    batching: speculation ? 'loops' : d.batching,
    skippedKv: speculation ? 'copy' : d.skippedKv,
    ...PLAIN_DEPTH,
    seed: d.seed,
  };
  const capTokens = counted && d.capped ? 24 : Infinity;
  const options: ReplicaOptions = {
    ...SERVER,
    ...d,
    prefillOnly: false,
    maxNumBatchedTokens: Math.max(8, d.maxNumSeqs) + d.spare,
    promptsFirst: counted && d.turns === 'first',
    inTurns: speculation !== null || (!counted && d.turns === 'in turns'),
    unitTokens: d.blockTokens,
    capTokens,
    blocks: Math.ceil(Math.min(100, capTokens) / d.blockTokens) + d.sequenceBlocks + d.room,
  };
  const draws = new DepthDraws(depth, depth.seed);
  const requests = new Requests();
  const seen = new Map<number, Seen>();
  const order: number[] = [];
  const counts = { ...NO_COUNTS };
  const listener: Listener = {
    began: (slot) => {
      const one = seen.get(slot)!;
      expect(one.began++ - one.lost).toBe(0);
      if (one.began > 1) return;
      order.push(one.slot);
      const isLost = [...seen.values()].some((other) => other.lost > 0 && other.lost === other.began);
      if (d.policy === 'fcfs') expect(isLost, 'a preempted request waits behind a new one').toBe(false);
    },
    token: (slot, tokens) => {
      const one = seen.get(slot)!;
      // The prompt gives the first token, and what was lost the next one.
      const prompted = requests.state[slot] === STATE.prefill;
      one.tokens += tokens;
      if (prompted) return;
      const [number, before] = [requests.number[slot]!, one.tokens - tokens];
      const loops = draws.of(number, before);
      const passes = depth.batching === 'steps' ? LOOPS : loops;
      expect(one.passes, 'passes of a token').toBe(speculation ? LOOPS : passes);
      if (speculation) expect(tokens).toBe(Math.min(one.output - before, 1 + acceptedOf(speculation, number, before)));
      one.passes = 0;
      one.cached += tokens;
      one.held += depth.skippedKv === 'share' ? weightOf(loops) : tokens;
    },
    ended: (slot) => {
      const one = seen.get(slot)!;
      expect(one.ended).toBe(false);
      one.ended = true;
      [one.cached, one.held] = [0, 0];
    },
    preempted: (slot) => {
      const one = seen.get(slot)!;
      expect(++one.lost).toBe(one.began);
      [one.cached, one.held, one.passes] = [0, 0, 0];
    },
    prefilled: () => expect.unreachable(),
  };
  const queue = new WaitingQueue(d.policy, requests);
  const common = [requests, queue, listener, counts, KNOTS] as const;
  const schedule: Scheduler = counted
    ? new CountedScheduler(options, ...common)
    : new LoopedScheduler(
        {
          ...options,
          depth,
          speculation: speculation && {
            ...speculation,
            accepted: (slot) => acceptedOf(speculation, requests.number[slot]!, requests.emitted[slot]!),
          },
          weightOf,
        },
        ...common,
      );
  const arrive = (): void => {
    const draft = {
      ...emptyDraft(),
      promptTokens: random.whole(1, 60),
      outputTokens: random.whole(1, 40),
    };
    const slot = requests.add(draft);
    const [prompt, output] = [draft.promptTokens, draft.outputTokens];
    const none = { began: 0, lost: 0, tokens: 0, ended: false, cached: 0, held: 0, passes: 0 };
    seen.set(slot, { slot, prompt, output, ...none });
    requests.queued[slot] = now;
    queue.push(slot);
  };
  let now = 0;
  const isDone = (): boolean => [...seen.values()].every(({ ended }) => ended);
  let left = 25;
  for (let iteration = 0; left > 0 || !isDone(); iteration++) {
    // No request waits for ever.
    expect(iteration).toBeLessThan(20_000);
    for (; left > 0 && (isDone() || random.whole(0, 3) === 0); left--) arrive();
    now = iteration;
    const ran = iteration > 0 && d.asyncScheduling;
    if (!(ran && schedule.begin(now - 1)) && !schedule.begin()) {
      expect(isDone()).toBe(true);
      continue;
    }
    const { batch, running, chunkSlots, pool } = schedule;
    const chunks = Array.from({ length: batch.chunks.count }, (_, i) => ({
      slot: chunkSlots[i]!,
      tokens: batch.chunks.tokens[i]!,
      passes: schedule.chunkPasses[i]!,
    }));
    const prompted = chunks.reduce((sum, { tokens }) => sum + tokens, 0);
    expect(new Set(chunks.map(({ slot }) => slot)).size).toBe(chunks.length);
    expect(batch.chunks.total).toBe(prompted);
    expect(running.length).toBeLessThanOrEqual(options.maxNumSeqs);
    const decoding = running.filter((slot) => requests.state[slot] === STATE.decode);
    expect(schedule.decoding).toBe(decoding.length);
    const beside = batch.paused || options.inTurns ? 0 : decoding.length;
    // A whole prompt may go beyond the budget, alone; tokens that end early make room before it has had its passes.
    if (options.chunkedPrefill) expect(prompted + beside).toBeLessThanOrEqual(options.maxNumBatchedTokens);
    else if (chunks.length > 1 && counted) expect(prompted + beside).toBeLessThanOrEqual(options.maxNumBatchedTokens);
    // Every block that is in use is one of a request: those of its cache, of its chunk and of its next tokens.
    const rotates = options.promptsRotate && options.chunkedPrefill;
    const blocks = running.map((slot) => {
      const one = seen.get(slot)!;
      if (rotates && requests.state[slot] === STATE.prefill) return blocksOf(requests.target[slot]!, options);
      const chunk = chunks.find((c) => c.slot === slot);
      if (chunk) return blocksOf(one.cached + chunk.tokens, options);
      if (requests.state[slot] !== STATE.decode || (counted && batch.paused)) return blocksOf(one.cached, options);
      const [emitted, round] = [requests.emitted[slot]!, speculation ? 1 + speculation.draftTokens : 1];
      return counted
        ? blocksOf(one.cached + 1, options)
        : blocksOf(one.held + Math.min(round, one.output - emitted), options);
    });
    expect(pool.used).toBe(blocks.reduce((sum, own) => sum + own, 0));
    expect(pool.used).toBeLessThanOrEqual(options.blocks);
    const { loops } = schedule;
    const passes = batch.paused ? loops : schedule.passes;
    for (const slot of decoding) {
      const one = seen.get(slot)!;
      if (batch.paused) continue;
      one.passes += schedule.passes;
      // Of those that are counted each has a token.
      if (counted) [one.tokens, one.cached] = [one.tokens + 1, one.cached + 1];
    }
    for (const { slot, tokens, passes: had } of chunks)
      if (had + passes >= loops) {
        const one = seen.get(slot)!;
        [one.cached, one.held] = [one.cached + tokens, one.held + tokens];
      }
    schedule.end();
  }
  expect(schedule.pool.used).toBe(0);
  for (const { began, lost, tokens, output } of seen.values()) {
    expect(began).toBe(lost + 1);
    expect(tokens).toBe(output);
  }
  expect(counts.preemptions).toBe([...seen.values()].reduce((sum, { lost }) => sum + lost, 0));
  // Requests were given slots in the order in which they came.
  if (d.policy === 'fcfs') expect(order).toEqual([...order].sort((a, b) => requests.number[a]! - requests.number[b]!));
  // Proposals need room beside.
  if (d.reserveAnswer && !speculation) expect(counts.preemptions).toBe(0);
  return counts.preemptions;
}

/** A schedule of requests that are counted, and what is seen of it. */
function counted(more: Partial<ReplicaOptions>, seen: Partial<Listener> = {}) {
  const requests = new Requests();
  const queue = new WaitingQueue('fcfs', requests);
  const nothing = (): void => {};
  const listener = { began: nothing, token: nothing, ended: nothing, prefilled: nothing, preempted: nothing, ...seen };
  const options = { ...SERVER, prefillOnly: false, ...more };
  return {
    queue,
    come: (promptTokens: number, outputTokens: number): void =>
      queue.push(requests.add({ ...emptyDraft(), promptTokens, outputTokens })),
    schedule: new CountedScheduler(options, requests, queue, listener, { ...NO_COUNTS }, KNOTS),
  };
}

describe('a schedule', () => {
  it(`keeps its rules with random requests (LLA_SIM_SEED=${SEED})`, () => {
    let preemptions = 0;
    fc.assert(
      fc.property(drawn, (d) => {
        preemptions += check(d);
      }),
      { seed: SEED, numRuns: 100 },
    );
    expect(preemptions).toBeGreaterThan(50);
  });

  it('lets prompts wait for others while sequences decode, so many iterations or until they are enough', () => {
    const beganOf = (prompts: number[], tokens: number): number[] => {
      const began: number[] = [];
      let iteration = 0;
      const { queue, come, schedule } = counted(
        { maxNumBatchedTokens: 64, batchWait: { iterations: 5, tokens } },
        { began: () => began.push(iteration) },
      );
      come(4, 30);
      for (; schedule.begin(); schedule.end(), iteration++)
        if (iteration === 0) prompts.forEach((length) => come(length, 1));
        else if (iteration === 20) come(8, 1);
      expect(queue.tokens).toBe(0);
      return began;
    };
    // Nothing decodes at first; the second waits for five iterations after it came, and so does the last.
    expect(beganOf([10], 20)).toEqual([0, 6, 26]);
    // Two prompts and the sequence are enough.
    expect(beganOf([10, 9], 20)).toEqual([0, 1, 1, 26]);
    expect(beganOf([10, 8], 20)).toEqual([0, 6, 6, 26]);
    // What no iteration holds is enough when it is full.
    expect(beganOf([100], 64)).toEqual([0, 1, 26]);
  });

  it('keeps blocks free where a request begins beside others, and for the first one none', () => {
    const run = (watermark: number, outputTokens: number): { running: number; preemptions: number } => {
      let [running, preemptions] = [0, 0];
      const limits = { maxNumBatchedTokens: 200, blockTokens: 4, unitTokens: 4, blocks: 44, watermark };
      const { come, schedule } = counted({ ...limits, promptsFirst: true }, { preempted: () => preemptions++ });
      // Four prompts of 40 tokens take 40 of 44 blocks, and grow by as much as their answers.
      for (let i = 0; i < 4; i++) come(40, outputTokens);
      for (; schedule.begin(); schedule.end()) running = Math.max(running, schedule.running.length);
      return { running, preemptions };
    };
    expect(run(0, 12)).toEqual({ running: 4, preemptions: expect.any(Number) as number });
    expect(run(0, 12).preemptions).toBeGreaterThan(0);
    expect(run(0.12, 12)).toEqual({ running: 3, preemptions: 0 });
    // More than all of the cache beside one: they run one by one, and none waits for ever.
    expect(run(0.99, 12)).toEqual({ running: 1, preemptions: 0 });
  });

  it('gives prompts in turn a part of the budget, or one after another', () => {
    const chunksOf = (promptsRotate: boolean): string => {
      const limits = { maxNumSeqs: 3, maxNumBatchedTokens: 8, blocks: 100, promptsRotate };
      const { come, schedule } = counted({ ...limits, blockTokens: 4, unitTokens: 4 });
      for (const promptTokens of [20, 20, 4]) come(promptTokens, 1);
      const found: string[] = [];
      for (; schedule.begin(); schedule.end()) {
        const { count, tokens } = schedule.batch.chunks;
        found.push(Array.from({ length: count }, (_, i) => `${schedule.chunkSlots[i]}:${tokens[i]}`).join('+'));
      }
      expect(schedule.pool.used).toBe(0);
      return found.join(' ');
    };
    // The number of a prompt, and so many tokens of it.
    expect(chunksOf(false)).toBe('0:8 0:8 0:4+1:4 1:8 1:8 2:4');
    expect(chunksOf(true)).toBe('0:8 1:8 2:4+0:4 1:8 0:8 1:4');
  });
});
