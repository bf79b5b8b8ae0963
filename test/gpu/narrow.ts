/**
 * Imported first by tests whose kernels add up across four threads of a subgroup or fewer: Mesa's software adapter then
 * compiles them for four lanes in place of eight, which takes half as long. The driver reads this once, when it is
 * loaded. Its cache on disk does not tell the two apart, so that for four lanes lies in a folder of its own.
 */
import { mkdirSync } from 'node:fs';
import { homedir } from 'node:os';
import { join } from 'node:path';

process.env['LP_NATIVE_VECTOR_WIDTH'] ??= '128';
const { MESA_SHADER_CACHE_DIR, XDG_CACHE_HOME } = process.env;
const folder = join(MESA_SHADER_CACHE_DIR ?? XDG_CACHE_HOME ?? join(homedir(), '.cache'), 'four-lanes');
mkdirSync(folder, { recursive: true });
process.env['MESA_SHADER_CACHE_DIR'] = folder;
