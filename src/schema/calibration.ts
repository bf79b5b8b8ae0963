/**
 * The calibration file: measured kernel times of one device. It is the only thing that the GPU side (gpu, bench) and
 * the planner side (cost, plan) share. All times are in seconds, sizes in bytes, rates per second.
 */
import { z } from 'zod';
import { UNPRINTABLE } from '../errors.js';
import { KERNEL_NAMES, KERNELS, TERMS_VERSION, type KernelName } from '../../kernels/registry.js';

/** Of files that are written. Version 1 kept times without the cost of submitting, and drifts in place of probes. */
export const CALIBRATION_SCHEMA_VERSION = 2;
/**
 * Most points of a kernel's variant. A prediction takes time by the square of their number and its preparation by the
 * third power: 50 ms for this many. `calibrate` measures at most 96.
 */
export const MAX_POINTS = 512;

const finite = z.number().refine(Number.isFinite, 'must be finite');
const positive = finite.refine((x) => x > 0, 'must be positive');
const within = (min: number, max: number) =>
  finite.refine((x) => x >= min && x <= max, `must be from ${min} to ${max}`);
/** A kernel call, an overhead or a clock tick: a picosecond to a quarter of an hour. */
const seconds = within(1e-12, 1e3);
/** Bytes or operations per second of anything that computes. */
const rate = within(1e3, 1e21);
const memory = z.int().refine((x) => x >= 2 ** 20 && x <= 2 ** 50, 'must be from 1 MiB to 1024 TiB');
/**
 * Text that is shown to people: short, and without characters that a terminal would interpret or that are invisible.
 */
const label = z
  .string()
  .max(400)
  .regex(new RegExp(`^[^${UNPRINTABLE}]*$`, 'u'), 'must not hold control or invisible characters');
const shape = z.record(z.string(), within(0, 2 ** 50));

const transfer = z.object({ seconds, bytesPerSecond: rate });

/**
 * One measured point: a kernel at a shape, with every repetition as it was measured. `readCalibration`
 * (schema/drift.ts) makes times and drifts of it.
 */
export const sampleSchema = z
  .object({
    variant: z.string(),
    shape,
    /** Values of the kernel's tunable constants that were measured (workgroup size, tokens a tile, ...). */
    tuning: z.record(z.string(), finite).default({}),
    readBytes: finite,
    writeBytes: finite,
    flops: finite,
    /** Seconds per call, one entry a repetition, in the order measured: those of a submission over its calls. */
    seconds: z.array(seconds).min(1),
    /** Calls of each submission; null where the cost of submitting is taken off already, as in files of version 1. */
    calls: z.array(z.int().positive().nullable()).optional(),
    /** For each repetition the place in `probeSeconds` of the run before it, with the next one after it; null: none. */
    probes: z.array(z.int().nonnegative().nullable()).optional(),
    /** In files of version 1: for each repetition the time of the probe beside it, over the session's reference. */
    drift: z.array(within(1e-3, 1e3)).optional(),
    /** In files of version 1: why this sample deserves less trust. */
    flag: label.optional(),
    /** Relative RMS error against the float64 reference, measured before timing. */
    relativeError: finite,
  })
  .refine(
    ({ seconds: { length }, calls, probes }) =>
      (calls ?? probes)?.length === probes?.length && (probes?.length ?? length) === length,
    'must hold the calls and the probe of each repetition',
  );
export type Sample = z.infer<typeof sampleSchema>;

/** A point that was planned and could not be measured. */
const gapSchema = z.object({ variant: label, shape, reason: z.string().max(2000) });

/** A fitted predictor of one kernel's variant. All but the last five hold for its class on this device. */
export const predictorSchema = z.object({
  /** The law: seconds that no call falls below, and rates of bytes and operations. */
  floorSeconds: within(1e-12, 1e3),
  bytesPerSecond: within(1e-3, 1e18),
  operationsPerSecond: within(1e-3, 1e18),
  /** Variances of a variant's own factor, and of those of its terms, log units. */
  effectVariances: z.tuple([within(1e-18, 1e6), within(1e-18, 1e6)]).readonly(),
  /** Of the smooth residual over log2(1 + shape), and its length in octaves. */
  signalVariance: within(1e-18, 1e6),
  lengthScale: within(1e-6, 1e6),
  /** Of a shape by itself; the part of it that a second visit of the shape shows. */
  noiseVariance: within(1e-18, 1e6),
  measuredVariance: within(1e-18, 1e6),
  /** Half-width over deviation, of shapes between others of a variant, and of variants without any. */
  quantile: within(0, 1e6),
  quantileWithout: within(0, 1e6),
  /** Time of the longest measured call by the law, seconds. */
  longestSeconds: within(1e-12, 1e6),
  /** Widening of the half-width for each octave that a call is longer than any measured one, in log units. */
  kappaPerOctave: within(0, 50),
  /** Root mean square of each of the kernel's terms over the law's time. */
  termScales: z.array(within(0, 1e300)),
  /** Version of the physical terms and of the model (cost/predictor.ts): under another one these mean nothing. */
  modelVersion: z.int(),
  /** Median absolute leave-one-out error, as a fraction. */
  looMedianError: within(0, 1e12),
  looP90Error: within(0, 1e12),
  /** Share of leave-one-out residuals inside their 90 % interval. */
  looCoverage: within(0, 1),
  /** SHA-256 over the samples that this was fitted to. */
  samplesDigest: z.string(),
});
export type Predictor = z.infer<typeof predictorSchema>;

/** Predictors of other versions are passed over, whatever they hold: the samples are fitted anew. */
const storedPredictors = z
  .record(
    z.string(),
    z.union([
      predictorSchema,
      z.looseObject({
        modelVersion: z
          .int()
          .refine((version) => version !== TERMS_VERSION, 'is this version’s, but the predictor’s numbers are not'),
      }),
    ]),
  )
  .default({}) as unknown as z.ZodDefault<z.ZodRecord<z.ZodString, typeof predictorSchema>>;

const kernelCalibrationSchema = z
  .object({
    kernel: z.enum(KERNEL_NAMES as [string, ...string[]]),
    /** SHA-256 of the WGSL source after its includes are resolved. */
    sourceHash: z.string(),
    samples: z.array(sampleSchema),
    gaps: z.array(gapSchema).default([]),
    /** One predictor a variant. */
    predictors: storedPredictors,
    /** Values of tunable constants that `calibrate --tune` found better than the planner's own. */
    tuning: z.record(label, finite).optional(),
  })
  .superRefine((k, context) => {
    const problem = inconsistency(k);
    if (problem !== null) context.addIssue({ code: 'custom', message: problem });
  });

/** Inconsistencies of a kernel's entry: shapes without their fields, predictors of other sizes. */
function inconsistency(k: { kernel: string; samples: Sample[]; predictors: Record<string, Predictor> }): string | null {
  // Fitted to other terms and dimensions: such an entry counts as stale and is never priced from.
  if (Object.values(k.predictors).some((p) => p.modelVersion !== TERMS_VERSION)) return null;
  const spec = KERNELS[k.kernel as KernelName];
  const { dims, variants } = spec;
  const crowded = variants.find((v) => k.samples.filter((s) => s.variant === v).length > MAX_POINTS);
  if (crowded !== undefined) return `holds more than ${MAX_POINTS} points of ${k.kernel} ${crowded}`;
  for (const s of k.samples) {
    if (!variants.includes(s.variant)) return `holds a sample of an unknown variant of ${k.kernel}`;
    const missing = dims.find((d) => s.shape[d] === undefined);
    if (missing) return `holds a sample of ${k.kernel} without ${missing}`;
  }
  for (const [variant, p] of Object.entries(k.predictors)) {
    const sample = k.samples.find((s) => s.variant === variant);
    if (!sample) return `holds a predictor of ${k.kernel} without samples`;
    const termCount = spec.terms(sample.shape, variant).length;
    const fits = p.termScales?.length === termCount;
    if (!fits) return `holds a predictor of ${k.kernel} whose parts do not fit together`;
  }
  return null;
}
export type KernelCalibration = z.infer<typeof kernelCalibrationSchema>;

export const calibrationSchema = z
  .object({
    schema: z.literal('lla-sim/calibration'),
    schemaVersion: z.literal([1, CALIBRATION_SCHEMA_VERSION]),
    program: z.object({ name: label, version: label }),
    device: z.object({
      vendor: label,
      architecture: label,
      device: label,
      description: label,
      driver: label,
      backend: label,
      /** True for an adapter that runs on the CPU (lavapipe, SwiftShader): never used to price a GPU. */
      software: z.boolean(),
      features: z.array(label),
      limits: z.record(label, finite),
      memoryBytes: memory.nullable(),
    }),
    /** What ran the measurement: Node, or a browser, which says less of the machine. */
    host: z.object({
      os: label,
      arch: label,
      cpu: label,
      cores: positive,
      memoryBytes: memory.nullable(),
      node: label.optional(),
      browser: z.object({ name: label, version: label }).optional(),
    }),
    clock: z.object({ kind: z.enum(['gpu-timestamp', 'processor', 'wall']), resolutionSeconds: seconds }),
    overheads: z.object({
      /** Submit of an empty command buffer and waiting for it. */
      submitSeconds: seconds,
      /** One more dispatch of a kernel that does nothing, inside a pass. */
      dispatchSeconds: seconds,
      /** Host to device: what an upload costs whatever its size, and the rate beyond. Older files have neither. */
      upload: transfer.optional(),
      /** Device to host, likewise. */
      readback: transfer.optional(),
    }),
    /** Every run of the probe kernel, which was run throughout, in the order measured. */
    probeSeconds: z.array(seconds).optional(),
    /** In files of version 1: the time of the probe to which drift refers, and how far the machine drifted. */
    probe: z
      .object({ referenceSeconds: seconds, runs: z.int().positive(), lowDrift: positive, highDrift: positive })
      .optional(),
    ceilings: z.object({
      copyBytesPerSecond: rate,
      readBytesPerSecond: rate,
      f32FlopsPerSecond: rate,
      f16FlopsPerSecond: rate.nullable(),
      matrixFlopsPerSecond: rate.nullable(),
      /** Why a rate above is null, by its name. */
      reasons: z.record(label, label).optional(),
    }),
    kernels: z
      .array(kernelCalibrationSchema)
      .refine((list) => new Set(list.map((k) => k.kernel)).size === list.length, 'must list each kernel once'),
  })
  .refine(
    ({ kernels, probeSeconds: { length } = [] }) =>
      kernels.every((k) => k.samples.every(({ probes }) => probes?.every((at) => (at ?? -1) + 1 < length) ?? true)),
    'must hold the runs of the probe that its samples name',
  );
/** Kernel times of one device, as `lla-sim calibrate` writes them: raw samples, seconds. */
export type Calibration = z.infer<typeof calibrationSchema>;
