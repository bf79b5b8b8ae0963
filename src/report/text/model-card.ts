/** All that is known of one model: its shape, its cache under every codec, and every published figure. Base units. */
import { groups as groupBy } from 'd3-array';
import { bytesPerToken } from '../../codecs/layout.js';
import {
  codecLabel,
  codecParameters,
  CODECS,
  coreRatio,
  fullScalars,
  isLatent,
  isUncompressed,
  layoutOf,
  PLANNED_KINDS,
  refusalOf,
} from '../../codecs/registry.js';
import { CODEC_KINDS, type CodecKind } from '../../codecs/codec.js';
import { ranksText } from '../../codecs/ranks.js';
import { evictionLabel } from '../../eviction/policy.js';
import { layersTimesLoops, parameterCount, type Geometry } from '../../geometry/geometry.js';
import { GROUP_SIZE } from '../../../kernels/spec.js';
import { contradictionsFor, figuresText, type Contradiction } from '../../quality/contradictions.js';
import type { QualityFigure } from '../../quality/figure.js';
import { publishedFor, teacherOf } from '../../quality/quality.js';
import { formatBytes, formatNumber, formatTokens } from '../../numbers/units.js';
import type { ModelSource } from '../../plan/ask/prepare.js';
import { columns, left, right, wrap, type Column } from './text.js';

interface CachedBy {
  readonly codec: string;
  readonly kind: CodecKind;
  readonly ranks: string | null;
  /** Of the looped core. */
  readonly ratio: number;
  readonly kvBytesPerToken: number;
  readonly kvBytesAt1M: number;
  readonly codecParameters: number;
}

export interface PublishedFigure extends QualityFigure {
  /** The uncompressed model's value in the same table, and the share of it. Null where the table has none. */
  readonly teacher: number | null;
  readonly share: number | null;
  /** True where another table (or training) gives this codec another value of the same task. */
  readonly disputed: boolean;
}

export interface ModelCard {
  readonly schema: 'lla-sim/model';
  readonly schemaVersion: 1;
  readonly model: Geometry & { readonly parameters: number; readonly kvBytesPerToken: number };
  readonly cache: readonly CachedBy[];
  /** In the order of codecs and ratios; a codec's figures lie together by task. */
  readonly quality: readonly { readonly setting: string; readonly figures: readonly PublishedFigure[] }[];
  readonly contradictions: readonly Contradiction[];
}

const MILLION = 2 ** 20;

/** @param publishedAs the preset whose figures count; null for a model read from a file */
export function modelCard({ geometry: g, publishedAs }: Pick<ModelSource, 'geometry' | 'publishedAs'>): ModelCard {
  return {
    schema: 'lla-sim/model',
    schemaVersion: 1,
    model: { ...g, parameters: parameterCount(g), kvBytesPerToken: 2 * fullScalars(g) },
    cache: PLANNED_KINDS.flatMap((kind) => cachedBy(g, kind)),
    quality: publishedAs === null ? [] : settingsOf(publishedFor(publishedAs)),
    contradictions: publishedAs === null ? [] : contradictionsFor(publishedAs),
  };
}

/** The published settings of a codec (or those that the planner tries), f16 and faithful attention. */
function cachedBy(g: Geometry, kind: CodecKind): CachedBy[] {
  const branch = { width: 0, perHead: false };
  return CODECS[kind].publishedRatios(g).flatMap((ratio) => {
    const codec = CODECS[kind].fromRatio(g, ratio);
    if (typeof codec === 'string' || refusalOf(g, codec) !== undefined) return [];
    const path = isLatent(codec) ? 'reconstruct' : 'full';
    const each = bytesPerToken(layoutOf(g, codec, path, { storage: 'f16', groupSize: GROUP_SIZE }, branch));
    return {
      codec: codecLabel(g, codec),
      kind,
      ranks: isLatent(codec) ? ranksText(codec) : null,
      ratio: coreRatio(g, codec),
      kvBytesPerToken: each,
      kvBytesAt1M: each * MILLION,
      codecParameters: codecParameters(g, codec, path, branch),
    };
  });
}

function settingName(f: QualityFigure): string {
  // The paper's own way of sharing has the bare name, as in a plan.
  const way = f.shared === undefined || f.shared === 'two-pass' ? '' : `-${f.shared}`;
  const parts = [isUncompressed({ kind: f.codec }) ? 'full' : `${f.codec}${way}-${Number(f.ratioLabel)}x`];
  if (f.windowTokens !== undefined) parts.push(`${f.windowTokens} exact tokens`);
  if (f.andAbove) parts.push('and above');
  if (f.pathClass === 'absorbed') parts.push('absorbed (another computation)');
  if (f.eviction !== null) parts.push(evictionLabel(f.eviction));
  return parts.join(', ');
}

function settingsOf(figures: readonly QualityFigure[]): ModelCard['quality'] {
  const order = (f: QualityFigure): number => CODEC_KINDS.indexOf(f.codec) * 1000 + f.ratio;
  const sorted = [...figures].sort((a, b) => order(a) - order(b));
  return groupBy(sorted, settingName).map(([setting, own]) => ({
    setting,
    figures: groupBy(own, (f) => `${f.metric} ${f.contextTokens}`).flatMap(([, same]) => {
      const disputed = new Set(same.map((f) => f.value)).size > 1;
      return same.map((f) => ({ ...f, ...comparedWithTeacher(f), disputed }));
    }),
  }));
}

/** Against the teacher of the same table; a loss (KL, errors) has no share. */
function comparedWithTeacher(f: QualityFigure): { teacher: number | null; share: number | null } {
  const teacher = f.isTeacher ? null : (teacherOf(f)?.value ?? null);
  return { teacher, share: teacher !== null && f.higherIsBetter && teacher > 0 ? f.value / teacher : null };
}

const CACHE_COLUMNS: readonly Column<CachedBy>[] = [
  left('codec', (c) => c.codec),
  right('ranks K/V', (c) => c.ranks ?? '–'),
  right('KV/token', (c) => formatBytes(c.kvBytesPerToken)),
  right('KV at 1M', (c) => formatBytes(c.kvBytesAt1M)),
  right('codec matrices', (c) => (c.codecParameters === 0 ? '–' : `${(c.codecParameters / 1e6).toFixed(0)} M`)),
];

const value = (f: QualityFigure, v: number): string => {
  if (f.unit === 'times') return `${v}×`;
  return f.unit === 'tokens' ? formatTokens(v) : v.toFixed(Math.max(2, (String(v).split('.')[1] ?? '').length));
};

/** To the nearest per cent, as the paper prints shares. Plans round down: there a share is held against `--keep`. */
const nearestShare = (share: number): string => `${Math.round(share * 100)} %`;

const FIGURE_COLUMNS: readonly Column<PublishedFigure>[] = [
  left(
    '  task',
    (f) =>
      `${f.disputed ? '!' : ' '} ${f.metric}${f.contextTokens === null ? '' : ` ${formatTokens(f.contextTokens)}`}`,
  ),
  right('value', (f) => value(f, f.value)),
  right('teacher', (f) => (f.teacher === null ? '–' : value(f, f.teacher))),
  right('kept', (f) => (f.share === null ? '–' : nearestShare(f.share))),
  left(
    'table',
    (f) =>
      [f.source.replace('Table ', ''), ...(f.variant === null ? [] : [f.variant])].join(': ') +
      (f.decoder === null || f.isTeacher ? '' : ` (${f.decoder})`),
  ),
];

const parametersText = (n: number): string => (n < 1e9 ? `${formatNumber(n / 1e6)} M` : `${formatNumber(n / 1e9)} B`);

/** The card for a terminal. @param width in columns, of paragraphs */
export function modelCardTable(card: ModelCard, width: number): string {
  const { model: g, quality, contradictions } = card;
  const lines = [
    `${g.name}: ${layersTimesLoops(g)} layers × loops`,
    ...wrap(
      `${g.heads} query and ${g.kvHeads} KV heads of width ${g.headDim}; hidden ${g.hidden}, ${g.mlp} MLP ` +
        `${g.mlpHidden}, vocabulary ${g.vocab}${g.tiedEmbeddings ? ' (tied)' : ''}; ${formatTokens(g.maxPositions)} ` +
        `positions; ${parametersText(g.parameters)} parameters in ${g.weightType}`,
      width,
    ),
    ...wrap(`Source: ${g.source}`, width),
    '',
    'Cache',
    ...columns(CACHE_COLUMNS, card.cache),
    '',
  ];
  if (quality.length === 0) {
    lines.push('Quality: nothing is published for this model under any codec.');
    return `${lines.join('\n')}\n`;
  }
  lines.push(
    ...wrap(
      'Quality as published, by codec and task. teacher: the uncompressed model in the same table. kept: share of ' +
        'it. !: another table or training gives the same codec another value; they stand below each other. In ' +
        'parentheses: the decoder that generated the answers. two-pass takes two passes a token and caches ' +
        'full-width K and V, so it saves neither time nor memory.',
      width,
    ),
  );
  const all = quality.flatMap((s) => s.figures);
  const [head, ...rows] = columns(FIGURE_COLUMNS, all) as [string, ...string[]];
  lines.push(head);
  let next = 0;
  for (const { setting, figures } of quality) {
    lines.push(setting, ...rows.slice(next, next + figures.length));
    next += figures.length;
  }
  lines.push('', 'Where the published figures contradict each other');
  return `${[...lines, ...contradictionLines(contradictions, width)].join('\n')}\n`;
}

/** Contradictions of published figures, numbered. */
export const contradictionLines = (contradictions: readonly Contradiction[], width: number): string[] =>
  contradictions.flatMap((c, i) => wrap(`${i + 1}. ${c.subject}: ${figuresText(c)}. ${c.explanation}`, width, '   '));
