/** The numbers of flashloop as a user gives them (`--constants group=32,loop3=0.5`), and which of them can be. */
import type { Geometry } from '../geometry/geometry.js';
import type { Codec, FlashloopConstants } from './codec.js';
import { FLASHLOOP } from './flashloop.js';

/** Loops that the cache's schedule tells apart. */
const MOST_LOOPS = FLASHLOOP.rows.length;
/** Codes of 4 bits in a word: groups are whole words. */
const CODES_OF_A_WORD = 8;
const ANCHOR_BITS: readonly number[] = [2, 4, 8];

/** Names of single numbers, as they are given. */
const FIELDS = {
  group: 'group',
  tail: 'tail',
  'dense-loops': 'dense',
  keys: 'keys',
  'anchor-bits': 'anchorBits',
} as const;
type Field = keyof typeof FIELDS;

/** Names that may be given. */
export const CONSTANT_NAMES: readonly string[] = [...Object.keys(FIELDS), 'loop3', 'loop4'];

export const constantsOf = ({ constants }: Pick<Codec, 'constants'>): FlashloopConstants => constants ?? FLASHLOOP;

/**
 * Published numbers with these in place of some. Shares of the loops that are made dense are 1.
 * @returns undefined where none differs; else what was given wrong
 */
export function withConstants(given: Readonly<Record<string, number>>): FlashloopConstants | string | undefined {
  const unknown = Object.keys(given).find((name) => !CONSTANT_NAMES.includes(name));
  if (unknown !== undefined) return `has no ${JSON.stringify(unknown)}, but ${CONSTANT_NAMES.join(', ')}`;
  const of = (name: Field): number => given[name] ?? (FLASHLOOP[FIELDS[name]] as number);
  const dense = of('dense-loops');
  const rows = FLASHLOOP.rows.map((share, loop) => given[`loop${loop + 1}`] ?? (loop < dense ? 1 : share));
  const constants = {
    anchorBits: of('anchor-bits'),
    group: of('group'),
    tail: of('tail'),
    dense,
    rows,
    keys: of('keys'),
  };
  return JSON.stringify(constants) === JSON.stringify(FLASHLOOP) ? undefined : constants;
}

/** What differs from the published ones, behind a label: `-group32-tail32-loop3-0.5`. */
export function constantsText(constants: FlashloopConstants): string {
  const fields = Object.entries(FIELDS).flatMap(([name, field]) =>
    constants[field] === FLASHLOOP[field] ? [] : [`-${name.replace('-', '')}${constants[field]}`],
  );
  const rows = constants.rows.flatMap((share, loop) =>
    loop < constants.dense || share === FLASHLOOP.rows[loop] ? [] : [`-loop${loop + 1}-${share}`],
  );
  return [...fields, ...rows].join('');
}

const isShare = (x: number): boolean => x > 0 && x <= 1;
const isWhole = (x: number, least: number): boolean => Number.isSafeInteger(x) && x >= least;

/** Why a model cannot be cached so, or undefined. */
export function constantsRefusal(
  { name, loops, headDim }: Pick<Geometry, 'name' | 'loops' | 'headDim'>,
  { anchorBits, group, tail, dense, rows, keys }: FlashloopConstants,
): string | undefined {
  if (loops < 2) return 'flashloop needs a model with at least two loops';
  if (loops > MOST_LOOPS) return `flashloop says which tokens run of ${MOST_LOOPS} loops, and ${name} has ${loops}`;
  if (!isWhole(group, CODES_OF_A_WORD) || group % CODES_OF_A_WORD !== 0)
    return `flashloop has groups of a multiple of ${CODES_OF_A_WORD}, whose codes fill words, not of ${group}`;
  if (headDim % Math.min(group, headDim) !== 0)
    return `flashloop has groups of ${group} channels, which do not divide heads of ${headDim}`;
  if (!isWhole(tail, 0)) return `flashloop keeps a whole number of exact tokens, not ${tail}`;
  if (!ANCHOR_BITS.includes(anchorBits))
    return `flashloop stores its first loop in ${ANCHOR_BITS.join(', ')} bits, not in ${anchorBits}`;
  if (!isWhole(dense, 2) || dense > MOST_LOOPS)
    return (
      `flashloop has 2 to ${MOST_LOOPS} dense loops, as the change from one to the next chooses tokens, not ` +
      `${dense}`
    );
  if (!isShare(keys)) return `flashloop reads a share of the keys above 0 and at most 1, not ${keys}`;
  if (rows.length < loops) return `flashloop has shares of ${rows.length} loops, and ${name} has ${loops}`;
  for (const [loop, share] of rows.slice(0, loops).entries()) {
    const before = rows[loop - 1] ?? 1;
    if (!isShare(share))
      return `flashloop runs a share of the tokens above 0 and at most 1 in loop ${loop + 1}, not ${share}`;
    if (loop < dense && share !== 1)
      return `flashloop runs all tokens in its ${dense} dense loops, not ${share} of them in loop ${loop + 1}`;
    if (share > before)
      return (
        `flashloop chooses tokens of loop ${loop + 1} among those of loop ${loop}: ${share} is more than ` + `${before}`
      );
  }
  return undefined;
}
