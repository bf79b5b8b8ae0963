/**
 * A validation file (`lla-sim validate --format json -o FILE`), as far as a report shows it: steps predicted and
 * measured.
 */
import { z } from 'zod';
import { printable, show, UserError } from '../errors.js';
import { readTextFile } from '../io/files.js';
import { checkedBy } from '../io/issues.js';
import { parseJson } from '../io/json.js';

const MAX_FILE_BYTES = 64 * 2 ** 20;
const MAX_VALUES = 2_000_000;

const seconds = z.number().refine((x) => x > 0 && x < 1e6, 'must be positive and finite');
/** Shown to people, in pictures and in pages. */
const label = z.string().max(400).transform(printable);

const validationSchema = z.object({
  schema: z.literal('lla-sim/validate'),
  schemaVersion: z.literal(1),
  device: z.object({ description: label, software: z.boolean() }),
  latency: z
    .object({
      model: label,
      steps: z
        .array(
          z.object({
            id: label,
            batch: z.number(),
            contextTokens: z.number(),
            measuredSeconds: seconds,
            predicted: z.object({ estimate: seconds, low: seconds, high: seconds }),
            evidence: z.enum(['measured', 'interpolated', 'extrapolated', 'attainable', 'roofline']),
          }),
        )
        .max(5000),
    })
    .nullable(),
});

/** What a report keeps of a validation. */
export type Validation = z.infer<typeof validationSchema> & { /** As shown to people. */ readonly file: string };

/**
 * Reads a validation.
 * @throws UserError when the file is none, or holds no steps
 */
export function readValidation(path: string): Validation {
  const subject = `validation ${show(path)}`;
  const hint = 'write one with lla-sim validate --format json -o FILE';
  const json = parseJson(readTextFile(path, 'validation', MAX_FILE_BYTES), subject, { maxValues: MAX_VALUES, hint });
  const validation = checkedBy(validationSchema, json, `${subject} is not one of this version`, hint);
  if (!validation.latency || validation.latency.steps.length === 0)
    throw new UserError(
      `${subject} holds no step times`,
      'run lla-sim validate without --only, or with --only latency',
    );
  return { ...validation, file: printable(path) };
}
