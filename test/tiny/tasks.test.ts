/** The texts of the bundled models: right answers, exact lengths, one seed one text. */
import { describe, expect, it } from 'vitest';
import { randomFrom } from '../../src/numbers/random.js';
import {
  CODE_DIGITS,
  copyTask,
  lesson,
  lessonOptions,
  LIST_THINGS,
  passkeyTask,
  recallTask,
  sumTask,
} from '../../src/tiny/tasks.js';
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

  it('ask for a list that stands once, and for sums of three numbers that are right', () => {
    for (let seed = 0; seed < 50; seed++) {
      const list = copyTask(randomFrom(seed), 40 + seed);
      const text = words(list.prompt);
      const at = text.indexOf('copy');
      expect([text.length, ...text.slice(-2)], `seed ${seed}`).toEqual([40 + seed, '?', 'copy']);
      expect(text.slice(at + 1, at + 1 + LIST_THINGS), `seed ${seed}`).toEqual(words(list.answer));
      const { prompt, answer } = sumTask(randomFrom(seed), 20, 3);
      expect(words(prompt).filter((word) => NUMBERS.includes(word)).length, `seed ${seed}`).toBe(3);
      expect(words(answer)[0], `seed ${seed}`).toBe(sumOf(words(prompt)));
    }
  });

  it('make lessons whose marked tokens follow from the text before them', () => {
    let copied = 0;
    for (let seed = 0; seed < 200; seed++) {
      const length = [33, 65, 129, 257][seed % 4] as number;
      const more = seed < 100 ? {} : { copy: 0.6, sum3: 0.5 };
      const { tokens, isAnswer, sources } = lesson(randomFrom(seed), length, { ...lessonOptions(length), ...more });
      const text = words(tokens);
      copied += Number(text.includes('copy'));
      expect([text.length, isAnswer.length], `seed ${seed}`).toEqual([length, length]);
      const answered = text.flatMap((_, i) => (isAnswer[i] ? [i] : []));
      expect(answered.length, `seed ${seed}`).toBeGreaterThan(length / 16);
      for (const i of answered) {
        const word = text[i] as string;
        const asked = text.lastIndexOf('?', i);
        const source = text.indexOf(text[asked + 1] as string) + i - asked - 1;
        if (THINGS.includes(word) || DIGITS.includes(word)) {
          expect([word, sources[i]], `seed ${seed}`).toEqual([text[source], source]);
        } else expect(word, `seed ${seed}`).toBe(sumOf(text.slice(asked, i)));
      }
    }
    expect(copied).toBeGreaterThan(10);
  });

  it('repeat with the seed, and refuse what does not fit', () => {
    expect(lesson(randomFrom(3), 100)).toEqual(lesson(randomFrom(3), 100));
    expect(lesson(randomFrom(4), 100)).not.toEqual(lesson(randomFrom(3), 100));
    expect(() => recallTask(randomFrom(1), 10)).toThrow(RangeError);
  });
});

/** five plus four is → nine */
const sumOf = (text: string[]): string =>
  NUMBERS[text.reduce((sum, word) => sum + Math.max(0, NUMBERS.indexOf(word)), 0)] as string;
