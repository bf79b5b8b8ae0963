/** Numbers of flashloop in files and arguments: their types alone; codecs/flashloop-constants.ts says which can be. */
import { z } from 'zod';

const number = z.number();

export const flashloopConstants = z.object({
  anchorBits: number,
  group: number,
  tail: number,
  dense: number,
  rows: z.array(number).max(16),
  keys: number,
});
