/** `lla-sim run`: decodes with the bundled decoder, so that a codec and path can be tried. */
import { existsSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { codecTensors } from '../decoder/tensors.js';
import {
  GREEDY,
  openCheckpoint,
  readTokenizer,
  SafetensorsFile,
  type Checkpoint,
  type Sampling,
  type Tokenizer,
} from '../decoder/index.js';
import { openDecoder, type GpuDecoder, type StepResult } from '../decoder/gpu/decoder.js';
import { PREFILL_METHODS, type PrefillMethod } from '../decoder/gpu/prefill-methods.js';
import { memoryModel } from '../cost/memory.js';
import { EXIT, printable, UserError, show, type ExitCode } from '../errors.js';
import { keptTokens } from '../eviction/policy.js';
import type { Geometry } from '../geometry/geometry.js';
import { readModelFile } from '../geometry/hf-config.js';
import { findPreset, PRESET_NAMES } from '../geometry/presets.js';
import { GpuError, openDevice, type Device } from '../gpu/index.js';
import { candidateId, listCandidates } from '../plan/candidates.js';
import { readQuestion } from '../plan/request.js';
import type { Candidate } from '../plan/types.js';
import { SETTINGS, type Scenario } from '../schema/settings.js';
import { PREFILL_CHUNK_TOKENS } from '../schedule/prefill.js';
import type { Configuration } from '../schedule/schedule.js';
import { formatBytes, formatMilliseconds, formatNumber, parseBytes, parseNumber, parseTokens } from '../units.js';
import { limitAddressSpace } from '../validate/process-memory.js';
import { allocatedBytes } from '../validate/memory.js';
import { choiceFlag, formatOption, OUTPUT, textFlag, type Args, type Command } from './command.js';
import { onInterrupt } from './interrupt.js';
import { print } from './output.js';
import { progressLine } from './progress.js';

const FORMATS = ['text', 'json'] as const;
const WEIGHTS = ['f16', 'f32'] as const;

export const runCommand: Command = {
  options: {
    tokens: { type: 'string', help: 'prompt as token numbers: 1,2,3', group: 'Prompt' },
    text: { type: 'string', help: 'prompt as text; needs a tokenizer.json', group: 'Prompt' },
    tokenizer: { type: 'string', help: 'tokenizer.json [the one of the checkpoint]', group: 'Prompt' },
    fill: {
      type: 'string',
      help: 'begin with a fabricated cache of this many tokens, such as 4k, instead of a long prompt',
      group: 'Prompt',
    },
    prefill: {
      type: 'string',
      help: 'how the prompt is taken in [accumulated; by-token after --fill]',
      choices: PREFILL_METHODS,
      group: 'Prompt',
    },
    'prefill-chunk': { type: 'string', help: 'prompt tokens that are worked on at once [2k]', group: 'Prompt' },
    model: {
      type: 'string',
      help: 'preset or config.json, both with fabricated weights, or a folder with config.json and safetensors [ouro-1.4b]',
      proposals: PRESET_NAMES,
      group: 'Model',
    },
    layers: {
      type: 'string',
      help: 'core layers of a model with fabricated weights, where the device cannot hold all [all]',
      group: 'Model',
    },
    vocab: {
      type: 'string',
      help: 'vocabulary of a model with fabricated weights, where the device cannot bind its embedding [all]',
      group: 'Model',
    },
    weights: { type: 'string', help: 'element type of the weights [f16]', choices: WEIGHTS, group: 'Model' },
    'codec-weights': { type: 'string', help: 'safetensors file of the codec [fabricated]', group: 'Model' },
    codec: { type: 'string', help: 'codec of the cache [full]', choices: SETTINGS.codec.choices, group: 'Cache' },
    ratio: { type: 'string', help: 'compression ratio of the codec [the first published]', group: 'Cache' },
    ranks: { type: 'string', help: 'K/V ranks instead of a ratio, such as 96/160', group: 'Cache' },
    path: {
      type: 'string',
      help: 'decode path [the first that the codec has, reconstruct where it has that]',
      choices: SETTINGS.path.choices,
      group: 'Cache',
    },
    eviction: { type: 'string', help: 'none, streaming:SINK+WINDOW, h2o:HEAVY+RECENT [none]', group: 'Cache' },
    'cache-type': {
      type: 'string',
      help: 'element type of the cache [f16]',
      choices: SETTINGS.cacheType.choices,
      group: 'Cache',
    },
    'group-size': { type: 'string', help: 'scalars that share a scale in a quantised cache [64]', group: 'Cache' },
    ctx: { type: 'string', help: 'tokens that a sequence may reach [prompt and max-tokens]', group: 'Cache' },
    vram: {
      type: 'string',
      help: 'on a software adapter: memory that the decoder may take, by a limit on this process',
      group: 'Cache',
    },
    batch: { type: 'string', help: 'sequences decoded together, all with this prompt [1]', group: 'Generation' },
    'max-tokens': { type: 'string', help: 'tokens to generate [32]', group: 'Generation' },
    temperature: { type: 'string', help: '0 is greedy [0]', group: 'Generation' },
    'top-p': {
      type: 'string',
      help: 'draw from the fewest tokens whose probabilities sum to this [1]',
      group: 'Generation',
    },
    stop: { type: 'string', help: 'token number that ends the text, with one sequence [none]', group: 'Generation' },
    seed: { type: 'string', help: 'of sampling and of fabricated weights [0]', group: 'Generation' },
    adapter: { type: 'string', help: 'part of the name of the adapter, where there are several' },
    backend: { type: 'string', help: "Dawn backend: vulkan, metal, d3d12 [the platform's own]" },
    ...formatOption(FORMATS),
    ...OUTPUT,
  },
  examples: [
    [
      'run --layers 2 --vocab 24576 --tokens 1,2,3 --codec lla --ratio 4 --path reconstruct',
      'fabricated weights: speed and bytes mean something, the text does not',
    ],
    ['run --model ./Ouro-1.4B --text "The capital of France is"', 'a checkpoint with its tokenizer'],
    [
      'run --layers 1 --vocab 24576 --codec lla --ratio 21.33 --fill 32k --batch 4 --max-tokens 8',
      'decoding over a long, made-up cache',
    ],
  ],
  run,
};

/** What is decoded with what. */
interface Loaded {
  readonly geometry: Geometry;
  readonly checkpoint: Checkpoint | null;
  readonly tokenizer: Tokenizer | null;
}

export interface RunReport {
  readonly schema: 'lla-sim/run';
  readonly schemaVersion: 1;
  readonly model: {
    readonly name: string;
    readonly layers: number;
    readonly loops: number;
    readonly weights: 'fabricated' | 'checkpoint';
    readonly codecWeights: 'none' | 'fabricated' | 'file';
    readonly seed: number;
  };
  readonly device: { readonly description: string; readonly software: boolean };
  readonly id: string;
  readonly batch: number;
  readonly promptTokens: number;
  readonly filledTokens: number;
  /** Tokens generated, by sequence. */
  readonly tokens: readonly (readonly number[])[];
  /** Their text, where there is a tokenizer. */
  readonly text: readonly string[] | null;
  readonly prefillSeconds: number;
  /** Whole, or token by token: after --fill, unless asked otherwise. */
  readonly prefillMethod: PrefillMethod;
  /** Of all sequences together. */
  readonly promptTokensPerSecond: number;
  /** Of the generating steps by the wall clock, all sequences together; null where one step made everything. */
  readonly tokensPerSecond: number | null;
  /** Median of the generating steps, on the device's clock where it has one. */
  readonly secondsPerStep: number | null;
  readonly cache: {
    readonly allocatedBytes: number;
    readonly bytesPerToken: number;
    readonly tokensKept: readonly number[];
  };
  readonly memory: {
    readonly weightsBytes: number;
    readonly codecBytes: number;
    readonly inFlightBytes: number;
    readonly evictionBytes: number;
    readonly workspaceBytes: number;
    readonly controlBytes: number;
    readonly totalBytes: number;
  };
  readonly warnings: readonly string[];
}

const now = (): number => Number(process.hrtime.bigint()) * 1e-9;

async function run(args: Args): Promise<ExitCode> {
  const format = choiceFlag(args, 'format', FORMATS);
  const quiet = args.flags['quiet'] === true;
  const loaded = loadModel(args);
  const codecFile = textFlag(args, 'codec-weights');
  let codec: SafetensorsFile | undefined;
  const [adapter, backend] = [textFlag(args, 'adapter'), textFlag(args, 'backend')];
  let device: Device | undefined;
  try {
    const question = readRun(args, loaded);
    codec = codecFile === null ? undefined : new SafetensorsFile(codecFile);
    device = await openDevice({ ...(adapter === null ? {} : { adapter }), ...(backend === null ? {} : { backend }) });
    const report = await generate(device, loaded, question, codec, quiet);
    if (!quiet && format === 'text')
      for (const warning of report.warnings) process.stderr.write(`warning: ${warning}\n`);
    await print(format === 'json' ? `${JSON.stringify(report, null, 2)}\n` : runText(report), {
      file: textFlag(args, 'output'),
      quiet,
    });
    return EXIT.ok;
  } catch (error) {
    throw explained(error);
  } finally {
    device?.close();
    codec?.close();
    loaded.checkpoint?.tensors.close();
  }
}

/** A GPU's failure in words for the person at the terminal; anything else as it is. */
export function explained(error: unknown): unknown {
  if (!(error instanceof GpuError)) return error;
  switch (error.fault) {
    case 'out-of-memory':
      return new UserError(
        `the device has not enough memory: ${error.message}`,
        'take a smaller batch, a shorter context or a higher ratio',
        EXIT.noSolution,
      );
    case 'lost':
      return new UserError(error.message, 'run it again; lla-sim doctor shows what the driver offers', EXIT.noGpu);
    case 'unsupported':
      return new UserError(error.message, 'choose another codec, path or batch');
    case 'validation':
    case 'internal':
      return /hold NaN/.test(error.message)
        ? new UserError(error.message, 'try --weights f32, or download the checkpoint again')
        : error;
  }
}

/** A folder with weights is a checkpoint; everything else is a shape. */
function loadModel(args: Args): Loaded {
  const name = textFlag(args, 'model') ?? 'ouro-1.4b';
  const file = textFlag(args, 'tokenizer');
  const isFolder = existsSync(name) && statSync(name).isDirectory();
  const hasWeights =
    isFolder &&
    ['model.safetensors', 'model.safetensors.index.json'].some((weights) => existsSync(join(name, weights)));
  const checkpoint = hasWeights ? openCheckpoint(name) : null;
  try {
    const whole =
      checkpoint?.geometry ?? (isFolder || /[/\\]|\.json$/i.test(name) ? readModelFile(name) : findPreset(name));
    const reduced = (flag: 'layers' | 'vocab'): number => {
      const value = textFlag(args, flag);
      if (value !== null && checkpoint)
        throw new UserError(
          `--${flag} is for fabricated weights: a checkpoint is decoded whole`,
          `leave --${flag} out, or name a preset`,
        );
      return value === null ? whole[flag] : parseNumber(value, `--${flag}`, { min: 1, max: whole[flag], whole: true });
    };
    const geometry = { ...whole, layers: reduced('layers'), vocab: reduced('vocab') };
    const tokenizerFile = file ?? checkpoint?.tokenizerFile ?? null;
    return {
      geometry,
      checkpoint,
      tokenizer: tokenizerFile === null ? null : readTokenizer(tokenizerFile, geometry.vocab),
    };
  } catch (error) {
    checkpoint?.tensors.close();
    throw error;
  }
}

interface Question {
  readonly candidate: Candidate;
  readonly id: string;
  readonly configuration: Omit<Configuration, 'bindingBytes'>;
  readonly prompt: readonly number[];
  /** The decoder's own choice where undefined. */
  readonly prefill: PrefillMethod | undefined;
  readonly chunkTokens: number;
  readonly fill: number;
  readonly batch: number;
  readonly maxTokens: number;
  readonly contextTokens: number;
  readonly pageTokens: number;
  readonly storage: 'f16' | 'f32';
  readonly sampling: Sampling;
  readonly seed: number;
  readonly stop: number | null;
  readonly vramBytes: number | null;
}

/** Reads everything but the model. @throws UserError naming the flag, its rule and the value */
function readRun(args: Args, { geometry, tokenizer }: Loaded): Question {
  const whole = (name: string, otherwise: number, min: number, max: number): number =>
    parseNumber(textFlag(args, name) ?? String(otherwise), `--${name}`, { min, max, whole: true });
  const prompt = readPrompt(args, tokenizer, geometry);
  const fill = textFlag(args, 'fill') === null ? 0 : parseTokens(textFlag(args, 'fill') as string, '--fill');
  const maxTokens = whole('max-tokens', 32, 1, 2 ** 20);
  const needed = fill + prompt.length + maxTokens - 1;
  const ctx = textFlag(args, 'ctx');
  const contextTokens = ctx === null ? needed : parseTokens(ctx, '--ctx');
  if (contextTokens < needed)
    throw new UserError(
      `--ctx ${contextTokens} is less than the ${needed} tokens that prompt and --max-tokens need`,
      'give a longer --ctx, or generate fewer tokens',
    );
  const storage = choiceFlag(args, 'weights', WEIGHTS);
  const seed = whole('seed', 0, 0, 2 ** 32 - 1);
  const stop = textFlag(args, 'stop') === null ? null : whole('stop', 0, 0, geometry.vocab - 1);
  const batch = whole('batch', 1, 1, 2 ** 20);
  if (stop !== null && batch > 1)
    throw new UserError('--stop ends one sequence, and --batch asks for several', 'leave one of them out');
  const temperature = parseNumber(textFlag(args, 'temperature') ?? '0', '--temperature', { min: 0, max: 100 });
  const topP = parseNumber(textFlag(args, 'top-p') ?? '1', '--top-p', { min: 1e-6, max: 1 });
  const vram = textFlag(args, 'vram');
  const prefill = textFlag(args, 'prefill') === null ? undefined : choiceFlag(args, 'prefill', PREFILL_METHODS);
  const chunkTokens = parseTokens(textFlag(args, 'prefill-chunk') ?? String(PREFILL_CHUNK_TOKENS), '--prefill-chunk');
  const { candidate, id, ...rest } = readCandidate(args, geometry, contextTokens);
  return {
    candidate,
    id,
    ...rest,
    prompt,
    prefill,
    chunkTokens,
    fill,
    batch,
    maxTokens,
    contextTokens,
    storage,
    seed,
    stop,
    sampling: temperature === 0 ? GREEDY : { temperature, topP, seed },
    vramBytes: vram === null ? null : parseBytes(vram, '--vram'),
  };
}

function readPrompt(args: Args, tokenizer: Tokenizer | null, g: Geometry): number[] {
  const [tokens, text] = [textFlag(args, 'tokens'), textFlag(args, 'text')];
  if (tokens !== null && text !== null) throw new UserError('--tokens and --text are two prompts', 'give one of them');
  if (text !== null) {
    if (!tokenizer)
      throw new UserError('--text needs a tokenizer', 'give its file with --tokenizer, or token numbers with --tokens');
    const encoded = tokenizer.encode(text);
    if (encoded.length === 0) throw new UserError('--text makes no token', 'give a longer text');
    return encoded;
  }
  if (tokens === null) {
    if (textFlag(args, 'fill') !== null) return [0];
    throw new UserError('there is no prompt', 'give --tokens 1,2,3, or --text with a tokenizer, or --fill 4k');
  }
  return tokens
    .split(',')
    .map((word) => parseNumber(word.trim(), '--tokens', { min: 0, max: g.vocab - 1, whole: true }));
}

/** One codec and path out of the planner's list. */
function readCandidate(
  args: Args,
  geometry: Geometry,
  contextTokens: number,
): Pick<Question, 'candidate' | 'id' | 'configuration' | 'pageTokens'> {
  const one = (name: string): string | null => {
    const value = textFlag(args, name);
    if (value?.includes(','))
      throw new UserError(`--${name} takes one value here, not ${show(value)}`, 'decode them one after the other');
    return value;
  };
  const [codec, ratio, ranks, path, eviction, cacheType, groupSize] = [
    'codec',
    'ratio',
    'ranks',
    'path',
    'eviction',
    'cache-type',
    'group-size',
  ].map(one) as [
    string | null,
    string | null,
    string | null,
    string | null,
    string | null,
    string | null,
    string | null,
  ];
  const kind = codec ?? (ranks === null ? 'full' : 'lla');
  const scenario: Scenario = {
    context: contextTokens,
    codec: [kind],
    ...(ratio === null ? {} : { ratio: [ratio] }),
    ...(ranks === null ? {} : { ranks: [ranks] }),
    ...(path === null ? {} : { path: [path] }),
    ...(eviction === null ? {} : { eviction: [eviction] }),
    ...(cacheType === null ? {} : { cacheType }),
    ...(groupSize === null ? {} : { groupSize }),
  };
  const { filter, choice, branch, pageTokens, targetWorkgroups, cacheType: type } = readQuestion(scenario, geometry);
  const { candidates } = listCandidates(geometry, filter);
  const candidate =
    path === null
      ? (candidates.find((c) => c.path === 'reconstruct' && !c.materialised) ?? (candidates[0] as Candidate))
      : (candidates[0] as Candidate);
  return {
    candidate,
    id: candidateId(geometry, candidate, type),
    configuration: { geometry, ...candidate, choice, branch, gpus: 1, targetWorkgroups },
    pageTokens,
  };
}

/** Opens a decoder, takes the prompt in and generates. Nothing is returned unless all of it was done. */
async function generate(
  device: Device,
  { geometry, checkpoint, tokenizer }: Loaded,
  q: Question,
  codec: SafetensorsFile | undefined,
  quiet: boolean,
): Promise<RunReport> {
  const c: Configuration = { ...q.configuration, bindingBytes: device.limits.maxStorageBufferBindingSize };
  const weights = {
    storage: q.storage,
    seed: q.seed,
    ...(checkpoint ? { model: checkpoint.tensors } : {}),
    ...(codec ? { codec } : {}),
  };
  const options = {
    weights,
    batch: q.batch,
    contextTokens: q.contextTokens,
    pageTokens: q.pageTokens,
    sampling: q.sampling,
    prefillChunkTokens: q.chunkTokens,
    ...(checkpoint ? { normEpsilon: checkpoint.normEpsilon } : {}),
  };
  if (q.vramBytes !== null) await limitMemory(device, c, q.vramBytes, options, q.prompt);
  let decoder: GpuDecoder | undefined;
  let interrupted = false;
  // Closing frees the buffers; what is in flight then fails, and is told apart by the flag.
  const stop = (): void => {
    interrupted = true;
    decoder?.close();
  };
  const release = onInterrupt(stop);
  const tokens: number[][] = Array.from({ length: q.batch }, () => []);
  const seconds: number[] = [];
  const interruption = (): UserError =>
    new UserError(
      `interrupted after ${tokens[0]?.length ?? 0} of ${q.maxTokens} tokens; nothing of it is printed`,
      'run it again',
      EXIT.interrupted,
    );
  const progress = !quiet && process.stderr.isTTY === true;
  try {
    decoder = await openDecoder(device, c, options);
    if (interrupted) throw interruption();
    if (q.fill > 0) await decoder.fillCache(q.fill);
    const began = now();
    const prompted = await decoder.prefill(
      Array.from({ length: q.batch }, () => q.prompt),
      q.prefill,
    );
    const prefillSeconds = now() - began;
    let result: StepResult = prompted;
    const generating = now();
    const take = (): boolean => {
      result.tokens.forEach((token, i) => (tokens[i] as number[]).push(token));
      return (tokens[0] as number[]).length < q.maxTokens && (q.stop === null || result.tokens[0] !== q.stop);
    };
    while (take()) {
      result = await decoder.step(result.tokens);
      seconds.push(result.seconds);
      const [done, elapsed] = [seconds.length + 1, now() - generating];
      if (progress)
        process.stderr.write(
          progressLine(elapsed, (elapsed / done) * (q.maxTokens - done), `${done} of ${q.maxTokens} tokens`),
        );
    }
    if (interrupted) throw interruption();
    const spent = now() - generating;
    return describe(
      device,
      decoder,
      c,
      q,
      { geometry, checkpoint, tokenizer, codec },
      { tokens, seconds, spent, prefillSeconds, prefillMethod: prompted.method },
    );
  } catch (error) {
    throw interrupted && !(error instanceof UserError) ? interruption() : error;
  } finally {
    if (progress && seconds.length > 0) process.stderr.write('\r\u001b[K');
    release();
    decoder?.close();
  }
}

/**
 * Brings driver and program to the size that they keep with half of the sequences first, so that the limit is on
 * buffers alone.
 */
async function limitMemory(
  device: Device,
  c: Configuration,
  bytes: number,
  options: Parameters<typeof openDecoder>[2],
  prompt: readonly number[],
): Promise<void> {
  if (!device.description.software)
    throw new UserError('--vram limits software adapters only: a GPU has the memory that it has', 'leave --vram out');
  const batch = Math.ceil(options.batch / 2);
  const warm = await openDecoder(device, c, { ...options, batch });
  try {
    await warm.fillCache(options.contextTokens - 1);
    await warm.prefill(Array.from({ length: batch }, () => prompt));
  } finally {
    warm.close();
  }
  await device.submitEmpty();
  limitAddressSpace(bytes);
}

interface Generated {
  readonly tokens: readonly (readonly number[])[];
  readonly seconds: readonly number[];
  readonly spent: number;
  readonly prefillSeconds: number;
  readonly prefillMethod: PrefillMethod;
}

function describe(
  device: Device,
  decoder: GpuDecoder,
  c: Configuration,
  q: Question,
  from: Loaded & { codec: SafetensorsFile | undefined },
  g: Generated,
): RunReport {
  const bytes = allocatedBytes(decoder);
  const { kvBytesPerToken } = memoryModel(c, q.contextTokens, q.pageTokens);
  const needsCodec = codecTensors(c.geometry, c.codec, c.path, c.branch).length > 0;
  const warnings = [
    ...(from.checkpoint ? [] : ['the weights are fabricated: times and bytes are real, the tokens mean nothing']),
    ...(from.checkpoint && needsCodec && !from.codec
      ? ['the codec is fabricated and does not fit the checkpoint: the tokens mean nothing']
      : []),
    ...(q.fill > 0 ? ['the cache began with made-up contents: the tokens mean nothing'] : []),
    ...(device.description.software
      ? [`${device.description.description} is a software adapter: its times say nothing about a GPU`]
      : []),
  ];
  const sorted = [...g.seconds].sort((a, b) => a - b);
  return {
    schema: 'lla-sim/run',
    schemaVersion: 1,
    model: {
      name: c.geometry.name,
      layers: c.geometry.layers,
      loops: c.geometry.loops,
      weights: from.checkpoint ? 'checkpoint' : 'fabricated',
      codecWeights: !needsCodec ? 'none' : from.codec ? 'file' : 'fabricated',
      seed: q.seed,
    },
    device: { description: device.description.description, software: device.description.software },
    id: q.id,
    batch: q.batch,
    promptTokens: q.prompt.length,
    filledTokens: q.fill,
    tokens: g.tokens,
    text: from.tokenizer ? g.tokens.map((t) => (from.tokenizer as Tokenizer).decode(t)) : null,
    prefillSeconds: g.prefillSeconds,
    prefillMethod: g.prefillMethod,
    promptTokensPerSecond: (q.batch * q.prompt.length) / g.prefillSeconds,
    tokensPerSecond: g.seconds.length > 0 ? (q.batch * g.seconds.length) / g.spent : null,
    secondsPerStep: sorted[sorted.length >> 1] ?? null,
    cache: {
      allocatedBytes: bytes.cache,
      bytesPerToken: kvBytesPerToken,
      tokensKept: decoder.lengths.map((n) => keptTokens(c.eviction, n)),
    },
    memory: {
      weightsBytes: bytes.weights,
      codecBytes: bytes.codec,
      inFlightBytes: bytes['in-flight'],
      evictionBytes: bytes.eviction,
      workspaceBytes: bytes.workspace,
      controlBytes: bytes.control,
      totalBytes: Object.values(bytes).reduce((sum, n) => sum + n, 0),
    },
    warnings,
  };
}

/** The tokens or their text, then what decoding them took. */
/** Lines and tabs of a model's text stay; nothing else of it may reach a terminal raw. */
const harmless = (text: string): string =>
  text
    .split(/([\n\t])/)
    .map((part, i) => (i % 2 === 1 ? part : printable(part)))
    .join('');

const PREFILL_WORDS: Readonly<Record<PrefillMethod, string>> = {
  accumulated: '',
  chunked: ' (in chunks)',
  'by-layer': ' (by layer)',
  'one-shot': ' (one shot)',
  'by-token': ' (token by token)',
};

/** A report for a person at a terminal. */
export function runText(r: RunReport): string {
  const shown = r.text?.map(harmless) ?? r.tokens.map((t) => t.join(','));
  const eviction = r.cache.tokensKept[0] as number;
  return [
    ...shown.map((s, i) => (r.batch > 1 ? `[${i}] ${s}` : s)),
    '',
    `${r.model.name}, ${r.model.layers} layer${r.model.layers === 1 ? '' : 's'} × ${r.model.loops} loops, ${r.model.weights === 'fabricated' ? `fabricated weights (seed ${r.model.seed})` : 'weights of the checkpoint'}; ${r.id}; ${r.device.description}`,
    `${r.promptTokens} prompt token${r.promptTokens === 1 ? '' : 's'} in ${formatMilliseconds(r.prefillSeconds)} ms`.replace(
      /s ms$/,
      's',
    ) +
      `, ${formatNumber(r.promptTokensPerSecond)} tokens/s${r.batch > 1 ? ` in ${r.batch} sequences` : ''}${PREFILL_WORDS[r.prefillMethod]}`,
    ...(r.tokensPerSecond === null || r.secondsPerStep === null
      ? []
      : [
          `${formatNumber(r.tokensPerSecond)} tokens/s in ${r.batch} sequence${r.batch === 1 ? '' : 's'}; a step takes ${formatNumber(r.secondsPerStep * 1e3)} ms (median, on the device)`,
        ]),
    `cache ${formatBytes(r.cache.allocatedBytes)} allocated, ${formatBytes(r.cache.bytesPerToken)} a token; ${eviction} tokens kept a sequence`,
    `memory ${formatBytes(r.memory.totalBytes)}: weights ${formatBytes(r.memory.weightsBytes)}, codec ${formatBytes(r.memory.codecBytes)}, workspace ${formatBytes(r.memory.workspaceBytes)}`,
    '',
  ].join('\n');
}
