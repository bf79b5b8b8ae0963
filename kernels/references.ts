/** The float64 reference of every kernel. */
import type { Checker } from './reference.js';
import type { KernelName } from './registry.js';
import * as TABLE from './tables/reference.js';

export const REFERENCES: Readonly<Record<KernelName, { readonly reference: Checker }>> = TABLE;
