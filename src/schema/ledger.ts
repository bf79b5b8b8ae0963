/**
 * A row of the ledger: one published measurement of a real server. What a row and a file are, and which rows may fit,
 * is in ledger/README.md. Base units: seconds, bytes, tokens.
 */
import { z } from 'zod';
import { UNPRINTABLE } from '../errors.js';
import { EXECUTIONS } from './serving.js';

const LEDGER_SCHEMA_VERSION = 1;

/**
 * `fits`: constants may be taken from it. `judges`: only errors are. `out-of-reach`: of a kind that is not modelled.
 */
export const USES = ['fits', 'judges', 'out-of-reach'] as const;
export type Use = (typeof USES)[number];

/** Text that is shown to people: short, without characters that a terminal would interpret or that are invisible. */
const label = z
  .string()
  .min(1)
  .max(600)
  .regex(new RegExp(`^[^${UNPRINTABLE}]*$`, 'u'), 'must not hold control or invisible characters');
const id = z
  .string()
  .regex(
    /^[a-z0-9][a-z0-9.+-]{0,79}$/,
    'must be 1 to 80 lower-case letters, digits and . + - beginning with a letter or digit',
  );
const within = (min: number, max: number) =>
  z.number().refine((x) => x >= min && x <= max, `must be from ${min} to ${max}`);
const seconds = z.number().refine((x) => x > 0 && x <= 1e7, 'must be positive seconds, at most 1e7');
const rate = z.number().refine((x) => x > 0 && x <= 1e9, 'must be positive and at most 1e9');
const bytes = z.int().refine((x) => x > 0 && x <= 2 ** 50, 'must be positive whole bytes, at most 2^50');
/** Memory that graphs took, which some logs have below zero: capturing freed more than it kept. */
const signedBytes = z.int().refine((x) => Math.abs(x) <= 2 ** 40, 'must be whole bytes of at most 2^40 either way');
const count = z.int().refine((x) => x >= 1 && x <= 2 ** 40, 'must be a whole number from 1 to 2^40');
const share = within(0, 1);

/** Values of a figure by statistic; `runs` are the repeats themselves, `value` is a figure that was read once. */
const statistics = (value: z.ZodType<number>) =>
  z
    .strictObject({
      value,
      mean: value,
      median: value,
      p90: value,
      p95: value,
      p99: value,
      min: value,
      max: value,
      runs: z.array(value).min(2).max(100),
    })
    .partial()
    .refine((s) => Object.keys(s).length > 0, 'must have a statistic');

/** Every figure that a row may have, its unit in its name. */
export const FIGURES = {
  /** (E2EL − TTFT) / (output tokens − 1) of a request. */
  tpotSeconds: seconds,
  /** Each gap between two tokens of a request. */
  itlSeconds: seconds,
  /** Arrival to first token. */
  ttftSeconds: seconds,
  /** Arrival to last token; of a `single` workload, start to the last token of all requests. */
  e2elSeconds: seconds,
  /** Output tokens of all requests a second. */
  tokensPerSecond: rate,
  requestsPerSecond: rate,
  /** Tokens that the cache of one replica holds. */
  kvTokens: count,
  /** Requests of the longest length that the cache holds (vLLM's "maximum concurrency"). */
  requestsOfMaxLength: rate,
  /** Sequences that ran at once without preemption. */
  sequences: count,
  /** Bytes of one GPU. */
  availableKvBytes: bytes,
  weightsBytes: bytes,
  activationPeakBytes: bytes,
  /** Outside PyTorch's allocator. */
  nonTorchBytes: bytes,
  graphBytes: signedBytes,
  reservedBytes: bytes,
  /** Most that PyTorch had allocated. */
  peakBytes: bytes,
} as const;
export type FigureName = keyof typeof FIGURES;
const MEMORY: readonly string[] = Object.keys(FIGURES).slice(Object.keys(FIGURES).indexOf('kvTokens'));

export const NO_FIGURE = 'must have a figure';

const figures = z
  .strictObject(
    Object.fromEntries(Object.entries(FIGURES).map(([name, value]) => [name, statistics(value)])) as {
      [F in FigureName]: ReturnType<typeof statistics>;
    },
  )
  .partial()
  .refine((f) => Object.keys(f).length > 0, NO_FIGURE);

/** Tokens of each prompt or output: a number; what is known of several; null where the source does not say. */
const lengths = z.union([
  count,
  z.null(),
  z
    .strictObject({ mean: rate, deviation: rate, min: count, max: count, each: z.array(count).min(1).max(1024) })
    .partial()
    .refine((l) => Object.keys(l).length > 0, 'must say something of the lengths'),
]);

const exit = z.strictObject({
  /** `fixed`: every token takes `meanLoops`; `gate`, `delayed-gate`: the model's; `recorded`: depths are replayed. */
  rule: z.enum(['fixed', 'gate', 'delayed-gate', 'recorded']),
  threshold: share.optional(),
  minLoops: count.optional(),
  /** Mean loops of a generated token. */
  meanLoops: within(1, 1024).optional(),
  /** Shares of tokens that leave after loop 1, 2, … */
  shares: z.array(share).max(64).optional(),
  /** Shares are those of requests: each keeps its depth, so that the deepest end last. */
  ofRequests: z.boolean().optional(),
});
const speculation = z.strictObject({
  /** Who proposes: the model's own first loops, or repeats of the text. */
  method: z.enum(['loops', 'ngram']),
  draftTokens: count,
  draftLoops: count.optional(),
  /** Share of the proposed tokens that were taken. */
  acceptance: share.optional(),
});

const load = {
  inputTokens: lengths,
  outputTokens: lengths,
  /** Where prompts come from, such as ShareGPT. */
  dataset: label.optional(),
  exit: exit.optional(),
  speculation: speculation.optional(),
};

const workload = z.discriminatedUnion('kind', [
  /** Only steps of `concurrency` sequences, their prompts cached before; a rate counts the first token or not. */
  z.strictObject({ kind: z.literal('decode-only'), ...load, concurrency: count, firstTokenCounted: z.boolean() }),
  /** `concurrency` users who send the next request when they have their answer. */
  z.strictObject({ kind: z.literal('closed-loop'), ...load, concurrency: count, requests: count.optional() }),
  /** All `concurrency` requests at once, timed until the last token; from the first on where prompts do not count. */
  z.strictObject({ kind: z.literal('single'), ...load, concurrency: count, promptsCounted: z.boolean().optional() }),
  /** Requests at random times; null: all of them at once. */
  z.strictObject({
    kind: z.literal('rate'),
    ...load,
    requestsPerSecond: rate.nullable(),
    requests: count,
    maxConcurrency: count.optional(),
  }),
  /** Requests of a file, whose path is relative to the ledger's file. */
  z.strictObject({ kind: z.literal('trace'), trace: label }),
  /** Nothing is served: the server's start. */
  z.strictObject({ kind: z.literal('boot') }),
]);

const source = z.strictObject({
  title: label,
  licence: label,
  /** The day it was read. */
  read: z.string().regex(/^\d{4}-\d\d-\d\d$/, 'must be a date such as 2026-11-24'),
  url: z.url().max(300).optional(),
  repository: z
    .string()
    .regex(/^[\w.-]+\/[\w.-]+$/, 'must be owner/name')
    .optional(),
  commit: z
    .string()
    .regex(/^[0-9a-f]{7,40}$/, 'must be 7 to 40 hexadecimal digits')
    .optional(),
  path: label.optional(),
});

const server = z.strictObject({
  name: label,
  version: label.optional(),
  /** Attention kernels. */
  attention: label.optional(),
  /** What captures launches: nothing, CUDA graphs of steps, or graphs of one loop. */
  execution: z.enum(EXECUTIONS).optional(),
  /** `async`: steps are prepared while the GPU works; `async-streams`: on several streams. */
  scheduling: z.enum(['sync', 'async', 'async-streams']).optional(),
  maxNumSeqs: count.optional(),
  maxNumBatchedTokens: count.optional(),
  chunkTokens: count.optional(),
  batchWaitTimeoutIters: count.optional(),
  batchWaitMaxTokensRatio: share.optional(),
  maxModelLen: count.optional(),
  utilization: share.optional(),
  blockTokens: count.optional(),
  kvBlocks: count.optional(),
  watermark: share.optional(),
  prefixCaching: z.boolean().optional(),
  chunkedPrefill: z.boolean().optional(),
  /** Anything else that was set, as the source writes it. */
  flags: z.array(label).max(20).optional(),
});

export const rowSchema = z
  .strictObject({
    id,
    use: z.enum(USES),
    /** Why it is used so. */
    because: label,
    source,
    server,
    /** Id of the device catalogue. */
    device: id.optional(),
    /** A device that the catalogue lacks. */
    deviceName: label.optional(),
    gpus: count,
    parallel: z.strictObject({ tensor: count, replicas: count, prefill: count, decode: count }).partial().optional(),
    /** A preset, or the path of a config.json, relative to the ledger's file. */
    model: label,
    precision: z.strictObject({
      weights: z.enum(['bf16', 'f16', 'f32', 'fp8', 'int8', 'int4', 'nvfp4']),
      cache: z.enum(['bf16', 'f16', 'f32', 'fp8']),
    }),
    /** How the cache is compressed, where it is. */
    codec: z
      .strictObject({
        name: label,
        ratio: rate.optional(),
        ranks: label.optional(),
        windowTokens: count.optional(),
        path: label.optional(),
      })
      .optional(),
    workload,
    figures,
    /** Runs that a statistic is over. */
    repeats: count.optional(),
    /** What the source leaves open. */
    open: z.array(label).max(20).optional(),
  })
  .superRefine((row, context) => {
    for (const { field, what } of inconsistencies(row))
      context.addIssue({ code: 'custom', message: what, path: [field] });
  });
export type LedgerRow = z.infer<typeof rowSchema>;

/** What fields say together and cannot. */
function inconsistencies(row: z.infer<typeof rowSchema>): { field: string; what: string }[] {
  const found: { field: string; what: string }[] = [];
  const { url, repository, commit, path } = row.source;
  if (url === undefined && [repository, commit, path].includes(undefined))
    found.push({ field: 'source', what: 'must have a url, or repository, commit and path' });
  if ((row.device === undefined) === (row.deviceName === undefined))
    found.push({ field: 'device', what: 'must be an id of the catalogue, or else deviceName a name that it lacks' });
  const { tensor = 1, replicas, prefill, decode } = row.parallel ?? {};
  if ((prefill === undefined) !== (decode === undefined))
    found.push({ field: 'parallel', what: 'must have both prefill and decode, or neither' });
  else {
    const groups = prefill === undefined ? (replicas ?? 1) : prefill + (decode as number);
    if (row.gpus >= 1 && groups * tensor !== row.gpus)
      found.push({
        field: 'gpus',
        what: row.parallel
          ? `must be the ${groups * tensor} of parallel, not ${row.gpus}`
          : `${row.gpus} need parallel, such as {"tensor": ${row.gpus}}`,
      });
  }
  const timed = Object.keys(row.figures).find((name) => !MEMORY.includes(name));
  if (row.workload.kind === 'boot' && timed !== undefined)
    found.push({ field: 'figures', what: `${timed} is no figure of a boot` });
  return found;
}

const part = z.record(z.string(), z.unknown());
/** A file: what its rows share is given once, and merged into each (schema/ledger-file.ts). */
export const ledgerSchema = z.strictObject({
  schema: z.literal('lla-sim/ledger'),
  schemaVersion: z.literal(LEDGER_SCHEMA_VERSION),
  source: part,
  /** Rows of the source that are not here. */
  notCarried: z
    .array(z.strictObject({ what: label, rows: count, because: label }))
    .max(200)
    .default([]),
  defaults: part.default({}),
  campaigns: z
    .array(
      z.strictObject({
        id,
        /** What every row is used for, unless it says otherwise. */
        use: z.enum(USES),
        because: label,
        defaults: part.default({}),
        rows: z.array(part).min(1).max(2000),
      }),
    )
    .min(1)
    .max(100),
});
export type LedgerFile = z.infer<typeof ledgerSchema>;
