/** `lla-sim bench`: the kernels against the ceilings, or against another version of themselves. */
export { bench, type BenchOptions } from './bench.js';
export { resolveAgainst } from './versions.js';
export { CASE_GROUPS, representativeCalls, type CaseGroup } from './cases.js';
export { benchMarkdown, benchTable } from './print.js';
export type { BenchReport, BenchResult } from './report.js';
