/**
 * Prices the ledger and writes what came out: docs/accuracy.md, and calibrations/accuracy.json for the line in which
 * plans say how they fared. Run `npm run build && npm run accuracy` after anything that changes a prediction.
 */
import { writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { accuracyMarkdown } from '../dist/src/accuracy/print.js';
import { accuracy, judgedFile, ownLedger } from '../dist/src/accuracy/report.js';

const root = fileURLToPath(new URL('..', import.meta.url));
const report = await accuracy(ownLedger(), null);
writeFileSync(`${root}docs/accuracy.md`, accuracyMarkdown(report));
writeFileSync(`${root}calibrations/accuracy.json`, `${JSON.stringify(judgedFile(report))}\n`);
