/** docs/codecs.md: codecs side by side, as Markdown. */
import { isUncompressed } from '../codecs/registry.js';
import { klLabel, shareLabel } from '../plan/evaluate/fidelity.js';
import type { Score } from '../plan/types.js';
import { guessMark, needsOf, shownDecode } from '../plan/words/words.js';
import { asPublishedLabel, keepsLabel, kernelsLabel } from '../report/plan-rows.js';
import { markdownText } from '../report/tables.js';
import { formatBytes, formatCount, formatNumber, formatTokens } from '../numbers/units.js';
import { claimsInOrder } from './print.js';
import { codecsPicture } from './codecs-picture.js';
import { hereFor, type Here, type HereRow } from './measured.js';
import { PAGE_CONTEXTS, type Page, type PageModel, type PageRow } from './page-data.js';
import { fixedBytes } from './ranking.js';

const row = (cells: readonly string[]): string => `| ${cells.map(markdownText).join(' | ')} |`;
const table = (head: readonly string[], left: number, rows: readonly (readonly string[])[]): string[] => [
  row(head),
  `|${head.map((_, i) => (i < left ? '---' : '--:')).join('|')}|`,
  ...rows.map(row),
];

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
    ...table(
      codecHead(PAGE_CONTEXTS, here),
      LEFT,
      rows.map((r) => codecCells(r, here)),
    ),
    '',
    `### Published scores of ${report.model.name}`,
    '',
    'Each beside the uncompressed model in the same table; scores of a context are those at 4k. †: scored by a ' +
      'decoder that kept a full-width cache and ran every token twice.',
    '',
    ...table(['codec', 'source', 'scores'], 3, rows.flatMap(scoreRows)),
    '',
    `### Published claims about ${report.model.name}`,
    '',
    'Sizes are counted here. Nobody measured speeds of codecs here: they are compared with the estimate of tuned ' +
      'kernels, and lie in its interval or not. Scores cannot be repeated without the weights.',
    '',
    ...table(
      ['codec', 'claim', 'source', 'published', 'here', 'so', 'why not'],
      7,
      claimsInOrder(claims).map((c) => [c.codec, c.what, c.source, c.published, c.here, c.verdict, c.why ?? '']),
    ),
    '',
  ];
}

/** Columns whose cells are words. */
export const LEFT = 2;

/** Heads of `codecCells`. @param contexts at which sequences are counted */
export const codecHead = (contexts: readonly number[], here: readonly Here[]): string[] => [
  'codec',
  'needs',
  'KV/token',
  '+ a sequence',
  ...contexts.map((c) => `at ${formatTokens(c)}`),
  'batch',
  'tok/s',
  'kernels',
  'as published',
  'keeps',
  ...here.map((h) => `KL on ${h.model}`),
];

export function codecCells({ label, plan, sequences }: PageRow, here: readonly Here[]): string[] {
  const d = shownDecode(plan);
  const rate = d.tokensPerSecond;
  return [
    label,
    needsOf(plan),
    formatBytes(plan.memory.kvBytesPerToken),
    fixedBytes(plan) > 0 ? formatBytes(fixedBytes(plan)) : '',
    ...sequences.map(String),
    String(d.batch),
    rate ? `${guessMark(rate)}${formatCount(rate.estimate)} (${formatCount(rate.low)}–${formatCount(rate.high)})` : '–',
    kernelsLabel(plan),
    asPublishedLabel(plan),
    keepsLabel(plan),
    ...here.map((h) => klLabelOf(hereFor(h, label, plan.codec.kind, plan.codec.ratio))),
  ];
}

const klLabelOf = (r: HereRow | null): string => (r ? klLabel(r.measured.kl) : '–');

/** Scores of each source, worst first. */
function scoreRows({ label, plan }: PageRow): string[][] {
  if (!plan.qualityKept || isUncompressed(plan.codec)) return [];
  const all = [...plan.qualityKept.scores, ...plan.qualityKept.others.flatMap((o) => o.scores)];
  const bySource = new Map<string, Score[]>();
  for (const s of all) {
    const known = bySource.get(s.source) ?? [];
    if (!known.some((k) => k.metric === s.metric && k.value === s.value)) bySource.set(s.source, [...known, s]);
  }
  return [...bySource].map(([source, scores]) => [label, source, scores.map(scoreWords).join(', ')]);
}

const scoreWords = ({ metric, value, teacher, times, twoPasses }: Score): string =>
  times ? `${value} × the error` : `${metric} ${value} of ${teacher}${twoPasses ? ' †' : ''}`;

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
    ...table(
      ['codec', 'path', 'of full', 'B/token', 'KL, nats (95 %)', 'top-1', 'recall', 'passkey', 'beside LLA'],
      2,
      h.rows.map((r) => {
        const m = r.measured;
        const share = (x: typeof m.recall): string => (x ? shareLabel(x) : '–');
        return [
          r.label,
          m.path,
          `${formatNumber(100 * r.share)} %`,
          formatNumber(r.bytesPerToken),
          klLabel(m.kl),
          share(m.top1),
          share(m.recall),
          share(m.passkey),
          r.lla ? `${r.lla.verdict}${r.lla.verdict === 'not decided' ? ',' : ' than'} ${r.lla.row.label}` : '',
        ];
      }),
    ),
    '',
  ];
}
