/**
 * The latent-cache decoder on the GPU. A step is the list of operations that schedule/schedule.ts returns for the
 * configuration, in order, in one submission; reference/decoder.ts says in float64 what it computes.
 */
import { UserError } from '../../errors.js';
import { GpuError, type BoundStep, type Device } from '../../gpu/index.js';
import { PREFILL_CHUNK_TOKENS, type WholePrompt } from '../../schedule/prefill.js';
import type { Configuration } from '../../schedule/schedule.js';
import { codecSpec } from '../../codecs/registry.js';
import { checkSampling, choiceOf, GREEDY, type Sampling } from '../sampler.js';
import { biasedProjections } from '../tensors.js';
import { Allocations, type Allocation } from './allocations.js';
import { cacheRows } from './cache-rows.js';
import { Caches, spanOf } from './caches.js';
import { NO_TOKEN } from './dense.js';
import { fillCaches } from './fill.js';
import { writeInputs } from './inputs.js';
import { allocateWorkspace, Machine } from './machine.js';
import { prefillPrompts } from './prefill.js';
import { requireWhole, usualMethod, type PrefillMethod } from './prefill-methods.js';
import { Binder, compile, executorsOf, type Operation } from './program.js';
import { Weights, type DecoderWeights } from './weights.js';

export interface GpuDecoderOptions {
  readonly weights: DecoderWeights;
  /** Sequences decoded together. */
  readonly batch: number;
  /** Tokens of a sequence, evicted ones included, that can be decoded. */
  readonly contextTokens: number;
  /** Cache is allocated in pages of this many tokens, a multiple of 32; 32 unless given. */
  readonly pageTokens?: number;
  /** ε of RMSNorm; 1e-6 unless given. */
  readonly normEpsilon?: number;
  /** Greedy unless given. */
  readonly sampling?: Sampling;
  /** Prompt tokens that are worked on at once; 2048 unless given. */
  readonly prefillChunkTokens?: number;
}

export interface PrefillResult extends StepResult {
  readonly method: PrefillMethod;
}

export interface StepResult {
  /** The next token of each sequence. */
  readonly tokens: Uint32Array;
  /**
   * Of the step's operations on the device: by its timestamps where it has them, else from submission to completion.
   */
  readonly seconds: number;
}

export interface GpuDecoder {
  /**
   * Decodes one token of each sequence.
   * @throws UserError for a token that the model has not, or when a sequence would outgrow its cache
   * @throws GpuError when the device fails or a logit is NaN; everything is freed then
   */
  step(tokens: Uint32Array | readonly number[]): Promise<StepResult>;
  /**
   * Prefills a prompt of each sequence.
   * @param method unless given `accumulated` where prompts begin their sequences, else `by-token`. `chunked` also
   *   continues sequences that hold tokens. With `by-token` shorter prompts begin later
   * @returns the first token after each prompt
   * @throws GpuError `out-of-memory` or `unsupported` for prompts that cannot be prefilled beside the decoder, which
   * stays usable
   */
  prefill(prompts: readonly (readonly number[])[], method?: PrefillMethod): Promise<PrefillResult>;
  /** Logits of the last step, [sequence][vocabulary]. */
  logits(): Promise<Float32Array>;
  /** What the cache of a layer and loop of the core holds (cache-rows.ts): [sequence][head], each [token][width]. */
  rows(role: 'key' | 'value', layer: number, loop: number): Promise<readonly (readonly Float64Array[])[]>;
  /** Tokens of each sequence so far, evicted ones included. */
  readonly lengths: readonly number[];
  /** Every buffer, with its bytes and what it is for. */
  readonly allocations: readonly Allocation[];
  /** Buffers of the last prefill, which are freed. */
  readonly prefillAllocations: readonly Allocation[];
  /** Bytes of uniform blocks: one a distinct bound step. */
  readonly uniformBytes: number;
  /** Operations of the step that was run last, in order: for measuring them one by one. */
  readonly operations: readonly Operation[];
  /** Forgets all sequences. */
  reset(): void;
  /** Gives each sequence a cache of this many tokens with fabricated contents, for tests of capacity and latency. */
  fillCache(lengths: number | readonly number[]): Promise<void>;
  /** Frees everything. */
  close(): void;
}

const MIN_PLANNED_TOKENS = 256;

/**
 * Steps are planned for a context rounded up to an eighth of its octave, so that shapes change seldom. Tokens beyond a
 * sequence's own cost an empty workgroup.
 */
export function plannedContext(longest: number, contextTokens: number): number {
  const grain = Math.max(MIN_PLANNED_TOKENS, 2 ** Math.floor(Math.log2(Math.max(1, longest))) / 8);
  return Math.min(contextTokens, Math.max(1, Math.ceil(longest / grain) * grain));
}

function check(c: Configuration, o: GpuDecoderOptions): void {
  const { batch, contextTokens, pageTokens = 32 } = o;
  const whole = (name: string, value: number): void => {
    if (!Number.isSafeInteger(value) || value < 1)
      throw new UserError(`${name} must be a whole number of at least 1, not ${value}`, 'give at least 1');
  };
  whole('the batch', batch);
  whole('the context', contextTokens);
  whole('a chunk of a prompt', o.prefillChunkTokens ?? PREFILL_CHUNK_TOKENS);
  if (!(pageTokens % 32 === 0 && pageTokens > 0))
    throw new UserError(`pages must be a multiple of 32 tokens, not ${pageTokens}`, 'give for example 32');
  if (c.gpus !== 1) throw new UserError('the decoder runs on one GPU', 'leave out --gpus');
  const spec = codecSpec(c.codec);
  const reason = spec.refuse(c.geometry, c.codec);
  if (reason !== undefined) throw new UserError(reason, 'choose other codec settings');
  if (!spec.paths.includes(c.path) || (spec.fusedOnly && c.materialised))
    throw new UserError(`${c.codec.kind} cannot be read by the path ${c.path}`, `choose ${spec.paths.join(' or ')}`);
  if (c.eviction && spec.refusesEviction)
    throw new UserError(`${c.codec.kind} goes with no eviction: ${spec.refusesEviction}`, 'leave the eviction out');
  biasedProjections(c.geometry);
  checkSampling(o.sampling ?? GREEDY);
}

/**
 * Allocates a decoder and everything that it will need.
 * @throws UserError for settings that do not go together, or tensors that are not the model's
 * @throws GpuError `out-of-memory` when a buffer does not fit, `unsupported` where a kernel is missing; nothing stays
 * allocated
 */
export async function openDecoder(device: Device, c: Configuration, options: GpuDecoderOptions): Promise<GpuDecoder> {
  check(c, options);
  const allocations = new Allocations(device);
  let weights: Weights | undefined;
  try {
    // Bindings that a kernel declares and a call does not use take these: one that is read, one that is written.
    const unused = await allocations.make('unused', 'control', 16);
    await allocations.make('unused output', 'control', 16);
    weights = new Weights(device, c, options.weights, allocations, unused);
    const caches = new Caches(c, options.batch, options.contextTokens, options.pageTokens ?? 32, allocations);
    await caches.allocate();
    await allocateWorkspace(c, options.batch, options.contextTokens, caches, allocations, device);
    const longest = spanOf(c.eviction, caches.slots, options.contextTokens);
    const machine = new Machine(
      device,
      c,
      options.batch,
      options.contextTokens,
      options.normEpsilon ?? 1e-6,
      allocations,
      weights,
      caches,
      longest,
    );
    const decoder = new Decoder(device, machine, options, new Binder(device, unused));
    await decoder.prepare(1);
    weights.close();
    return decoder;
  } catch (error) {
    weights?.close();
    allocations.free();
    throw error;
  }
}

class Decoder implements GpuDecoder {
  readonly lengths: number[];
  private program: { context: number; operations: readonly Operation[]; steps: readonly BoundStep[] } | undefined;
  private closed = false;
  private readonly executors;
  private readonly draws: number[];
  prefillAllocations: readonly Allocation[] = [];

  constructor(
    private readonly device: Device,
    private readonly machine: Machine,
    private readonly options: GpuDecoderOptions,
    private readonly binder: Binder,
  ) {
    this.lengths = new Array<number>(options.batch).fill(0);
    this.draws = new Array<number>(options.batch).fill(0);
    this.executors = executorsOf(options.sampling ?? GREEDY);
  }

  get allocations(): readonly Allocation[] {
    return this.machine.allocations.table;
  }

  get uniformBytes(): number {
    return this.binder.uniforms.reduce((sum, b) => sum + b.bytes, 0);
  }

  get operations(): readonly Operation[] {
    return this.program?.operations ?? [];
  }

  /** Binds the operations of a step over `longest` tokens, unless those of the last step can be used again. */
  async prepare(longest: number): Promise<readonly BoundStep[]> {
    const context = plannedContext(longest, this.options.contextTokens);
    if (this.program?.context === context) return this.program.steps;
    const { machine } = this;
    this.binder.free();
    this.program = undefined;
    try {
      machine.begin(spanOf(machine.c.eviction, machine.caches.slots, context));
      const operations = await compile(
        machine,
        this.executors,
        this.binder,
        context,
        choiceOf(this.options.sampling ?? GREEDY),
      );
      this.program = { context, operations, steps: operations.flatMap((operation) => operation.steps) };
      return this.program.steps;
    } catch (error) {
      this.binder.free();
      throw error;
    }
  }

  private requireOpen(): void {
    if (this.closed) throw new GpuError('lost', 'the decoder is closed');
  }

  async step(tokens: Uint32Array | readonly number[]): Promise<StepResult> {
    const result = await this.run(tokens, () => true);
    this.draws.forEach((draw, i) => (this.draws[i] = draw + 1));
    return result;
  }

  async prefill(prompts: readonly (readonly number[])[], method?: PrefillMethod): Promise<PrefillResult> {
    this.requireOpen();
    const { batch, contextTokens } = this.options;
    if (prompts.length !== batch)
      throw new UserError(`${prompts.length} prompts were given for ${batch} sequences`, 'give one for each');
    const empty = prompts.findIndex((prompt) => prompt.length === 0);
    if (empty >= 0) throw new UserError(`the prompt of sequence ${empty} has no tokens`, 'give at least one');
    const taken = method ?? usualMethod(this.begun);
    if (taken === 'by-token') return { ...(await this.prefillByToken(prompts)), method: taken };
    requireWhole(taken, this.begun);
    for (const [i, prompt] of prompts.entries()) {
      this.requireTokens(prompt);
      const length = (this.lengths[i] as number) + prompt.length;
      if (length > contextTokens)
        throw new UserError(
          `the prompt of sequence ${i} makes it ${length} tokens long, and its cache was made for ${contextTokens}`,
          'open the decoder with a longer context',
        );
    }
    return { ...(await this.prefillWhole(prompts, taken)), method: taken };
  }

  private get begun(): boolean {
    return this.lengths.some((length) => length > 0);
  }

  private async prefillWhole(prompts: readonly (readonly number[])[], method: WholePrompt): Promise<StepResult> {
    const { machine, options } = this;
    let started = false;
    try {
      const chunkTokens = options.prefillChunkTokens ?? PREFILL_CHUNK_TOKENS;
      const { seconds, allocations } = await prefillPrompts(
        machine,
        {
          method,
          prompts,
          lengths: this.lengths,
          chunkTokens,
          sampling: options.sampling ?? GREEDY,
          draws: this.draws,
        },
        () => (started = true),
      );
      this.prefillAllocations = allocations;
      prompts.forEach((prompt, i) => (this.lengths[i] = (this.lengths[i] as number) + prompt.length));
      const tokens = await this.nextTokens((sequence) => (this.lengths[sequence] as number) - 1);
      this.draws.forEach((draw, i) => (this.draws[i] = draw + 1));
      return { tokens, seconds };
    } catch (error) {
      // Half-written caches behind a sequence's tokens are harmless; a device that failed is not.
      if (started) this.close();
      throw error;
    }
  }

  private async writeDraws(): Promise<void> {
    if ((this.options.sampling?.temperature ?? 0) > 0)
      await this.device.write(
        this.machine.buffer('draws'),
        Uint32Array.from(this.draws.flatMap((draw, stream) => [stream, draw])),
      );
  }

  private async prefillByToken(prompts: readonly (readonly number[])[]): Promise<StepResult> {
    if (this.begun && new Set(prompts.map((p) => p.length)).size > 1)
      throw new UserError(
        'prompts of different lengths can only begin a sequence token by token',
        'take them in whole, or reset the decoder first',
      );
    const steps = Math.max(...prompts.map((prompt) => prompt.length));
    let result: StepResult | undefined;
    let seconds = 0;
    for (let i = 0; i < steps; i++) {
      // A waiting sequence runs on an empty cache; its first token overwrites what it writes.
      const at = (prompt: readonly number[]): number => i - (steps - prompt.length);
      result = await this.run(
        prompts.map((prompt) => prompt[Math.max(0, at(prompt))] as number),
        (sequence) => at(prompts[sequence] as readonly number[]) >= 0,
      );
      seconds += result.seconds;
    }
    this.draws.forEach((draw, i) => (this.draws[i] = draw + 1));
    return { tokens: (result as StepResult).tokens, seconds };
  }

  private requireTokens(tokens: Uint32Array | readonly number[]): void {
    const { vocab, name } = this.machine.c.geometry;
    for (const token of tokens)
      if (!Number.isInteger(token) || token < 0 || token >= vocab)
        throw new UserError(`token ${token} is not one of the ${vocab} of ${name}`, 'give token numbers from 0');
  }

  /** The chosen tokens. @param position of the logits of a sequence */
  private async nextTokens(position: (sequence: number) => number): Promise<Uint32Array> {
    const next = new Uint32Array(await this.device.read(this.machine.buffer('next tokens'), 4 * this.options.batch));
    const broken = next.indexOf(NO_TOKEN);
    if (broken >= 0)
      throw new GpuError(
        'internal',
        `the logits of sequence ${broken} hold NaN at position ${position(broken)}: check the weights for NaN and overflow`,
      );
    return next;
  }

  /** One step. Sequences that do not join keep their length. */
  private async run(
    tokens: Uint32Array | readonly number[],
    joins: (sequence: number) => boolean,
  ): Promise<StepResult> {
    this.requireOpen();
    const { batch, contextTokens } = this.options;
    if (tokens.length !== batch)
      throw new UserError(`${tokens.length} tokens were given for ${batch} sequences`, 'give one for each');
    this.requireTokens(tokens);
    const full = this.lengths.findIndex((length) => length >= contextTokens);
    if (full >= 0)
      throw new UserError(
        `sequence ${full} has ${this.lengths[full]} tokens, as many as its cache was made for`,
        'open the decoder with a longer context',
      );
    try {
      const steps = await this.prepare(Math.max(1, ...this.lengths));
      await writeInputs(this.machine, { tokens: Uint32Array.from(tokens), lengths: this.lengths });
      await this.writeDraws();
      const time = await this.device.run(steps, true);
      const next = await this.nextTokens((sequence) => this.lengths[sequence] as number);
      this.lengths.forEach((length, i) => (this.lengths[i] = joins(i) ? length + 1 : length));
      return { tokens: next, seconds: time.gpuSeconds ?? time.wallSeconds };
    } catch (error) {
      // A failed step leaves half-written caches: decoding cannot continue.
      this.close();
      throw error;
    }
  }

  async logits(): Promise<Float32Array> {
    this.requireOpen();
    return new Float32Array(
      await this.device.read(this.machine.buffer('logits'), 4 * this.options.batch * this.machine.c.geometry.vocab),
    );
  }

  async rows(role: 'key' | 'value', layer: number, loop: number): Promise<Float64Array[][]> {
    this.requireOpen();
    return cacheRows(this.machine, role, layer, loop, this.lengths);
  }

  reset(): void {
    this.requireOpen();
    this.lengths.fill(0);
    this.draws.fill(0);
  }

  async fillCache(lengths: number | readonly number[]): Promise<void> {
    this.requireOpen();
    const { batch, contextTokens } = this.options;
    const all = typeof lengths === 'number' ? new Array<number>(batch).fill(lengths) : lengths;
    if (all.length !== batch || all.some((n) => !Number.isInteger(n) || n < 0 || n > contextTokens)) {
      throw new UserError(
        `cache lengths must be ${batch} whole numbers of at most ${contextTokens}`,
        'open the decoder with a longer context',
      );
    }
    await fillCaches(this.device, this.machine);
    all.forEach((n, i) => (this.lengths[i] = n));
  }

  close(): void {
    if (this.closed) return;
    this.closed = true;
    this.binder.free();
    this.machine.allocations.free();
  }
}
