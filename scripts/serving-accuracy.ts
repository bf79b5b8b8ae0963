/**
 * How well the simulation tells what a real server did: 300 ShareGPT requests that vLLM 0.19 served on an RTX 4090
 * (casys-kaist/LLMServingSim, MIT), replayed with the kernel times that the same project profiled. No constant is
 * fitted to these requests.
 *
 *   git clone https://github.com/casys-kaist/LLMServingSim
 *   npx esbuild scripts/serving-accuracy.ts --bundle --platform=node --format=esm --packages=external \
 *     --outfile=dist/scripts/serving-accuracy.mjs && node dist/scripts/serving-accuracy.mjs ./LLMServingSim
 *
 * The prompts' tokens are in the checkout, so blocks that prompts share are known.
 */
import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { prepare } from '../src/plan/ask/prepare.js';
import { readSources } from '../src/plan/ask/on-disk.js';
import { configurationOf } from '../src/plan/evaluate/evaluate.js';
import { run, type Source } from '../src/serving/engine.js';
import type { Ended } from '../src/serving/metrics.js';
import { CostModelPricer, PriceTables } from '../src/serving/price/price.js';
import { quantile } from '../src/numbers/statistics.js';

/** What vLLM ran with (vllm/meta.json). */
const SERVED = { maxNumSeqs: 256, maxNumBatchedTokens: 2048, blocks: 2588, blockTokens: 16, longest: 8192 };
const FOLDER = 'bench/examples/RTX4090/Llama-3.1-8B/vllm';

interface Served {
  readonly input_toks: number;
  readonly output_toks: number;
  readonly queued_ts: number;
  readonly first_token_ts: number;
  readonly last_token_ts: number;
}
interface Prompt {
  readonly input_tok_ids: readonly number[];
  readonly output_tok_ids: readonly number[];
}

const lines = <T>(path: string): T[] =>
  readFileSync(path, 'utf8')
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => JSON.parse(line) as T);

/** Identities of a text's whole blocks: each stands for the text up to its end. */
function hashesOf({ input_tok_ids, output_tok_ids }: Prompt): number[] {
  const ids = [...input_tok_ids, ...output_tok_ids];
  const hash = createHash('sha256');
  return Array.from({ length: Math.floor(ids.length / SERVED.blockTokens) }, (_, i) => {
    hash.update(ids.slice(i * SERVED.blockTokens, (i + 1) * SERVED.blockTokens).join(' ') + ';');
    return hash.copy().digest().readUIntBE(0, 6);
  });
}

const checkout = process.argv[2];
if (checkout === undefined) throw new Error('name the folder of a checkout of casys-kaist/LLMServingSim');
const served = lines<Served>(join(checkout, FOLDER, 'requests.jsonl'));
const prompts = lines<Prompt>(join(checkout, 'workloads/sharegpt-llama-3.1-8b-300-sps10.jsonl'));
const begin = served[0]!.queued_ts;

const scenario = {
  model: join(checkout, 'configs/model/meta-llama/Llama-3.1-8B.json'),
  device: 'rtx-4090',
  stack: process.argv[3] ?? 'vllm',
  codec: ['full'],
};
const sources = await readSources(scenario);
/** This vLLM schedules while the GPU works (stacks/serving.ts); with `overhead` as one that does not. */
const tablesOf = (overhead: boolean): PriceTables => {
  const { request } = prepare({ ...scenario, server: { asyncScheduling: overhead ? 'off' : 'on' } }, sources);
  return new PriceTables(configurationOf(request, request.candidates[0]!), request.pricer!, {
    method: 'chunked',
    longest: SERVED.longest,
    mostSequences: SERVED.maxNumSeqs,
  });
};

/** The same requests, with identities of their blocks or without. */
function source(identities: boolean): Source {
  let i = 0;
  return {
    next: (draft) => {
      const r = served[i];
      if (!r) return false;
      draft.time = r.queued_ts - begin;
      draft.promptTokens = r.input_toks;
      draft.outputTokens = r.output_toks;
      draft.session = -1;
      draft.hashes = identities ? hashesOf(prompts[i]!) : null;
      i++;
      return true;
    },
    after: () => false,
  };
}

interface Times {
  readonly ttft: number[];
  readonly tpot: number[];
  readonly e2el: number[];
}
const real: Times = {
  ttft: served.map((r) => r.first_token_ts - r.queued_ts),
  tpot: served.map((r) => (r.last_token_ts - r.first_token_ts) / (r.output_toks - 1)),
  e2el: served.map((r) => r.last_token_ts - r.queued_ts),
};

function simulated(
  identities: boolean,
  overhead: boolean,
): Times & { preemptions: number; hitShare: number; iterations: number } {
  const ended: Ended[] = [];
  const { metrics } = run({
    server: {
      ...SERVED,
      maxModelLen: SERVED.longest,
      chunkedPrefill: true,
      promptsFirst: false,
      capTokens: Infinity,
      sequenceBlocks: 0,
      prefixCaching: true,
      unitTokens: SERVED.blockTokens,
      sharedPrefixTokens: 0,
      policy: 'fcfs',
      reserveFullPrompt: true,
      replicas: 1,
      router: 'round-robin',
      disaggregation: null,
      targets: { ttftSeconds: 2, tpotSeconds: 0.08, share: 0.99 },
    },
    source: source(identities),
    pricer: new CostModelPricer(tablesOf(overhead)),
    onEnd: (e) => ended.push(e),
  });
  return {
    ttft: ended.map((e) => e.ttftSeconds),
    tpot: ended.map((e) => e.tpotSeconds!),
    e2el: ended.map((e) => e.e2elSeconds),
    preemptions: metrics.preemptions,
    hitShare: metrics.hitTokens / Math.max(1, metrics.lookedUpTokens),
    iterations: metrics.iterations,
  };
}

const mean = (values: readonly number[]): number => values.reduce((a, b) => a + b, 0) / values.length;

for (const [identities, overhead] of [
  [true, false],
  [false, false],
  [true, true],
] as const) {
  const got = simulated(identities, overhead);
  console.log(
    `\nblocks of prompts ${identities ? 'known' : 'unknown'}${overhead ? ', scheduled between steps' : ''}: ` +
      `${got.preemptions} preemptions, ${(100 * got.hitShare).toFixed(1)} % prefix hits, ${got.iterations} ` +
      'iterations',
  );
  for (const metric of ['ttft', 'tpot', 'e2el'] as const)
    for (const [name, of] of [
      ['mean', mean],
      ['median', (v: readonly number[]): number => quantile(v, 0.5)],
      ['p99', (v: readonly number[]): number => quantile(v, 0.99)],
    ] as const) {
      const [a, b] = [of(real[metric]), of(got[metric])];
      console.log(
        `${metric} ${name}: vLLM ${(1e3 * a).toFixed(1)} ms, simulated ${(1e3 * b).toFixed(1)} ms, ` +
          `${(100 * (b / a - 1)).toFixed(1)} %`,
      );
    }
}
