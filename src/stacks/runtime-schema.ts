/** What calibrations/runtimes.json must be. */
import { z } from 'zod';
import { RUNTIMES } from './execution.js';
import type { RuntimeFile } from './runtime.js';

const positive = z.number().positive();
const seconds = positive.max(1);
const work = z.number().min(0).max(1e4);
const log = z.number().min(0).max(3);

const attention = z.strictObject({
  packsQueries: z.boolean(),
  callLaunches: work,
  promptTokenLaunches: work,
  slowdown: positive.max(10),
  unsplit: z
    .strictObject({
      secondsPerToken: seconds,
      secondsPerTokenOfOthers: z.number().min(0).max(1),
      clockHertz: positive,
    })
    .nullable(),
});

const terms = z
  .strictObject({
    source: z.record(z.string(), z.string().min(1)),
    kernels: z.string().min(1),
    launches: z.strictObject({
      norm: positive,
      layer: positive,
      layerPriced: work,
      loop: work,
      replay: work,
      boundary: work,
      row: work,
      copiedPlane: work,
    }),
    gapSeconds: z.strictObject({ eager: seconds, replayed: seconds }),
    mostReplayedRows: z.int().positive(),
    replayedAsyncShare: positive.max(1),
    defaults: z.strictObject({
      attention: z.string(),
      maxNumSeqs: z.int().positive(),
      maxNumBatchedTokens: z.int().positive(),
    }),
    attention: z.record(z.string(), attention),
    spread: log,
  })
  .refine((t) => Object.hasOwn(t.attention, t.defaults.attention), 'the default kernel of attention must be listed');

const ordered = z
  .strictObject({ estimate: seconds, low: seconds, high: seconds })
  .refine(({ low, estimate, high }) => low <= estimate && estimate <= high, 'must be low ≤ estimate ≤ high');

export const runtimeFileSchema: z.ZodType<RuntimeFile> = z.strictObject({
  schema: z.literal('lla-sim/runtimes'),
  schemaVersion: z.literal(1),
  runtimes: z.record(z.enum(RUNTIMES), terms),
  hosts: z.strictObject({
    measured: z.record(z.string(), z.strictObject({ secondsPerLaunch: seconds, spread: log, row: z.string().min(1) })),
    others: ordered,
  }),
});
