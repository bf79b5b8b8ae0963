/**
 * How often the first loops of a model propose what all loops say: rounds of greedy speculation on the real decoder,
 * with the uncompressed cache, behind the prompts of texts.
 */
import type { GpuDecoder } from '../decoder/gpu/index.js';
import { EXIT, UserError } from '../errors.js';
import { exactConfiguration, withDecoder, type Teacher } from '../fit/capture.js';
import { acceptanceOf } from '../serving/speculation.js';
import { bootstrap, sum, type Interval } from '../numbers/statistics.js';
import type { Item } from './items.js';

/** Proposals of a round, and tokens that rounds make of each text. */
const DRAFT_TOKENS = 4;
const TOKENS_EACH = 48;
/** Texts that speculate together. */
const BATCH = 6;

/** Rounds of one text: of each the number of accepted proposals. */
export type TextRounds = readonly number[];

/** Acceptance by the first loops; intervals are over texts. */
export interface LoopsAcceptance {
  readonly draftLoops: number;
  readonly rounds: number;
  /** Share of the proposals that are accepted if those before them in their round were. */
  readonly acceptance: Interval;
  /** The same by place in the round, the first first; null for one that no round came to. */
  readonly byPlace: readonly (Interval | null)[];
  /** Tokens of a round: accepted proposals, and the one that all loops say after them. */
  readonly tokensPerRound: Interval;
  /** The acceptance, the same at every place, that makes as many tokens a round: what a simulation is to take. */
  readonly draftAcceptance: number;
}

export interface Acceptance {
  readonly draftTokens: number;
  readonly texts: number;
  /** Greedy tokens of each text. */
  readonly tokensEach: number;
  /** By the number of first loops that propose; none where it could not be measured. */
  readonly loops: readonly LoopsAcceptance[];
  /** Why not; null where it was. */
  readonly notMeasured: string | null;
}

/** Of the bootstrap. */
const SEED = 1;

/** What rounds amount to. */
export function summariseRounds(
  draftLoops: number,
  draftTokens: number,
  texts: readonly TextRounds[],
): LoopsAcceptance {
  /** Rounds that came to a place, and those that went beyond it, of texts. */
  const counts = texts.map((rounds) =>
    Array.from({ length: draftTokens }, (_, place) => ({
      judged: rounds.filter((accepted) => accepted >= place).length,
      accepted: rounds.filter((accepted) => accepted > place).length,
    })),
  );
  const share = (places: readonly number[]): Interval => {
    const total = (of: 'judged' | 'accepted', drawn: readonly number[]): number =>
      sum(drawn.map((text) => sum(places.map((place) => counts[text]?.[place]?.[of] ?? 0))));
    // A resample that no round of a late place is in says nothing of it.
    return bootstrap((drawn) => total('accepted', drawn) / total('judged', drawn), texts.length, SEED);
  };
  const reached = (place: number): boolean => counts.some((text) => (text[place]?.judged ?? 0) > 0);
  const all = Array.from({ length: draftTokens }, (_, place) => place);
  const made = texts.map((rounds) => ({ tokens: sum(rounds) + rounds.length, rounds: rounds.length }));
  const madeIn = (of: 'tokens' | 'rounds', drawn: readonly number[]): number => sum(drawn.map((i) => made[i]![of]));
  const tokensPerRound = bootstrap((drawn) => madeIn('tokens', drawn) / madeIn('rounds', drawn), texts.length, SEED);
  return {
    draftLoops,
    rounds: sum(texts.map((rounds) => rounds.length)),
    acceptance: share(all),
    byPlace: all.map((place) => (reached(place) ? share([place]) : null)),
    tokensPerRound,
    draftAcceptance: acceptanceOf((tokensPerRound.estimate - 1) / draftTokens, draftTokens),
  };
}

/** Rounds of every sequence until it has its tokens. @param first the token after each prompt */
async function roundsOf(decoder: GpuDecoder, first: readonly number[], tokensEach: number): Promise<number[][]> {
  const rounds = first.map((): number[] => []);
  const made = first.map(() => 1);
  const last = [...first];
  const goesOn = (i: number): boolean => (made[i] as number) < tokensEach;
  while (made.some((_, i) => goesOn(i))) {
    const { tokens } = await decoder.speculate(last, goesOn);
    tokens.forEach((own, i) => {
      if (own.length === 0) return;
      rounds[i]?.push(own.length - 1);
      made[i] = (made[i] as number) + own.length;
      last[i] = own.at(-1) as number;
    });
  }
  return rounds;
}

/**
 * Measures acceptance by each number of first loops.
 * @param items of which those without a task are taken, as prompts
 * @param between called before each part of the work
 */
export async function measureAcceptance(
  teacher: Teacher,
  items: readonly Item[],
  between: (draftLoops: number) => void = () => {},
  { draftTokens = DRAFT_TOKENS, tokensEach = TOKENS_EACH } = {},
): Promise<Acceptance> {
  const { loops } = teacher.geometry;
  const prompts = items.filter(({ kind }) => kind === 'text' || kind === 'rollout').map(({ prompt }) => prompt);
  const of = { draftTokens, texts: prompts.length, tokensEach };
  if (loops < 2 || prompts.length === 0)
    return { ...of, loops: [], notMeasured: loops < 2 ? 'the model has one loop' : 'there is no text' };
  const measured: LoopsAcceptance[] = [];
  try {
    for (let draftLoops = 1; draftLoops < loops; draftLoops++) {
      const texts: TextRounds[] = [];
      for (let from = 0; from < prompts.length; from += BATCH) {
        between(draftLoops);
        const batch = prompts.slice(from, from + BATCH);
        const size = {
          batch: batch.length,
          contextTokens: Math.max(...batch.map((prompt) => prompt.length)) + tokensEach + 2 * (draftTokens + 1),
          speculation: { draftLoops, draftTokens },
        };
        const rounds = await withDecoder(teacher, exactConfiguration(teacher), size, async (decoder) => {
          const { tokens } = await decoder.prefill(batch);
          return roundsOf(decoder, [...tokens], tokensEach);
        });
        texts.push(...rounds);
      }
      measured.push(summariseRounds(draftLoops, draftTokens, texts));
    }
  } catch (error) {
    // A model whose rows cannot be bound apart; an interruption has an exit code of its own.
    if (!(error instanceof UserError) || error.exitCode !== EXIT.badInput) throw error;
    return { ...of, loops: [], notMeasured: error.message };
  }
  return { ...of, loops: measured, notMeasured: null };
}
