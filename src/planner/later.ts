/**
 * The page's second script: what the first answer does not need. A browser compiles a program before it runs it, and
 * this is most of its text.
 */
import { z } from 'zod';
import { hasKernelFile, readKernelFile } from '../../kernels/files.js';
import { drawing } from '../report/html/charts.js';

export interface Later {
  readonly z: typeof z;
  readonly drawing: typeof drawing;
  /** Texts of the kernels, by which a calibration is judged. */
  readonly kernels: { readonly hasKernelFile: typeof hasKernelFile; readonly readKernelFile: typeof readKernelFile };
}

const kernels = { hasKernelFile, readKernelFile };
Object.assign(globalThis, { later: { z, drawing, kernels } satisfies Later });
