/** A plan in the words of the server that runs it: the command, and where each of its flags is documented. */
import type { Geometry } from '../geometry/geometry.js';
import { presetOf } from '../geometry/presets.js';
import { present } from '../present.js';
import { publishedFor } from '../quality/quality.js';
import { formatDecimalBytes } from '../numbers/units.js';
import {
  mostGraphed,
  reserveOf,
  serverDefaults,
  trtllmFreeShare,
  type Hosted,
  type ServerMemory,
} from './server-memory.js';
import type { RuntimeChoice } from './runtime.js';
import { servedBy, type Stack, type RuntimeName, versionsWords, withoutLoops } from './serving.js';

/** What a server is asked to do. */
export interface ServeRequest {
  readonly stack: string;
  /** Null for today's. */
  readonly version: string | null;
  /** The preset under whose name stacks list the model; null for a model read from a file. */
  readonly model: string | null;
  /** Sequences decoded together: the operating batch, not the largest one. */
  readonly sequences: number;
  readonly contextTokens: number;
  /** Element type of the cache as a plan names it; `f16` and `bf16` are a stack's `auto`. */
  readonly cacheType: string;
  /** The model's shape, the GPUs that share it by tensor parallelism, and the memory of one. */
  readonly hosted: Hosted;
  /** Share of the memory that the plan lets weights, cache and reserve take. */
  readonly utilization: number;
  /** What the plan keeps of it for the server. */
  readonly reserveBytes: number;
  /** What the server keeps by default. */
  readonly server: ServerMemory | null;
  /** How a server with a runtime of its own is started; null for others. */
  readonly runtime: Pick<RuntimeChoice, 'attentionName' | 'execution' | 'asynchronous'> | null;
  /** Proposals of its first loops; null without. */
  readonly speculation: { readonly draftTokens: number; readonly draftLoops: number } | null;
  /** What it is to do otherwise than by default. */
  readonly unlike: {
    readonly batchedTokens?: number;
    readonly chunked?: false;
    readonly prefixCaching?: false;
    readonly asynchronous?: false;
    readonly blockTokens?: number;
    readonly watermark?: number;
    /** Caches go from servers that prefill to others. */
    readonly apart?: true;
  };
}

interface ServeFlag {
  readonly flag: string;
  readonly value: string | null;
}

export interface ServeCommand {
  /** On one line, as typed into a shell. */
  readonly line: string;
  readonly flags: readonly ServeFlag[];
  /** Documentation of the flags, and when it was read. */
  readonly source: { readonly documentation: string; readonly version: string; readonly date: string };
  /** What the reader has to know about the line. */
  readonly notes: readonly string[];
}

/** What a command may say. */
type Setting = keyof ReturnType<typeof valuesOf>;

/** How a stack is told: the program and its documented flags. */
interface Words {
  readonly program: readonly string[];
  readonly flags: Readonly<Partial<Record<Setting, string>>>;
  /** Value of the flag for an fp8 cache; null: it is no flag of the command. */
  readonly fp8: string | null;
  /** Variable without which it refuses contexts beyond the model's positions. */
  readonly longer?: string;
  readonly source: ServeCommand['source'];
}

/** Servers: what generates without one has no command. */
type ServerName = Stack | Exclude<RuntimeName, 'transformers'>;

/** Looked up in the stacks' documentation and source. A flag that is not here is never printed. */
export const SERVE_WORDS: Readonly<Record<ServerName, Words>> = {
  vllm: {
    program: ['vllm', 'serve'],
    flags: {
      sequences: '--max-num-seqs',
      context: '--max-model-len',
      batchedTokens: '--max-num-batched-tokens',
      wholePrompts: '--no-enable-chunked-prefill',
      noPrefixes: '--no-enable-prefix-caching',
      synchronous: '--no-async-scheduling',
      blockTokens: '--block-size',
      watermark: '--watermark',
      apart: '--kv-transfer-config',
      memory: '--gpu-memory-utilization',
      gpus: '--tensor-parallel-size',
      cacheType: '--kv-cache-dtype',
      weightType: '--quantization',
      remoteCode: '--trust-remote-code',
      overrides: '--hf-overrides',
    },
    fp8: 'fp8',
    longer: 'VLLM_ALLOW_LONG_MAX_MODEL_LEN',
    source: {
      documentation: 'docs.vllm.ai/en/latest/configuration/engine_args',
      version: 'commit 002f10e',
      date: '2026-11-22',
    },
  },
  sglang: {
    program: ['python', '-m', 'sglang.launch_server', '--model-path'],
    flags: {
      sequences: '--max-running-requests',
      context: '--context-length',
      batchedTokens: '--chunked-prefill-size',
      graphedSequences: '--cuda-graph-max-bs',
      noPrefixes: '--disable-radix-cache',
      synchronous: '--disable-overlap-schedule',
      blockTokens: '--page-size',
      memory: '--mem-fraction-static',
      gpus: '--tp-size',
      cacheType: '--kv-cache-dtype',
      weightType: '--quantization',
      remoteCode: '--trust-remote-code',
    },
    fp8: 'fp8_e4m3',
    longer: 'SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN',
    source: {
      documentation: 'docs.sglang.io/advanced_features/server_arguments',
      version: 'latest',
      date: '2026-11-22',
    },
  },
  trtllm: {
    program: ['trtllm-serve'],
    flags: {
      sequences: '--max_batch_size',
      context: '--max_seq_len',
      batchedTokens: '--max_num_tokens',
      chunkedPrompts: '--enable_chunked_prefill',
      memory: '--kv_cache_free_gpu_memory_fraction',
      gpus: '--tp_size',
      remoteCode: '--trust_remote_code',
    },
    fp8: null,
    source: {
      documentation: 'nvidia.github.io/TensorRT-LLM/commands/trtllm-serve; tensorrt_llm/commands/serve.py',
      version: 'commit 00209af',
      date: '2026-11-22',
    },
  },
  'vllm-rlt': {
    program: ['vllm-rlt-serve', '--model'],
    flags: {
      sequences: '--max-num-seqs',
      memory: '--gpu-memory-utilization',
      attention: '--attention-backend',
      graphs: '--cuda-graphs',
      asynchronous: '--async-scheduling',
      draftTokens: '--speculative-tokens',
      draftLoops: '--draft-loops',
    },
    fp8: null,
    source: {
      documentation: 'github.com/ThinkFlowLab/vllm-rlt vllm_rlt/entrypoints/serve.py, runtime_args.py',
      version: 'commits 4cddafa, af25483',
      date: '2026-11-25',
    },
  },
};

/** Where the weights of presets lie, and those of checkpoints of a preset's shape. */
const HUB: Readonly<Record<string, string>> = {
  'ouro-1.4b': 'ByteDance/Ouro-1.4B',
  'ouro-1.4b-thinking': 'ByteDance/Ouro-1.4B-Thinking',
  'ouro-2.6b': 'ByteDance/Ouro-2.6B',
  'ouro-2.6b-thinking': 'ByteDance/Ouro-2.6B-Thinking',
  'huginn-3.5b': 'tomg-group-umd/huginn-0125',
  'nanbeige4.2-3b': 'Nanbeige/Nanbeige4.2-3B',
  'iquest-coder-v1-40b-loop': 'IQuestLab/IQuest-Coder-V1-40B-Loop-Instruct',
  'hrm-text-1b': 'sapientinc/HRM-Text-1B',
  'kohrm-1.4b': 'LLM-OS-Models/KoHRM-Text-1.4B',
  'mimir-1b': 'danish-foundation-models/DFM-Mimir',
};

/** vLLM's connector whose transfers were published (docs.vllm.ai/en/latest/features/nixl_connector_usage). */
const NIXL = `'{"kv_connector":"NixlConnector","kv_role":"kv_both"}'`;

/** Stands for a model that was read from a file, whose weights lie elsewhere. */
const UNNAMED = 'MODEL';

const isServer = (name: string): name is ServerName => Object.hasOwn(SERVE_WORDS, name);

/** A share of the memory, rounded up to a thousandth: rounding down would hold fewer sequences. */
const thousandths = (share: number): string => String(Math.min(1, Math.ceil(share * 1000 - 1e-6) / 1000));

/**
 * The command that starts a server for a plan. Only a full cache on a stack that lists the model can be served: for
 * anything else there is no command.
 *
 * The memory flag is the share that the plan counts with. A note says where the plan leaves less than the server keeps
 * by default.
 * @returns null where the stack does not exist or does not run the model, or cannot store the cache so
 */
export function serveCommand(request: ServeRequest): ServeCommand | null {
  const { stack, model, hosted, unlike } = request;
  if (!isServer(stack) || model === null) return null;
  const listed = servedBy(model, stack);
  if (listed === null) return null;
  const { modelType, trained, quantised, maxPositions, name } = hosted.geometry;
  // A checkpoint of a preset's shape has weights of its own.
  const [own, preset] = [withoutLoops(name), withoutLoops(model)];
  const hub =
    HUB[presetOf({ name: own }) === preset ? own : preset] ??
    (modelType === undefined && !trained ? undefined : UNNAMED);
  const words = SERVE_WORDS[stack];
  const isStored = request.cacheType === 'fp8' ? words.fp8 !== null : ['f16', 'bf16'].includes(request.cacheType);
  if (hub === undefined || !isStored) return null;
  if (quantised?.whenLoaded && words.flags.weightType === undefined) return null;
  const versions = versionsWords(stack, listed);
  const graphed = exceededGraphs(request);
  const values = valuesOf(request, words.fp8, listed.loopsField);
  const flags = (Object.keys(values) as Setting[]).flatMap((setting): ServeFlag[] => {
    const flag = words.flags[setting];
    const value = values[setting];
    return flag === undefined || value === undefined ? [] : [{ flag, value }];
  });
  const line = present([
    words.longer !== undefined && request.contextTokens > maxPositions && `${words.longer}=1`,
    ...words.program,
    hub,
    ...flags.flatMap(({ flag, value }) => [flag, value]),
  ]);
  return {
    line: line.join(' '),
    flags,
    source: words.source,
    notes: present([
      hub === UNNAMED && `${UNNAMED} is its folder or its name`,
      // Other versions refuse the model, so that the newest one does not start.
      versions !== null && `needs ${versions}`,
      unlike.apart && words.flags.apart !== undefined && 'a proxy sends prompts to those that prefill',
      ...missingNotes(unlike, words),
      graphed !== null &&
        words.flags.graphedSequences === undefined &&
        `add cuda_graph_config: {enable_padding: true, max_batch_size: ${request.sequences}} to its --config, or ` +
          `batches of more than ${graphed} run without CUDA graphs`,
      ...notesOf(request),
    ]),
  };
}

/** The most sequences that decode in CUDA graphs, where more are asked for; else null. */
function exceededGraphs({ stack, hosted, sequences }: ServeRequest): number | null {
  const graphed = mostGraphed(stack, hosted);
  return graphed !== null && sequences > graphed ? graphed : null;
}

/** Values of what a plan asks a server for; null for a flag without one, undefined for what is not asked. */
function valuesOf(request: ServeRequest, fp8: string | null, loopsField: string | undefined) {
  const { stack, version, hosted, runtime, speculation, unlike, sequences, contextTokens } = request;
  const { promptsBothWays, quantised, trained, loops } = hosted.geometry;
  const usual = serverDefaults({ stack, version }, hosted.vramBytes, hosted.device);
  const atOnce = unlike.batchedTokens ?? usual.batchedTokens;
  const flag = (isAsked: boolean | undefined): null | undefined => (isAsked ? null : undefined);
  const text = (value: number | null | undefined): string | undefined => (value ? String(value) : undefined);
  return {
    sequences: String(sequences),
    // A request has a prompt and at least one token more.
    context: String(Math.max(2, contextTokens)),
    // A prompt that is read whole has to fit into one iteration.
    batchedTokens: text(
      unlike.batchedTokens ?? (promptsBothWays && stack !== 'sglang' ? Math.max(2048, contextTokens) : null),
    ),
    wholePrompts: flag(unlike.chunked === false),
    // TRT-LLM refuses prompts beyond its tokens of an iteration unless it is told to divide them.
    chunkedPrompts: flag(unlike.chunked !== false && contextTokens > atOnce),
    graphedSequences: text(exceededGraphs(request) && sequences),
    noPrefixes: flag(unlike.prefixCaching === false),
    synchronous: flag(unlike.asynchronous === false && !runtime),
    blockTokens: text(unlike.blockTokens),
    watermark: text(unlike.watermark),
    apart: unlike.apart && NIXL,
    memory: memoryValue(request),
    gpus: hosted.gpus > 1 ? String(hosted.gpus) : undefined,
    cacheType: request.cacheType === 'fp8' ? (fp8 ?? undefined) : undefined,
    // A checkpoint that is stored in fewer bits says so itself.
    weightType: quantised?.whenLoaded ? 'fp8' : undefined,
    overrides: trained && loopsField ? `'{"${loopsField}": ${loops}}'` : undefined,
    // Configurations of models that loop are classes of their own repositories.
    remoteCode: flag(loops > 1 || trained !== undefined),
    attention: runtime?.attentionName.replace(/-(unsplit|rows)$/, '').replaceAll('-', '_'),
    graphs: flag(runtime?.execution === 'loop-graphs'),
    asynchronous: flag(runtime?.asynchronous),
    draftTokens: text(speculation?.draftTokens),
    draftLoops: text(speculation?.draftLoops),
  };
}

/** A preset whose published scores are those of another checkpoint of its shape. */
const SCORED_AS: Readonly<Record<string, string>> = { 'ouro-2.6b': 'ouro-2.6b-thinking' };

/** Says so where a preset's published scores are of another checkpoint; null elsewhere. */
export function checkpointNote({ name }: Pick<Geometry, 'name'>): string | null {
  const scored = SCORED_AS[name];
  return scored === undefined || publishedFor(name).length === 0
    ? null
    : `most scores of ${name} are those of ${HUB[scored]}: --model ${scored} plans it; memory and time are the same`;
}

/**
 * vLLM's and SGLang's flags are shares of the GPU's memory, TRT-LLM's is one of what is free once weights are loaded.
 */
const memoryValue = ({ stack, hosted, utilization, reserveBytes }: ServeRequest): string =>
  thousandths(stack === 'trtllm' ? trtllmFreeShare(hosted, utilization, reserveBytes) : utilization);

/** What was simulated and no flag of the command says. */
function missingNotes(unlike: ServeRequest['unlike'], { flags }: Words): string[] {
  const missing = present([
    unlike.chunked === false && !flags.wholePrompts && 'prompts in whole',
    unlike.prefixCaching === false && !flags.noPrefixes && 'no prefix cache',
    unlike.asynchronous === false && !flags.synchronous && 'scheduling between iterations',
    unlike.blockTokens !== undefined && !flags.blockTokens && `blocks of ${unlike.blockTokens} tokens`,
    Boolean(unlike.watermark) && !flags.watermark && `a watermark of ${unlike.watermark}`,
    unlike.apart && !flags.apart && 'prefill apart',
  ]);
  return missing.length === 0 ? [] : [`${missing.join(', ')}: set in its own configuration, not here`];
}

/** Where the plan leaves the server less than its default, it may hold fewer sequences than planned. */
function notesOf({ server, utilization, reserveBytes }: ServeRequest): string[] {
  if (!server) return [];
  const usual = reserveOf(server);
  if (utilization <= server.utilization + 1e-6 && reserveBytes >= usual - 1) return [];
  return [
    `by default it takes ${thousandths(server.utilization)}, and ${formatDecimalBytes(usual)} of ` +
      'that for itself: it may hold fewer',
  ];
}
