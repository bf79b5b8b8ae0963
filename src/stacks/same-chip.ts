/**
 * Times of a chip's kernels on another card with it: memory of another rate, fewer units, less power. A time is divided
 * into what bytes take, what operations take and the rest (starting, waiting), as max(a, b) is rounded in laws
 * (cost/law.ts); bytes and operations go by the other card's rates, and the rest stays.
 */
import type { OpWork, Rates } from '../../kernels/op-class.js';
import { CONSTANTS } from '../cost/constants.js';
import type { StackPrice } from './predict.js';

/** How many times as long bytes and operations take on this card as on the measured one. */
export interface RateRatio {
  readonly memory: number;
  readonly compute: number;
  /** The same of one unit's tiles, which a server waits for whose attention divides no sequence. */
  readonly tile: number;
}

export const isAlike = ({ memory, compute }: RateRatio): boolean => memory === 1 && compute === 1;

/**
 * A measured time on a card of other rates.
 * @param work of the call
 * @param rates of the card that it was measured on
 */
export function onOtherCard(found: StackPrice, work: OpWork, rates: Rates, ratio: RateRatio): StackPrice {
  if (work.onLink || isAlike(ratio)) return found;
  const whole = found.estimate ** 4;
  const moving = (work.bytes / (CONSTANTS.reachedMemory.value * rates.memoryBytesPerSecond)) ** 4;
  const computing = (work.operations / (CONSTANTS.reachedCompute.value * rates.operationsPerSecond)) ** 4;
  const told = Math.min(1, whole / (moving + computing));
  const rest = Math.max(0, whole - moving - computing);
  const factor = ((told * (moving * ratio.memory ** 4 + computing * ratio.compute ** 4) + rest) / whole) ** 0.25;
  const wider = Math.exp(CONSTANTS.otherCard.value + CONSTANTS.otherCardMove.value * Math.abs(Math.log(factor)));
  return {
    ...found,
    estimate: found.estimate * factor,
    low: (found.low * factor) / wider,
    high: found.high * factor * wider,
    evidence: 'extrapolated',
  };
}
