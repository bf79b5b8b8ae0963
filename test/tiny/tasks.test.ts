/** The texts of the bundled model: right answers, exact lengths, one seed one text. */
import { describe, expect, it } from 'vitest';
import { randomFrom } from '../../src/random.js';
import { CODE_DIGITS, lesson, passkeyTask, recallTask, sumTask } from '../../src/tiny/tasks.js';
import { DIGITS, NAMES, NUMBERS, THINGS, tokenOf, WORDS } from '../../src/tiny/words.js';

const words = (tokens: readonly number[]): string[] => tokens.map((token) => WORDS[token] as string);

describe('tasks', () => {
  it('have 128 different words, and say so for others', () => {
    expect(new Set(WORDS).size).toBe(128);
    expect(WORDS[tokenOf('code')]).toBe('code');
    expect(() => tokenOf('Code')).toThrow(RangeError);
  });

  it('ask for a thing that stands once, right after its name', () => {
    for (let seed = 0; seed < 50; seed++) {
      const { prompt, answer } = recallTask(randomFrom(seed), 24 + seed);
      const text = words(prompt);
      expect(text.length, `seed ${seed}`).toBe(24 + seed);
      const [ask, name] = text.slice(-2);
      expect([ask, text.indexOf(name as string) < text.length - 1], `seed ${seed}`).toEqual(['?', true]);
      expect(text[text.indexOf(name as string) + 1], `seed ${seed}`).toBe(words(answer)[0]);
      expect(text.filter((word) => NAMES.includes(word)).length).toBe(7);
    }
  });

  it('ask for a code that stands once, at the depth asked for', () => {
    for (let seed = 0; seed < 50; seed++) {
      const depth = seed / 49;
      const { prompt, answer } = passkeyTask(randomFrom(seed), 200, depth);
      const text = words(prompt);
      const at = text.indexOf('code');
      expect(text.slice(-2)).toEqual(['?', 'code']);
      expect(text.slice(at + 1, at + 1 + CODE_DIGITS), `seed ${seed}`).toEqual(words(answer));
      expect(new Set(answer).size).toBe(CODE_DIGITS);
      expect(text.filter((word) => DIGITS.includes(word)).length).toBe(CODE_DIGITS);
      expect(Math.abs(at / 190 - depth), `seed ${seed}`).toBeLessThan(0.07);
    }
  });

  it('ask for sums that are right', () => {
    for (let seed = 0; seed < 50; seed++) {
      const { prompt, answer } = sumTask(randomFrom(seed), 20);
      const [a, , b] = words(prompt.slice(-4));
      expect(prompt.length).toBe(20);
      expect(NUMBERS.indexOf(words(answer)[0] as string)).toBe(
        NUMBERS.indexOf(a as string) + NUMBERS.indexOf(b as string),
      );
    }
  });

  it('make lessons whose marked tokens follow from the text before them', () => {
    for (let seed = 0; seed < 100; seed++) {
      const length = [33, 65, 129, 257][seed % 4] as number;
      const { tokens, isAnswer } = lesson(randomFrom(seed), length);
      const text = words(tokens);
      expect([text.length, isAnswer.length], `seed ${seed}`).toEqual([length, length]);
      const answered = text.flatMap((_, i) => (isAnswer[i] ? [i] : []));
      expect(answered.length, `seed ${seed}`).toBeGreaterThan(length / 16);
      for (const i of answered) {
        const word = text[i] as string;
        const before = text[i - 1] as string;
        if (THINGS.includes(word)) expect(word, `seed ${seed}`).toBe(text[text.indexOf(before) + 1]);
        else if (DIGITS.includes(word)) expect(word, `seed ${seed}`).toBe(text[text.indexOf(before) + 1]);
        else expect(word, `seed ${seed}`).toBe(sumOf(text.slice(i - 4, i)));
      }
    }
  });

  it('repeat with the seed, and refuse what does not fit', () => {
    expect(lesson(randomFrom(3), 100)).toEqual(lesson(randomFrom(3), 100));
    expect(lesson(randomFrom(4), 100)).not.toEqual(lesson(randomFrom(3), 100));
    expect(() => recallTask(randomFrom(1), 10)).toThrow(RangeError);
  });
});

/** five plus four is → nine */
const sumOf = ([a, , b]: string[]): string =>
  NUMBERS[NUMBERS.indexOf(a as string) + NUMBERS.indexOf(b as string)] as string;
