/**
 * The GPU as a few verbs: make a buffer, compile a kernel, run steps, read back. Every creation and submission is
 * inside an error scope, and an error that Dawn reports outside of one makes the next call fail: no error is silent.
 */
import { clockNow } from '../io/clock.js';
import type { AdapterDescription } from './describe.js';
import { GpuError, type GpuFault } from '../../kernels/host/errors.js';
import { encodePass, MOST_QUERIES, scaledTo, timestamps, type BoundStep, type Buffer, type Queries } from './passes.js';
import type { OperationPlan, Step } from '../../kernels/host/plan.js';
import type { Bounds, Clock, DeviceLimits, Platform, ProcessorClock, RunTime, Units } from './platform.js';
import { runnable } from './runnable.js';
import { packUniforms } from './uniforms.js';
import { OWN_SOURCES, type SourceSet } from '../../kernels/source.js';

/** Dawn stages the data of writeBuffer in host memory; pieces of this size keep that small. */
const UPLOAD_CHUNK_BYTES = 16 * 2 ** 20;
/** How long a device that was lost may take to say so. */
const LOSS_IS_TOLD_MS = 100;

const FILTERS = ['internal', 'out-of-memory', 'validation'] as const satisfies readonly (GPUErrorFilter & GpuFault)[];

const layoutKey = (step: Step): string => step.buffers.map((b) => (b.access === 'read' ? 'r' : 'w')).join('');

/** Steps of one key have one pipeline. */
export const pipelineKey = (step: Step): string =>
  JSON.stringify([step.source, step.element, layoutKey(step), Object.entries(step.constants).sort()]);

export class Device {
  private fault: GpuError | undefined;
  private closed = false;
  private readonly pipelines = new Map<string, Promise<GPUComputePipeline>>();
  private readonly layouts = new Map<string, GPUBindGroupLayout>();
  /** Runs that are encoded already; a command buffer is submitted once. */
  private readonly ahead = new WeakMap<readonly BoundStep[], GPUCommandBuffer>();
  private querySet: Queries | undefined;

  constructor(
    private readonly raw: GPUDevice,
    readonly description: AdapterDescription,
    readonly features: readonly string[],
    readonly limits: DeviceLimits,
    private readonly platform: Platform,
    readonly units: Units,
    private readonly processor: ProcessorClock | null,
  ) {
    raw.addEventListener('uncapturederror', (event) => {
      event.preventDefault();
      this.fault ??= new GpuError('internal', `uncaptured GPU error: ${event.error.message}`);
    });
    void raw.lost.then((info) => {
      if (!this.closed) this.fault = new GpuError('lost', `the device was lost: ${info.message}`);
    });
  }

  get bounds(): Bounds {
    return this.platform.bounds;
  }

  get hasTimestamps(): boolean {
    return this.has('timestamp-query');
  }

  /** What times its runs: the wall clock where the device has no clock of its own. */
  get clock(): Clock {
    return this.processor ? 'processor' : this.hasTimestamps ? 'gpu-timestamp' : 'wall';
  }

  /** Whether kernels may use a feature: the adapter has it and the device was opened with it. */
  has(feature: string): boolean {
    return this.raw.features.has(feature as GPUFeatureName);
  }

  /** Throws the error that Dawn reported since the last call, if any. */
  check(): void {
    if (this.fault) throw this.fault;
  }

  /** Runs `make` inside validation, memory and internal error scopes; the first error that was caught is thrown. */
  private async scoped<T>(subject: string, make: () => T): Promise<T> {
    this.check();
    for (const filter of FILTERS) this.raw.pushErrorScope(filter);
    let result: T | undefined;
    let thrown: string | undefined;
    try {
      // Pushed and popped without a wait between, as scopes of concurrent calls would otherwise interleave.
      result = make();
    } catch (error) {
      thrown = error instanceof Error ? error.message : 'unknown error';
    }
    // The scope that was pushed last is popped first.
    const popped = FILTERS.toReversed().map(async (fault) => ({ fault, error: await this.raw.popErrorScope() }));
    const caught = await Promise.all(popped).catch((error: unknown) => this.lostOr(error));
    for (const { fault, error } of caught) if (error) throw new GpuError(fault, `${subject}: ${error.message}`);
    if (thrown !== undefined) throw new GpuError('validation', `${subject}: ${thrown}`);
    this.check();
    return result as T;
  }

  /** What a rejection of the device means: that it was lost, which its promise tells within a turn, or `error`. */
  private async lostOr(error: unknown): Promise<never> {
    await Promise.race([this.raw.lost, new Promise((resolve) => setTimeout(resolve, LOSS_IS_TOLD_MS))]);
    this.check();
    throw error;
  }

  /** A storage buffer that can be written, copied and read back. Sizes are rounded up to whole words. */
  async buffer(label: string, bytes: number): Promise<Buffer> {
    const size = Math.max(16, Math.ceil(bytes / 4) * 4);
    if (size > this.limits.maxBufferSize)
      throw new GpuError(
        'out-of-memory',
        `buffer ${label}: ${size} bytes exceed the device's limit of ${this.limits.maxBufferSize}`,
      );
    const usage = GPUBufferUsage.STORAGE | GPUBufferUsage.COPY_SRC | GPUBufferUsage.COPY_DST;
    const raw = await this.scoped(`buffer ${label}`, () => this.raw.createBuffer({ label, size, usage }));
    return { label, bytes: size, raw };
  }

  private async uniformBuffer(label: string, data: ArrayBuffer): Promise<Buffer> {
    const raw = await this.scoped(label, () =>
      this.raw.createBuffer({ label, size: data.byteLength, usage: GPUBufferUsage.UNIFORM | GPUBufferUsage.COPY_DST }),
    );
    const buffer = { label, bytes: data.byteLength, raw };
    await this.write(buffer, data);
    return buffer;
  }

  /** Uploads in chunks; waits after each so that staging memory does not pile up. */
  async write(buffer: Buffer, data: ArrayBuffer | ArrayBufferView<ArrayBuffer>, offset = 0): Promise<void> {
    const bytes = ArrayBuffer.isView(data)
      ? new Uint8Array(data.buffer, data.byteOffset, data.byteLength)
      : new Uint8Array(data);
    if (offset + bytes.byteLength > buffer.bytes)
      throw new RangeError(`buffer ${buffer.label}: ${bytes.byteLength} bytes at ${offset} do not fit ${buffer.bytes}`);
    for (let at = 0; at < bytes.byteLength; at += UPLOAD_CHUNK_BYTES) {
      const size = Math.min(UPLOAD_CHUNK_BYTES, bytes.byteLength - at);
      await this.scoped(`upload to ${buffer.label}`, () =>
        this.raw.queue.writeBuffer(buffer.raw, offset + at, bytes, at, size),
      );
      if (bytes.byteLength > UPLOAD_CHUNK_BYTES) await this.raw.queue.onSubmittedWorkDone();
    }
  }

  /**
   * Copies on the device, from the start of a buffer, or of a part of it, to `offset` of the other; returns the seconds
   * that it took, submission included.
   * @param times that it is made in one submission
   */
  async copy(from: Buffer, to: Buffer, bytes: number, offset = 0, times = 1): Promise<number> {
    return this.submit(`copy ${from.label} to ${to.label}`, (encoder) => {
      for (let i = 0; i < times; i++) encoder.copyBufferToBuffer(from.raw, from.offset ?? 0, to.raw, offset, bytes);
    });
  }

  /** Downloads `bytes` from `offset`. */
  async read(buffer: Buffer, bytes = buffer.bytes, offset = 0): Promise<ArrayBuffer> {
    const staging = await this.scoped('read-back buffer', () =>
      this.raw.createBuffer({ size: bytes, usage: GPUBufferUsage.COPY_DST | GPUBufferUsage.MAP_READ }),
    );
    try {
      await this.submit(`read ${buffer.label}`, (encoder) =>
        encoder.copyBufferToBuffer(buffer.raw, offset, staging, 0, bytes),
      );
      await staging.mapAsync(GPUMapMode.READ).catch((error: unknown) => this.lostOr(error));
      // The range dies with the mapping, so it is copied out.
      const copy = staging.getMappedRange().slice(0);
      staging.unmap();
      this.check();
      return copy;
    } finally {
      staging.destroy();
    }
  }

  /** Frees buffers. Dawn releases their memory with a later submission, so an empty one follows. */
  free(...buffers: readonly Buffer[]): void {
    for (const buffer of buffers) buffer.raw.destroy();
    this.raw.queue.submit([]);
  }

  private layoutOf(step: Step): GPUBindGroupLayout {
    const key = layoutKey(step);
    let layout = this.layouts.get(key);
    if (!layout) {
      const types = step.buffers.map((b): GPUBufferBindingType =>
        b.access === 'read' ? 'read-only-storage' : 'storage',
      );
      const entries = ['uniform' as GPUBufferBindingType, ...types].map((type, binding) => ({
        ...{ binding, visibility: GPUShaderStage.COMPUTE },
        buffer: { type },
      }));
      layout = this.raw.createBindGroupLayout({ label: key, entries });
      this.layouts.set(key, layout);
    }
    return layout;
  }

  /** Compiles a step's pipeline, or returns the one compiled before for the same source, constants and bindings. */
  async pipeline(step: Step, sources: SourceSet = OWN_SOURCES): Promise<GPUComputePipeline> {
    const key = `${sources.id} ${pipelineKey(step)}`;
    const known = this.pipelines.get(key);
    if (known) return known;
    const compiled = this.compile(step, this.layoutOf(step), sources);
    this.pipelines.set(key, compiled);
    return compiled;
  }

  private async compile(step: Step, layout: GPUBindGroupLayout, sources: SourceSet): Promise<GPUComputePipeline> {
    const label = `${step.source}.wgsl (${step.element})`;
    const subgroups = { has: this.has('subgroups'), least: this.units.subgroupSizes[0] };
    const code = runnable(sources.load(step.source, step.element), step, label, subgroups);
    return this.scoped(label, () => {
      const module = this.raw.createShaderModule({ label, code });
      return this.raw.createComputePipeline({
        label,
        layout: this.raw.createPipelineLayout({ bindGroupLayouts: [layout] }),
        compute: { module, entryPoint: 'main', constants: { ...step.constants } },
      });
    });
  }

  /** Binds a step to buffers by name. `sources`: another version's kernels, for comparing (bench/regression). */
  async bind(step: Step, buffers: ReadonlyMap<string, Buffer>, sources: SourceSet = OWN_SOURCES): Promise<BoundStep> {
    const limit = this.limits.maxComputeWorkgroupsPerDimension;
    if (step.workgroups.some((n) => n < 1 || n > limit))
      throw new GpuError(
        'unsupported',
        `${step.source}: ${step.workgroups.join(' x ')} workgroups are outside 1 to ${limit}`,
      );
    const pipeline = await this.pipeline(step, sources);
    const block = packUniforms(sources.load(step.source, step.element), step.uniforms);
    const uniforms = await this.uniformBuffer(`${step.source} uniforms`, block);
    const entries: GPUBindGroupEntry[] = [{ binding: 0, resource: { buffer: uniforms.raw } }];
    step.buffers.forEach((use, i) => {
      const buffer = buffers.get(use.name);
      if (!buffer) throw new Error(`${step.source}: no buffer ${use.name} given`);
      if (buffer.bytes > this.limits.maxStorageBufferBindingSize) {
        throw new GpuError(
          'unsupported',
          `${step.source}: buffer ${use.name} of ${buffer.bytes} bytes exceeds the binding limit of ` +
            `${this.limits.maxStorageBufferBindingSize}`,
        );
      }
      entries.push({
        binding: i + 1,
        resource: {
          buffer: buffer.raw,
          ...(buffer.offset === undefined ? {} : { offset: buffer.offset, size: buffer.bytes }),
        },
      });
    });
    const group = await this.scoped(`${step.source} bind group`, () =>
      this.raw.createBindGroup({ layout: this.layoutOf(step), entries }),
    );
    return { pipeline, group, workgroups: step.workgroups, uniforms };
  }

  /** Binds all steps of a plan. */
  async bindAll(
    plan: OperationPlan,
    buffers: ReadonlyMap<string, Buffer>,
    sources: SourceSet = OWN_SOURCES,
  ): Promise<BoundStep[]> {
    const bound: BoundStep[] = [];
    for (const step of plan.steps) bound.push(await this.bind(step, buffers, sources));
    return bound;
  }

  /**
   * Runs steps in order in one pass of one submission and waits. Steps see what the steps before them wrote.
   * @param again the same array will be run again: it is encoded for that while the device is at work
   */
  async run(steps: readonly BoundStep[], again = false): Promise<RunTime> {
    const timed = this.clock === 'gpu-timestamp' ? (this.querySet ??= this.queries(2)) : undefined;
    const encode = (encoder: GPUCommandEncoder): void => {
      encodePass(encoder, steps, timed ? timestamps(timed, 0) : {});
      if (timed) encoder.resolveQuerySet(timed.set, 0, 2, timed.resolve, 0);
    };
    const known = this.ahead.get(steps);
    this.ahead.delete(steps);
    const began = this.processor?.now();
    const wallSeconds = await this.submit(
      'run',
      known ?? encode,
      again ? () => this.ahead.set(steps, this.encoded(encode)) : undefined,
    );
    return { wallSeconds, deviceSeconds: timed ? ((await this.elapsed(timed))[0] as number) : this.ranSince(began) };
  }

  /**
   * Runs parts of a program in order, a pass each with timestamps of its own, in one submission as far as those reach.
   * The time of a part there is its share of the whole; alone in a submission it would find idle cores and cold caches.
   * A clock of processor time counts the whole, and timestamps share it out.
   * @returns seconds of each part
   * @throws GpuError `unsupported` without timestamps
   */
  async runEach(parts: readonly (readonly BoundStep[])[]): Promise<number[]> {
    if (!this.hasTimestamps)
      throw new GpuError('unsupported', 'the device has no timestamps: run the parts one by one');
    const seconds: number[] = [];
    for (let from = 0; from < parts.length; from += MOST_QUERIES / 2) {
      const some = parts.slice(from, from + MOST_QUERIES / 2);
      const timed = this.queries(2 * some.length);
      try {
        const began = this.processor?.now();
        await this.submit('run each', (encoder) => {
          some.forEach((steps, i) => encodePass(encoder, steps, timestamps(timed, 2 * i)));
          encoder.resolveQuerySet(timed.set, 0, timed.count, timed.resolve, 0);
        });
        const ran = this.ranSince(began);
        seconds.push(...scaledTo(ran, await this.elapsed(timed)));
      } finally {
        timed.set.destroy();
        timed.resolve.destroy();
      }
    }
    return seconds;
  }

  private readonly ranSince = (began: number | undefined): number | null =>
    began === undefined ? null : Math.max(0, (this.processor?.now() ?? 0) - began);

  private encoded(encode: (encoder: GPUCommandEncoder) => void): GPUCommandBuffer {
    const encoder = this.raw.createCommandEncoder();
    encode(encoder);
    return encoder.finish();
  }

  /** Seconds of the host for encoding steps as `run` does, without submitting them. */
  encodeSeconds(steps: readonly BoundStep[]): number {
    this.check();
    const began = clockNow();
    this.encoded((encoder) => encodePass(encoder, steps, {}));
    return clockNow() - began;
  }

  private queries(count: number): Queries {
    return {
      set: this.raw.createQuerySet({ type: 'timestamp', count }),
      resolve: this.raw.createBuffer({
        label: 'timestamps',
        size: 8 * count,
        usage: GPUBufferUsage.QUERY_RESOLVE | GPUBufferUsage.COPY_SRC,
      }),
      count,
    };
  }

  /** Seconds between each pair of timestamps. */
  private async elapsed({ resolve, count }: Queries): Promise<number[]> {
    const stamps = new BigUint64Array(await this.read({ label: 'timestamps', bytes: 8 * count, raw: resolve }));
    return Array.from(
      { length: count / 2 },
      (_, i) => Number((stamps[2 * i + 1] as bigint) - (stamps[2 * i] as bigint)) * 1e-9,
    );
  }

  /**
   * Encodes, unless that is done, submits and waits; returns the seconds from submission until the queue was done.
   * @param meanwhile what the host does while the device is at work
   */
  private async submit(
    subject: string,
    encode: GPUCommandBuffer | ((encoder: GPUCommandEncoder) => void),
    meanwhile?: () => void,
  ): Promise<number> {
    const started = await this.scoped(subject, () => {
      const commands = typeof encode === 'function' ? this.encoded(encode) : encode;
      const now = clockNow();
      this.raw.queue.submit([commands]);
      meanwhile?.();
      return now;
    });
    // A lost device rejects here; the listener on `lost` has recorded it by then, and check() below throws it.
    const finished = this.raw.queue.onSubmittedWorkDone().catch(() => undefined);
    await this.platform.wait(finished, started, this.description.software && this.clock !== 'wall');
    const seconds = clockNow() - started;
    this.check();
    return seconds;
  }

  /** Submits nothing and waits: what a submission costs by itself. */
  async submitEmpty(): Promise<number> {
    return this.submit('empty submission', () => undefined);
  }

  close(): void {
    this.closed = true;
    this.raw.destroy();
    this.processor?.close();
  }
}
