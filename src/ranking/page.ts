/** docs/codecs.md: codecs side by side, as Markdown. */
import { groups as groupBy } from 'd3-array';
import { isUncompressed } from '../codecs/registry.js';
import type { Interval } from '../cost/evidence.js';
import { klLabel, shareLabel } from '../plan/evaluate/fidelity.js';
import type { Score } from '../plan/types.js';
import { guessMark, needsOf, shownDecode } from '../plan/words/words.js';
import { asPublishedLabel, keepsLabel, kernelsLabel } from '../report/plan-rows.js';
import { markdownTable } from '../report/tables.js';
import { left, right, type Column } from '../report/text/text.js';
import { formatBytes, formatCount, formatNumber, formatTokens } from '../numbers/units.js';
import type { Claim } from './claims.js';
import { claimsInOrder } from './print.js';
import { codecsPicture } from './codecs-picture.js';
import { hereFor, type Here, type HereRow } from './measured.js';
import { PAGE_CONTEXTS, type Page, type PageModel, type PageRow } from './page-data.js';
import { fixedBytes } from './ranking.js';

export function codecsMarkdown(page: Page): string {
  const [first] = page.models as [PageModel];
  const picture = codecsPicture(first, page.here);
  return `${[
    '# Codecs side by side',
    '',
    `Written by \`npm run codecs\`; a test holds both equal. One ${first.report.device.name}, a cache in 16 bits, ` +
      'server and reserve as in `lla-sim plan`. `lla-sim plan --rank` puts the same codecs in order of the users ' +
      'that they serve on your GPU, within your targets.',
    '',
    `![${picture.title}](codecs.png)`,
    '',
    picture.summary,
    '',
    ...page.models.flatMap((m) => modelPart(m, page.here)),
    ...page.here.flatMap(herePart),
  ].join('\n')}`;
}

function modelPart({ report, rows, claims }: PageModel, here: readonly Here[]): string[] {
  const stack = report.device.stack === null ? '' : `, times of ${report.device.stack}'s kernels where it has them`;
  return [
    `## ${report.model.name}`,
    '',
    'Bytes a token, and a sequence where some do not depend on its length. Sequences at ' +
      `${PAGE_CONTEXTS.map(formatTokens).join(', ')} tokens. Speed at the operating batch (90 % of the best ` +
      `throughput) at ${formatTokens(PAGE_CONTEXTS[0])} tokens with its 90 % interval${stack}; \`attainable\` is ` +
      'what tuned kernels reach, which nobody has measured. As published: with kernels of latents as fast as those ' +
      `that exist. Keeps: the worst published score as a share of the uncompressed model's, its sources below. ` +
      here
        .map((h) => `KL on ${h.model}: measured here with the same setting or ratio, and its 95 % interval.`)
        .join(' '),
    '',
    ...markdownTable(codecColumns(PAGE_CONTEXTS, here), rows),
    '',
    `### Published scores of ${report.model.name}`,
    '',
    'Each beside the uncompressed model in the same table; scores of a context are those at 4k. †: scored by a ' +
      'decoder that kept a full-width cache and ran every token twice.',
    '',
    ...markdownTable(SCORES, rows.flatMap(scoreRows)),
    '',
    `### Published claims about ${report.model.name}`,
    '',
    'Sizes are counted here. Nobody measured speeds of codecs here: they are compared with the estimate of tuned ' +
      'kernels, and lie in its interval or not. Scores cannot be repeated without the weights.',
    '',
    ...markdownTable(CLAIMS, claimsInOrder(claims)),
    '',
  ];
}

/** @param contexts at which sequences are counted */
export const codecColumns = (contexts: readonly number[], here: readonly Here[]): Column<PageRow>[] => [
  left('codec', (r) => r.label),
  left('needs', (r) => needsOf(r.plan)),
  right('KV/token', (r) => formatBytes(r.plan.memory.kvBytesPerToken)),
  right('+ a sequence', (r) => (fixedBytes(r.plan) > 0 ? formatBytes(fixedBytes(r.plan)) : '')),
  ...contexts.map((c, i) => right<PageRow>(`at ${formatTokens(c)}`, (r) => String(r.sequences[i]))),
  right('batch', (r) => String(shownDecode(r.plan).batch)),
  right('tok/s', (r) => rateCell(shownDecode(r.plan).tokensPerSecond)),
  right('kernels', (r) => kernelsLabel(r.plan)),
  right('as published', (r) => asPublishedLabel(r.plan)),
  right('keeps', (r) => keepsLabel(r.plan)),
  ...here.map((h) => right<PageRow>(`KL on ${h.model}`, (r) => klCell(h, r))),
];

const rateCell = (rate: Interval | null): string =>
  rate ? `${guessMark(rate)}${formatCount(rate.estimate)} (${formatCount(rate.low)}–${formatCount(rate.high)})` : '–';

function klCell(here: Here, { label, plan: { codec } }: PageRow): string {
  const row = hereFor(here, label, codec.kind, codec.ratio);
  return row ? klLabel(row.measured.kl) : '–';
}

const CLAIMS: readonly Column<Claim>[] = [
  left('codec', (c) => c.codec),
  left('claim', (c) => c.what),
  left('source', (c) => c.source),
  left('published', (c) => c.published),
  left('here', (c) => c.here),
  left('so', (c) => c.verdict),
  left('why not', (c) => c.why ?? ''),
];

type ScoreRow = readonly [label: string, source: string, scores: string];
const SCORES = ['codec', 'source', 'scores'].map((title, i) => left<ScoreRow>(title, (row) => row[i]!));

/** Scores of each source, worst first. */
function scoreRows({ label, plan }: PageRow): ScoreRow[] {
  if (!plan.qualityKept || isUncompressed(plan.codec)) return [];
  const all = [...plan.qualityKept.scores, ...plan.qualityKept.others.flatMap((o) => o.scores)];
  return groupBy(all, (s) => s.source).map(([source, scores]) => {
    const own = groupBy(scores, (s) => `${s.metric} ${s.value}`).map(([, [first]]) => first!);
    return [label, source, own.map(scoreWords).join(', ')];
  });
}

const scoreWords = ({ metric, value, teacher, times, twoPasses }: Score): string =>
  times ? `${value} × the error` : `${metric} ${value} of ${teacher}${twoPasses ? ' †' : ''}`;

const share = (x: Interval | null): string => (x ? shareLabel(x) : '–');

const MEASURED: readonly Column<HereRow>[] = [
  left('codec', (r) => r.label),
  left('path', (r) => r.measured.path),
  right('of full', (r) => `${formatNumber(100 * r.share)} %`),
  right('B/token', (r) => formatNumber(r.bytesPerToken)),
  right('KL, nats (95 %)', (r) => klLabel(r.measured.kl)),
  right('top-1', (r) => share(r.measured.top1)),
  right('recall', (r) => share(r.measured.recall)),
  right('passkey', (r) => share(r.measured.passkey)),
  right('beside LLA', ({ lla }) =>
    lla ? `${lla.verdict}${lla.verdict === 'not decided' ? ',' : ' than'} ${lla.row.label}` : '',
  ),
];

function herePart(h: Here): string[] {
  const decided = (verdict: string): string[] =>
    h.rows.filter((r) => r.lla?.verdict === verdict).map((r) => `${r.label} (${r.lla!.row.label})`);
  const beaten = decided('better');
  const words = Object.entries({
    text: 'texts',
    passkey: 'pass codes',
    recall: 'recalls',
    sum: 'sums',
  }).flatMap(([kind, name]) => (h.items[kind] === undefined ? [] : [`${h.items[kind]} ${name}`]));
  return [
    `## Measured here: ${h.model}`,
    '',
    `\`lla-sim fidelity\` decoded ${words.join(', ')} with each cache, the same for all rows (\`${h.file}\`). ` +
      `Codecs with weights were fitted, not trained. Bytes are those of a sequence of ${h.contextTokens} tokens on ` +
      'this model, exact windows included, in tiles of 32 tokens. Beside LLA: better than a row of LLA with at ' +
      'least as many bytes, or worse than one with at most as many. The nearest of each counts, by a path without ' +
      'an untrained branch. The 95 % interval of the ratio of both KLs, over the same texts, decides.',
    '',
    beaten.length === 0
      ? 'No codec is surely better than LLA at equal bytes.'
      : `LLA loses at equal bytes to: ${beaten.join(', ')}. It wins against: ${decided('worse').join(', ') || 'none'}.`,
    '',
    ...markdownTable(MEASURED, h.rows),
    '',
  ];
}
