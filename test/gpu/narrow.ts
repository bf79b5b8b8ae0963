/**
 * Imported by tests whose kernels add up across four threads of a subgroup or fewer: they run (vitest.config.ts) where
 * Mesa's software adapter compiles for four lanes in place of eight, which takes half as long.
 */
export {};
