/** Files of `lla-sim fidelity`, read back. */
import { z } from 'zod';
import { CODEC_KINDS, PATH_CHOICES } from '../codecs/codec.js';
import { UserError } from '../errors.js';
import { displayPath, readTextFile } from '../files.js';
import { parseJson } from '../json.js';

const MAX_BYTES = 64 * 2 ** 20;
const MAX_VALUES = 4_000_000;

const interval = z.object({ estimate: z.number(), low: z.number(), high: z.number() }).nullable();

const fidelitySchema = z.object({
  schema: z.literal('lla-sim/fidelity'),
  schemaVersion: z.literal(1),
  model: z.object({ name: z.string(), fingerprint: z.string().regex(/^[0-9a-f]{64}$/), trained: z.boolean() }),
  device: z.string(),
  weights: z.enum(['f16', 'f32']),
  fittedTokens: z.number(),
  seed: z.number(),
  inputs: z.string(),
  rows: z.array(
    z.looseObject({
      id: z.string(),
      codec: z.looseObject({ kind: z.enum(CODEC_KINDS) }),
      ratio: z.number(),
      path: z.enum(PATH_CHOICES),
      storage: z.string(),
      eviction: z.string().nullable(),
      initialisation: z.string(),
      codecFingerprint: z.string().nullable(),
      kl: interval,
      top1: interval,
      perplexity: interval,
      agreedTokens: interval,
      passkey: interval,
      recall: interval,
      sums: interval,
      attentionError: z.number().nullable(),
    }),
  ),
});

export type FidelityFile = z.infer<typeof fidelitySchema>;

/** Reads a file of `lla-sim fidelity`. @throws UserError for anything else, naming the field */
export function readFidelity(path: string): FidelityFile {
  const subject = `fidelity file ${displayPath(path)}`;
  const json = parseJson(readTextFile(path, 'fidelity file', MAX_BYTES), subject, {
    maxValues: MAX_VALUES,
    hint: 'make it with lla-sim fidelity',
  });
  const parsed = fidelitySchema.safeParse(json);
  if (parsed.success) return parsed.data;
  const issue = parsed.error.issues[0];
  throw new UserError(
    `${subject}: ${issue?.path.join('.') ?? ''} ${issue?.message ?? 'is wrong'}`,
    'make it with lla-sim fidelity',
  );
}
