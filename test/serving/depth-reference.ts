/**
 * Batching at loop boundaries as a plain program: a list of rows for each pass, first come first served, nothing kept
 * from one pass to the next but the sequences themselves. The specification that DepthReplica is compared with.
 */
import type { SkippedKv } from '../../src/serving/depth.js';
import type { ServerOptions } from '../../src/serving/scheduler/options.js';
import type { GivenRequest } from './harness.js';
import type { ReferenceEnd } from './reference.js';

/** Seconds of a pass over these cached lengths and prompt tokens, and what comes beside it. */
export const passSeconds = (lengths: readonly number[], promptTokens: number): number =>
  1e-3 * (1 + 0.03 * lengths.length + 0.01 * promptTokens) + 1e-7 * lengths.reduce((a, b) => a + b, 0);
export const outsideSeconds = (begun: number, promptTokens: number, ended: number): number =>
  1e-4 * (1 + 0.1 * begun + 0.05 * promptTokens + 0.2 * ended);

interface Text {
  readonly number: number;
  readonly request: GivenRequest;
  prompt: number;
  cached: number;
  /** Depth of every cached output token; prompts have all loops. */
  depths: number[];
  emitted: number;
  first: number;
  preemptions: number;
  /** The token or chunk that is in the loops: passes that it needs, those that it had. */
  work: { readonly tokens: number; readonly loops: number; passes: number } | null;
  /** Passes that tokens which left early still need. */
  fills: number[];
}

export function referenceLoops(
  requests: readonly GivenRequest[],
  o: ServerOptions,
  loops: number,
  policy: SkippedKv,
  depthOf: (request: number, token: number) => number,
  weightOf: (depth: number) => number,
): ReferenceEnd[] {
  const coming = requests.map((request, number) => ({ request, number }));
  const ends: ReferenceEnd[] = [];
  const waiting: Text[] = [];
  let running: Text[] = [];
  let now = 0;
  const blocksOf = (tokens: number): number =>
    tokens > 0 ? Math.ceil(tokens / o.blockTokens - 1e-9) + o.sequenceBlocks : 0;
  const heldBy = (t: Text): number =>
    t.cached - t.depths.length + t.depths.reduce((sum, d) => sum + (policy === 'share' ? weightOf(d) : 1), 0);
  const blocks = (t: Text): number => blocksOf(heldBy(t) + (t.work?.tokens ?? 0));
  const used = (): number => running.reduce((sum, t) => sum + blocks(t), 0);
  const decodes = (t: Text): boolean => t.cached >= t.prompt;
  const preempt = (t: Text): void => {
    running = running.filter((other) => other !== t);
    t.prompt = t.request.promptTokens + t.emitted;
    Object.assign(t, { cached: 0, depths: [], work: null, fills: [], preemptions: t.preemptions + 1 });
    waiting.unshift(t);
  };
  const comes = ({ request, number }: (typeof coming)[number]): void => {
    const t = { number, request, prompt: request.promptTokens, cached: 0, depths: [], emitted: 0 };
    waiting.push({ ...t, first: NaN, preemptions: 0, work: null, fills: [] });
  };
  while (coming.length + waiting.length + running.length > 0) {
    if (waiting.length + running.length === 0) {
      now = Math.max(now, coming[0]!.request.time);
      comes(coming.shift()!);
    }
    // Tokens begin.
    let preempted = false;
    const beginning = (): Text[] => running.filter((t) => decodes(t) && t.work === null);
    const more = (): number => beginning().reduce((sum, t) => sum + blocksOf(heldBy(t) + 1) - blocks(t), 0);
    while (used() + more() > o.blocks) {
      preempt(running.at(-1)!);
      preempted = true;
    }
    for (const t of beginning()) t.work = { tokens: 1, loops: depthOf(t.number, t.emitted), passes: 0 };
    // Prompts take the rest.
    const rows = (t: Text): number => (decodes(t) ? 1 : (t.work?.tokens ?? 0));
    let budget = o.maxNumBatchedTokens - running.reduce((sum, t) => sum + rows(t), 0);
    const partial = running.find((t) => t.work === null);
    if (partial && budget > 0) {
      const tokens = Math.min(partial.prompt - partial.cached, budget);
      if (used() - blocks(partial) + blocksOf(partial.cached + tokens) > o.blocks) {
        preempt(partial);
        preempted = true;
      } else {
        partial.work = { tokens, loops, passes: 0 };
        budget -= tokens;
      }
    }
    while (!preempted && waiting.length > 0 && running.length < o.maxNumSeqs && budget > 0) {
      const t = waiting[0]!;
      if (used() + blocksOf(t.prompt) > o.blocks) break;
      waiting.shift();
      t.work = { tokens: Math.min(t.prompt, budget), loops, passes: 0 };
      budget -= t.work.tokens;
      running.push(t);
    }
    // One pass.
    const lengths: number[] = [];
    let [promptTokens, begun, begunTokens, ended] = [0, 0, 0, 0];
    for (const t of running) {
      const work = t.work!;
      const last = work.passes + 1 === work.loops;
      if (decodes(t)) {
        for (let row = 0; row <= t.fills.length; row++) lengths.push(t.cached);
        if (work.passes === 0) begun++;
        if (last) ended++;
      } else {
        promptTokens += work.tokens;
        if (work.passes === 0) begunTokens += work.tokens;
        if (last && t.cached + work.tokens === t.prompt) ended++;
      }
    }
    const end = now + passSeconds(lengths, promptTokens) + outsideSeconds(begun, begunTokens, ended);
    while (coming[0] && coming[0].request.time <= end - 1e-15) comes(coming.shift()!);
    now = end;
    for (const t of [...running]) {
      const work = t.work!;
      const decoding = decodes(t);
      t.fills = t.fills.map((left) => left - 1).filter((left) => left > 0);
      if (++work.passes < work.loops) continue;
      t.work = null;
      t.cached += work.tokens;
      if (decoding) {
        t.depths.push(work.loops);
        if (policy === 'recompute' && work.loops < loops) t.fills.push(loops - work.loops);
      } else if (t.cached < t.prompt) continue;
      if (Number.isNaN(t.first)) t.first = now;
      if (++t.emitted < t.request.outputTokens) continue;
      running = running.filter((other) => other !== t);
      const { time } = t.request;
      ends.push({ number: t.number, ttftSeconds: t.first - time, e2elSeconds: now - time, preemptions: t.preemptions });
    }
  }
  return ends;
}
