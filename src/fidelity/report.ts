/** The report of `lla-sim fidelity`: rows as JSON, and as a table for a terminal. */
import { columns, left, right, type Column } from '../report/text/text.js';
import { ratioLabel } from '../codecs/ranks.js';
import type { Interval } from '../numbers/statistics.js';
import type { Acceptance, LoopsAcceptance } from './acceptance.js';
import type { Judged } from './judge.js';

export interface FidelityReport {
  readonly schema: 'lla-sim/fidelity';
  readonly schemaVersion: 1;
  readonly model: { readonly name: string; readonly fingerprint: string; readonly trained: boolean };
  readonly device: string;
  readonly weights: 'f16' | 'f32';
  /** Tokens that codecs were fitted to; 0 where a file of codec weights was given. */
  readonly fittedTokens: number;
  readonly seed: number;
  /** SHA-256 of what codecs were fitted to, or of the codec weights given, and of what was asked. */
  readonly inputs: string;
  readonly rows: readonly Judged[];
  /** Of speculation by the first loops, on the uncompressed cache; null where it was not asked for. */
  readonly acceptance: Acceptance | null;
}

const number = (digits: number) => (value: number) => value.toFixed(digits);
const kl = (value: number): string => (value >= 0.01 ? value.toFixed(3) : value.toExponential(1));
const cell = (interval: Interval | null, format: (value: number) => string): string =>
  interval === null ? 'n/a' : `${format(interval.estimate)} (${format(interval.low)}–${format(interval.high)})`;
const short = (interval: Interval | null, format: (value: number) => string): string =>
  interval === null ? 'n/a' : format(interval.estimate);

const COLUMNS: readonly Column<Judged>[] = [
  left('configuration', (r) => r.id),
  right('ratio', (r) => ratioLabel(r.ratio)),
  right('KL, nats', (r) => cell(r.kl, kl)),
  right('top-1', (r) => short(r.top1, number(3))),
  right('perplexity', (r) => short(r.perplexity, number(2))),
  right('agrees', (r) => short(r.agreedTokens, number(1))),
  right('passkey', (r) => short(r.passkey, number(2))),
  right('recall', (r) => short(r.recall, number(2))),
  right('sums', (r) => short(r.sums, number(2))),
  right('attention', (r) => (r.attentionError === null ? 'n/a' : kl(r.attentionError))),
];

/** How often the first loops say what all loops do, and what to plan with it. */
function acceptanceLines(a: Acceptance, loops: number): string[] {
  if (a.notMeasured !== null) return ['', `Speculation was not measured: ${a.notMeasured}.`];
  // The loops that propose run once for each row, the others once for all.
  const passes = ({ draftLoops, tokensPerRound }: LoopsAcceptance): number =>
    (draftLoops * (a.draftTokens + 1) + loops - draftLoops) / tokensPerRound.estimate;
  const best = a.loops.reduce((x, y) => (passes(y) < passes(x) ? y : x));
  const place = (i: number): Column<LoopsAcceptance> =>
    right(`place ${i + 1}`, (own) => cell(own.byPlace[i] ?? null, number(2)));
  return [
    '',
    `Speculation: ${a.draftTokens} proposals a round by the first loops, ${a.texts} texts of ${a.tokensEach} ` +
      `greedy tokens, full cache.`,
    ...columns<LoopsAcceptance>(
      [
        right('first loops', (own) => `${own.draftLoops} of ${loops}`),
        right('accepted after accepted ones', (own) => cell(own.acceptance, number(3))),
        ...Array.from({ length: a.draftTokens }, (_, i) => place(i)),
        right('tokens a round', (own) => cell(own.tokensPerRound, number(2))),
        right('passes a token', (own) => number(2)(passes(own))),
      ],
      a.loops,
    ),
    `Passes are those of vllm-rlt, whose verification goes on from the first loops; one by one a token takes ${loops}.`,
    `Fewest passes: simulate --draft-tokens ${a.draftTokens} --draft-loops ${best.draftLoops} --draft-acceptance ` +
      `${best.draftAcceptance.toFixed(3)}`,
  ];
}

/** @param loops of the model */
export function fidelityText(r: FidelityReport, loops: number): string {
  const contexts = [...new Set(r.rows.flatMap((row) => row.passkeyCells.map(({ context }) => context)))];
  const retrieved = (row: Judged, context: number): string => {
    const cells = row.passkeyCells.filter((c) => c.context === context);
    const count = cells.reduce((sum, c) => sum + c.count, 0);
    return count === 0 ? 'n/a' : (cells.reduce((sum, c) => sum + c.count * c.score, 0) / count).toFixed(2);
  };
  return [
    `${r.model.name} (${r.model.trained ? 'trained' : 'fabricated'} weights, ` +
      `${r.model.fingerprint.slice(0, 12)}…), ${r.rows.length} configurations on ${r.device}`,
    ...(r.rows.length === 0
      ? []
      : [
          '',
          ...columns(COLUMNS, r.rows),
          '',
          'KL, top-1 and perplexity on forced tokens beside the uncompressed f32 cache; agrees: tokens that a ' +
            'greedy rollout of 24',
          'follows it; attention: relative error of its outputs in float64. Intervals: 95 % bootstrap over texts.',
        ]),
    ...(contexts.length === 0
      ? []
      : [
          '',
          'passkey by context:',
          ...columns(
            [
              left('configuration', (row: Judged) => row.id),
              ...contexts.map((context) => right(String(context), (row: Judged) => retrieved(row, context))),
            ],
            r.rows,
          ),
        ]),
    ...(r.acceptance ? acceptanceLines(r.acceptance, loops) : []),
    '',
  ].join('\n');
}
