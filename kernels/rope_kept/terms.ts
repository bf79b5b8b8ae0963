import { spec as rope } from '../rope/terms.js';

/**
 * Rotary embedding of keys rebuilt from latents of tokens that H2O pinned: every row that evicts on its own has
 * positions of its own.
 */
export const spec = rope;
