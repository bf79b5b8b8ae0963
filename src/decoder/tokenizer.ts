/**
 * Text to tokens and back, from a Hugging Face tokenizer.json. The algorithms are those of `@huggingface/tokenizers`.
 */
import { Tokenizer as Library } from '@huggingface/tokenizers';
import { UserError, show } from '../errors.js';
import { displayPath, readTextFile } from '../io/files.js';
import { isObject, parseJson } from '../io/json.js';
import { TimeLimitError, within } from './time-limit.js';

/** The largest published ones take about 35 MB and hold 1.3 million values (256 Ki tokens, 500,000 merges of two). */
const MAX_TOKENIZER_BYTES = 48 * 2 ** 20;
const MAX_TOKENIZER_VALUES = 3_000_000;

/** The largest published files take 1 to 3 seconds to prepare. */
const LOAD_SECONDS = 8;
/** For every so many characters or tokens, which take half a second. */
const TEXT_SECONDS = 5;
const TEXT_LENGTH = 100_000;

/** What is used of the library, whose type declarations do not resolve under Node's module rules. */
interface LibraryTokenizer {
  encode(text: string, options?: { add_special_tokens?: boolean }): { ids: (number | null | undefined)[] };
  decode(tokens: number[], options?: { skip_special_tokens?: boolean; clean_up_tokenization_spaces?: boolean }): string;
}

export interface Tokenizer {
  /** Token numbers of a text, with the special tokens that the file's template adds. */
  encode(text: string): number[];
  /** The token that stands for whatever the vocabulary lacks; null where the file has none. */
  readonly unknown: number | null;
  /** The text of tokens, special ones left out. Bytes that are not UTF-8 become U+FFFD. */
  decode(tokens: readonly number[]): string;
}

/**
 * Reads a tokenizer.json.
 * @param vocab of the model: a token beyond it is refused when a text yields it
 * @param textSeconds after which a short text is given up
 * @throws UserError when the file cannot be read, is not JSON, or is of a kind that the library does not know
 */
export function readTokenizer(path: string, vocab: number, textSeconds = TEXT_SECONDS): Tokenizer {
  const limitOf = (length: number): number => textSeconds * Math.ceil((length + 1) / TEXT_LENGTH);
  const file = displayPath(path);
  const hint = 'give the tokenizer.json of the model';
  const json = parseJson(readTextFile(path, 'tokenizer file', MAX_TOKENIZER_BYTES), `tokenizer file ${file}`, {
    maxValues: MAX_TOKENIZER_VALUES,
    hint,
    byteOrderMark: 'allowed',
  });
  if (!isObject(json)) throw new UserError(`tokenizer file ${file} must be a JSON object`, hint);
  /**
   * The library reports unusable files by errors of any type, and never returns from a pattern that backtracks without
   * end.
   */
  const guarded = <T>(seconds: number, what: string, hint: string, call: () => T): T => {
    try {
      return within(1000 * seconds, call);
    } catch (error) {
      if (error instanceof UserError) throw error;
      if (error instanceof TimeLimitError)
        throw new UserError(
          `tokenizer file ${file} ${what} within ${seconds} s: its patterns or its vocabulary take too long`,
          hint,
        );
      throw new UserError(
        `tokenizer file ${file} ${what}: ${error instanceof Error ? error.message.slice(0, 300) : show(error)}`,
        hint,
      );
    }
  };
  const library = guarded(
    LOAD_SECONDS,
    'cannot be used',
    hint,
    () => new (Library as unknown as new (tokenizer: object, config: object) => LibraryTokenizer)(json, {}),
  );
  return {
    unknown: unknownOf(json),
    encode: (plain) =>
      guarded(limitOf(plain.length), 'cannot encode this text', 'give token numbers instead', () => {
        const { ids } = library.encode(plain);
        const place = ids.findIndex((id) => !(typeof id === 'number' && Number.isInteger(id) && id >= 0 && id < vocab));
        const stranger = ids[place];
        if (place >= 0 && (stranger === undefined || stranger === null))
          throw new UserError(
            `tokenizer file ${file} has no token for a part of this text and none for what is unknown (unk_token)`,
            'leave out unusual characters, or give token numbers instead',
          );
        if (place >= 0)
          throw new UserError(
            `tokenizer file ${file} makes token ${show(stranger)} of the text, and the model has ${vocab}`,
            'give the tokenizer.json of the model',
          );
        return ids as number[];
      }),
    // The library refuses an empty list.
    decode: (tokens) =>
      tokens.length === 0
        ? ''
        : guarded(limitOf(tokens.length), 'cannot decode these tokens', 'print token numbers instead', () =>
            library.decode([...tokens], { skip_special_tokens: true, clean_up_tokenization_spaces: false }),
          ),
  };
}

/** Of models of words and word pieces, which name it. */
function unknownOf({ model }: Readonly<Record<string, unknown>>): number | null {
  if (!isObject(model) || !isObject(model['vocab']) || typeof model['unk_token'] !== 'string') return null;
  const id = model['vocab'][model['unk_token']];
  return typeof id === 'number' ? id : null;
}

/** Says how much of a text a tokenizer does not know; null where it knows all. @param what `README.md`, `--text` */
export function unknownWords(tokenizer: Tokenizer, tokens: readonly number[], what: string): string | null {
  const count = tokens.filter((token) => token === tokenizer.unknown).length;
  if (count === 0) return null;
  return `warning: ${count} of ${tokens.length} tokens of ${what} are words that the model's tokenizer does not know`;
}
