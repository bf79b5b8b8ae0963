/**
 * The page's second script: libraries that the first answer does not need. A browser compiles a program before it runs
 * it, and these are most of its text.
 */
import { z } from 'zod';
import { drawing } from '../report/html/charts.js';

export interface Later {
  readonly z: typeof z;
  readonly drawing: typeof drawing;
}

Object.assign(globalThis, { later: { z, drawing } satisfies Later });
