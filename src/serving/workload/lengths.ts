/** Lengths of prompts and outputs as a question has them: one, a distribution, or those of a trace. */
import { UserError, show } from '../../errors.js';
import { parseTokens } from '../../numbers/units.js';
import type { Workload } from '../../schema/serving.js';
import type { Lengths } from './draws.js';
import { observedLengths } from './trace.js';

/**
 * Reads `512`, `uniform:100-900` or `lognormal:1024:512`.
 * @throws UserError for anything else
 */
export function readLengths(text: string | number, subject: string): Lengths {
  const word = String(text).trim();
  const [kind, ...rest] = word.split(':');
  if (kind === 'uniform' && rest.length === 1) {
    const [least, most, ...more] = rest[0]!.split('-').map((part) => parseTokens(part, subject));
    if (least !== undefined && most !== undefined && more.length === 0 && least <= most)
      return { kind: 'uniform', least, most };
  } else if (kind === 'lognormal' && rest.length === 2) {
    const mean = parseTokens(rest[0]!, subject);
    if (/^0+(\.0*)?$/.test(rest[1]!)) return { kind: 'fixed', tokens: mean };
    return { kind: 'lognormal', mean, deviation: parseTokens(rest[1]!, subject) };
  } else if (rest.length === 0 && /^[0-9]/.test(word)) return { kind: 'fixed', tokens: parseTokens(word, subject) };
  throw new UserError(
    `${subject} must be tokens, uniform:LEAST-MOST or lognormal:MEAN:DEVIATION, not ${show(text)}`,
    `write for example ${subject} lognormal:1024:512`,
  );
}

/**
 * Lengths of the trace of `--lengths-of`; with a number for prompts or outputs, scaled so that this is their mean.
 * @throws UserError where either is no number
 */
export function readObserved(
  w: Pick<Workload, 'lengthsOf' | 'promptTokens' | 'outputTokens'>,
  most: number,
): { prompts: Int32Array; outputs: Int32Array } {
  const { prompts, outputs } = observedLengths(String(w.lengthsOf), most);
  const scaled = (of: Int32Array, wanted: string | number | undefined, subject: string): Int32Array => {
    if (wanted === undefined) return of;
    const lengths = readLengths(wanted, subject);
    if (lengths.kind !== 'fixed')
      throw new UserError(
        `${subject} must be a number beside --lengths-of, the mean of what is drawn, not ${show(wanted)}`,
        `write for example ${subject} 512`,
      );
    const by = (lengths.tokens * of.length) / of.reduce((sum, n) => sum + n, 0);
    return of.map((n) => Math.max(1, Math.round(n * by)));
  };
  return {
    prompts: scaled(prompts, w.promptTokens, '--prompt-tokens'),
    outputs: scaled(outputs, w.outputTokens, '--output-tokens'),
  };
}
