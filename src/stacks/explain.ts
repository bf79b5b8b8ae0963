/** Why a table or an attainable law gives a time, and makes it as sure as it is. */
import type { OpShape, Rates } from '../../kernels/op-class.js';
import type { TunedCall, TunedClass } from '../../kernels/tuned.js';
import { CONSTANTS } from '../cost/constants.js';
import { lawParts, leftOutOf, type CallExplanation } from '../cost/explain.js';
import { formatFactor, formatNumber } from '../numbers/units.js';
import { attainableSeconds, bracketOf, type AttainableLaws } from './attainable.js';
import { stackLabel } from './serving.js';
import type { StackTable } from './stack-schema.js';

/** Of all shapes of a table. @param errors log units */
export const single = (errors: number): string =>
  `single shapes, left out and predicted, came within × ${formatFactor(errors)}`;

/**
 * Of a size between measured ones.
 * @param lines those two
 * @param share of the way from the nearer to their middle
 * @param points as `single`
 */
export function between(
  axis: StackTable['axes'][number],
  size: number,
  lines: readonly number[],
  share: number,
  points: number,
): string {
  const { name, offLine } = axis;
  const whole = isUntested(offLine)
    ? `× 2 (assumed: too few shapes of one ${name} to leave out)`
    : `× ${formatFactor(offLine)} (all shapes of one ${name}, left out)`;
  const way = share < 1 ? `${Math.round(100 * share)} %` : 'all';
  return (
    `${name} ${formatNumber(size)} lies between ${lines.map(formatNumber).join(' and ')}, which were measured, ` +
    `${way} of the way from the nearer one to halfway, in logarithms: so much of the way from ` +
    `× ${formatFactor(points)} (single shapes, left out) to ${whole}`
  );
}

/** Of a time that a repeated measurement may make, and a step does not. */
export const WARM =
  'the L2 may have held what a repeated measurement reads again: a step may take as long as the law alone says';

/** Of heads that are priced as sequences of fewer. */
export const moved = (axis: string, shape: OpShape, as: OpShape): string =>
  `the table has no call of ${axis} ${shape[axis]}: this one is priced as more sequences of ${axis} ${as[axis]}; ` +
  'calls that it has, left out and priced so, were off by that factor more than single shapes';

/** Of two sizes that were never measured together. */
export const pair = (axes: readonly string[], sizes: readonly number[], errors: number): string =>
  `no shape has both ${axes[0]} ${sizes[0]} and ${axes[1]} ${sizes[1]}; ` +
  (isUntested(errors)
    ? 'too few such pairs were measured to leave one out, so a factor of 2 is assumed'
    : `whole pairs, left out, came within × ${formatFactor(errors)}`);

/** Of what lies outside. @param what a size or a time */
export const outside = (what: string, octaves: number, perOctave: number): string =>
  `${what} is ${octaves.toFixed(2)} octaves outside what was measured; ` +
  (isUntested(perOctave)
    ? 'too little was measured to leave whole octaves out, so a factor of 2 an octave is assumed'
    : `an octave, left out, was off by × ${formatFactor(perOctave)} more`);

/** Whether a width is what is taken where nothing was left out. Stack files round theirs. */
const isUntested = (halfWidth: number): boolean => Math.abs(halfWidth - CONSTANTS.perOctaveUntested.value) < 5e-4;

/** Why that price: the middle law, and the cases by which its ends were moved out. */
export function explainAttainable(laws: AttainableLaws, call: TunedCall, rates: Rates): CallExplanation {
  const { bracket, work } = bracketOf(laws, call);
  const { estimate, high } = attainableSeconds(laws, call, rates);
  const own = laws.own[call.class] !== undefined;
  const group = own ? 'server' : 'generation of GPUs';
  const undivided = work.walkedBytes !== undefined;
  const apart =
    `a fast and a slow law, fitted without one ${group}, were moved apart until 95 % of its kernels lay between them` +
    `${own ? `, on ${laws.gpus[call.class].join()} and on others of its form` : ''}; each was left out in turn`;
  const { worst } = bracket;
  const what = undivided
    ? 'on each measured GPU 95 % of the calls that divide no sequence were no further off the law of all GPUs'
    : apart;
  const furthest =
    worst && !undivided ? `, and ${worst.slow} asked for the slow end, ${worst.fast} for the fast one` : '';
  return {
    law: {
      ...lawParts(bracket.middle, work, rates, call.inside),
      of: `${kernelsOf(call.class)} of ${stacksOf(laws, call.class)}`,
    },
    data: null,
    leftOut: leftOutOf((because) => because(`${what}${furthest}`, Math.log(high / estimate))),
  };
}

/** `SGLang, TRT-LLM, vLLM on h100, h200`. */
function stacksOf({ gpus, from }: AttainableLaws, of: TunedClass): string {
  const stacks = from.flatMap((file) => {
    const gpu = gpus[of].find((id) => file.startsWith(`${id}-`) && !file.slice(id.length + 1).includes('-'));
    return gpu === undefined ? [] : [stackLabel(file.slice(gpu.length + 1).replace('.json', ''))];
  });
  const names = [...new Set(stacks)].sort((a, b) => a.localeCompare(b)).join(', ');
  return names === '' ? 'the measured GPUs' : `${names} on ${gpus[of].join(', ')}`;
}

const kernelsOf = (of: TunedClass): string =>
  of === 'all-reduce-host' ? 'all-reduces through a host' : `${of} kernels`;
