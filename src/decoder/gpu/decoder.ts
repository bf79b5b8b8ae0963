/**
 * The latent-cache decoder on the GPU. A step is the list of operations that schedule/schedule.ts returns for the
 * configuration, in order, in one submission; reference/decoder.ts says in float64 what it computes.
 */
import { UserError } from '../../errors.js';
import { GpuError, type Device } from '../../gpu/index.js';
import type { GpuDecoderOptions, PrefillResult, RoundResult, StepResult } from './interface.js';
import { expand } from '../../schedule/expand.js';
import { PREFILL_CHUNK_TOKENS, type WholePrompt } from '../../schedule/prefill/prefill.js';
import { schedule, type Configuration } from '../../schedule/schedule.js';
import { choiceOf, GREEDY } from '../sampler.js';
import type { SequenceEngine } from '../serving/loop.js';
import { Allocations, makeUnused, makeWorkspace, type Allocation } from './allocations.js';
import { cachedRows, type CachedRows, type CachePlace } from './cache-rows.js';
import type { CacheRole } from '../../schedule/bind/refs.js';
import { Caches } from './caches.js';
import { NO_TOKEN } from '../../../kernels/sample/launch.js';
import { Machine } from './machine.js';
import { fillCaches } from './fill.js';
import { checkOptions } from './options.js';
import { prefillPrompts } from './prefill.js';
import { requireRuns, requireWhole, usualMethod, type PrefillMethod } from './prefill-methods.js';
import { Binder, type Operation } from './program.js';
import { roundRows, Speculation } from './speculation.js';
import { StepProgram } from './steps.js';
import { Weights } from './weights.js';

export type * from './interface.js';
export type GpuDecoder = Omit<Decoder, 'program'>;

/**
 * Allocates a decoder and everything that it will need.
 * @throws UserError for settings that do not go together, or tensors that are not the model's
 * @throws GpuError `out-of-memory` when a buffer does not fit, `unsupported` where a kernel is missing; nothing stays
 * allocated
 */
export async function openDecoder(device: Device, c: Configuration, options: GpuDecoderOptions): Promise<GpuDecoder> {
  checkOptions(c, options);
  const { speculation: draft, pageTokens = 32 } = options;
  const allocations = new Allocations(device);
  let weights: Weights | undefined;
  try {
    const unused = await makeUnused(allocations);
    weights = new Weights(device, c, options.weights, allocations, unused);
    const { batch, contextTokens, normEpsilon = 1e-6, sampling = GREEDY } = options;
    const setting = { c, batch, contextTokens, normEpsilon, sampling };
    const caches = new Caches(c, batch, contextTokens, pageTokens, allocations, roundRows(draft));
    await caches.allocate();
    await makeWorkspace(setting, caches, allocations);
    const machine = new Machine(device, setting, allocations, weights, caches);
    const speculation = draft ? await Speculation.open(machine, options, draft) : undefined;
    const decoder = new Decoder(device, machine, options, new Binder(device, unused), speculation);
    // Binds the operations of a first step.
    await decoder.program.prepare(1);
    weights.close();
    return decoder;
  } catch (error) {
    weights?.close();
    allocations.free();
    throw error;
  }
}

class Decoder implements Pick<SequenceEngine, 'extend'> {
  /** Tokens of each sequence so far, evicted ones included. */
  readonly lengths: number[];
  readonly program: StepProgram;
  private closed = false;
  private readonly draws: number[];
  /** Number of the stream of random draws of each sequence. */
  private readonly streams: number[];
  /** Buffers of the last prefill, which are freed. */
  prefillAllocations: readonly Allocation[] = [];

  constructor(
    private readonly device: Device,
    private readonly machine: Machine,
    private readonly options: GpuDecoderOptions,
    binder: Binder,
    private readonly speculation: Speculation | undefined,
  ) {
    this.lengths = new Array<number>(options.batch).fill(0);
    this.draws = new Array<number>(options.batch).fill(0);
    this.streams = this.draws.map((_, sequence) => sequence);
    const { c, batch, caches, setting } = machine;
    const listed = { slots: caches.slots.capacity, choice: choiceOf(setting.sampling) };
    this.program = new StepProgram(machine, binder, (context) => expand(c, schedule(c, batch, context, listed)));
  }

  /** Every buffer, with its bytes and what it is for. */
  get allocations(): readonly Allocation[] {
    return [...this.machine.allocations.table, ...(this.speculation?.allocations ?? [])];
  }

  /** Bytes of uniform blocks: one a distinct bound step. */
  get uniformBytes(): number {
    return this.program.uniformBytes + (this.speculation?.uniformBytes ?? 0);
  }

  /** Operations of the step that was run last, in order: for measuring them one by one. */
  get operations(): readonly Operation[] {
    return this.program.operations;
  }

  private requireOpen(): void {
    if (this.closed) throw new GpuError('lost', 'the decoder is closed');
  }

  /**
   * Decodes one token of each sequence.
   * @param joins the sequences that decode, all unless given; the others keep what they hold, and their token is void
   * @throws UserError for a token that the model has not, or when a sequence would outgrow its cache; under eviction
   * when a sequence that holds tokens does not join, as a step would evict one of them
   * @throws GpuError when the device fails or a logit is NaN; everything is freed then
   */
  async step(
    tokens: Uint32Array | readonly number[],
    joins: (sequence: number) => boolean = () => true,
  ): Promise<StepResult> {
    const waits = this.machine.c.eviction ? this.lengths.findIndex((length, i) => length > 0 && !joins(i)) : -1;
    if (waits >= 0)
      throw new UserError(
        `sequence ${waits} holds tokens under eviction and cannot wait while others decode`,
        'take its prompt in whole, or forget it',
      );
    const result = await this.run(tokens, joins);
    this.draws.forEach((draw, i) => (this.draws[i] = joins(i) ? draw + 1 : draw));
    return result;
  }

  /**
   * A round of speculation of each sequence: one token or more, those that `step` would give one by one.
   * @param accept proposals of a sequence that are kept whatever was verified: for times with made-up weights
   * @throws as `step`; UserError where the decoder was not opened for it
   */
  async speculate(
    tokens: readonly number[],
    joins: (sequence: number) => boolean = () => true,
    accept?: (sequence: number) => number,
  ): Promise<RoundResult> {
    const { speculation, options } = this;
    if (!speculation)
      throw new UserError('the decoder was not opened for speculation', 'open it with how many tokens are proposed');
    const draftTokens = options.speculation?.draftTokens ?? 0;
    this.requireStep(tokens, () => true, draftTokens + 1);
    try {
      const rows = (machine: Machine): number => machine.batch / options.batch;
      const next = (machine: Machine): Promise<Uint32Array> =>
        this.nextTokens((row) => (this.lengths[Math.floor(row / rows(machine))] as number) + draftTokens, machine);
      const round = await speculation.round(tokens, this.lengths, next, accept);
      const own = round.tokens.map((said, i) => (joins(i) ? said : []));
      this.grow((i) => own[i]!.length);
      return { ...round, tokens: own, proposed: round.proposed.map((made, i) => (joins(i) ? made : [])) };
    } catch (error) {
      this.close();
      throw error;
    }
  }

  async extend(
    sequence: number,
    tokens: readonly number[],
    ends: boolean,
  ): Promise<{ token: number | null; seconds: number }> {
    const prompts = this.lengths.map((_, i) => (i === sequence ? tokens : []));
    if (prompts[sequence] === undefined || tokens.length === 0)
      throw new UserError(
        `sequence ${sequence} of ${prompts.length} cannot take ${tokens.length} tokens`,
        'give a sequence from 0 and at least one token',
      );
    const { tokens: next, seconds } = await this.prefillWhole(prompts, 'chunked', ends);
    return { token: ends ? (next[sequence] as number) : null, seconds };
  }

  /**
   * Forgets one sequence, so that another takes its place.
   * @param stream of the random draws of the new one; its own number unless given
   * @param draw number of its first draw; 0 unless given
   */
  forget(sequence: number, stream = sequence, draw = 0): void {
    this.requireOpen();
    this.lengths[sequence] = 0;
    this.draws[sequence] = draw;
    this.streams[sequence] = stream;
  }

  /**
   * Prefills a prompt of each sequence.
   * @param method unless given `accumulated` where prompts begin their sequences, else `by-token`. `chunked` also
   *   continues sequences that hold tokens. With `by-token` shorter prompts begin later
   * @returns the first token after each prompt
   * @throws GpuError `out-of-memory` or `unsupported` for prompts that cannot be prefilled beside the decoder, which
   * stays usable
   */
  async prefill(prompts: readonly (readonly number[])[], method?: PrefillMethod): Promise<PrefillResult> {
    this.requireOpen();
    const { batch } = this.options;
    if (prompts.length !== batch)
      throw new UserError(`${prompts.length} prompts were given for ${batch} sequences`, 'give one for each');
    const empty = prompts.findIndex((prompt) => prompt.length === 0);
    if (empty >= 0) throw new UserError(`the prompt of sequence ${empty} has no tokens`, 'give at least one');
    const taken = method ?? usualMethod(this.machine.c.geometry, this.begun);
    if (taken === 'by-token') return { ...(await this.prefillByToken(prompts)), method: taken };
    requireWhole(taken, this.begun);
    return { ...(await this.prefillWhole(prompts, taken, true)), method: taken };
  }

  private requireRoom(prompts: readonly (readonly number[])[]): void {
    this.requireOpen();
    const { contextTokens } = this.options;
    for (const [i, prompt] of prompts.entries()) {
      this.requireTokens(prompt);
      const length = (this.lengths[i] as number) + prompt.length;
      if (length > contextTokens)
        throw new UserError(
          `the prompt of sequence ${i} makes it ${length} tokens long, and its cache was made for ${contextTokens}`,
          'open the decoder with a longer context',
        );
    }
  }

  private grow(tokens: (sequence: number) => number): void {
    this.lengths.forEach((length, i) => (this.lengths[i] = length + tokens(i)));
  }

  private get begun(): boolean {
    return this.lengths.some((length) => length > 0);
  }

  /** Takes prompts in; an empty one leaves its sequence alone. */
  private async prefillWhole(
    prompts: readonly (readonly number[])[],
    method: WholePrompt,
    ends: boolean,
  ): Promise<StepResult> {
    this.requireRoom(prompts);
    const { machine, options, lengths, draws, streams } = this;
    const begun = prompts.some((prompt, i) => prompt.length > 0 && (lengths[i] as number) > 0);
    requireRuns(machine.c, begun, ends);
    let started = false;
    try {
      const chunkTokens = options.prefillChunkTokens ?? PREFILL_CHUNK_TOKENS;
      const whole = { method, prompts, lengths, chunkTokens, draws, streams, ends };
      const { seconds, allocations } = await prefillPrompts(machine, whole, () => (started = true));
      this.prefillAllocations = allocations;
      this.grow((i) => prompts[i]!.length);
      if (!ends) return { tokens: new Uint32Array(prompts.length), seconds };
      const tokens = await this.nextTokens((sequence) => (this.lengths[sequence] as number) - 1);
      this.draws.forEach((draw, i) => (this.draws[i] = prompts[i]!.length > 0 ? draw + 1 : draw));
      return { tokens, seconds };
    } catch (error) {
      // Half-written caches behind a sequence's tokens are harmless; a device that failed is not.
      if (started) this.close();
      throw error;
    }
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

  /** The chosen tokens. @param position of a row's logits @param machine of which rows are sequences unless given */
  private async nextTokens(position: (row: number) => number, machine = this.machine): Promise<Uint32Array> {
    const next = new Uint32Array(await this.device.read(machine.buffer('next tokens'), 4 * machine.batch));
    const broken = next.indexOf(NO_TOKEN);
    if (broken >= 0)
      throw new GpuError(
        'internal',
        `the logits of ${machine === this.machine ? 'sequence' : 'row'} ${broken} hold NaN at ` +
          `position ${position(broken)}: check the weights for NaN and overflow`,
      );
    return next;
  }

  /** @param room tokens that a sequence may grow by */
  private requireStep(
    tokens: Uint32Array | readonly number[],
    joins: (sequence: number) => boolean,
    room: number,
  ): void {
    this.requireOpen();
    const { batch, contextTokens } = this.options;
    if (tokens.length !== batch)
      throw new UserError(`${tokens.length} tokens were given for ${batch} sequences`, 'give one for each');
    this.requireTokens(tokens);
    const full = this.lengths.findIndex((length, i) => joins(i) && length + room > contextTokens);
    if (full >= 0)
      throw new UserError(
        room === 1
          ? `sequence ${full} has ${this.lengths[full]} tokens, as many as its cache was made for`
          : `sequence ${full} has ${this.lengths[full]} tokens, and a round of ${room} ` +
              `does not fit its cache of ${contextTokens}`,
        'open the decoder with a longer context',
      );
  }

  /** One step. Sequences that do not join keep their length. */
  private async run(
    tokens: Uint32Array | readonly number[],
    joins: (sequence: number) => boolean,
  ): Promise<StepResult> {
    this.requireStep(tokens, joins, 1);
    try {
      if (this.machine.setting.sampling.temperature > 0) {
        const draws = this.draws.flatMap((draw, i) => [this.streams[i] as number, draw]);
        await this.device.write(this.machine.buffer('draws'), Uint32Array.from(draws));
      }
      const seconds = await this.program.run(Math.max(1, ...this.lengths), tokens, this.lengths);
      const next = await this.nextTokens((sequence) => this.lengths[sequence] as number);
      this.grow((i) => Number(joins(i)));
      return { tokens: next, seconds };
    } catch (error) {
      // A failed step leaves half-written caches: decoding cannot continue.
      this.close();
      throw error;
    }
  }

  /** Logits of the last step, [sequence][vocabulary]. */
  async logits(): Promise<Float32Array> {
    this.requireOpen();
    const { c, batch } = this.machine;
    return new Float32Array(await this.device.read(this.machine.buffer('logits'), 4 * batch * c.geometry.vocab));
  }

  /** What the cache holds of one role in a layer and loop, as it is now. */
  async cached(role: CacheRole, at: CachePlace): Promise<CachedRows> {
    this.requireOpen();
    return cachedRows(this.machine, role, at, this.lengths);
  }

  /** Forgets all sequences. */
  reset(): void {
    this.requireOpen();
    this.lengths.fill(0);
    this.draws.fill(0);
    this.streams.forEach((_, sequence) => (this.streams[sequence] = sequence));
  }

  /** Gives each sequence a cache of this many tokens with fabricated contents, for tests of capacity and latency. */
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
    await fillCaches(this.machine);
    all.forEach((n, i) => (this.lengths[i] = n));
  }

  /** Frees everything. */
  close(): void {
    if (this.closed) return;
    this.closed = true;
    this.program.free();
    this.speculation?.free();
    this.machine.allocations.free();
  }
}
