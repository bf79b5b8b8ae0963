/** The basis of a block of positions, as block-absorbed attention takes it. */
import { blockPlan } from './block-absorbed.js';
import type { BlockBasis } from './block-basis.js';
import { DEFAULTS } from '../../launch.js';
import { dim, type Subject } from '../../reference.js';

export const basisOf = (s: Subject): BlockBasis =>
  blockPlan(s.options.ropeBase ?? DEFAULTS.ropeBase, dim(s.call.shape, 'headDim'), dim(s.call.shape, 'blockTokens'))
    .basis;
