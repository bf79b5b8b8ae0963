/**
 * Imported first by tests of kernels without subgroup operations: Mesa's software adapter then compiles them for four
 * lanes in place of eight, which takes half as long. The driver reads this once, when it is loaded. Its cache on disk
 * is left alone, as what it holds is for eight.
 */
process.env['LP_NATIVE_VECTOR_WIDTH'] ??= '128';
process.env['MESA_SHADER_CACHE_DISABLE'] ??= 'true';
