/**
 * A codec in files and arguments: the types of its settings; codecs/ says which of them a kind has, and which can be.
 */
import { z } from 'zod';
import { CODEC_KINDS, FLASHLOOP_TOKENS, RESIDUAL_FORMS, SHARINGS } from '../codecs/codec.js';
import { LIMITS } from '../geometry/config.js';
import { MAX_TOKENS } from '../numbers/units.js';

const number = z.number();
const rank = z.int().min(1).max(1e7).optional();

export const codecSchema = z.object({
  kind: z.enum(CODEC_KINDS),
  rankK: rank,
  rankV: rank,
  rankFirst: rank,
  shareLayers: z.int().min(1).max(LIMITS.layers).optional(),
  windowTokens: z.int().min(0).max(MAX_TOKENS).optional(),
  bits: z.literal([2, 3, 4, 8]).optional(),
  shared: z.enum(SHARINGS).optional(),
  residual: z.enum(RESIDUAL_FORMS).optional(),
  tokens: z.enum(FLASHLOOP_TOKENS).optional(),
  constants: z
    .object({
      anchorBits: number,
      group: number,
      tail: number,
      dense: number,
      rows: z.array(number).max(16),
      keys: number,
    })
    .optional(),
});
