/** Which executor each operation of a decode step has. */
import { pathSpec } from '../../codecs/paths.js';
import { readsLatents } from '../../schedule/eviction-ops.js';
import type { Visit } from '../../schedule/expand.js';
import type { Sampling } from '../sampler.js';
import { ATTENTION_EXECUTORS, attendAnchored, attendFullWidth, ropeSinks } from './attention.js';
import { denseExecutors, type Executor, type Executors } from './dense.js';
import { evict, mass } from './eviction.js';
import { attendLatent, attendRotated, LATENT_EXECUTORS, ropeSinksAbsorbed } from './latent.js';
import { ROW_EXECUTORS } from './rows.js';
import type { DecodeStep } from './step.js';

/** True where attention scores latents, and a rotary branch beside them. */
const scoresLatents = (m: DecodeStep, { place }: Visit): boolean =>
  place !== undefined && readsLatents(m.c, place.block) && pathSpec(m.c.path).branch === true;

const attend: Executor<DecodeStep> = (m, visit) => {
  if (visit.op.kernel === 'attend_residual') return attendAnchored(m, visit);
  if (visit.op.kernel === 'attend_rebuild') return attendLatent.rebuild(m, visit);
  if (visit.op.kernel === 'attend_block_absorbed') return attendLatent.blocks(m, visit);
  if (pathSpec(m.c.path).rotated && visit.place && readsLatents(m.c, visit.place.block)) return attendRotated(m, visit);
  return scoresLatents(m, visit) ? attendLatent.absorbed(m, visit) : attendFullWidth(m, visit);
};

/** By label. */
export const stepExecutors = (sampling: Sampling): Executors<DecodeStep> => ({
  ...denseExecutors(sampling),
  ...ROW_EXECUTORS,
  ...ATTENTION_EXECUTORS,
  ...LATENT_EXECUTORS,
  mass,
  evict,
  attend,
  'rope-sinks': (m, visit) => (scoresLatents(m, visit) ? ropeSinksAbsorbed(m, visit) : ropeSinks(m, visit)),
});
