/** The planner as the comparison asks it: one device, the planner's defaults, any preset. */
import type { Branch, Codec, CodecKind } from '../codecs/codec.js';
import { CODECS, refusalOf } from '../codecs/registry.js';
import type { Interval } from '../cost/evidence.js';
import { priceStep, type Pricer, type StepPrice } from '../cost/latency.js';
import type { PrefillKind } from '../cost/memory.js';
import { datasheetPricer } from '../cost/pricers.js';
import type { Rates } from '../cost/roofline.js';
import { memoryOf, type DeviceSpec } from '../devices/catalogue.js';
import type { Eviction } from '../eviction/policy.js';
import type { Geometry } from '../geometry/geometry.js';
import { findPreset } from '../geometry/presets.js';
import { configurationOf, evaluate } from '../plan/evaluate/evaluate.js';
import { readQuestion } from '../plan/ask/settings.js';
import type { Candidate, DeviceChoice, Plan, PlanRequest } from '../plan/types.js';
import { forEachOp } from '../schedule/expand.js';
import { schedule, type Configuration, type Op } from '../schedule/schedule.js';
import { workOf } from '../../kernels/registry.js';
import type { Decoding } from './types.js';

/** What the comparison runs on. */
export interface PaperDevice {
  readonly choice: DeviceChoice;
  readonly spec: DeviceSpec;
  readonly pricer: Pricer;
  /** Largest binding where a calibration tells it, bytes. */
  readonly bindingBytes: number;
  readonly notes: readonly string[];
}

/** A device by its datasheet, with the memory that its driver reports: the paper's tests ran until that was full. */
export function datasheetDevice(datasheet: DeviceSpec): PaperDevice {
  const spec = { ...datasheet, vramBytes: memoryOf(datasheet) };
  const rates: Rates = { ...spec, bytesPerSecond: spec.memoryBytesPerSecond };
  return {
    choice: { id: spec.id, name: spec.name, vramBytes: spec.vramBytes, calibration: null },
    spec,
    pricer: datasheetPricer(rates, spec.interconnect),
    bindingBytes: Infinity,
    notes: [],
  };
}

/** Operations of attention over the cache, beside the kernels whose name says so. */
const ATTENTION_LABELS = [
  'query-absorb',
  'value-up',
  'merge',
  'rebuild-k',
  'rebuild-v',
  'block-vectors',
  'block-basis',
];
const isAttention = (o: Op): boolean => o.kernel.startsWith('attend') || ATTENTION_LABELS.includes(o.label);

/** What one step does, counted from its schedule. */
export interface Counted {
  readonly operations: number;
  readonly bytes: number;
  readonly flops: number;
  readonly matrixFlops: number;
}

const candidateOf = ({ codec, path, materialised = false }: Decoding, eviction: Eviction | null): Candidate => ({
  codec,
  path,
  materialised,
  eviction,
});

export class PaperModel {
  constructor(
    readonly device: PaperDevice,
    /** Presets by name; a test puts another shape in. */
    readonly geometry: (name: string) => Geometry = findPreset,
  ) {}

  /** The codec of this kind at a printed ratio. A setting that the paper has and the planner refuses is a defect. */
  codec(model: string, kind: CodecKind, ratio: number): Codec {
    const g = this.geometry(model);
    const codec = CODECS[kind].fromRatio(g, ratio);
    const refusal = typeof codec === 'string' ? codec : refusalOf(g, codec);
    if (typeof codec === 'string' || refusal !== undefined)
      throw new Error(`${kind} at ${ratio}× on ${model}: ${refusal}`);
    return codec;
  }

  private request(
    model: string,
    contextTokens: number,
    prefill: PrefillKind,
    geometry = this.geometry(model),
  ): PlanRequest {
    const { filter: _filter, ...question } = readQuestion({ context: contextTokens, prefill }, geometry);
    const { choice, pricer, bindingBytes } = this.device;
    return {
      ...question,
      bindingBytes,
      scenario: { name: null, description: null },
      geometry,
      publishedAs: null,
      device: choice,
      pricer,
      stack: null,
      tables: null,
      servingStack: null,
      servingVersion: null,
      candidates: [],
      tested: null,
      notes: [],
    };
  }

  /** The planner's own evaluation. */
  plan(
    model: string,
    decoding: Decoding,
    options: { contextTokens?: number; eviction?: Eviction | null; prefill?: PrefillKind } = {},
  ): Plan {
    const { contextTokens = 4096, eviction = null, prefill = 'accumulated' } = options;
    return evaluate(this.request(model, contextTokens, prefill), candidateOf(decoding, eviction));
  }

  /**
   * How a model is decoded, with the planner's defaults.
   * @param options.layers of the core, where fewer than all are asked about
   * @param options.branch rotary branch of the absorbed path, where the default (64, shared) is not asked about
   */
  configuration(model: string, decoding: Decoding, options: { layers?: number; branch?: Branch } = {}): Configuration {
    const whole = this.geometry(model);
    const geometry = options.layers === undefined ? whole : { ...whole, layers: options.layers };
    const request = this.request(model, 4096, 'accumulated', geometry);
    const c = configurationOf(request, candidateOf(decoding, null));
    return options.branch === undefined ? c : { ...c, branch: options.branch };
  }

  /** One decode step of the whole model, seconds. */
  step(model: string, decoding: Decoding, batch: number, contextTokens: number): StepPrice {
    return priceStep(this.configuration(model, decoding), this.device.pricer, batch, contextTokens);
  }

  /** Operations, bytes and arithmetic of one step of the whole model. */
  count(model: string, decoding: Decoding, batch: number, contextTokens: number): Counted {
    return counted(this.configuration(model, decoding), batch, contextTokens, () => true);
  }

  /**
   * Attention of one core layer in all loops for one sequence: seconds, and what it does. Ends of the operations'
   * intervals are summed, as for kernels that share one unknown efficiency: with a calibration that is on the wide
   * side.
   */
  layer(model: string, decoding: Decoding, contextTokens: number): { seconds: Interval; counted: Counted } {
    const c = this.configuration(model, decoding, { layers: 1 });
    const sum = { estimate: 0, low: 0, high: 0 };
    forEachOp(c, schedule(c, 1, contextTokens), (o, calls) => {
      if (!isAttention(o)) return;
      const price = this.device.pricer.price(o);
      for (const end of ['estimate', 'low', 'high'] as const) sum[end] += calls * price[end];
    });
    return { seconds: sum, counted: counted(c, 1, contextTokens, isAttention) };
  }
}

function counted(c: Configuration, batch: number, contextTokens: number, counts: (o: Op) => boolean): Counted {
  const sum = { operations: 0, bytes: 0, flops: 0, matrixFlops: 0 };
  forEachOp(c, schedule(c, batch, contextTokens), (o, calls) => {
    if (!counts(o)) return;
    const work = workOf(o);
    sum.operations += calls;
    sum.bytes += calls * (work.readBytes + work.writeBytes);
    sum.flops += calls * work.flops;
    sum.matrixFlops += calls * work.matrixFlops;
  });
  return sum;
}
