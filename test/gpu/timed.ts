/**
 * Imported by tests that measure: they run (vitest.config.ts) where Mesa's software adapter optimises. Without that the
 * ceilings and the probe take longer to run than kernels take to compile.
 */
export {};
