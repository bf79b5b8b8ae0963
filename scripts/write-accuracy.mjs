/**
 * Prices the ledger and writes what came out: docs/accuracy.md, the table of servers in docs/trust.md, and
 * calibrations/accuracy.json for the line in which plans say how they fared. Run `npm run build && npm run accuracy`
 * after anything that changes a prediction.
 */
import { readFileSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { accuracyMarkdown, withServers } from '../dist/src/accuracy/print.js';
import { accuracy, judgedFile, ownLedger } from '../dist/src/accuracy/report.js';

const root = fileURLToPath(new URL('..', import.meta.url));
const report = await accuracy(ownLedger(), null);
writeFileSync(`${root}docs/accuracy.md`, accuracyMarkdown(report));
writeFileSync(`${root}docs/trust.md`, withServers(readFileSync(`${root}docs/trust.md`, 'utf8'), report));
writeFileSync(`${root}calibrations/accuracy.json`, `${JSON.stringify(judgedFile(report))}\n`);
