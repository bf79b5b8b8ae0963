/**
 * Time that a command may take. Work comes in pieces that cannot be ended, such as opening a decoder; before each the
 * budget says whether it ends in time, as far as earlier pieces of its kind tell.
 */
import { clockNow } from './clock.js';
import { UserError, show } from '../errors.js';
import { parseSeconds } from '../numbers/units.js';

export class Budget {
  /** Longest piece of each kind so far, seconds, and how many there were. */
  private readonly pieces: Map<string, { readonly longest: number; readonly count: number }>;

  /**
   * Begins now.
   * @param now seconds since a fixed moment
   * @param of whose pieces tell about this one's
   */
  constructor(
    readonly seconds: number,
    readonly now: () => number = clockNow,
    of?: Budget,
    private readonly began = now(),
  ) {
    this.pieces = of?.pieces ?? new Map<string, { longest: number; count: number }>();
  }

  get spent(): number {
    return this.now() - this.began;
  }

  /** Less than 0 where it is overrun. */
  get left(): number {
    return this.seconds - this.spent;
  }

  /** A part that begins now and ends with this one at the latest. */
  part(seconds: number): Budget {
    return new Budget(Math.max(0, Math.min(seconds, this.left)), this.now, this);
  }

  /**
   * Whether pieces of these kinds, one after the other, end in time. Of a kind that was never done nothing is known.
   */
  fits(...kinds: readonly string[]): boolean {
    return this.left > 0 && this.expected(...kinds) <= this.left;
  }

  /** Seconds that pieces of these kinds may take. The longest of few is soon exceeded: of one it counts twice. */
  expected(...kinds: readonly string[]): number {
    return kinds.reduce((sum, kind) => {
      const { longest, count } = this.pieces.get(kind) ?? { longest: 0, count: 1 };
      return sum + longest * (1 + 1 / count);
    }, 0);
  }

  /** A piece of a kind took so long. */
  note(kind: string, seconds: number): void {
    const { longest, count } = this.pieces.get(kind) ?? { longest: 0, count: 0 };
    this.pieces.set(kind, { longest: Math.max(seconds, longest), count: count + 1 });
  }

  /** A piece of a kind takes at least so long, by a figure that is known. */
  expect(kind: string, seconds: number): void {
    const { longest } = this.pieces.get(kind) ?? { longest: 0 };
    this.pieces.set(kind, { longest: Math.max(seconds, longest), count: Infinity });
  }

  /** Does a piece. */
  async piece<T>(kind: string, work: () => Promise<T>): Promise<T> {
    const began = this.now();
    try {
      return await work();
    } finally {
      this.note(kind, this.now() - began);
    }
  }
}

/** Why something was left out: the budget is spent, or what is left of it would be exceeded. */
export const OUT_OF_TIME = 'the rest of the time budget was too short';

/**
 * Reads `--budget`.
 * @param least seconds that an answer takes
 * @throws UserError for what is no time, and for less than that
 */
export function readBudget(text: string, least: number, now?: () => number): Budget {
  const seconds = parseSeconds(text, '--budget', true);
  if (seconds < least)
    throw new UserError(
      `--budget must be at least ${least}s here, not ${show(text)}: less gives no answer`,
      `write for example --budget ${least}s`,
    );
  return new Budget(seconds, now);
}
