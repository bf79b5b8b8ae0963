/** The vocabulary of the bundled models: 128 words, each one token. */

export const NAMES = (
  'anna boris carla david elena felix greta hugo irene jonas kira leo ' +
  'mona nils olga paul quinn rosa sven tara uma vera walt yara'
).split(' ');

export const THINGS = (
  'apple bread cheese drum egg flute glove hat ink jar kite lamp ' +
  'map nut oar piano quilt rope salt tent urn vase wheel yarn'
).split(' ');

/** Digits of a pass code. Sums are written in words, so that neither is a hint for the other. */
export const DIGITS = '0 1 2 3 4 5 6 7 8 9'.split(' ');

/** Zero to eighteen: the sums of two numbers up to nine. */
export const NUMBERS = (
  'zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen ' +
  'fifteen sixteen seventeen eighteen'
).split(' ');

export const ADJECTIVES = 'old young red grey small tall slow quiet cold happy'.split(' ');
export const NOUNS = 'dog cat fox bird horse river house garden child farmer road tree boat king'.split(' ');
export const VERBS = 'sees hears follows paints likes finds passes helps calls watches'.split(' ');

const MARKS = ['<bos>', '<unk>', '?', '.', 'code', 'plus', 'is', 'the', 'a'] as const;

/** Token `i` is word `i`. */
export const WORDS: readonly string[] = [
  ...MARKS,
  ...NAMES,
  ...THINGS,
  ...DIGITS,
  ...NUMBERS,
  ...ADJECTIVES,
  ...NOUNS,
  ...VERBS,
  'copy',
  ...Array.from({ length: 7 }, (_, i) => `<spare${i + 1}>`),
];

const numbers = new Map(WORDS.map((word, token) => [word, token]));

/** The token of a word. @throws RangeError for a word that is not in the vocabulary */
export function tokenOf(word: string): number {
  const token = numbers.get(word);
  if (token === undefined) throw new RangeError(`no word ${word}`);
  return token;
}
