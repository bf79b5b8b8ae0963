/**
 * Imported first where kernels are compiled for a run or two: Mesa's software adapter then leaves out its compiler's
 * optimisation, which takes it longer than the rest of such a test. The driver reads this once, when it is loaded.
 */
process.env.GALLIVM_PERF ??= 'nopt';
