/** `lla-sim run --draft-tokens`: the same prompt with speculation and one by one, by the same decoder. */
import type { Draft } from '../../codecs/verification.js';
import type { GpuDecoder } from '../../decoder/gpu/decoder.js';
import { UserError } from '../../errors.js';
import { acceptanceOf } from '../../serving/speculation.js';
import { median } from '../../numbers/statistics.js';
import { parseNumber } from '../../numbers/units.js';
import { type Args } from '../command.js';

const DRAFT_LOOPS = 2;
const MOST_DRAFT_TOKENS = 64;

/** What rounds made, and what they took beside tokens one by one. Counts are of all sequences. */
export interface SpeculationReport extends Draft {
  readonly rounds: number;
  readonly proposed: number;
  readonly accepted: number;
  /** Accepted ones among all proposals, and among those whose predecessors in their round were accepted. */
  readonly acceptedShare: number;
  readonly acceptance: number;
  /** By place in a round: rounds whose proposals up to there were accepted, as a share of all. */
  readonly acceptedUpTo: readonly number[];
  /** Passes over the layers: of one row a sequence, of a round's rows, and of one row where tokens come one by one. */
  readonly passes: { readonly draft: number; readonly verify: number; readonly without: number };
  /** Of a round, on the device's clock: its proposals, and the pass over all of them. Medians. */
  readonly secondsPerRound: { readonly draft: number; readonly verify: number } | null;
  /** Median of a round over its tokens, and of a step; null where no round was needed. */
  readonly secondsPerToken: number | null;
  readonly secondsPerTokenWithout: number | null;
  /** Whether tokens one by one were the same. */
  readonly sameTokens: boolean;
}

/** The draft that is asked for; null where none is. @throws UserError for a number out of range */
export function readDraft(args: Args, loops: number): Draft | null {
  const [tokens, own] = [args.text('draft-tokens'), args.text('draft-loops')];
  if (tokens === null) {
    if (own !== null)
      throw new UserError('--draft-loops is for speculation', 'give --draft-tokens too, or leave it out');
    return null;
  }
  if (loops < 2) throw new UserError('speculation takes a model of several loops', 'leave --draft-tokens out');
  return {
    draftTokens: parseNumber(tokens, '--draft-tokens', { min: 1, max: MOST_DRAFT_TOKENS, whole: true }),
    draftLoops: parseNumber(own ?? String(Math.min(DRAFT_LOOPS, loops - 1)), '--draft-loops', {
      min: 1,
      max: loops - 1,
      whole: true,
    }),
  };
}

/** Rounds of a decoding. */
export class Rounds {
  readonly seconds: number[] = [];
  private readonly parts: { readonly draft: number; readonly verify: number }[] = [];
  private readonly made: { readonly proposed: number; readonly accepted: number }[] = [];

  /** Tokens of each sequence after `last`. */
  async next(decoder: GpuDecoder, last: readonly number[]): Promise<readonly (readonly number[])[]> {
    const round = await decoder.speculate(last);
    this.seconds.push(round.draftSeconds + round.verifySeconds);
    this.parts.push({ draft: round.draftSeconds, verify: round.verifySeconds });
    round.tokens.forEach((tokens, i) =>
      this.made.push({ proposed: (round.proposed[i] as readonly number[]).length, accepted: tokens.length - 1 }),
    );
    return round.tokens;
  }

  /** @param plain the same tokens one by one, and what each step took */
  report(
    draft: Draft,
    loops: number,
    tokens: readonly (readonly number[])[],
    plain: { readonly tokens: readonly (readonly number[])[]; readonly seconds: readonly number[] },
  ): SpeculationReport {
    const count = (of: 'proposed' | 'accepted'): number => this.made.reduce((sum, round) => sum + round[of], 0);
    const [proposed, accepted, rounds] = [count('proposed'), count('accepted'), this.seconds.length];
    const part = (of: 'draft' | 'verify'): number => median(this.parts.map((parts) => parts[of]));
    return {
      ...draft,
      rounds: this.made.length,
      proposed,
      accepted,
      acceptedShare: accepted / Math.max(1, proposed),
      acceptance: acceptanceOf(accepted / Math.max(1, proposed), draft.draftTokens),
      acceptedUpTo: Array.from(
        { length: draft.draftTokens },
        (_, i) => this.made.filter((round) => round.accepted > i).length / Math.max(1, this.made.length),
      ),
      passes: {
        draft: rounds * draft.draftTokens * draft.draftLoops,
        verify: rounds * loops,
        without: plain.seconds.length * loops,
      },
      secondsPerRound: rounds > 0 ? { draft: part('draft'), verify: part('verify') } : null,
      // Tokens of the last round that were not asked for were made, too.
      secondsPerToken: rounds > 0 ? median(this.seconds) / (1 + accepted / this.made.length) : null,
      secondsPerTokenWithout: plain.seconds.length > 0 ? median(plain.seconds) : null,
      sameTokens: tokens.every((made, i) => made.every((token, at) => token === plain.tokens[i]?.[at])),
    };
  }
}
