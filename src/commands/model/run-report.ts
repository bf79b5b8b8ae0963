/** The report of `lla-sim run`: tokens, times and bytes of one decoding, as an object and as text. */
import { codecTensors } from '../../decoder/tensors.js';
import type { SafetensorsFile, Tokenizer } from '../../decoder/index.js';
import type { GpuDecoder } from '../../decoder/gpu/decoder.js';
import type { PrefillMethod } from '../../decoder/gpu/prefill-methods.js';
import { memoryModel } from '../../cost/memory.js';
import { EXIT, printable, UserError } from '../../errors.js';
import { present } from '../../present.js';
import { keptTokens } from '../../eviction/policy.js';
import type { Device } from '../../gpu/index.js';
import type { Configuration } from '../../schedule/schedule.js';
import type { Task } from '../../tiny/tasks.js';
import { counted, formatBytes, formatMilliseconds, formatNumber, percent } from '../../numbers/units.js';
import { allocatedBytes } from '../../validate/memory/memory.js';
import type { Loaded, RunQuestion } from './run-question.js';
import type { SpeculationReport } from './run-speculate.js';

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
  /** The bundled model's own question, in words, and the answer that is right; null where a prompt was given. */
  readonly asked: { readonly prompt: string; readonly answer: string; readonly isRight: readonly boolean[] } | null;
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
  /** Median of the generating steps or rounds, on the device's clock where it has one. */
  readonly secondsPerStep: number | null;
  /** Null where tokens came one by one. */
  readonly speculation: SpeculationReport | null;
  readonly cache: {
    readonly allocatedBytes: number;
    readonly bytesPerToken: number;
    readonly tokensKept: readonly number[];
  };
  /** Of the decoder on the device; null in float64. */
  readonly memory: {
    readonly weightsBytes: number;
    readonly codecBytes: number;
    readonly inFlightBytes: number;
    readonly evictionBytes: number;
    readonly workspaceBytes: number;
    readonly controlBytes: number;
    readonly totalBytes: number;
  } | null;
  readonly warnings: readonly string[];
}

/** What a decoder made, and how long it took: each step, and all of them by the wall clock. */
export type Generated = Pick<RunReport, 'tokens' | 'prefillSeconds' | 'prefillMethod' | 'speculation'> & {
  readonly seconds: readonly number[];
  readonly spent: number;
};

/** Where it was decoded, and what it took there. */
export type Decoded = Pick<RunReport, 'device' | 'memory'> & {
  readonly cacheBytes: number;
  readonly lengths: readonly number[];
};

/** The same of a decoder on a device. */
export function onDevice({ description: { description, software } }: Device, decoder: GpuDecoder): Decoded {
  const bytes = allocatedBytes(decoder);
  return {
    device: { description, software },
    cacheBytes: bytes.cache,
    lengths: decoder.lengths,
    memory: {
      weightsBytes: bytes.weights,
      codecBytes: bytes.codec,
      inFlightBytes: bytes['in-flight'],
      evictionBytes: bytes.eviction,
      workspaceBytes: bytes.workspace,
      controlBytes: bytes.control,
      totalBytes: Object.values(bytes).reduce((sum, n) => sum + n, 0),
    },
  };
}

export const interruptedAfter = (tokens: number, { maxTokens }: RunQuestion): UserError =>
  new UserError(
    `interrupted after ${tokens} of ${maxTokens} tokens; nothing of it is printed`,
    'run it again',
    EXIT.interrupted,
  );

/** The report of a decoding. */
export function describe(
  decoded: Decoded,
  c: Configuration,
  q: RunQuestion,
  from: Loaded & { codec: SafetensorsFile | undefined },
  g: Generated,
): RunReport {
  const { device, cacheBytes, lengths, memory } = decoded;
  const { kvBytesPerToken } = memoryModel(c, q.contextTokens, q.pageTokens);
  const needsCodec = codecTensors(c.geometry, c.codec, c.path, c.branch).length > 0;
  const warnings = present([
    ...(from.checkpoint?.warnings ?? []),
    from.geometry.copiesKeys &&
      'values are keys, and cached as both: kv_cache_mode "shared", which is planned, takes half the bytes',
    !from.checkpoint && 'the weights are fabricated: times and bytes are real, the tokens mean nothing',
    from.checkpoint &&
      needsCodec &&
      !from.codec &&
      'the codec is fabricated and does not fit the checkpoint: the tokens mean nothing',
    q.fill > 0 && 'the cache began with made-up contents: the tokens mean nothing',
    device.software &&
      `${device.description} is ${memory ? 'a software adapter' : 'a processor'}: its times say nothing about a GPU`,
  ]);
  const made = g.tokens.reduce((sum, own) => sum + own.length, 0);
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
    device,
    id: q.id,
    batch: q.batch,
    promptTokens: q.prompt.length,
    asked: q.task === null || from.tokenizer === null ? null : askedOf(q.task, from.tokenizer, g.tokens),
    filledTokens: q.fill,
    tokens: g.tokens,
    text: from.tokenizer ? g.tokens.map((t) => (from.tokenizer as Tokenizer).decode(t)) : null,
    prefillSeconds: g.prefillSeconds,
    prefillMethod: g.prefillMethod,
    promptTokensPerSecond: (q.batch * q.prompt.length) / g.prefillSeconds,
    tokensPerSecond: g.seconds.length > 0 ? (made - q.batch) / g.spent : null,
    secondsPerStep: sorted[sorted.length >> 1] ?? null,
    speculation: g.speculation,
    cache: {
      allocatedBytes: cacheBytes,
      bytesPerToken: kvBytesPerToken,
      tokensKept: lengths.map((n) => keptTokens(c.eviction, n)),
    },
    memory,
    warnings,
  };
}

const askedOf = (task: Task, tokenizer: Tokenizer, made: readonly (readonly number[])[]): RunReport['asked'] => ({
  prompt: tokenizer.decode(task.prompt),
  answer: tokenizer.decode(task.answer),
  isRight: made.map((tokens) => task.answer.every((token, i) => tokens[i] === token)),
});

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

/** What speculation did. */
function speculationLines(s: SpeculationReport, loops: number): string[] {
  const milliseconds = (seconds: number | null): string => (seconds === null ? '-' : formatNumber(seconds * 1e3));
  const upTo = s.acceptedUpTo.map((share) => `${percent(share)} %`).join(', ');
  return [
    `speculation: ${s.draftLoops} of ${loops} loops proposed ${counted(s.draftTokens, 'token')} ` +
      `a round; ${counted(s.rounds, 'round')}, ${s.accepted} ` +
      `of ${s.proposed} accepted (${percent(s.acceptance)} % after accepted ones; up to each place ${upTo})`,
    `${s.passes.draft} passes of one row and ${s.passes.verify} of ${s.draftTokens + 1}; one by one ` +
      `${s.passes.without}. A token takes ${milliseconds(s.secondsPerToken)} ms, one by one ` +
      `${milliseconds(s.secondsPerTokenWithout)} ms (on the device); ` +
      `${s.sameTokens ? 'the same tokens' : 'NOT the same tokens'}`,
  ];
}

/** A report for a person at a terminal. */
export function runText(r: RunReport): string {
  const shown = r.text?.map(harmless) ?? r.tokens.map((t) => t.join(','));
  const eviction = r.cache.tokensKept[0] as number;
  const verdict = (i: number): string =>
    r.asked === null ? '' : r.asked.isRight[i] ? ' (right)' : ` (wrong: the text says ${r.asked.answer})`;
  const { model } = r;
  const weights =
    model.weights === 'fabricated' ? `fabricated weights (seed ${model.seed})` : 'weights of the checkpoint';
  const inSequences = r.batch > 1 ? ` in ${r.batch} sequences` : '';
  return present([
    r.asked?.prompt,
    ...shown.map((s, i) => `${r.batch > 1 ? `[${i}] ` : ''}${s}${verdict(i)}`),
    '',
    `${model.name}, ${counted(model.layers, 'layer')} × ${model.loops} loops, ${weights}; ` +
      `${r.id}; ${r.device.description}`,
    `${counted(r.promptTokens, 'prompt token')} in ` +
      `${`${formatMilliseconds(r.prefillSeconds)} ms`.replace(/s ms$/, 's')}, ` +
      `${formatNumber(r.promptTokensPerSecond)} tokens/s${inSequences}${PREFILL_WORDS[r.prefillMethod]}`,
    r.tokensPerSecond !== null &&
      r.secondsPerStep !== null &&
      `${formatNumber(r.tokensPerSecond)} tokens/s in ${counted(r.batch, 'sequence')}` +
        `${r.memory ? ' by the wall clock, compilation included' : ''}; a ` +
        `${r.speculation ? 'round' : 'step'} takes ${formatNumber(r.secondsPerStep * 1e3)} ms (median, on the ` +
        `${r.memory ? 'device' : 'processor'})`,
    ...(r.speculation ? speculationLines(r.speculation, r.model.loops) : []),
    `cache ${formatBytes(r.cache.allocatedBytes)} ${r.memory ? 'allocated' : 'held'}, ` +
      `${formatBytes(r.cache.bytesPerToken)} a token; ${eviction} tokens kept a sequence`,
    r.memory &&
      `memory ${formatBytes(r.memory.totalBytes)}: weights ${formatBytes(r.memory.weightsBytes)}, codec ` +
        `${formatBytes(r.memory.codecBytes)}, workspace ${formatBytes(r.memory.workspaceBytes)}`,
    '',
  ]).join('\n');
}
