/** calibrations/runtimes.json: what the program around the kernels of a server costs. */
import { z } from 'zod';
import { RUNTIMES } from './serving.js';

const positive = z.number().positive();
const seconds = positive.max(1);
const work = z.number().min(0).max(1e4);
const log = z.number().min(0).max(3);

/** A kernel of attention as a server calls it. */
const attention = z.strictObject({
  /** GPUs of the catalogue that it runs on; null: on all of NVIDIA's. */
  devices: z.array(z.string()).min(1).nullable(),
  /** Rows of one sequence in a pass read its cache together; else each is a row of its own. */
  packsQueries: z.boolean(),
  /** Host's work for a call beyond one launch, in launches. */
  callLaunches: work,
  /** Host's work for a prompt's token in each loop, in launches. */
  promptTokenLaunches: work,
  /** A prompt's tokens read the cache as rows of a step do, each for itself. */
  promptRows: z.boolean(),
  /** Time over that of the tables' kernel where memory decides. */
  slowdown: positive.max(10),
  /**
   * A kernel that does not divide a sequence: one block walks a query head's tokens. Seconds of a block for a token,
   * alone on its unit, and for each block that shares the unit, at this clock.
   */
  unsplit: z
    .strictObject({
      secondsPerToken: seconds,
      secondsPerTokenOfOthers: z.number().min(0).max(1),
      clockHertz: positive,
    })
    .nullable(),
});
export type AttentionTerms = z.infer<typeof attention>;

const terms = z
  .strictObject({
    /** `heldOut`: whence `spread`, as `--explain` says it. */
    source: z.object({ heldOut: z.string().min(1) }).catchall(z.string().min(1)),
    /** The stack whose tables price its kernels where there are some. */
    kernels: z.string().min(1),
    /** It serves: tokens leave early, loops are replayed, sequences join between passes. Else one batch to its end. */
    serves: z.boolean(),
    /** Kernels that the host launches, and other work of its, in launches. */
    launches: z.strictObject({
      /** Of an RMSNorm. */
      norm: positive,
      /** Of a layer without its norms; of these, those that a price stands for. */
      layer: positive,
      layerPriced: work,
      /** Once a pass: rotary angles, the final norm, the exit gate. */
      loop: work,
      /** A replayed pass. */
      replay: work,
      /** A prelude or a coda, beside its layers. */
      boundary: work,
      /** Each row of a pass: its state, its blocks. */
      row: work,
      /** The keys and values of a loop that a token left out. */
      copiedPlane: work,
    }),
    /** GPU's time of a small kernel with the gap after it. */
    gapSeconds: z.strictObject({ eager: seconds, replayed: seconds }),
    /** Passes of more rows are launched, not replayed. */
    mostReplayedRows: z.int().positive(),
    /**
     * Of a sequence's neighbours, those in the same replayed pass where signals are read later: others wait for theirs.
     */
    replayedAsyncShare: positive.max(1),
    defaults: z.strictObject({
      attention: z.string(),
      maxNumSeqs: z.int().positive(),
      maxNumBatchedTokens: z.int().positive(),
    }),
    attention: z.record(z.string(), attention),
    /** 90 % of the rows that were held out lie within this, a natural logarithm. */
    spread: log,
  })
  .refine((t) => Object.hasOwn(t.attention, t.defaults.attention), 'the default kernel of attention must be listed');
export type RuntimeTerms = z.infer<typeof terms>;

const ordered = z
  .strictObject({ estimate: seconds, low: seconds, high: seconds })
  .refine(({ low, estimate, high }) => low <= estimate && estimate <= high, 'must be low ≤ estimate ≤ high');

export const runtimeFileSchema = z.strictObject({
  schema: z.literal('lla-sim/runtimes'),
  schemaVersion: z.literal(1),
  runtimes: z.record(z.enum(RUNTIMES), terms),
  /** Seconds a launch: of hosts that were measured, by the GPU beside them, and of all others. */
  hosts: z.strictObject({
    measured: z.record(z.string(), z.strictObject({ secondsPerLaunch: seconds, spread: log, row: z.string().min(1) })),
    others: ordered,
  }),
});
export type RuntimeFile = z.infer<typeof runtimeFileSchema>;
