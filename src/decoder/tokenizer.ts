/**
 * Text to tokens and back, from a Hugging Face tokenizer.json. The algorithms are those of `@huggingface/tokenizers`.
 */
import { Tokenizer as Library } from '@huggingface/tokenizers';
import { UserError, show } from '../errors.js';
import { displayPath, readTextFile } from '../files.js';

/** The largest published ones take about 20 MB. */
const MAX_TOKENIZER_BYTES = 128 * 2 ** 20;

/** What is used of the library, whose type declarations do not resolve under Node's module rules. */
interface LibraryTokenizer {
  encode(text: string, options?: { add_special_tokens?: boolean }): { ids: number[] };
  decode(tokens: number[], options?: { skip_special_tokens?: boolean; clean_up_tokenization_spaces?: boolean }): string;
}

export interface Tokenizer {
  /** Token numbers of a text, with the special tokens that the file's template adds. */
  encode(text: string): number[];
  /** The text of tokens, special ones left out. Bytes that are not UTF-8 become U+FFFD. */
  decode(tokens: readonly number[]): string;
}

/**
 * Reads a tokenizer.json.
 * @param vocab of the model: a token beyond it is refused when a text yields it
 * @throws UserError when the file cannot be read, is not JSON, or is of a kind that the library does not know
 */
export function readTokenizer(path: string, vocab: number): Tokenizer {
  const file = displayPath(path);
  const text = readTextFile(path, 'tokenizer file', MAX_TOKENIZER_BYTES).replace(/^\ufeff/, '');
  let json: unknown;
  try {
    json = JSON.parse(text);
  } catch {
    throw new UserError(`tokenizer file ${file} is not valid JSON`, 'give the tokenizer.json of the model');
  }
  if (typeof json !== 'object' || json === null || Array.isArray(json))
    throw new UserError(`tokenizer file ${file} must be a JSON object`, 'give the tokenizer.json of the model');
  /** The library reports what it cannot use by errors of any type. */
  const guarded = <T>(what: string, hint: string, call: () => T): T => {
    try {
      return call();
    } catch (error) {
      if (error instanceof UserError) throw error;
      throw new UserError(
        `tokenizer file ${file} ${what}: ${error instanceof Error ? error.message : String(error)}`,
        hint,
      );
    }
  };
  const library = guarded(
    'cannot be used',
    'give the tokenizer.json of the model',
    () => new (Library as unknown as new (tokenizer: object, config: object) => LibraryTokenizer)(json, {}),
  );
  return {
    encode: (plain) =>
      guarded('cannot encode this text', 'give token numbers instead', () => {
        const { ids } = library.encode(plain);
        const stranger = ids.find((id) => !Number.isInteger(id) || id < 0 || id >= vocab);
        if (stranger !== undefined)
          throw new UserError(
            `tokenizer file ${file} makes token ${show(stranger)} of the text, and the model has ${vocab}`,
            'give the tokenizer.json of the model',
          );
        return ids;
      }),
    // The library refuses an empty list.
    decode: (tokens) =>
      tokens.length === 0
        ? ''
        : guarded('cannot decode these tokens', 'print token numbers instead', () =>
            library.decode([...tokens], { skip_special_tokens: true, clean_up_tokenization_spaces: false }),
          ),
  };
}
