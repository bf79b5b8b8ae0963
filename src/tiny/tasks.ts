/**
 * Texts of the bundled models, as tokens: recall of facts, a pass code or a list to copy, sums, all in filler. Pure
 * functions of a source of random numbers, so that a seed gives the same texts.
 *
 *   facts    a name and its thing, anywhere in the filler                 anna bread
 *   code     the word "code" and five different digits                    code 4 7 1 9 2
 *   list     the word "copy" and six different things (lla-small)         copy lamp bread urn kite salt map
 *   filler   sentences; the first one may begin in its middle             the old dog sees a bird .
 *   asked    at the end                                ? anna bread ? code 4 7 1 9 2 ? three plus four is seven
 */
import { ADJECTIVES, DIGITS, NAMES, NOUNS, NUMBERS, THINGS, tokenOf, VERBS } from './words.js';

/** Uniform numbers in [0, 1), as of `randomFrom`. */
export type Random = () => number;

export type TaskKind = 'recall' | 'passkey' | 'copy' | 'sum' | 'sum3';

/** A prompt and what must follow it. */
export interface Task {
  readonly kind: TaskKind;
  readonly prompt: readonly number[];
  readonly answer: readonly number[];
}

/** Digits of a pass code, all different. */
export const CODE_DIGITS = 5;

/** Things of a list to copy, all different. Facts of the same text may name them too. */
export const LIST_THINGS = 6;

const tokens = (words: readonly string[]): readonly number[] => words.map(tokenOf);
const [names, things, digits, numbers] = [NAMES, THINGS, DIGITS, NUMBERS].map(tokens) as [
  readonly number[],
  readonly number[],
  readonly number[],
  readonly number[],
];
const [adjectives, nouns, verbs] = [ADJECTIVES, NOUNS, VERBS].map(tokens) as [
  readonly number[],
  readonly number[],
  readonly number[],
];
const [BOS, ASK, STOP, CODE, COPY, PLUS, IS, THE, A] = tokens([
  '<bos>',
  '?',
  '.',
  'code',
  'copy',
  'plus',
  'is',
  'the',
  'a',
]) as [number, number, number, number, number, number, number, number, number];

const below = (random: Random, n: number): number => Math.floor(random() * n);
const oneOf = (random: Random, list: readonly number[]): number => list[below(random, list.length)] as number;

/** `count` different elements, in random order. */
function some<T>(random: Random, list: readonly T[], count: number): T[] {
  const rest = [...list];
  for (let i = 0; i < count; i++) {
    const j = i + below(random, rest.length - i);
    [rest[i], rest[j]] = [rest[j] as T, rest[i] as T];
  }
  return rest.slice(0, count);
}

/** 6 to 8 tokens: the (old) dog sees a (red) bird . */
function sentence(random: Random): number[] {
  const phrase = (article: number): number[] => [
    article,
    ...(random() < 0.5 ? [oneOf(random, adjectives)] : []),
    oneOf(random, nouns),
  ];
  return [...phrase(random() < 0.5 ? THE : A), oneOf(random, verbs), ...phrase(random() < 0.5 ? THE : A), STOP];
}

/** Sentences of exactly `length` tokens; the first is cut at its front. */
function filler(random: Random, length: number): number[][] {
  const parts: number[][] = [];
  let left = length;
  while (left > 0) {
    const next = sentence(random).slice(-left);
    parts.unshift(next);
    left -= next.length;
  }
  return parts;
}

/** Puts items between sentences, at random places, in their order. */
function scattered(random: Random, items: readonly (readonly number[])[], sentences: readonly number[][]): number[] {
  const places = items.map(() => below(random, sentences.length + 1)).sort((a, b) => a - b);
  const out: number[] = [];
  let next = 0;
  for (let i = 0; i <= sentences.length; i++) {
    for (; places[next] === i; next++) out.push(...(items[next] as number[]));
    out.push(...(sentences[i] ?? []));
  }
  return out;
}

interface Fact {
  readonly name: number;
  readonly thing: number;
}
const factsOf = (random: Random, count: number): Fact[] =>
  some(random, names, count).map((name) => ({ name, thing: oneOf(random, things) }));
const codeOf = (random: Random): number[] => [CODE, ...some(random, digits, CODE_DIGITS)];
const listOf = (random: Random): number[] => [COPY, ...some(random, things, LIST_THINGS)];

/** Numbers up to nine; a third one at most so large that there is a word for the sum. */
function sumOf(random: Random, terms: number): { question: number[]; answer: number } {
  const added = [below(random, 10), below(random, 10)];
  let sum = (added[0] as number) + (added[1] as number);
  if (terms > 2) {
    const third = below(random, Math.min(10, numbers.length - sum));
    added.push(third);
    sum += third;
  }
  const words = added.flatMap((n, i) => [...(i > 0 ? [PLUS] : []), numbers[n] as number]);
  return { question: [ASK, ...words, IS], answer: numbers[sum] as number };
}

/** The tokens between the start and the question. */
function requireRoom(length: number, needed: number): number {
  if (length < needed) throw new RangeError(`a text of ${length} tokens; this one takes at least ${needed}`);
  return length - needed;
}

/**
 * Asks for the thing of a name among `facts` facts in filler.
 * @param length tokens of the prompt
 */
export function recallTask(random: Random, length: number, facts = 6): Task {
  const known = factsOf(random, facts);
  const asked = known[below(random, facts)] as Fact;
  const room = requireRoom(length, 1 + 2 * facts + 2);
  const items = known.map(({ name, thing }) => [name, thing]);
  const text = scattered(random, items, filler(random, room));
  return { kind: 'recall', prompt: [BOS, ...text, ASK, asked.name], answer: [asked.thing] };
}

/**
 * Asks for the pass code that stands in filler.
 * @param length tokens of the prompt
 * @param depth where the code stands: 0 at the start, 1 just before the question, anywhere if absent
 */
export function passkeyTask(random: Random, length: number, depth = random()): Task {
  return repeatTask('passkey', random, codeOf(random), length, depth);
}

/** Asks for the list that stands in filler. @param length tokens of the prompt @param depth as of `passkeyTask` */
export function copyTask(random: Random, length: number, depth = random()): Task {
  return repeatTask('copy', random, listOf(random), length, depth);
}

/** @param said a marker and what must follow it when it is asked for */
function repeatTask(kind: TaskKind, random: Random, said: readonly number[], length: number, depth: number): Task {
  const sentences = filler(random, requireRoom(length, 1 + said.length + 2));
  const place = Math.min(sentences.length, Math.floor(depth * (sentences.length + 1)));
  const text = [...sentences.slice(0, place).flat(), ...said, ...sentences.slice(place).flat()];
  return { kind, prompt: [BOS, ...text, ASK, said[0] as number], answer: said.slice(1) };
}

/**
 * Asks for the sum of two or three numbers up to nine, after filler.
 * @param length tokens of the prompt
 */
export function sumTask(random: Random, length: number, terms: 2 | 3 = 2): Task {
  const { question, answer } = sumOf(random, terms);
  const text = filler(random, requireRoom(length, 1 + question.length)).flat();
  return { kind: terms === 2 ? 'sum' : 'sum3', prompt: [BOS, ...text, ...question], answer: [answer] };
}

/** A text with several questions, and which of its tokens are answers. */
export interface Lesson {
  readonly tokens: readonly number[];
  /** By token: 1 where it belongs to an answer. */
  readonly isAnswer: readonly number[];
  /** By token: where the text says what an answer repeats; −1 for all other tokens, and for sums. */
  readonly sources: readonly number[];
}

export interface LessonOptions {
  /** Facts at most. */
  readonly facts: number;
  /** Share of the text that questions and answers take, about. */
  readonly asked: number;
  /** Probability of a pass code, and of a sum in place of the next question about a fact. */
  readonly code: number;
  readonly sum: number;
  /** Probability of a list to copy in a text without a pass code, and that a sum is of three numbers. 0 if absent. */
  readonly copy?: number;
  readonly sum3?: number;
}

/** What a text is trained or calibrated with, where nothing else is asked for. */
export const lessonOptions = (length: number): LessonOptions => ({
  facts: Math.max(2, Math.min(10, Math.floor(length / 8))),
  asked: length <= 80 ? 0.5 : length <= 160 ? 0.4 : 0.3,
  code: 0.5,
  sum: 0.2,
});

/**
 * A text for training, or for calibration and perplexity with a seed of its own: facts, a pass code or a list to copy,
 * filler, and then questions with their answers in random order.
 * @param length of the text
 */
export function lesson(random: Random, length: number, options: LessonOptions = lessonOptions(length)): Lesson {
  const known = factsOf(random, 2 + below(random, Math.max(1, options.facts - 1)));
  const likely = (probability = 0): boolean => probability > 0 && random() < probability;
  let said = random() < options.code ? codeOf(random) : undefined;
  if (!said && likely(options.copy)) said = listOf(random);
  const asked: { question: readonly number[]; answer: readonly number[] }[] = [];
  let used = 0;
  const ask = (question: readonly number[], answer: readonly number[]): void => {
    asked.push({ question, answer });
    used += question.length + answer.length;
  };
  const budget = Math.floor(length * options.asked);
  if (said && used + 1 + said.length <= budget) ask([ASK, said[0] as number], said.slice(1));
  // Each fact once before any is asked again: then its answer stands in the questions already.
  let pending: Fact[] = [];
  while (used + 3 <= budget) {
    if (used + 6 <= budget && random() < options.sum) {
      const { question, answer } = sumOf(random, used + 8 <= budget && likely(options.sum3) ? 3 : 2);
      ask(question, [answer]);
      continue;
    }
    if (pending.length === 0) pending = some(random, known, known.length);
    const fact = pending.pop() as Fact;
    ask([ASK, fact.name], [fact.thing]);
  }
  const items = some(
    random,
    [...known.map(({ name, thing }) => [name, thing]), ...(said ? [said] : [])],
    known.length + (said ? 1 : 0),
  );
  const room = requireRoom(length, 1 + items.flat().length + used);
  const text = [BOS, ...scattered(random, items, filler(random, room))];
  const isAnswer = text.map(() => 0);
  const sources = text.map(() => -1);
  for (const { question, answer } of some(random, asked, asked.length)) {
    // The name or the marker stands in the text first: what follows it there is the answer.
    const source = text.indexOf(question[1] as number);
    const repeats = question.length === 2;
    text.push(...question, ...answer);
    isAnswer.push(...question.map(() => 0), ...answer.map(() => 1));
    sources.push(...question.map(() => -1), ...answer.map((_, i) => (repeats ? source + 1 + i : -1)));
  }
  return { tokens: text, isAnswer, sources };
}
