/**
 * tokenizer.json files of the kinds that Ouro, SmolLM2 and Llama 3 use: byte-level BPE behind three ways of splitting
 * text.
 */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { readTokenizer } from '../../src/decoder/tokenizer.js';
import { UserError } from '../../src/errors.js';
import { SEED } from '../gpu/random.js';
import { removeTemporary, temporary } from './files.js';

removeTemporary();

/**
 * The 256 characters that stand for bytes in byte-level BPE (GPT-2): printable ones for themselves, the rest from
 * U+0100 on.
 */
const BYTES = (() => {
  const printable = (b: number): boolean => (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
  let next = 256;
  return Array.from({ length: 256 }, (_, b) => String.fromCharCode(printable(b) ? b : next++));
})();
const SPACE = BYTES[32]!;
const MERGES: [string, string][] = [
  ['h', 'e'],
  ['l', 'l'],
  ['he', 'll'],
  ['hell', 'o'],
  [SPACE, 'w'],
  [`${SPACE}w`, 'o'],
  ['1', '2'],
  [BYTES[0xc3]!, BYTES[0xa9]!],
];
const VOCAB = Object.fromEntries([...BYTES, ...MERGES.map(([a, b]) => a + b)].map((token, id) => [token, id]));
const SPECIAL = Object.keys(VOCAB).length;
const id = (token: string): number => VOCAB[token]!;

const byteLevel = (useRegex: boolean) => ({
  type: 'ByteLevel',
  add_prefix_space: false,
  trim_offsets: true,
  use_regex: useRegex,
});
const llamaSplit = {
  type: 'Split',
  pattern: {
    Regex:
      "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| " +
      '?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+',
  },
  behavior: 'Isolated',
  invert: false,
};
const KINDS = {
  'GPT-2': byteLevel(true),
  SmolLM2: { type: 'Sequence', pretokenizers: [{ type: 'Digits', individual_digits: true }, byteLevel(true)] },
  'Llama 3': { type: 'Sequence', pretokenizers: [llamaSplit, byteLevel(false)] },
};

const fileOf = (preTokenizer: unknown, extra: object = {}): string =>
  temporary(
    JSON.stringify({
      version: '1.0',
      truncation: null,
      padding: null,
      added_tokens: [
        {
          id: SPECIAL,
          content: '<|end|>',
          single_word: false,
          lstrip: false,
          rstrip: false,
          normalized: false,
          special: true,
        },
      ],
      normalizer: null,
      pre_tokenizer: preTokenizer,
      post_processor: null,
      decoder: byteLevel(true),
      model: {
        type: 'BPE',
        dropout: null,
        unk_token: null,
        continuing_subword_prefix: null,
        end_of_word_suffix: null,
        fuse_unk: false,
        byte_fallback: false,
        ignore_merges: false,
        vocab: VOCAB,
        merges: MERGES.map(([a, b]) => `${a} ${b}`),
      },
      ...extra,
    }),
    'tokenizer.json',
  );

describe.each(Object.entries(KINDS))('tokenizer, %s', (kind, preTokenizer) => {
  const tokenizer = readTokenizer(fileOf(preTokenizer), SPECIAL + 1);

  it('merges as the file says', () => {
    expect(tokenizer.encode('hello wow')).toEqual([id('hello'), id(`${SPACE}wo`), id('w')]);
    expect(tokenizer.encode('hé')).toEqual([id('h'), id('Ã©')]);
    expect(tokenizer.encode('a<|end|>he')).toEqual([id('a'), SPECIAL, id('he')]);
    expect(tokenizer.encode('12')).toEqual(kind === 'SmolLM2' ? [id('1'), id('2')] : [id('12')]);
    expect(tokenizer.encode('')).toEqual([]);
  });

  it('decodes what it encodes, whatever the text; special tokens are left out', () => {
    expect(tokenizer.decode([id('hello'), SPECIAL, id(`${SPACE}wo`)])).toBe('hello wo');
    fc.assert(
      fc.property(
        fc.oneof(
          fc.string({ unit: 'binary' }),
          fc.string({ unit: fc.constantFrom('h', 'e', 'l', 'o', ' ', '1', '2', 'é', '\n', "'", 's', '.', '語', '🙂') }),
        ),
        (text) => {
          fc.pre(!text.includes('<|end|>') && Buffer.from(text).toString() === text);
          expect(tokenizer.decode(tokenizer.encode(text))).toBe(text);
        },
      ),
      { seed: SEED, numRuns: 400 },
    );
  });
});

describe('tokenizer files', () => {
  it('that yield tokens beyond the vocabulary are refused when they do', () => {
    const tokenizer = readTokenizer(fileOf(KINDS['GPT-2']), SPECIAL);
    expect(tokenizer.encode('hello')).toEqual([id('hello')]);
    expect(() => tokenizer.encode('<|end|>')).toThrow(
      `makes token ${SPECIAL} of the text, and the model has ${SPECIAL}`,
    );
  });

  it('that are damaged or of another kind are refused in one line', () => {
    for (const text of [
      '',
      '{',
      '[]',
      '7',
      '{}',
      '{"model":{}}',
      '{"model":{"type":"BPE"},"decoder":null,"added_tokens":[]}',
      JSON.stringify({ model: { type: 'Nope', vocab: {} }, added_tokens: [], decoder: byteLevel(true) }),
    ]) {
      try {
        readTokenizer(temporary(text, 'tokenizer.json'), 10).encode('hello');
        expect.unreachable(text);
      } catch (error) {
        expect(error, text).toBeInstanceOf(UserError);
        expect((error as UserError).message).toContain('tokenizer.json');
        expect((error as UserError).message).not.toContain('\n');
      }
    }
    expect(() => readTokenizer('/dev/zero', 10)).toThrow('not a regular file');
    expect(() => readTokenizer('/nowhere/tokenizer.json', 10)).toThrow('does not exist');
  });
});
