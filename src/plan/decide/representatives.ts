/** Which rows count: those that nobody would take, one row a codec, the Pareto front. */
import { rollup } from 'd3-array';
import { isUncompressed } from '../../codecs/registry.js';
import { best } from '../../numbers/best.js';
import type { Mark } from '../answer-types.js';
import type { Candidate, Plan } from '../types.js';

/** Most rows of a table that was not asked for all; a report with no more shows every row. */
export const MOST_ROWS = 16;

/** A codec's setting with an eviction: the same for all of its paths. */
export const settingOf = ({ id, eviction }: Pick<Plan, 'id' | 'eviction'>): string =>
  `${id.split('/')[0]} ${JSON.stringify(eviction)}`;

/**
 * Of each codec setting and eviction, the fastest path that reads the cache faithfully (as the published figures
 * assume) and saves its memory. Speed is that of the largest batch, or of the largest that meets --tpot, at the slow
 * end of its interval.
 */
export function representatives(plans: readonly Plan[]): Plan[] {
  const chosen = new Set(rollup(plans, (paths) => best(paths, rank), settingOf).values());
  return plans.filter((p) => chosen.has(p));
}

/**
 * Orders paths of one codec: faithful and memory-saving ones first, then those that --fidelity measured, by speed, by
 * capacity.
 */
function rank(p: Plan): number {
  const known = p.measured ? 1e10 : 0;
  const faithful = isOtherThanPublished(p) ? 0 : 1e12;
  return faithful + known + ((p.atTarget ?? p.decode).tokensPerSecond?.low ?? 0) + p.maxBatch.exact * 1e-6;
}

type Marked = Pick<Plan, 'marks'>;

/** Read by a path that saves no memory, or computes something else than was published. */
export const isOtherThanPublished = (p: Marked): boolean =>
  p.marks.some((m) => m.code === 'unfaithful-post-hoc' || m.code === 'no-memory-saved');

const USELESS: ReadonlySet<Mark['code']> = new Set(['unfaithful-post-hoc', 'no-memory-saved', 'prefill-does-not-fit']);

/** It computes something else than what was published, saves no memory, or cannot take prompts in. */
export const isUseless = (p: Marked): boolean => p.marks.some((m) => USELESS.has(m.code));

/** The uncompressed cache, of all tokens. */
export const isFullCache = ({ codec, eviction }: Pick<Plan, 'codec' | 'eviction'> | Candidate): boolean =>
  isUncompressed(codec) && eviction === null;

/** Of plans that fit, those that only lack room for a prompt; none where another is of use. */
export function withoutRoom(plans: readonly Plan[]): Plan[] {
  const held = plans.filter((p) => p.maxBatch.exact >= 1);
  const only = ({ marks }: Marked): boolean =>
    marks.every(({ code }) => code === 'prefill-does-not-fit' || !USELESS.has(code));
  return held.every(isUseless) ? held.filter(only) : [];
}

/** Its published score says that the model no longer reasons. */
export const isRuined = (p: Marked): boolean => p.marks.some((m) => m.code === 'destroys-generation');

export const isUnfit = (p: Marked): boolean => isUseless(p) || isRuined(p);

/** Larger is better in each. */
interface Objectives {
  readonly capacity: number;
  /** 0 for all where it is unknown. */
  readonly speed: number;
  /** 0 where it is unknown. */
  readonly quality: number;
}

const objectivesOf = (p: Plan): Objectives => ({
  capacity: p.maxBatch.exact,
  speed: (p.atTarget ?? p.decode).tokensPerSecond?.estimate ?? 0,
  quality: p.qualityKept?.share ?? 0,
});

const atLeast = (a: Objectives, b: Objectives): boolean =>
  a.capacity >= b.capacity && a.speed >= b.speed && a.quality >= b.quality;

/** Plans that hold nothing, those that nobody would take, and those that nobody asked for are on no front. */
const buyable = (p: Plan): boolean => p.maxBatch.exact >= 1 && !isUnfit(p) && !p.beside;

/** Plans that no other beats in one objective without losing in another; of equals the first. */
function frontOf(plans: readonly Plan[]): Plan[] {
  const values = plans.map(objectivesOf);
  const dominated = (own: Objectives, i: number): boolean =>
    values.some((other, j) => j !== i && atLeast(other, own) && (j < i || !atLeast(own, other)));
  return plans.filter((_, i) => !dominated(values[i] as Objectives, i));
}

/** Marks the plans of the front. */
export function markPareto(plans: readonly Plan[]): Plan[] {
  const front = new Set(frontOf(plans.filter(buyable)));
  return plans.map((p) => ({ ...p, pareto: front.has(p) }));
}
