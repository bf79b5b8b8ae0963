/** The ranking and what became of published claims, for a terminal. */
import { HERE } from '../plan/evaluate/fidelity.js';
import type { Plan, PlanReport } from '../plan/types.js';
import { guessMark, guessWords, needsOf, timeLabel } from '../plan/words/words.js';
import { asPublishedLabel, keepsLabel, rateLabel } from '../report/plan-rows.js';
import { columns, left, right, wrap, type Column } from '../report/text/text.js';
import { formatBytes } from '../numbers/units.js';
import type { Claim } from './claims.js';
import type { RankedReport } from './ranked.js';
import { figuresOf, fixedBytes, type Ranked } from './ranking.js';

const percent = (share: number): string => `${Math.round(share * 100)} %`;

/** The codecs in order, and the claims where anybody published some. */
export function rankedText(report: RankedReport, { width }: { readonly width: number }): string {
  const { ranking, claims } = report;
  const keep = percent(report.settings.keep);
  const { targets } = report.settings;
  const users =
    targets.secondsPerToken === null ? 'sequences that memory holds' : 'the largest batch that meets the targets';
  const section = (title: string, lines: readonly string[]): string[] =>
    lines.length === 0 ? [] : [title, ...lines, ''];
  const scored = report.fidelity ? 'score measured here' : 'published score of one checkpoint';
  const parts = [
    ...section(`By users, every ${scored} at ${keep} or more`, table(report, ranking.kept)),
    ...section(`A score below ${keep}`, table(report, ranking.lost)),
    ...section('Without scores', table(report, ranking.unknown)),
  ];
  const lines = [
    ...wrap(report.answer.question, width, '  '),
    '',
    ...parts,
    ...section(
      'Outside the targets',
      ranking.outside.flatMap((o) => wrap(`  ${o.label}: ${o.reason}`, width, '    ')),
    ),
    ...wrap(
      `users: ${users}; times at that batch. published: tok/s at the batch of lla-sim plan, with kernels of latents ` +
        'as fast as those that exist. keeps: worst score as a share of the uncompressed ' +
        `model's${report.fidelity ? `, ${HERE}` : '; others: of its other checkpoints'}. kernels: no server has ` +
        'them.',
      width,
    ),
    ...guessWords(parts).flatMap((words) => wrap(words, width)),
    ...(claims.length === 0 ? [] : ['', ...claimsText(claims, width)]),
  ];
  return `${lines.join('\n')}\n`;
}

function table(report: PlanReport, rows: readonly Ranked[]): string[] {
  if (rows.length === 0) return [];
  const byId = new Map(report.plans.map((p) => [p.id, p]));
  const column = (title: string, cell: (p: Plan) => string): Column<Ranked> =>
    right(title, (r) => cell(byId.get(r.planId) as Plan));
  const ms = (p: Plan): string => timeLabel(figuresOf(p, report).secondsPerStep).split(' ')[0] as string;
  const tok = (p: Plan): string => {
    const time = figuresOf(p, report).secondsPerStep;
    return time ? `${guessMark(time)}${Math.round(1 / time.estimate)}` : '–';
  };
  return columns<Ranked>(
    [
      right('users', (r) => String(r.users)),
      left('codec', (r) => r.label),
      column('KV/token', (p) => formatBytes(p.memory.kvBytesPerToken)),
      column('+ a sequence', (p) => (fixedBytes(p) > 0 ? formatBytes(fixedBytes(p)) : '')),
      column('ms/token', ms),
      column('a user', tok),
      column('tok/s', (p) => rateLabel(figuresOf(p, report))),
      column('published', asPublishedLabel),
      column('keeps', (p) => keepsLabel(p, true)),
      left('needs', (r) => needsOf(byId.get(r.planId) as Plan)),
    ],
    rows,
  );
}

const ORDER = ['not repeated', 'in part', 'not tried', 'within the estimate', 'repeated'] as const;

/** What could not be repeated first. */
export const claimsInOrder = (claims: readonly Claim[]): Claim[] =>
  [...claims].sort((a, b) => ORDER.indexOf(a.verdict) - ORDER.indexOf(b.verdict));

/** `FlashLoop …: 5.85 times smaller, here 5.81: not repeated; why`. */
const claimWords = ({ codec, what, published, here, verdict, why }: Claim): string =>
  `${codec}, ${what}: ${published} published, ${here} here: ${verdict}${why === null ? '' : ` (${why})`}`;

function claimsText(claims: readonly Claim[], width: number): string[] {
  const repeated = claims.filter((c) => c.verdict === 'repeated').length;
  const within = claims.filter((c) => c.verdict === 'within the estimate').length;
  return [
    ...wrap(
      `Published claims of size and speed: ${repeated} of ${claims.length} repeated, ${within} within the ` +
        'estimate of tuned kernels, the others not or in part. Scores cannot be repeated here: they need the ' +
        'weights. Those of the paper of LLA: lla-sim paper.',
      width,
    ),
    ...claimsInOrder(claims).flatMap((c) => wrap(`- ${claimWords(c)}`, width, '  ')),
  ];
}
