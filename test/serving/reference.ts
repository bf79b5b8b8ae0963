/**
 * The scheduler of one replica as a plain loop over sequences, a token at a time: the specification that the counting
 * engine is compared with. No prefix cache, one replica.
 */
import type { ServerOptions } from '../../src/serving/scheduler/options.js';
import type { GivenRequest } from './harness.js';

interface Sequence {
  readonly number: number;
  readonly request: GivenRequest;
  /** Cached tokens, tokens that are to be computed before the next output token, output tokens. */
  cached: number;
  target: number;
  emitted: number;
  decoding: boolean;
  first: number;
  preemptions: number;
}

export interface ReferenceEnd {
  readonly number: number;
  readonly ttftSeconds: number;
  readonly e2elSeconds: number;
  readonly preemptions: number;
}

export function referenceRun(requests: readonly GivenRequest[], o: ServerOptions): ReferenceEnd[] {
  const blocksFor = (tokens: number): number =>
    tokens > 0 ? Math.ceil(Math.min(tokens, o.capTokens) / o.blockTokens) + o.sequenceBlocks : 0;
  const coming = requests
    .map((request, number) => ({ request, number }))
    .filter(
      ({ request: r }) =>
        blocksFor(r.promptTokens + r.outputTokens - 1) <= o.blocks &&
        r.promptTokens + r.outputTokens - 1 < o.maxModelLen,
    );
  const ends: ReferenceEnd[] = [];
  let running: Sequence[] = [];
  const waiting: Sequence[] = [];
  let used = 0;
  let now = 0;

  const before = (a: Sequence, b: Sequence): boolean => {
    const key = (s: Sequence): number =>
      o.policy === 'priority' ? s.request.priority! : s.preemptions > 0 ? -1 : s.request.promptTokens;
    return key(a) !== key(b) ? key(a) < key(b) : a.number < b.number;
  };
  const enqueue = (s: Sequence, front: boolean): void => {
    if (o.policy === 'fcfs') {
      if (front) waiting.unshift(s);
      else waiting.push(s);
      return;
    }
    const at = waiting.findIndex((other) => before(s, other));
    waiting.splice(at < 0 ? waiting.length : at, 0, s);
  };
  const preempt = (s: Sequence): void => {
    running = running.filter((other) => other !== s);
    used -= blocksFor(s.cached);
    s.cached = 0;
    if (s.decoding) s.target = s.request.promptTokens + s.emitted;
    s.decoding = false;
    s.preemptions++;
    enqueue(s, true);
  };
  const victim = (): Sequence =>
    o.policy === 'priority'
      ? running.reduce((a, b) => {
          const more = b.request.priority! - a.request.priority!;
          return more > 0 || (more === 0 && b.number > a.number) ? b : a;
        })
      : running.at(-1)!;
  const comes = ({ request, number }: (typeof coming)[number]): void => {
    const target = request.promptTokens;
    enqueue({ number, request, cached: 0, target, emitted: 0, decoding: false, first: NaN, preemptions: 0 }, false);
  };
  const arrive = (until: number): void => {
    while (coming[0] && coming[0].request.time <= until) comes(coming.shift()!);
  };

  // An idle replica begins with the first request that comes, before others of the same time.
  const arriveOne = (): void => {
    now = Math.max(now, coming[0]!.request.time);
    comes(coming.shift()!);
  };

  while (coming.length > 0 || waiting.length > 0 || running.length > 0) {
    if (waiting.length === 0 && running.length === 0) arriveOne();
    let preempted = false;
    // Prompts that have room go first, and sequences wait; where none has, sequences go alone.
    const first = (s: Sequence): number => (o.chunkedPrefill ? Math.min(s.target, o.maxNumBatchedTokens) : s.target);
    let ahead = false;
    if (o.promptsFirst) {
      const partly = running.find((s) => !s.decoding);
      const next = waiting[0];
      if (partly) {
        const until = Math.min(partly.target, partly.cached + o.maxNumBatchedTokens);
        ahead = used + blocksFor(until) - blocksFor(partly.cached) <= o.blocks;
        if (!ahead) preempt(partly);
      } else if (next && running.length < o.maxNumSeqs)
        ahead = used + blocksFor(o.reserveFullPrompt ? next.target : first(next)) <= o.blocks;
    }
    const needs = (s: Sequence): number => (s.decoding ? blocksFor(s.cached + 1) - blocksFor(s.cached) : 0);
    const all = (): number => running.reduce((sum, s) => sum + needs(s), 0);
    while (!ahead && used + all() > o.blocks) {
      preempt(victim());
      preempted = true;
    }
    if (!ahead) used += all();
    const decoding = ahead ? [] : running.filter((s) => s.decoding);
    const lengths = decoding.map((s) => s.cached);
    let budget = o.maxNumBatchedTokens - decoding.length;
    const chunks: { s: Sequence; tokens: number }[] = [];
    const partial = running.find((s) => !s.decoding);
    if (partial && budget > 0) {
      const tokens = Math.min(partial.target - partial.cached, budget);
      const blocks = blocksFor(partial.cached + tokens) - blocksFor(partial.cached);
      if (used + blocks > o.blocks) {
        preempt(partial);
        preempted = true;
      } else {
        used += blocks;
        budget -= tokens;
        chunks.push({ s: partial, tokens });
      }
    }
    while (
      (!o.promptsFirst || ahead) &&
      !preempted &&
      waiting.length > 0 &&
      running.length < o.maxNumSeqs &&
      budget > 0
    ) {
      const s = waiting[0]!;
      if (!o.chunkedPrefill && s.target > budget && chunks.length > 0) break;
      const tokens = o.chunkedPrefill ? Math.min(s.target, budget) : s.target;
      if (used + blocksFor(o.reserveFullPrompt ? s.target : tokens) > o.blocks) break;
      waiting.shift();
      used += blocksFor(tokens);
      budget -= tokens;
      running.push(s);
      chunks.push({ s, tokens });
    }
    const total = chunks.reduce((sum, chunk) => sum + chunk.tokens, 0);
    const mean = lengths.length === 0 ? 0 : lengths.reduce((a, b) => a + b, 0) / lengths.length;
    const n = lengths.length;
    const end = now + 1e-3 * (1 + 0.02 * n + 0.01 * total) + 1e-7 * n * mean;
    // A request that comes at the very end of an iteration comes after it.
    arrive(end - 1e-15);
    now = end;
    const done = (s: Sequence): void => {
      running = running.filter((other) => other !== s);
      used -= blocksFor(s.cached);
      const { time } = s.request;
      ends.push({ number: s.number, ttftSeconds: s.first - time, e2elSeconds: now - time, preemptions: s.preemptions });
    };
    const finished: Sequence[] = [];
    for (const s of decoding) {
      s.cached++;
      s.emitted++;
      if (s.emitted === s.request.outputTokens) finished.push(s);
    }
    finished.forEach(done);
    for (const { s, tokens } of chunks) {
      s.cached += tokens;
      if (s.cached < s.target) continue;
      if (Number.isNaN(s.first)) s.first = now;
      s.emitted++;
      if (s.emitted === s.request.outputTokens) done(s);
      else s.decoding = true;
    }
  }
  return ends;
}
