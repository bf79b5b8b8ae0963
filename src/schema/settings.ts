/**
 * Every setting of a plan, declared once: the command line's options, the scenario file's fields and their JSON Schema
 * all come from this table. A flag is the setting's name in kebab case; a scenario file uses the name as it stands.
 */
import { CODEC_KINDS, PATH_CHOICES, SHARINGS } from '../codecs/codec.js';
import { POLICY_FORMS } from '../eviction/policy.js';
import { PRICED_EXECUTIONS, type Server, type Workload } from './serving.js';

type SettingKind =
  /** One word or path. */
  | 'text'
  /** A number, or text with a unit. */
  | 'amount'
  /** Text with a unit of time. */
  | 'time'
  /** A plain number. */
  | 'number'
  /** Several words; on the command line separated by commas, or the flag repeated. */
  | 'list'
  /** METRIC=VALUE pairs; in a file a map. */
  | 'bounds';

export interface Setting {
  readonly kind: SettingKind;
  readonly help: string;
  /** What a form calls it; unless given, its flag. */
  readonly title?: string;
  readonly group: 'Question' | 'Candidates' | 'Memory' | 'Targets' | 'Measurements';
  /** The only values that it takes. */
  readonly choices?: readonly string[];
  /** Flag where it is not the name in kebab case; the name then works too. */
  readonly flag?: string;
  /** `plan` takes several, separated by commas, and plans each. */
  readonly several?: boolean;
  /** Of a number: the word for no limit. */
  readonly unlimited?: string;
  /** Of bounds: a pair that a message shows. */
  readonly example?: string;
  /** It names a file: always, or where it is written as a path (`isPath`). */
  readonly file?: 'always' | 'path';
}

/** Whether a word that may name a file is one: it has a slash or ends as such files do. */
export const isPath = (word: string): boolean => /[/\\]|\.jsonl?$/i.test(word);

export const SETTINGS = {
  model: {
    kind: 'text',
    title: 'Model',
    group: 'Question',
    file: 'path',
    help: 'preset (see lla-sim models) or path of a Hugging Face config.json [ouro-1.4b]',
  },
  loops: {
    kind: 'number',
    title: 'Loops',
    group: 'Question',
    help: 'passes over the core, where whoever runs the model chooses them (Ouro, Huginn, Parcae, ...) [as trained]',
  },
  context: {
    kind: 'amount',
    title: 'Context',
    group: 'Question',
    flag: 'ctx',
    help: 'tokens of each sequence: 4096, 4k, 1M, or several: 4k,32k [4096]',
  },
  vram: {
    kind: 'amount',
    title: 'Memory of a GPU',
    group: 'Question',
    help: 'memory of one GPU, taken literally: 141GB, 80GiB',
  },
  device: {
    kind: 'text',
    title: 'GPU',
    group: 'Question',
    help: 'a device of the catalogue (lla-sim models --devices), or several: h100,h200',
  },
  users: {
    kind: 'number',
    title: 'Users',
    group: 'Question',
    help: 'users at once: the fewest GPUs over replicas and tensor parallelism',
  },
  gpus: {
    kind: 'number',
    title: 'GPUs together',
    group: 'Question',
    help: 'GPUs that share the model by tensor parallelism [1]',
  },
  batch: { kind: 'number', title: 'Batch', group: 'Question', help: 'sequences decoded together [as many as fit]' },
  usdPerHour: {
    kind: 'number',
    title: 'Price of a GPU-hour, $',
    group: 'Question',
    help: 'price of one GPU-hour, or of each: h100=2.5,h200=3.6; adds $ per million output tokens',
  },
  codec: {
    kind: 'list',
    title: 'Codec',
    group: 'Candidates',
    help: 'codecs to plan [all but mean-loop, lla-window, loop-window, melt]',
    choices: CODEC_KINDS,
  },
  ratio: {
    kind: 'list',
    title: 'Ratio',
    group: 'Candidates',
    help: 'compression ratios, such as 4,5.33,21.33 [all published]',
  },
  ranks: {
    kind: 'list',
    title: 'Ranks',
    group: 'Candidates',
    help: "K/V ranks instead of ratios, such as 96/160; K/V/first with hla's first loop",
  },
  window: {
    kind: 'amount',
    title: 'Window',
    group: 'Candidates',
    help: 'last tokens whose exact K and V lla-window, hla [128] or later loops of loop-window [64] keep',
  },
  shared: {
    kind: 'list',
    title: 'Shared rows',
    group: 'Candidates',
    help:
      'when final-loop, mean-loop read one set of rows: while decoding, in prompts too (all), or in the second of ' +
      'two passes [all of a codec that is named, else two-pass,decode]',
    choices: SHARINGS,
  },
  constants: {
    kind: 'bounds',
    title: 'Constants',
    group: 'Candidates',
    help:
      'numbers of flashloop in place of the published ones: ' +
      'group=64,tail=64,dense-loops=2,loop3=0.25,loop4=0.1,keys=0.1,anchor-bits=4',
    example: 'group=32',
  },
  path: {
    kind: 'list',
    title: 'Path',
    group: 'Candidates',
    help: 'decode paths [all]',
    choices: PATH_CHOICES,
  },
  eviction: { kind: 'list', title: 'Eviction', group: 'Candidates', help: `none, ${POLICY_FORMS.join(', ')} [none]` },
  budget: {
    kind: 'amount',
    title: 'Budget',
    group: 'Candidates',
    help: 'evict down to this many tokens, whichever policy does it',
  },
  cacheType: {
    kind: 'text',
    title: 'Type of the cache',
    group: 'Candidates',
    help: "element type of the cache; fp8 is a server's [f16]",
    choices: ['f16', 'bf16', 'f32', 'fp8', 'int8', 'int4'],
    several: true,
  },
  weightType: {
    kind: 'text',
    title: 'Type of the weights',
    group: 'Candidates',
    help: "fp8: the server quantises the layers' weights to 8-bit floats [as published]",
    choices: ['fp8'],
  },
  groupSize: { kind: 'number', group: 'Candidates', help: 'scalars that share an f16 scale in a quantised cache [64]' },
  ropeDim: { kind: 'number', group: 'Candidates', help: 'width of the rotary branch of the absorbed path [64]' },
  ropeBranch: {
    kind: 'text',
    group: 'Candidates',
    help: 'rotary branch shared by the heads or one per head [shared]',
    choices: ['shared', 'per-head'],
  },
  utilization: {
    kind: 'number',
    title: 'Utilization',
    group: 'Memory',
    help: "share of the memory that may be used, 0.1 to 1 [the server's; else 1]",
  },
  reserve: {
    kind: 'amount',
    title: 'Reserve',
    group: 'Memory',
    help: "memory kept for context, activations, allocator [the server's; else 512MiB]",
  },
  pageTokens: {
    kind: 'number',
    group: 'Memory',
    help: "tokens in a page of the cache, a multiple of 32 [the server's; else 32]",
  },
  prefill: {
    kind: 'text',
    title: 'Prefill',
    group: 'Memory',
    help: 'how prompts are encoded [accumulated]',
    choices: ['one-shot', 'by-layer', 'accumulated', 'chunked'],
  },
  min: {
    kind: 'bounds',
    title: 'Least quality',
    group: 'Targets',
    help: 'least published quality, such as gsm8k=0.75, or gsm8k@isocache=0.75 for one table',
  },
  retrieval: {
    kind: 'amount',
    title: 'Reliable retrieval',
    group: 'Targets',
    help: 'least published reliable-retrieval length, such as 32k',
  },
  tpot: {
    kind: 'time',
    title: 'Longest time a token',
    group: 'Targets',
    help: 'longest time per output token, such as 80ms',
  },
  ttft: {
    kind: 'time',
    title: 'Longest time to the first token',
    group: 'Targets',
    help: 'longest time to the first token of a prompt of --ctx tokens, such as 2s',
  },
  confidence: {
    kind: 'number',
    title: 'Confidence',
    group: 'Targets',
    help: 'probability with which --tpot and --ttft are met [0.9]',
  },
  percentile: {
    kind: 'number',
    title: 'Requests that must be in time',
    group: 'Targets',
    help: 'share of the simulated requests that must be in time, percent [99]',
  },
  keep: {
    kind: 'number',
    title: 'Scores to keep',
    group: 'Targets',
    help: "share of the uncompressed model's scores that a recommended plan keeps, each in its own table [0.9]",
  },
  maxKl: {
    kind: 'number',
    group: 'Targets',
    help: 'most KL that --fidelity measured, nats a token; the upper end of its interval counts',
  },
  minRecall: {
    kind: 'number',
    group: 'Targets',
    help: 'least recall that --fidelity measured, 0 to 1; the lower end of its interval counts',
  },
  fidelity: {
    kind: 'text',
    group: 'Measurements',
    file: 'always',
    help: 'quality from this file of lla-sim fidelity, of the very model in the folder --model [published tables]',
  },
  calibration: {
    kind: 'text',
    title: 'Calibration',
    group: 'Measurements',
    file: 'always',
    help: 'calibration file to price with [with --stack lla-sim the one that fits the device]',
  },
  stack: {
    kind: 'text',
    title: 'Kernels',
    group: 'Measurements',
    file: 'path',
    help:
      "a server: vllm, sglang, trtllm; with its host's time: vllm-rlt, transformers; or lla-sim, attainable, or a " +
      'FILE of lla-sim import [one that serves the model]',
  },
  execution: {
    kind: 'text',
    group: 'Measurements',
    help: 'with --stack vllm-rlt: kernels launched one by one, or a graph of one loop replayed [eager]',
    choices: PRICED_EXECUTIONS,
  },
  attention: {
    kind: 'text',
    group: 'Measurements',
    help:
      'with --stack vllm-rlt: its kernel of attention, triton, flash-attn-4, ' +
      'flash-attn-4-unsplit or flash-attn-4-rows [triton]',
  },
  measuredStep: {
    kind: 'text',
    group: 'Measurements',
    help:
      'with --stack vllm-rlt or transformers: what a token of one sequence took on your server, kernels launched one ' +
      "by one, and tokens cached then, such as 59ms@160: your host's time [that of other hosts]",
  },
} as const satisfies Record<string, Setting>;

export type SettingName = keyof typeof SETTINGS;

type Value<K extends SettingKind> = K extends 'text' | 'time'
  ? string
  : K extends 'amount' | 'number'
    ? string | number
    : K extends 'list'
      ? readonly (string | number)[]
      : Readonly<Record<string, number>>;

/** What a user asks, before it is read: from flags, a scenario file or a caller of the library. */
export type Scenario = { readonly [K in SettingName]?: Value<(typeof SETTINGS)[K]['kind']> } & {
  /** Shown in reports. */
  readonly name?: string;
  readonly description?: string;
  /** What comes to a server, and how it serves: read by `simulate`. */
  readonly workload?: Workload;
  readonly server?: Server;
};

/** Settings of a plan, which a run of requests has no use for, and what says it here. */
export const PLANNED_ONLY = {
  ctx: 'lengths are those of the requests: write --prompt-tokens and --output-tokens, or --max-model-len',
  batch: 'sequences begin as requests come: write --max-num-seqs for the most at once',
  confidence: 'targets are met by a share of the requests: write --percentile',
  'page-tokens': 'a server has blocks: write --block-tokens',
} satisfies Readonly<Record<string, string>>;

/** `pageTokens` -> `page-tokens`, `context` -> `ctx`. */
export function flagOf(name: SettingName): string {
  const setting: Setting = SETTINGS[name];
  return setting.flag ?? name.replace(/[A-Z]/g, (c) => `-${c.toLowerCase()}`);
}
