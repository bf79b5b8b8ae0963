/** The paper's claims and what became of them, for a terminal. */
import { columns } from '../report/text.js';
import type { Interval } from '../statistics.js';
import type { ClaimResult, Verdict } from './claims.js';

const shown = (i: Interval | null): string =>
  i === null ? 'n/a' : `${i.estimate.toPrecision(3)} (${i.low.toPrecision(3)} to ${i.high.toPrecision(3)})`;

export const claimsText = (name: string, results: readonly ClaimResult[]): string =>
  [
    `The paper's claims, tried on ${name}`,
    '',
    ...results.flatMap((r) => [
      `${r.verdict.toUpperCase()}: ${r.claim}`,
      ...(r.effect === ''
        ? []
        : [`    ${r.effect}${r.estimate ? `: ${shown(r.estimate)}; untrained ${shown(r.control)}` : ''}`]),
      ...(r.note === '' ? [] : [`    ${r.note}`]),
    ]),
    '',
    ...columns<{ verdict: Verdict }>(
      [
        { title: 'verdict', align: 'left', cell: ({ verdict }) => verdict },
        {
          title: 'claims',
          align: 'right',
          cell: ({ verdict }) => String(results.filter((r) => r.verdict === verdict).length),
        },
      ],
      (['agree', 'disagree', 'cannot tell'] as const).map((verdict) => ({ verdict })),
    ),
    '',
  ].join('\n');
