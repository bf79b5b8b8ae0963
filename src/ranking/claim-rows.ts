/** Rows of the ledger from sources that measured codecs: what claims of size and speed are held against. */
import { join } from 'node:path';
import { ask } from '../plan/ask/on-disk.js';
import { PACKAGE_ROOT } from '../io/root.js';
import { readLedger, type Row } from '../schema/ledger-file.js';
import type { ClaimSources } from './timed-claims.js';

const FILES = ['hla.json', 'residualquant.json'] as const;

export const claimRows = (): Row[] => FILES.flatMap((file) => readLedger(join(PACKAGE_ROOT, 'ledger', file)).rows);

/** They, and the planner of this machine. */
export const claimsOnDisk = (): ClaimSources => ({ rows: claimRows(), plan: ask });
