/** Exit depths that were recorded, `--depth FILE.jsonl`: an answer a line, the loops of its tokens in order. */
import { show, UserError } from '../../errors.js';
import { displayPath, readTextFile } from '../../io/files.js';
import { parseJson } from '../../io/json.js';

const MAX_BYTES = 2 ** 26;
/** Tokens of an answer. */
const MAX_TOKENS = 2 ** 17;

/**
 * @param loops of the model
 * @returns loops of each token, by answer
 * @throws UserError naming file and line
 */
export function readDepthTrace(path: string, loops: number): readonly Uint8Array[] {
  const subject = `depths ${show(displayPath(path))}`;
  const hint = `write an answer a line, the loops of its tokens in order: [${loops},${Math.max(1, loops - 1)}]`;
  const answers = readTextFile(path, 'file of depths', MAX_BYTES)
    .split(/\r?\n/)
    .flatMap((text, i): Uint8Array[] => {
      if (text.trim() === '') return [];
      const line = parseJson(text, `${subject}, line ${i + 1}`, { maxValues: MAX_TOKENS, hint });
      const isDepth = (n: unknown): boolean => Number.isInteger(n) && (n as number) >= 1 && (n as number) <= loops;
      if (!Array.isArray(line) || line.length === 0 || !line.every(isDepth))
        throw new UserError(`${subject}, line ${i + 1} must be a list of whole numbers from 1 to ${loops}`, hint);
      return [Uint8Array.from(line as number[])];
    });
  if (answers.length === 0) throw new UserError(`${subject} has no answer`, hint);
  return answers;
}

/** Share of tokens that left after loop 1, 2, … */
export function recordedShares(answers: readonly Uint8Array[], loops: number): readonly number[] {
  const counts = new Array<number>(loops).fill(0);
  for (const answer of answers) for (const depth of answer) counts[depth - 1]!++;
  const all = answers.reduce((sum, answer) => sum + answer.length, 0);
  return counts.map((count) => count / all);
}
