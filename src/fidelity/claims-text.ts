/** The paper's claims and what became of them, for a terminal. */
import { columns, left, right } from '../report/text/text.js';
import { trainingText, VERDICTS, type ClaimTraining, type Verdict } from '../schema/claim-words.js';
import type { Interval } from '../numbers/statistics.js';
import type { ClaimResult } from './claims/claim.js';

const shown = (i: Interval | null): string =>
  i === null ? 'n/a' : `${i.estimate.toPrecision(3)} (${i.low.toPrecision(3)} to ${i.high.toPrecision(3)})`;

export const claimsText = (name: string, training: ClaimTraining | null, results: readonly ClaimResult[]): string =>
  [
    `The paper's claims, tried on ${name}`,
    ...(training ? [trainingText(training)] : []),
    '',
    ...results.flatMap((r) => [
      `${r.verdict.toUpperCase()}: ${r.claim}`,
      ...(r.estimate
        ? [`    ${r.effect}:`, `    ${shown(r.estimate)}; untrained ${shown(r.control)}; beyond it ${shown(r.beyond)}`]
        : []),
      `    paper: ${r.paper}`,
      ...(r.note === '' ? [] : [`    ${r.note}`]),
    ]),
    '',
    ...columns<Verdict>(
      [
        left('verdict', (verdict) => verdict),
        right('claims', (verdict) => String(results.filter((r) => r.verdict === verdict).length)),
      ],
      VERDICTS,
    ),
    '',
  ].join('\n');
