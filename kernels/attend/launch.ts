/** Split-KV decode attention over rows as they are stored: attend.wgsl. */
import { streamed } from '../host/cache-layout.js';
import { requireShape } from '../host/errors.js';
import { f32, oneStep } from '../host/plan.js';
import { shapeOf } from '../host/shape.js';
import type { Launch } from '../launch.js';
import { FOLD_TUNABLES, foldOf } from '../shared/attention/fold.launch.js';
import { readUnit, unitsEach } from '../shared/attention/fold.terms.js';
import { headsOf } from './terms.js';

/** Vec4 registers that a thread may spend on its queries; the size of the kernel's array. */
const MOST_QUERY_VECS = 192;

/**
 * Buffers: queries, keys, values, branch (only with a branch), partials, spans, scores (only for `+scores`). `scale`
 * multiplies q · k: (width of key and branch)^-½ unless given, which an absorbed query must, as its width is a rank.
 */
const plan: Launch['plan'] = (call, { scale, run = {}, tuning }) => {
  const s = shapeOf<'attend'>(call, 'branchWidth', 'branchHeads', 'groupSize');
  // A branch with a key for each head, beside a latent that all heads share: only the branch rows differ by head.
  const shape = { ...s, ...headsOf(s), ...(s.branchHeads > s.kvHeads ? { latentHeads: 1 } : {}) };
  requireShape(
    Number.isInteger(shape.group) && (s.branchHeads <= s.kvHeads || s.kvHeads === 1),
    `attend: ${s.branchHeads} branch rows do not go with ${s.kvHeads} cached rows of ${s.group} query heads`,
  );
  const fold = foldOf(call, { ...shape, branchShared: s.branchHeads === 1 }, run, tuning);
  const { launch, buffers } = fold;
  const branchRows = s.branchHeads === 1 ? s.sequences : s.sequences * s.branchHeads;
  const branch = fold.branch ? [streamed('branch', fold.branch, fold.capacity, branchRows)] : [];
  const keyEach = unitsEach(fold.keys, launch.wide);
  const branchEach = fold.branch ? unitsEach(fold.branch, launch.wide) : 0;
  requireShape(
    (launch.lanes * (keyEach + branchEach) * readUnit(fold.keys)) / 4 <= MOST_QUERY_VECS,
    `attend: ${launch.lanes} lanes of ${keyEach + branchEach} units want more than ${MOST_QUERY_VECS} registers`,
  );
  const queries = s.sequences * s.kvHeads * s.group;
  const second = run.pinnedQuery ? (run.queriesApart ?? queries) : 0;
  return oneStep({
    buffers: [
      f32('queries', 'input', (second + queries) * (s.keyWidth + s.branchWidth)),
      ...Object.values(buffers),
      ...branch,
    ],
    source: 'attend',
    element: fold.storage,
    constants: fold.constants({
      KEY_EACH: keyEach,
      BRANCH_EACH: branchEach,
    }),
    uniforms: fold.uniforms(scale ?? (s.keyWidth + s.branchWidth) ** -0.5),
    // Without a branch the binding still needs a buffer; the kernel does not read it.
    binds: ['queries', 'keys', 'values', 'partials', 'spans', 'scores', branch.length ? 'branch' : 'keys'],
    workgroups: fold.workgroups,
    tuning: { ...launch },
  });
};

export const launch: Launch = {
  plan,
  tunables: [...FOLD_TUNABLES, { name: 'lanes', values: [1, 2, 4] }],
};
