/** Files of `lla-sim fidelity`, read back. */
import { z } from 'zod';
import { PATH_CHOICES } from '../codecs/codec.js';
import { printable } from '../errors.js';
import { displayPath, readTextFile } from '../io/files.js';
import { checkedBy } from '../io/issues.js';
import { parseJson } from '../io/json.js';
import { STORAGES } from '../../kernels/spec.js';
import { codecSchema } from './codec.js';

const MAX_BYTES = 64 * 2 ** 20;
const MAX_VALUES = 4_000_000;
/** Names and labels are shown in answers. */
const word = z.string().max(300).transform(printable);

const measured = z
  .object({ estimate: z.number(), low: z.number(), high: z.number() })
  .refine(({ low, high }) => low <= high, 'must have its low end below its high one');
const interval = measured.nullable();
const share = z.number().min(0).max(1);
const count = z.int().min(0).max(1e9);

const fidelitySchema = z.object({
  schema: z.literal('lla-sim/fidelity'),
  schemaVersion: z.literal(1),
  model: z.object({ name: word, fingerprint: z.string().regex(/^[0-9a-f]{64}$/), trained: z.boolean() }),
  device: word,
  weights: z.enum(['f16', 'f32']),
  fittedTokens: z.number(),
  seed: z.number(),
  inputs: z.string(),
  rows: z
    .array(
      z.looseObject({
        id: word,
        codec: codecSchema,
        ratio: z.number(),
        path: z.enum(PATH_CHOICES),
        storage: z.enum(STORAGES),
        eviction: word.nullable(),
        initialisation: word,
        codecFingerprint: word.nullable(),
        kl: interval,
        top1: interval,
        perplexity: interval,
        agreedTokens: interval,
        agreement: interval,
        passkey: interval,
        recall: interval,
        sums: interval,
        passkeyCells: z.array(z.object({ context: count, depth: share, count, score: share })),
        attentionError: z.number().nullable(),
        items: z.array(
          z.looseObject({
            kind: z.enum(['text', 'rollout', 'passkey', 'recall', 'sum']),
            context: count,
            scored: count.optional(),
            kl: z.number().nullable().optional(),
            top1: share,
            agreed: count,
            exact: share,
          }),
        ),
      }),
    )
    .max(10_000),
  // Files from before it was measured have none.
  acceptance: z
    .object({
      draftTokens: count,
      texts: count,
      tokensEach: count,
      loops: z
        .array(
          z.object({
            draftLoops: count,
            rounds: count,
            acceptance: measured,
            byPlace: z.array(interval).max(64),
            tokensPerRound: measured,
            draftAcceptance: share,
          }),
        )
        .max(1000),
      notMeasured: word.nullable(),
    })
    .nullable()
    .optional(),
});

export type FidelityFile = z.infer<typeof fidelitySchema>;
export type FidelityFileRow = FidelityFile['rows'][number];

/** Reads a file of `lla-sim fidelity`. @throws UserError for anything else, naming the field */
export function readFidelity(path: string): FidelityFile {
  const subject = `fidelity file ${displayPath(path)}`;
  const hint = 'make it with lla-sim fidelity';
  const json = parseJson(readTextFile(path, 'fidelity file', MAX_BYTES), subject, { maxValues: MAX_VALUES, hint });
  return checkedBy(fidelitySchema, json, subject, hint);
}
