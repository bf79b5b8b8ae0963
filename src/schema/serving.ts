/**
 * Every setting of a simulation beside the plan's, declared once: flags of `simulate`, fields of a scenario's
 * `workload` and `server`, and their JSON Schema. The server's names are vLLM's.
 */
import { requireOneOf } from '../errors.js';
import type { Setting } from './settings.js';

/** Every kernel launched by itself; a graph of a whole step; a graph of one pass over the looped layers. */
export const EXECUTIONS = ['eager', 'graphs', 'loop-graphs'] as const;
export type Execution = (typeof EXECUTIONS)[number];
/** Of a server that is priced with its runtime: none captures a whole step of a looped model. */
export const PRICED_EXECUTIONS: readonly Execution[] = EXECUTIONS.filter((execution) => execution !== 'graphs');

/** What is priced with its runtime: a server made for looped models, and Transformers' own generation, eager. */
export const RUNTIMES = ['vllm-rlt', 'transformers'] as const;
export type RuntimeName = (typeof RUNTIMES)[number];

/** Stacks in the order in which a plan looks for tables. */
export const STACKS = ['vllm', 'sglang', 'trtllm'] as const;
export type Stack = (typeof STACKS)[number];

/** Servers with prices of their own, by the names that the ledger has for them. */
export const SERVERS = [...STACKS, ...RUNTIMES] as const;

type ServingSetting = Omit<Setting, 'group'>;

export const WORKLOAD_SETTINGS = {
  arrivals: {
    kind: 'text',
    title: 'Arrivals',
    help: 'how requests come: at random (poisson), burstier or calmer (gamma), evenly, or from users who wait (closed)',
    choices: ['poisson', 'gamma', 'constant', 'closed'],
  },
  rate: {
    kind: 'number',
    title: 'Requests a second',
    help: 'requests a second [1], to which arrival times of a trace are scaled; inf: all at once',
    unlimited: 'inf',
  },
  burstiness: { kind: 'number', help: 'gamma: shape of the gaps, 1 is poisson, less is burstier [0.5]' },
  users: { kind: 'number', help: 'closed: users, each with one request at a time [32]' },
  maxConcurrency: {
    kind: 'number',
    help:
      'requests that the client keeps open at most; others wait before they are sent, which no latency counts (as ' +
      'in vllm bench serve) [no limit]',
  },
  ramp: {
    kind: 'amount',
    help:
      'closed: users begin one after the other within this time; 0: all at once [--think, else the time of a ' +
      'request]',
  },
  think: {
    kind: 'amount',
    title: 'Time to think',
    help: 'mean time between an answer and the next request of its user, or turn of its conversation, such as 5s [0]',
  },
  promptTokens: {
    kind: 'amount',
    title: 'Prompt tokens',
    help: 'lengths of prompts: 512, uniform:100-900, lognormal:MEAN:DEVIATION [lognormal:1024:1024]',
  },
  outputTokens: {
    kind: 'amount',
    title: 'Output tokens',
    help: 'lengths of outputs, in the same words [lognormal:256:256]',
  },
  lengthsOf: {
    kind: 'text',
    file: 'always',
    help:
      'draw lengths of prompts and outputs from those of this trace; with numbers as --prompt-tokens or ' +
      '--output-tokens scaled to these means',
  },
  turns: {
    kind: 'number',
    title: 'Turns',
    help: 'turns of a conversation; each prompt holds what was said before [1]',
  },
  sharedPrefix: { kind: 'amount', help: 'tokens that every conversation begins with, before its prompts' },
  depth: {
    kind: 'text',
    title: 'Exit depth',
    file: 'path',
    help:
      'shares of output tokens that leave after loop 1, 2, …, such as 0.1,0.2,0.3,0.4; published ones: ' +
      'ouro-1.4b@0.5; or recorded ones: a .jsonl file, an answer a line [all loops]',
  },
  draftAcceptance: {
    kind: 'number',
    help:
      'with --draft-tokens: probability that a proposal is accepted after accepted ones [as published for the ' +
      'model]',
  },
  requests: { kind: 'number', title: 'Requests', help: 'requests to simulate [1000]' },
  seed: { kind: 'number', title: 'Seed', help: 'of all random draws [1]' },
  trace: {
    kind: 'text',
    file: 'always',
    help: 'CSV or JSONL of real requests: Azure, Vidur, Mooncake, BurstGPT, vLLM',
  },
  speedUp: { kind: 'number', help: "divide a trace's arrival times by this [1]" },
  limit: { kind: 'number', help: 'only the first requests of a trace' },
} as const satisfies Record<string, ServingSetting>;

export const SERVER_SETTINGS = {
  serverVersion: {
    kind: 'text',
    help: "version of the server, such as 0.19.0: its defaults and its own memory [the kernel tables']",
  },
  maxNumSeqs: {
    kind: 'number',
    help:
      'sequences that run at once [1024 on GPUs of 70 GiB and more, 256 on A100 and smaller ones; SGLang and TRT-LLM ' +
      '2048]',
  },
  maxNumBatchedTokens: {
    kind: 'number',
    help:
      'tokens of an iteration [8192, on A100 and smaller GPUs 2048, from vLLM 0.28 on 16384 on GPUs of 160 GiB and ' +
      'more; SGLang 2048 to 16384 by memory; TRT-LLM 8192]',
  },
  maxModelLen: {
    kind: 'amount',
    help:
      'longest prompt with its answer; longer requests are refused [32768, or what the requests need, up to the ' +
      "model's limit]",
  },
  blockTokens: { kind: 'number', help: 'tokens of a block of the cache [16; TRT-LLM and lla-sim 32]' },
  kvBlocks: { kind: 'number', help: 'blocks of the cache of a replica [as many as fit]' },
  chunkedPrefill: {
    kind: 'text',
    help: 'divide prompts over iterations [on; vLLM before 0.8 up to 32768 tokens off]',
    choices: ['on', 'off'],
  },
  promptsFirst: {
    kind: 'text',
    help: 'prompts take iterations of their own, and sequences wait [on for SGLang, else off]',
    choices: ['on', 'off'],
  },
  watermark: {
    kind: 'number',
    help: 'share of the cache that stays free when a request begins beside others [0; vLLM before 0.8 0.01]',
  },
  batchWaitTimeoutIters: {
    kind: 'number',
    help: 'iterations that prompts wait for others while sequences decode (TRT-LLM batch_wait_timeout_iters) [0]',
  },
  batchWaitMaxTokensRatio: {
    kind: 'number',
    help: 'they wait no longer once an iteration has this share of --max-num-batched-tokens [0]',
  },
  prefixCaching: {
    kind: 'text',
    help: 'keep blocks that later prompts may begin with [on; vLLM before 0.8 off]',
    choices: ['on', 'off'],
  },
  asyncScheduling: {
    kind: 'text',
    help:
      'schedule the next iteration while the GPU works [on for vLLM from 0.14.0, SGLang from 0.4.0, TRT-LLM from ' +
      '1.0.0, else off]',
    choices: ['on', 'off'],
  },
  policy: {
    kind: 'text',
    help: 'who is served first [fcfs]',
    choices: ['fcfs', 'shortest-prompt'],
  },
  depthBatching: {
    kind: 'text',
    help:
      'with --depth: whether a token that leaves waits for the step to end, or makes room in the next loop [steps; ' +
      'vllm-rlt loops]',
    choices: ['steps', 'loops'],
  },
  skippedKv: {
    kind: 'text',
    help:
      "with --depth: keys and values of loops left out are recomputed, copies of the last loop's, or shared " +
      '[recompute; vllm-rlt copy]',
    choices: ['recompute', 'copy', 'share'],
  },
  draftTokens: {
    kind: 'number',
    help: 'speculate: the first loops propose so many tokens, and the others accept or reject them together [none]',
  },
  draftLoops: { kind: 'number', help: 'with --draft-tokens: loops that propose a token [2]' },
  replicas: { kind: 'number', help: 'copies of the model, each on --gpus GPUs [1]' },
  router: {
    kind: 'text',
    help: 'which replica takes a request [round-robin]',
    choices: ['round-robin', 'least-loaded', 'shared-queue'],
  },
  prefillReplicas: {
    kind: 'number',
    help: 'further replicas that prefill alone; the cache then goes to those that decode [0]',
  },
  transferRate: {
    kind: 'text',
    help:
      'with --prefill-replicas: how fast each GPU sends the cache, such as 20GB/s [as published transfers, 0.4 to ' +
      '49GB/s]',
  },
} as const satisfies Record<string, ServingSetting>;

export type WorkloadName = keyof typeof WORKLOAD_SETTINGS;
export type ServerName = keyof typeof SERVER_SETTINGS;

/** Requests as written: text or numbers, not yet checked. */
export type Workload = { readonly [K in WorkloadName]?: string | number };
/** A server's settings as written: text or numbers, not yet checked. */
export type Server = { readonly [K in ServerName]?: string | number };

/** `maxNumSeqs` -> `max-num-seqs`. */
export const servingFlag = (name: WorkloadName | ServerName): string =>
  name.replace(/[A-Z]/g, (c) => `-${c.toLowerCase()}`);

/** Whether a setting was written. */
export const asked = (value: string | number | undefined): value is string | number => value !== undefined;

/** @throws UserError naming the flag, its choices and the value */
export function choice<T extends string>(flag: string, value: string | number | undefined, known: readonly T[]): T {
  if (!asked(value)) return known[0] as T;
  requireOneOf(`--${flag}`, value, known);
  return value as T;
}
