/** The float64 reference of every kernel. A kernel without one cannot be measured: each shape is compared first. */
import { reference as accumulate } from './accumulate/reference.js';
import { reference as append } from './append/reference.js';
import { reference as appendResidual } from './append_residual/reference.js';
import { reference as attend } from './attend/reference.js';
import { reference as attendBlockAbsorbed } from './attend_block_absorbed/reference.js';
import { reference as attendCarried } from './attend_carried/reference.js';
import { reference as attendCurrent } from './attend_current/reference.js';
import { reference as attendJoin } from './attend_join/reference.js';
import { reference as attendMerge } from './attend_merge/reference.js';
import { reference as attendPrefill } from './attend_prefill/reference.js';
import { reference as attendRebuild } from './attend_rebuild/reference.js';
import { reference as attendResidual } from './attend_residual/reference.js';
import { reference as blockBasis } from './block_basis/reference.js';
import { reference as blockVectors } from './block_vectors/reference.js';
import { reference as embed } from './embed/reference.js';
import { reference as evict } from './evict/reference.js';
import { reference as evictChunk } from './evict_chunk/reference.js';
import { reference as evictPrefill } from './evict_prefill/reference.js';
import { reference as gate } from './gate/reference.js';
import { reference as load } from './load/reference.js';
import { reference as mass } from './mass/reference.js';
import { reference as massPrefill } from './mass_prefill/reference.js';
import { reference as matmul } from './matmul/reference.js';
import { reference as rebuild } from './rebuild/reference.js';
import type { Checker } from './reference.js';
import type { KernelName } from './registry.js';
import { reference as rmsnorm } from './rmsnorm/reference.js';
import { reference as rope } from './rope/reference.js';
import { reference as ropeKept } from './rope_kept/reference.js';
import { reference as sample } from './sample/reference.js';
import { reference as shift } from './shift/reference.js';
import { reference as swiglu } from './swiglu/reference.js';

export const REFERENCES: Readonly<Record<KernelName, Checker>> = {
  embed,
  rmsnorm,
  rope,
  rope_kept: ropeKept,
  swiglu,
  gate,
  shift,
  accumulate,
  sample,
  matmul,
  append,
  append_residual: appendResidual,
  load,
  attend,
  attend_rebuild: attendRebuild,
  attend_residual: attendResidual,
  block_vectors: blockVectors,
  block_basis: blockBasis,
  attend_block_absorbed: attendBlockAbsorbed,
  attend_merge: attendMerge,
  attend_current: attendCurrent,
  attend_join: attendJoin,
  rebuild,
  attend_prefill: attendPrefill,
  attend_carried: attendCarried,
  mass,
  evict,
  mass_prefill: massPrefill,
  evict_prefill: evictPrefill,
  evict_chunk: evictChunk,
};
