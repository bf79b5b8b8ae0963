/**
 * What a server keeps for itself before its cache gets the rest: rules of vLLM, SGLang and TRT-LLM, with their sources.
 * Bytes of one GPU. Looked up on 2026-11-22.
 */
import { weightBytes } from '../cost/memory.js';
import { UserError } from '../errors.js';
import type { Geometry } from '../geometry/geometry.js';
import { isRuntime, isSince, isStack, type Host, type RuntimeName, type Stack } from './serving.js';

const MIB = 2 ** 20;
const GIB = 2 ** 30;
/** Activations of a server are in 16 bits. */
const BF16 = 2;

/** A part of the memory that a server takes beside weights and cache. */
interface MemoryPart {
  readonly what: string;
  readonly bytes: number;
}

export interface ServerMemory {
  /** As shown to people, such as `vLLM 0.24.0`. */
  readonly server: string;
  /** Share of the GPU's memory that weights, cache and `parts` may take. */
  readonly utilization: number;
  readonly parts: readonly MemoryPart[];
  /** Where the user sets no limit of sequences: what each one beyond so many takes beside `parts`. */
  readonly more?: { readonly beyond: number; readonly bytesEach: number } | null;
  /** Tokens of a block of its cache. */
  readonly pageTokens: number;
  /** A size of memory, in GiB, at which the rule takes more, where the GPU's lies next to it. */
  readonly stepGib?: number;
  /** Where the rules come from, and when they were read. */
  readonly source: string;
  readonly date: string;
}

/** The question that a server is configured for. */
export interface Hosted {
  readonly geometry: Geometry;
  readonly gpus: number;
  /** Memory of one GPU. */
  readonly vramBytes: number;
  /** The device's id in the catalogue. */
  readonly device: string;
  /** Most sequences and tokens of a step, where the user sets them; else the server's defaults. */
  readonly sequences?: number | undefined;
  readonly batchedTokens?: number | undefined;
}

/** A server's defaults for most sequences, and tokens of an iteration. */
interface Defaults {
  readonly sequences: number;
  readonly batchedTokens: number;
}

/** GPUs with more memory get vLLM's larger defaults, but for A100; and the largest since 0.28 (pull request 51726). */
const [LARGE_BYTES, LARGEST_BYTES, LARGEST_SINCE] = [70 * GIB, 160 * GIB, '0.28'] as const;
/** vLLM's defaults for its server (vllm/engine/arg_utils.py, get_batch_defaults). */
const vllmDefaults = (vramBytes: number, device: string, version: string | null): Defaults =>
  vramBytes < LARGE_BYTES || device.startsWith('a100')
    ? { sequences: 256, batchedTokens: 2048 }
    : { sequences: 1024, batchedTokens: vramBytes >= LARGEST_BYTES && isSince(version, LARGEST_SINCE) ? 16_384 : 8192 };

/** SGLang's least limit of sequences; it grows to twice that with the cache (srt/mem_cache, max_running_requests). */
const SGLANG_SEQUENCES = 2048;
/**
 * SGLang's chunk of prompts, and the most sequences that decode in CUDA graphs on fewer than four GPUs and on more, by
 * memory in GiB (srt/server_args.py 0.5, chunked_prefill_size, cuda_graph_max_bs).
 */
const SGLANG_TIERS = [
  { belowGib: 20, tokens: 2048, graphs: [8, 8] },
  { belowGib: 35, tokens: 2048, graphs: [24, 80] },
  { belowGib: 60, tokens: 4096, graphs: [32, 160] },
  { belowGib: 160, tokens: 8192, graphs: [256, 512] },
  { belowGib: Infinity, tokens: 16_384, graphs: [512, 512] },
] as const;
const sglangTier = (vramBytes: number) => SGLANG_TIERS.find(({ belowGib }) => vramBytes < belowGib * GIB)!;
const sglangGraphs = ({ vramBytes, gpus }: Pick<Hosted, 'vramBytes' | 'gpus'>): number =>
  sglangTier(vramBytes).graphs[gpus < 4 ? 0 : 1];

/** TensorRT-LLM's on any GPU (tensorrt_llm/builder.py 008b2b8, BuildConfig). */
const TRTLLM_DEFAULTS = { sequences: 2048, batchedTokens: 8192 } as const;

export const serverDefaults = (host: Host | null, vramBytes: number, device: string): Defaults =>
  host?.stack === 'sglang'
    ? { sequences: SGLANG_SEQUENCES, batchedTokens: sglangTier(vramBytes).tokens }
    : host?.stack === 'trtllm'
      ? TRTLLM_DEFAULTS
      : vllmDefaults(vramBytes, device, host?.version ?? null);

/** Tokens of a block of a server's cache; of what is no server those of our own pages. */
export const usualBlockTokens = (stack: string | null): number => (stack === 'vllm' || stack === 'sglang' ? 16 : 32);

/** @throws UserError for blocks that vLLM's attention does not take */
export function checkedBlockTokens(tokens: number, stack: string | null): number {
  if (stack !== 'vllm' || tokens % 16 === 0) return tokens;
  throw new UserError(
    `--block-tokens of vLLM must be a multiple of 16, not ${tokens}`,
    'use 16, 32, 64 or 128, or leave it out',
  );
}

/** CUDA context and libraries: aiconfigurator's measured 551 MB, before it was raised for safety. */
const CONTEXT_BYTES = 551 * MIB;
/** What CUDA does not show of the memory that the driver reports: on H100 81,559 MiB against 79.19 GiB. */
const HIDDEN_BYTES = 469 * MIB;
/** CUDA graphs of vLLM, and what its collectives and NCCL keep on several GPUs: starts of 0.19 (below). */
const GRAPH_BYTES = 0.9 * GIB;
const COLLECTIVE_BYTES = 1.85 * GIB;

/** What one line of vLLM's versions keeps for itself, of one GPU. */
interface VllmMemory {
  /** The first version. */
  readonly since: string;
  /** While it samples for all sequences: bytes a sequence and word of the vocabulary. */
  readonly samplerBytes: number;
  /** Buffers that live beside. */
  readonly bufferBytes: number;
  /** What PyTorch does not count. */
  readonly outsideBytes: number;
}

/**
 * Latest first. From rows of the ledger that fit: 20 starts of 0.19 with Llama-3.1-8B and Qwen2.5-7B on H100, and one
 * each of 0.11 and 0.12 (H100, RTX 4090). Until pull request 33538, in 0.17, sampling sorted all logits. Before 0.8
 * another engine did not count it (logs in vllm-project/vllm#10511, #17122).
 */
const VLLM_MEMORY: readonly VllmMemory[] = [
  { since: '0.17', samplerBytes: 14.1, bufferBytes: 0.17 * GIB, outsideBytes: 0.25 * GIB },
  { since: '0.8', samplerBytes: 38.9, bufferBytes: 0, outsideBytes: 0.13 * GIB },
  { since: '0', samplerBytes: 0, bufferBytes: 0, outsideBytes: 0.2 * GIB },
];

/**
 * Activations that live at once while so many tokens pass a layer: hidden state and residual, then gate, up and their
 * product. Llama-3-8B with 8,192 tokens: 0.78 GiB, and vLLM's log says 1.19 to 1.26 GiB with its sampler's logits.
 */
const activationBytes = ({ hidden, mlpHidden, mlp }: Geometry, gpus: number, tokens: number): number =>
  Math.ceil(tokens * BF16 * (2 * hidden + ((mlp === 'gated' ? 3 : 2) * mlpHidden) / gpus));

/** Buffers of NCCL (aiconfigurator, `nccl_mem` of h200_sxm.yaml). */
const nccl = (gpus: number): MemoryPart[] =>
  gpus === 1 ? [] : [{ what: 'NCCL', bytes: (gpus === 2 ? 342 : 392) * MIB }];
const activations = (h: Hosted, tokens: number): MemoryPart => ({
  what: `activations of ${tokens} tokens`,
  bytes: activationBytes(h.geometry, h.gpus, tokens),
});

type Rule = (h: Hosted, version: string | null) => Omit<ServerMemory, 'server' | 'date'>;

/** vLLM from 0.21 on counts CUDA graphs into its share, which it raised. */
const COUNTS_GRAPHS = '0.21';

/** vLLM runs its largest step once without a cache, then samples as if all sequences were there: the larger counts. */
function vllmActivations(
  h: Hosted,
  memory: VllmMemory,
  version: string | null,
): { readonly part: MemoryPart; readonly more?: ServerMemory['more'] } {
  const usual = vllmDefaults(h.vramBytes, h.device, version);
  const sequences = h.sequences ?? usual.sequences;
  const tokens = h.batchedTokens ?? usual.batchedTokens;
  const step = activationBytes(h.geometry, h.gpus, tokens);
  const bytesEach = memory.samplerBytes * h.geometry.vocab;
  const sampler = bytesEach * sequences;
  const what = sampler > step ? `sampling of ${sequences} sequences` : `activations of ${tokens} tokens`;
  return {
    part: { what, bytes: Math.ceil(Math.max(step, sampler) + memory.bufferBytes) },
    ...(h.sequences === undefined
      ? { more: { beyond: Math.floor(Math.max(step, sampler) / bytesEach), bytesEach } }
      : {}),
  };
}

const vllm: Rule = (h, version) => {
  const graphs = isSince(version, COUNTS_GRAPHS);
  // The CUDA context was there before vLLM measures, so it lies in what the share leaves.
  const utilization = graphs ? 0.92 : 0.9;
  const memory = VLLM_MEMORY.find(({ since }) => isSince(version, since))!;
  const { part, more } = vllmActivations(h, memory, version);
  return {
    utilization,
    ...(more ? { more } : {}),
    parts: [
      part,
      { what: 'memory outside PyTorch', bytes: memory.outsideBytes + (h.gpus > 1 ? COLLECTIVE_BYTES : 0) },
      ...(graphs ? [{ what: 'CUDA graphs', bytes: GRAPH_BYTES }] : []),
      { what: 'what CUDA does not show', bytes: Math.round(utilization * HIDDEN_BYTES) },
    ],
    pageTokens: 16,
    source:
      'vllm/config/cache.py, vllm/engine/arg_utils.py, vllm/v1/worker/gpu_worker.py; logs of 20 starts ' +
      'in llm-d-incubation (ledger/llm-d-planner.json)',
  };
};

/** How near a size of memory is next to one at which SGLang takes more. */
const NEXT_TO = 0.02;

/**
 * The most sequences that a server decodes in CUDA graphs unless told otherwise, where it is fewer than it runs: beyond
 * it the host launches each kernel (sgl-project/sglang issue 33483). Null for other servers.
 */
export const mostGraphed = (stack: string, hosted: Pick<Hosted, 'vramBytes' | 'gpus'>): number | null =>
  stack === 'sglang' ? sglangGraphs(hosted) : stack === 'trtllm' ? TRTLLM_GRAPHS : null;
/** Then 64 and 128 alone: batches are not padded (TensorRT-LLM, llmapi/llm_args.py, CudaGraphConfig). */
const TRTLLM_GRAPHS = 32;

/** What SGLang leaves of the memory of a GPU by default, MiB. */
function sglangReserveMib({ vramBytes, gpus }: Hosted): number {
  const reserved = 512 + 1.5 * sglangTier(vramBytes).tokens + (gpus / 8) * 1024 + 2 * sglangGraphs({ vramBytes, gpus });
  return vramBytes > 60 * GIB ? Math.max(reserved, 10 * 1024) : reserved;
}

const sglang: Rule = (h) => {
  const mib = h.vramBytes / MIB;
  const stepGib = SGLANG_TIERS.find(({ belowGib }) => Math.abs(mib / 1024 / belowGib - 1) < NEXT_TO)?.belowGib;
  const utilization = Math.max(0.1, Math.round((1 - sglangReserveMib(h) / mib) * 1000) / 1000);
  return {
    // Activations, graphs and NCCL lie outside the share, which is one of what the context leaves.
    utilization,
    parts: [{ what: 'CUDA context', bytes: Math.ceil(utilization * CONTEXT_BYTES) }],
    pageTokens: 1,
    ...(stepGib === undefined ? {} : { stepGib }),
    source: 'python/sglang/srt/server_args.py of 0.5.16, as in ai-dynamo/aiconfigurator 095f58a, sglang_backend.py',
  };
};

/** Share of the memory that is free once weights are loaded which the cache gets. */
const TRTLLM_FREE_SHARE = 0.9;

const trtllm: Rule = (h) => {
  const parts = [
    { what: 'CUDA context', bytes: CONTEXT_BYTES },
    activations(h, TRTLLM_DEFAULTS.batchedTokens),
    ...nccl(h.gpus),
  ];
  const free = freeForTrtllm(h, bytesOf(parts));
  return {
    utilization: Math.max(0.1, 1 - ((1 - TRTLLM_FREE_SHARE) * free) / h.vramBytes),
    parts,
    pageTokens: 32,
    source:
      'TensorRT-LLM, KvCacheConfig (free_gpu_memory_fraction, tokens_per_block); ' +
      'ai-dynamo/aiconfigurator 095f58a, trtllm_backend.py',
  };
};

/** Tokens of a step unless told otherwise. */
const RLT_TOKENS = 128;

const bytesOf = (parts: readonly MemoryPart[]): number => parts.reduce((sum, p) => sum + p.bytes, 0);

const freeForTrtllm = (h: Hosted, reserveBytes: number): number =>
  Math.max(0, h.vramBytes - weightBytes(h.geometry, h.gpus) - reserveBytes);

/** TRT-LLM's flag for a plan that lets weights, cache and reserve take this share of the memory. */
export const trtllmFreeShare = (h: Hosted, utilization: number, reserveBytes: number): number => {
  const free = freeForTrtllm(h, reserveBytes);
  return free === 0 ? 0 : Math.max(0, 1 - ((1 - utilization) * h.vramBytes) / free);
};

const vllmRlt: Rule = (h) => ({
  utilization: 0.9,
  parts: [activations(h, RLT_TOKENS), { what: 'reserve', bytes: 256 * MIB }],
  pageTokens: 16,
  source: 'ThinkFlowLab/vllm-rlt d40afb7, docs/design.md',
});

/** No server: PyTorch takes what is asked for, and joins of the cache copy one layer's at a time. */
const transformers: Rule = (h) => ({
  utilization: 1,
  parts: [
    { what: 'CUDA context', bytes: CONTEXT_BYTES },
    { what: 'what CUDA does not show', bytes: HIDDEN_BYTES },
    activations(h, EAGER_TOKENS),
  ],
  pageTokens: 1,
  source: 'transformers, cache_utils.py (DynamicCache); what PyTorch loses to fragments is not counted',
});
/** A prompt of usual length, whole. */
const EAGER_TOKENS = 2048;

const RULES: Readonly<Record<Stack | RuntimeName, Rule>> = { vllm, sglang, trtllm, 'vllm-rlt': vllmRlt, transformers };

/**
 * What a server keeps for itself by default.
 * @returns null for a stack without rules: a file of somebody's own
 */
export function serverMemory(
  { stack, version, name }: Host & { readonly name: string },
  h: Hosted,
): ServerMemory | null {
  const rule = isStack(stack) || isRuntime(stack) ? RULES[stack] : null;
  return rule && { server: name, ...rule(h, version), date: '2026-11-22' };
}

/** Bytes that a server keeps inside its share. */
export const reserveOf = (m: ServerMemory): number => bytesOf(m.parts);
