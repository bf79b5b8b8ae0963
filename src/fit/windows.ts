/** The tokens that a codec is fitted to, as windows: each a sequence of its own. */
import { UserError, show } from '../errors.js';
import { readTextFile } from '../io/files.js';
import type { Tokenizer } from '../decoder/index.js';

const MAX_TEXT_BYTES = 64 * 2 ** 20;

/** Consecutive windows of `length` tokens; a rest of less than half of it is left out. */
export function windowsOf(tokens: readonly number[], length: number): number[][] {
  const windows: number[][] = [];
  for (
    let from = 0;
    from + Math.min(length, tokens.length) / 2 <= tokens.length && from < tokens.length;
    from += length
  )
    windows.push(tokens.slice(from, from + length));
  return windows;
}

/**
 * Token numbers of a file, separated by commas or white space.
 * @throws UserError for what is no token of the vocabulary, and an empty file
 */
export function readTokens(path: string, vocab: number): number[] {
  const words = readTextFile(path, 'token file', MAX_TEXT_BYTES)
    .split(/[\s,]+/)
    .filter((word) => word !== '');
  const tokens = words.map(Number);
  const wrong = tokens.findIndex((token) => !Number.isInteger(token) || token < 0 || token >= vocab);
  if (wrong >= 0)
    throw new UserError(
      `token file ${show(path)} has ${show(words[wrong])}, which is not one of the ${vocab} tokens of the model`,
      'give token numbers from 0',
    );
  if (tokens.length === 0) throw new UserError(`token file ${show(path)} holds no tokens`, 'give token numbers');
  return tokens;
}

/** Characters that are tokenised at once. */
const PIECE = 20_000;

/** Tokens of a text file, tokenised in pieces that end at the end of a line. @throws UserError for an empty file */
export function readText(path: string, tokenizer: Tokenizer | null): number[] {
  if (!tokenizer)
    throw new UserError('--text needs a tokenizer', 'give its file with --tokenizer, or token numbers with --tokens');
  const text = readTextFile(path, 'text file', MAX_TEXT_BYTES);
  const tokens: number[] = [];
  for (let from = 0; from < text.length;) {
    const line = text.lastIndexOf('\n', from + PIECE);
    const to = from + PIECE >= text.length ? text.length : line > from ? line + 1 : from + PIECE;
    for (const token of tokenizer.encode(text.slice(from, to))) tokens.push(token);
    from = to;
  }
  if (tokens.length === 0) throw new UserError(`text file ${show(path)} makes no token`, 'give a longer text');
  return tokens;
}
