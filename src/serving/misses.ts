/**
 * Which share of the requests misses its targets, and which share may do so in the long run.
 *
 * A run is one draw: of a rate that it just sustains, other draws of the same traffic miss the targets half the time.
 * So its requests are divided, in the order in which they come, into a warm-up (the server begins empty) and six equal
 * parts. Two bounds hold with 97.5 % confidence, since a search takes the best of several rates, and the larger counts.
 * One is Student's t over the parts' shares (batch means): misses come in bursts, and a queue that grows makes parts
 * unequal. The other is the binomial bound of Clopper and Pearson: few requests say little, also where none missed.
 * Near its limit a server goes from no misses to many within a few percent of load, and a draw's own load is only that
 * near to the traffic's: how near, the parts tell too.
 */
import { halved } from '../numbers/halving.js';
import { mean, sum } from '../numbers/statistics.js';

const PARTS = 6;
export const RUN_PARTS = PARTS + 1;
/** With fewer requests a part all count as one part. */
const LEAST_OF_A_PART = 10;
const CONFIDENCE = 0.975;
/** Student's t for this confidence, one-sided, with PARTS − 1 degrees of freedom. */
const STUDENT = 2.571;

/** Requests of a run of which none may miss to be sure of this share. */
export const leastFor = (allowedShare: number): number =>
  Math.ceil((Math.log(1 - CONFIDENCE) / Math.log1p(-allowedShare)) * (RUN_PARTS / PARTS)) + RUN_PARTS;

/** Requests from which the share of misses can be told: allowed are ten of them. */
export const enoughFor = (allowedShare: number): number => Math.ceil(10 / allowedShare - 1e-9);

export class Misses {
  private readonly ended = new Float64Array(PARTS);
  private readonly missed = new Float64Array(PARTS);
  /** Requests of a part; 0 where all are one part. */
  private readonly each: number;
  /** Requests that will count. */
  private readonly expected: number;

  /** @param requests of the whole run */
  constructor(requests: number) {
    this.each = partOf(requests);
    this.expected = requests - Math.ceil(this.each);
  }

  /** @param number of the request, from 0 in the order in which they come */
  add(number: number, missed: boolean): void {
    const part = this.each === 0 ? 0 : Math.min(PARTS, Math.floor(number / this.each)) - 1;
    if (part < 0) return;
    this.ended[part]!++;
    if (missed) this.missed[part]!++;
  }

  get counted(): number {
    return total(this.ended);
  }

  /** Of the requests after the warm-up; null of none. */
  get share(): number | null {
    return this.counted === 0 ? null : total(this.missed) / this.counted;
  }

  /** Share that misses at most in the long run, with confidence. */
  get atMost(): number {
    const { counted } = this;
    if (counted === 0) return 1;
    return Math.min(1, Math.max(this.byParts(), binomialBound(total(this.missed), counted)));
  }

  /**
   * Whether more have missed than may, of all that count: the run can end.
   * @param sure more than are sure not to be too many
   */
  tooMany(allowedShare: number, sure: boolean): boolean {
    const missed = total(this.missed);
    if (missed > allowedShare * this.expected + 1e-9) return true;
    return sure && missed > 0 && atMostWith(missed, this.expected, allowedShare) > 1 - CONFIDENCE;
  }

  private byParts(): number {
    if (this.each === 0) return 0;
    const shares = Array.from(this.ended, (n, i) => (n === 0 ? 1 : this.missed[i]! / n));
    return mean(shares) + STUDENT * Math.sqrt(variance(shares) / PARTS);
  }
}

/** Tokens that requests bring, part by part. */
export class Load {
  private readonly each: number;
  private readonly prompts = new Float64Array(PARTS);
  private readonly outputs = new Float64Array(PARTS);
  /** When a part begins, and when the last one ended. */
  private readonly times = new Float64Array(PARTS + 1);

  constructor(requests: number) {
    this.each = partOf(requests);
  }

  add(number: number, time: number, promptTokens: number, outputTokens: number): void {
    if (this.each === 0) return;
    const part = Math.min(PARTS, Math.floor(number / this.each)) - 1;
    if (part < 0) return;
    if (this.prompts[part] === 0) this.times[part] = time;
    this.times[PARTS] = time;
    this.prompts[part]! += promptTokens;
    this.outputs[part]! += outputTokens;
  }

  /** By which share another draw of this length brings more tokens a second, at most, with confidence. */
  get margin(): number {
    if (this.each === 0) return Infinity;
    const { times } = this;
    return Math.max(
      ...[this.prompts, this.outputs].map((tokens) => {
        const rates = Array.from(tokens, (n, i) => n / (times[i + 1]! - times[i]!));
        return (STUDENT * Math.sqrt((2 * variance(rates)) / PARTS)) / mean(rates);
      }),
    );
  }
}

/** Requests of a part; 0 where all are one part. */
const partOf = (requests: number): number => (requests >= RUN_PARTS * LEAST_OF_A_PART ? requests / RUN_PARTS : 0);
const variance = (values: readonly number[]): number => {
  const middle = mean(values);
  return sum(values.map((x) => (x - middle) ** 2)) / (values.length - 1);
};

const total = (values: Float64Array): number => values.reduce((all, value) => all + value, 0);

/** The largest share of which so few misses are not yet unlikely. */
function binomialBound(missed: number, of: number): number {
  if (missed >= of) return 1;
  return halved([missed / of, 1], 40, (share) => atMostWith(missed, of, share) > 1 - CONFIDENCE)[1];
}

/** The probability of at most so many misses, each with this probability. */
function atMostWith(missed: number, of: number, share: number): number {
  if (share >= 1) return missed >= of ? 1 : 0;
  let log = of * Math.log1p(-share);
  let chance = Math.exp(log);
  const odds = Math.log(share) - Math.log1p(-share);
  for (let k = 1; k <= missed; k++) {
    log += Math.log((of - k + 1) / k) + odds;
    chance += Math.exp(log);
  }
  return chance;
}
