/**
 * Serving stacks as facts: which of them serves which model, where that is written, and how the tables of one are
 * named.
 */
import type { Interval, ServerSpread } from '../cost/evidence.js';
import { requireOneOf } from '../errors.js';
import type { Geometry } from '../geometry/geometry.js';
import { present } from '../present.js';
import { RUNTIMES, SERVERS, STACKS, type RuntimeName, type Stack } from '../schema/serving.js';
import type { DeviceSpec } from '../devices/device.js';
import type { Float8 } from './fewer-bits.js';
import type { StackFile } from './stack-schema.js';

export { RUNTIMES, STACKS, type RuntimeName, type Stack };

export const isStack = (stack: string | undefined): stack is Stack =>
  (STACKS as readonly string[]).includes(stack ?? '');

export const isRuntime = (stack: string | undefined): stack is RuntimeName =>
  (RUNTIMES as readonly string[]).includes(stack ?? '');

/**
 * What `--stack` takes: a stack, a server that is priced with its runtime, our own kernels by the calibration of the
 * device, or what tuned kernels reach.
 */
export const STACK_CHOICES = [...SERVERS, 'lla-sim', 'attainable'] as const;

export const STACK_LABELS: Readonly<Record<string, string>> = {
  vllm: 'vLLM',
  sglang: 'SGLang',
  trtllm: 'TRT-LLM',
  'vllm-rlt': 'vllm-rlt',
  transformers: 'Transformers',
};

/** A stack as shown to people. */
export const stackLabel = (stack: string): string => STACK_LABELS[stack] ?? stack;

/** A stack file and where it lies. */
export interface StackTables {
  /** As shown to people. */
  readonly path: string;
  readonly file: StackFile;
}

/** `vLLM 0.24.0`. */
export const stackName = ({ stack, version }: Pick<StackFile, 'stack' | 'version'>): string =>
  `${stackLabel(stack)} ${version}`;

/** What a server adds to a decode step: scheduling, gaps between kernels; and for each sequence its bookkeeping. */
export interface ServerTime {
  readonly secondsPerStep: Interval;
  readonly secondsPerSequence: Interval;
  /** Between a user and the scheduler: HTTP, text to tokens and back. */
  readonly secondsPerRequest: Interval;
}

/**
 * calibrations/servers.json: what servers add to their kernels, fitted to rows of the ledger (scripts/server-times.ts).
 */
export interface ServerFile {
  readonly schema: 'lla-sim/servers';
  readonly schemaVersion: 3;
  readonly source: string;
  /** By stack, and `all` together. */
  readonly servers: Readonly<
    Record<
      string,
      ServerTime & {
        readonly rows: number;
        /** 90 % of a GPU's own figures lie within this; of a GPU that was left out, all groups' 90 % did. */
        readonly spread: { readonly here: Readonly<Record<string, ServerSpread>>; readonly elsewhere: ServerSpread };
      }
    >
  >;
}

/**
 * Servers that schedule the next step while the GPU works on this one. `fitted`: whether the rows did so that
 * `servers.json` was fitted to; those of an older version, and of others, scheduled between steps.
 */
const OVERLAPPED: Readonly<
  Record<string, { readonly since: string; readonly fitted: boolean; readonly source: string; readonly date: string }>
> = {
  vllm: {
    since: '0.14.0',
    fitted: false,
    source: 'release notes of vLLM 0.14.0: asynchronous scheduling is on by default (pull request 27614)',
    date: '2026-11-22',
  },
  sglang: {
    since: '0.4.0',
    fitted: false,
    source:
      'SGLang 0.4, zero-overhead batch scheduler (lmsys.org/blog/2024-12-04-sglang-v0-4); --disable-overlap-schedule',
    date: '2026-11-24',
  },
  trtllm: {
    since: '1.0.0',
    fitted: true,
    source: 'TensorRT-LLM, llmapi/llm_args.py: disable_overlap_scheduler is off by default',
    date: '2026-11-27',
  },
};

/** A server; its version is null for today's. */
export interface Host {
  readonly stack: string;
  readonly version: string | null;
}

/** Servers that give prompts an iteration of their own and let sequences wait, unless told otherwise. */
const PROMPTS_FIRST: Readonly<Record<string, Served>> = {
  sglang: {
    source: 'SGLang, srt/managers/scheduler.py get_next_batch_to_run; --enable-mixed-chunk is off by default',
    date: '2026-11-24',
  },
};

/** Servers that begin a request only where it has room to its end beside all that run, by default. */
const RESERVES_ANSWER: Readonly<Record<string, Served>> = {
  trtllm: { source: 'TensorRT-LLM, llmapi/llm_args.py: GUARANTEED_NO_EVICT', date: '2026-11-27' },
  'vllm-rlt': { source: 'ThinkFlowLab/vllm-rlt d40afb7, docs/design.md', date: '2026-11-24' },
};

/** Whether a request begins only where it has room to its end. */
export const reservesAnswer = (stack: string | null): boolean =>
  stack !== null && Object.hasOwn(RESERVES_ANSWER, stack);

/** Longest --max-model-len at which vLLM's first engine took whole prompts (engine/arg_utils.py, 0.7.3). */
const WHOLE_PROMPTS = 32_768;

/** Whether a server divides prompts by default. @param maxModelLen null where it follows from the requests */
export const dividesPrompts = (host: Host | null, maxModelLen: number | null): boolean =>
  host === null || !isEarlierEngine(host) || (maxModelLen ?? 0) > WHOLE_PROMPTS;

/** Whether a server keeps blocks that later prompts may begin with by default: vLLM's first engine did not. */
export const cachesPrefixes = (host: Host | null): boolean => host === null || !isEarlierEngine(host);

/**
 * True where a server runs prompts that have room before the next decode step: vLLM's first engine did with whole
 * prompts (vllm/core/scheduler.py, _schedule_default; read 2026-11-28).
 */
export const takesPromptsFirst = (host: Host | null, chunkedPrefill: boolean): boolean =>
  host !== null && (Object.hasOwn(PROMPTS_FIRST, host.stack) || (isEarlierEngine(host) && !chunkedPrefill));

/** Share of the cache's blocks that a server keeps free by default where a request begins beside others. */
export const watermarkOf = (host: Host | null): number => (host !== null && isEarlierEngine(host) ? 0.01 : 0);

/**
 * Whether the server schedules the next step while the GPU works on this one.
 * @param asked `--async-scheduling`; undefined: as the version of the stack does by default
 * @param server that is simulated or planned, its version null for today's; null without one
 * @throws UserError for another word than on and off
 */
export function isAsynchronous(asked: string | number | undefined, server: Host | null): boolean {
  if (asked === undefined) return server !== null && schedulesMeanwhile(server.stack, server.version);
  requireOneOf('--async-scheduling', asked, ['on', 'off']);
  return asked === 'on';
}

/** True where the times of a stack's steps are already those of a server that schedules while the GPU works. */
export const isFittedOverlapped = (stack: string | null): boolean =>
  stack !== null && OVERLAPPED[stack]?.fitted === true;

/** True where a stack schedules while the GPU works, unless told otherwise. @param version null for today's */
export function schedulesMeanwhile(stack: string, version: string | null): boolean {
  const since = OVERLAPPED[stack]?.since;
  return since !== undefined && isSince(version, since);
}

/**
 * True where a request begins when its whole prompt has room. vLLM asked for room of the first chunk from its second
 * engine on until 0.19 (its release notes, pull request 37307; read 2026-11-28).
 */
export const reservesPrompt = (stack: string | null, version: string | null): boolean =>
  stack !== 'vllm' || isSince(version, '0.19.0') || isEarlierEngine({ stack, version });

/** Versions of a server that have a model, in pip's words, such as `vllm>0.11.0,<=0.26.0`; null where nobody said. */
export function versionsWords(stack: string, { after, until }: Served): string | null {
  const bounds = present([after !== undefined && `>${after}`, until !== undefined && `<=${until}`]);
  return bounds.length === 0 ? null : `${stack}${bounds.join(',')}`;
}

/** True where a server of this version has the model. @param version null for the newest that has it */
export const hasModel = ({ after, until }: Served, version: string | null): boolean =>
  version === null ||
  ((after === undefined || !isSince(after, version)) && (until === undefined || isSince(until, version)));

/** True where a version is `since` or later. @param version null for today's, as is one without a number */
export function isSince(version: string | null, since: string): boolean {
  if (version === null || !/^\d/.test(version)) return true;
  const [own, first] = [version, since].map((text) => text.split('.').map((part) => Number.parseInt(part, 10) || 0));
  const differs = first!.findIndex((part, i) => part !== (own![i] ?? 0));
  return differs < 0 || (own![differs] ?? 0) > first![differs]!;
}

/**
 * vLLM's second engine. The first had calls of their own for prompts (vllm/attention/backends/flash_attn.py), and what
 * its host took is of no row that fits.
 */
const SECOND_ENGINE = { stack: 'vllm', since: '0.8' };

/** True where a version is of an engine that is not today's. @param version null for today's */
export const isEarlierEngine = ({ stack, version }: Host): boolean =>
  stack === SECOND_ENGINE.stack && !isSince(version, SECOND_ENGINE.since);

/** True where one call attends for prompts and for sequences that decode. */
export const attendsInOneCall = (server: Host): boolean =>
  server.stack === SECOND_ENGINE.stack && !isEarlierEngine(server);

export interface Served {
  /** The stack's own list of models, or its code. */
  readonly source: string;
  /** When it was looked up, ISO 8601. */
  readonly date: string;
  /** The last version of the stack that has the model, where later ones dropped it. */
  readonly until?: string;
  /** The last version before the one that brought the model. */
  readonly after?: string;
  /** Field of the model's config.json from which the server reads the number of loops. */
  readonly loopsField?: string;
}

/**
 * Stacks that serve a preset with a full cache, or a class of models by the model_type of its config.json. Huginn is in
 * none of the lists but vllm-rlt's, and what a fork or an open pull request alone serves (LoopCoder-V2, Lumma) in none.
 * SGLang serves IQuest-Coder-Loop (pull request 16348), but keeps all rows of both loops: other bytes than planned.
 */
const VLLM_OURO: Served = {
  source: 'vLLM, model_executor/models/ouro.py: OuroForCausalLM; pull request 27794 (2025-10-30), removed by 49786',
  date: '2026-11-29',
  after: '0.11.0',
  until: '0.26.0',
  loopsField: 'total_ut_steps',
};
const HRM_TEXT: Partial<Record<Stack, Served>> = {
  vllm: { source: 'vLLM pull request 43098 (merged): HrmTextForCausalLM', date: '2026-11-25' },
  sglang: { source: 'SGLang pull request 27887 (merged): HrmTextForCausalLM', date: '2026-11-25' },
};
const VLLM_RLT: Served = { source: 'vllm-rlt d40afb7, vllm_rlt/models', date: '2026-11-24' };
/** Classes whose launches were counted in their own files of code (calibrations/runtimes.json). */
const EAGER: Served = { source: 'transformers, models/llama/modeling_llama.py and alike', date: '2026-11-25' };
const EAGER_OURO: Served = {
  source: 'ByteDance/Ouro-1.4B, modeling_ouro.py',
  date: '2026-11-25',
  loopsField: 'total_ut_steps',
};
const NANBEIGE: Partial<Record<Stack, Served>> = {
  vllm: { source: 'Nanbeige4.2-3B model card: vLLM through its Transformers backend', date: '2026-11-22' },
  sglang: { source: 'Nanbeige4.2-3B model card: SGLang', date: '2026-11-22' },
};
const VLLM_IQUEST: Served = {
  source: 'vLLM pull request 31575 (merged): IQuestLoopCoderForCausalLM',
  date: '2026-11-24',
};
/** Models without loops, as AIConfigurator measured them in all three stacks. */
const MEASURED: Served = { source: 'ai-dynamo/aiconfigurator 095f58a, systems/silicon_sample.csv', date: '2026-11-24' };
const DENSE = { vllm: MEASURED, sglang: MEASURED, trtllm: MEASURED };
const VLLM_LISTED: Served = { source: 'docs.vllm.ai, models/supported_models', date: '2026-11-25' };
const SERVED: Readonly<Record<string, Partial<Record<Stack | RuntimeName, Served>>>> = {
  'ouro-1.4b': { vllm: VLLM_OURO, 'vllm-rlt': VLLM_RLT, transformers: EAGER_OURO },
  'ouro-1.4b-thinking': { vllm: VLLM_OURO, 'vllm-rlt': VLLM_RLT, transformers: EAGER_OURO },
  'huginn-3.5b': { 'vllm-rlt': VLLM_RLT },
  'ouro-2.6b': { vllm: VLLM_OURO, transformers: EAGER_OURO },
  'ouro-2.6b-thinking': { vllm: VLLM_OURO, transformers: EAGER_OURO },
  'nanbeige4.2-3b': { 'vllm-rlt': VLLM_RLT, ...NANBEIGE },
  'iquest-coder-v1-40b-loop': { vllm: VLLM_IQUEST },
  'hrm-text-1b': HRM_TEXT,
  'kohrm-1.4b': HRM_TEXT,
  'mimir-1b': HRM_TEXT,
  hrm_text: HRM_TEXT,
  ouro: { vllm: VLLM_OURO, transformers: EAGER_OURO },
  nanbeige: NANBEIGE,
  iquestloopcoder: { vllm: VLLM_IQUEST },
  llama: { ...DENSE, transformers: EAGER },
  qwen3: DENSE,
  qwen2: { vllm: VLLM_LISTED, transformers: EAGER },
  mistral: { vllm: VLLM_LISTED, transformers: EAGER },
};

/** Behind the name of a model that runs other loops than it was trained with. */
const OTHER_LOOPS = /-r\d+$/;

/**
 * What stacks list a model as: a preset by its name, a file by its class, with the number of loops where it is another
 * than the model was trained with; null where it is neither.
 */
export const listedAs = ({
  publishedAs,
  geometry: { modelType, trained, loops },
}: {
  readonly publishedAs: string | null;
  readonly geometry: Geometry;
}): string | null => publishedAs ?? modelType ?? (trained ? `${trained.model}-r${loops}` : null);

/** A listed name without its number of loops. */
export const withoutLoops = (listed: string): string => listed.replace(OTHER_LOOPS, '');

/** Where a stack serves a listed model; null where it does not. Other loops need a server that is told their number. */
export function servedBy(listed: string | null, stack: string): Served | null {
  if (listed === null) return null;
  const served = SERVED[withoutLoops(listed)]?.[stack as keyof (typeof SERVED)[string]];
  return served && (served.loopsField !== undefined || !OTHER_LOOPS.test(listed)) ? served : null;
}

/** The stack that serves a model on a GPU that no table is of: the first that lists it, else the first of all. */
export const usualStack = (model: string | null): Stack => STACKS.find((stack) => servedBy(model, stack)) ?? STACKS[0];

/**
 * GPUs on which vLLM attends with FlashAttention 2 (compute capability 8 and 12). It divides the tokens of a sequence
 * only where query heads share a KV head: vllm-project/flash-attention 04325b6, csrc/flash_attn/flash_api.cpp,
 * mha_varlen_fwd calls set_params_splitkv only under seqlenq_ngroups_swapped, which num_heads > num_heads_k asks for.
 */
const FLASH_ATTENTION_2: readonly string[] = [
  'a10',
  'a10g',
  'a40',
  'a100-40',
  'a100-80',
  'a100-80-pcie',
  'a800',
  'a800-pcie',
  'l4',
  'l40s',
  'rtx-3090',
  'rtx-4090',
  'rtx-5080',
  'rtx-5090',
  'rtx-6000-ada',
  'rtx-a6000',
  'rtx-pro-6000',
];

/**
 * Whether a stack's attention rotates queries and keys on the way, in its tables too: TRT-LLM's gets the angles
 * (ai-dynamo/aiconfigurator 095f58a, collector/trtllm/collect_attn.py: pos_embd_params).
 */
export const rotatesInAttention = (stack: string): boolean => stack === 'trtllm';

/** What a stack's kernels do on the way for the model that they serve. */
export interface Fused {
  /**
   * Columns of the products whose rows attention and activation hand over in 8 bits: those of the model's width. Their
   * tables have the quantisation before the product.
   */
  readonly handedColumns: number;
  /** All-reduces do the norm that follows, and quantise its result. */
  readonly inReduces: boolean;
}

/** Llama's norms are in the all-reduces from this width on: below it TRT-LLM leaves them out, for accuracy. */
const REDUCES_ABOVE = 4096;

/**
 * What a stack fuses for a model; null where it fuses nothing beyond its tables. TRT-LLM's attention and activation
 * write 8 bits where the product behind them reads 8 (modules/attention.py, gated_mlp.py; AIConfigurator takes the
 * quantisation off as well, sdk/models/llama.py: low_precision_input). Its all-reduces of Llama's layers do the norm
 * (models/modeling_llama.py: RESIDUAL_RMS_NORM, with QUANT_FP8 where weights are so; read 2026-11-28).
 */
export const fusedBy = (stack: string | null, { hidden, modelType }: Geometry, gpus: number): Fused | null =>
  stack === 'trtllm'
    ? { handedColumns: hidden, inReduces: gpus > 1 && modelType === 'llama' && hidden > REDUCES_ABOVE }
    : null;

/** Whether attention of a stack walks a sequence's head on one unit alone where each head has a KV head of its own. */
export const walksAlone = (stack: string, device: string): boolean =>
  stack === 'vllm' && FLASH_ATTENTION_2.includes(device);

/**
 * What products in 8-bit floats a server has on a GPU. DeepGEMM, whose products have a scale a block, is for compute
 * capability 9 and 10 (deepseek-ai/DeepGEMM 54e2261, README.md). SGLang takes it there unless told otherwise
 * (SGL_ENABLE_JIT_DEEPGEMM), and vLLM since autumn 2025 (pull request 29346 leaves it on for dense products).
 */
export const float8On = ({ id, vendor, multipliesFp8 }: DeviceSpec): Float8 =>
  !multipliesFp8 ? 'none' : vendor === 'nvidia' && !FLASH_ATTENTION_2.includes(id) ? 'blocks' : 'rows';
