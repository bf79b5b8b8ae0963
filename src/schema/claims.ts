/** Files of `lla-sim fidelity --claims`, read back. */
import { z } from 'zod';
import { printable } from '../errors.js';
import { displayPath, readTextFile } from '../io/files.js';
import { checkedBy } from '../io/issues.js';
import { parseJson } from '../io/json.js';
import { VERDICTS } from './claim-words.js';

const MAX_BYTES = 2 ** 20;
const MAX_VALUES = 20_000;

const words = z.string().max(1000).transform(printable);
const interval = z.object({ estimate: z.number(), low: z.number(), high: z.number() }).nullable();

const claimsSchema = z.object({
  schema: z.literal('lla-sim/claims'),
  schemaVersion: z.literal(2),
  model: z.object({ name: words, fingerprint: z.string().regex(/^[0-9a-f]{64}$/), trained: z.boolean() }),
  device: words,
  /** Of what was trained for the claims; null where nothing was. */
  training: z.object({ steps: z.number(), stepTokens: z.number() }).nullable(),
  claims: z
    .array(
      z.object({
        claim: words,
        verdict: z.enum(VERDICTS),
        /** What the effect is, in words and units. */
        effect: words,
        estimate: interval,
        /** The same effect on the untrained twin. */
        control: interval,
        /** The effect less the twin's, over the same texts. */
        beyond: interval,
        /** What the paper has for it. */
        paper: words,
        note: words,
      }),
    )
    .max(100),
});

export type ClaimsFile = z.infer<typeof claimsSchema>;

/** Reads a file of `lla-sim fidelity --claims`. @throws UserError for anything else, naming the field */
export function readClaims(path: string): ClaimsFile {
  const subject = `claims file ${displayPath(path)}`;
  const hint = 'make it with lla-sim fidelity --claims -o FILE';
  const json = parseJson(readTextFile(path, 'claims file', MAX_BYTES), subject, { maxValues: MAX_VALUES, hint });
  return checkedBy(claimsSchema, json, subject, hint);
}
