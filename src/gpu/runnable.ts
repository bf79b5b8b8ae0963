/** Kernels' code as a device can run it. */
import { requireShape } from '../../kernels/host/errors.js';
import type { Step } from '../../kernels/host/plan.js';

/** Kernels that hand values round among eight threads of a subgroup; others shuffle among WIDE, a constant. */
const LEAST_SUBGROUP = 8;
const AMONG_EIGHT = /\bsubgroup(Add|Max|Min|Shuffle|Broadcast)\(/;
const AMONG_WIDE = /\bsubgroupShuffleXor\(/;
/** Where a row belongs to one thread, a shuffle changes nothing: this stands in for it on devices without subgroups. */
const ALONE = 'fn subgroupShuffleXor(x: vec4f, step: u32) -> vec4f { return x; }\n';

/**
 * @param subgroups whether the device has subgroups, and the least threads of one; 0 where that is not known
 * @throws GpuError `unsupported` for a kernel that adds up across more threads than a subgroup has
 */
export function runnable(
  code: string,
  step: Step,
  label: string,
  subgroups: { readonly has: boolean; readonly least: number },
): string {
  const threads = subgroups.has ? subgroups.least || LEAST_SUBGROUP : 1;
  const needed = AMONG_EIGHT.test(code) ? LEAST_SUBGROUP : AMONG_WIDE.test(code) ? (step.constants['WIDE'] ?? 1) : 1;
  requireShape(
    threads >= needed,
    subgroups.has
      ? `${label}: subgroups of this adapter have ${subgroups.least} threads, and the kernel adds up across ${needed}`
      : `${label}: the kernel adds up across ${needed} threads of a subgroup, and this adapter has no subgroups`,
  );
  return subgroups.has || !/^enable subgroups;/m.test(code) ? code : code.replace(/^enable subgroups;/gm, '') + ALONE;
}
