/** Which combinations are planned. */
import {
  FLASHLOOP_TOKENS,
  type Codec,
  type CodecKind,
  type CodecSpec,
  type FlashloopConstants,
  type PathChoice,
  type Sharing,
} from '../../codecs/codec.js';
import { pathOf, pathSpec } from '../../codecs/paths.js';
import {
  codecLabel,
  codecSpec,
  CODECS,
  hasOwnStorage,
  inEverySharing,
  isUncompressed,
  LATENT_KINDS,
  PLANNED_KINDS,
  PLANNED_SHARINGS,
  pathChoices,
  evictionRefusalOf,
  refusalOf,
  sharedAs,
} from '../../codecs/registry.js';
import { DEFAULT_WINDOW_TOKENS } from '../../codecs/lla.js';
import { rankFirstOf } from '../../codecs/hla.js';
import { exactRatio, genericRatios, ranksText, ratioLabel, type Ranks } from '../../codecs/ranks.js';
import { UserError } from '../../errors.js';
import { evictionLabel, ringHasGaps, type Eviction } from '../../eviction/policy.js';
import type { Geometry } from '../../geometry/geometry.js';
import { present } from '../../present.js';
import type { Candidate, PlanRequest } from '../types.js';

/** Which combinations to plan; null takes what the planner takes unless asked. */
export interface CandidateFilter {
  readonly kinds: readonly CodecKind[] | null;
  readonly ratios: readonly number[] | null;
  readonly ranks: readonly Ranks[] | null;
  readonly paths: readonly PathChoice[] | null;
  readonly evictions: readonly (Eviction | null)[];
  /** Why a codec under a policy cannot be stored as asked; undefined where it can. */
  readonly refuses?: (kind: CodecKind, eviction: Eviction | null) => string | undefined;
  /** Exact tokens of codecs that keep some beside their latents; the codec's own number unless given. */
  readonly windowTokens?: number | null;
  /** A combination that is shown beside those asked for, where it can exist: no answer names it. */
  readonly beside?: { readonly kind: CodecKind; readonly ratio: number; readonly eviction: Eviction };
  /** Numbers of a codec that has some, in place of the published ones. */
  readonly constants?: FlashloopConstants;
  /** When loops share rows, of codecs whose loops do; in every way of a codec that is named unless given. */
  readonly shared?: readonly Sharing[] | null;
  /** Codecs that were measured (`--fidelity`): planned beside the published ratios, unless others are asked for. */
  readonly measured?: readonly Codec[];
}

/** Combinations to plan, and those that were left out, with why. */
export interface Candidates {
  readonly candidates: Candidate[];
  readonly refused: { id: string; reason: string }[];
}

/**
 * Lists every combination that the filter allows and that can exist.
 * @throws UserError when the filter itself asks for something impossible, so that nothing is left
 */
export function listCandidates(g: Geometry, filter: CandidateFilter): Candidates {
  const refused: { id: string; reason: string }[] = [];
  const codecs = listCodecs(g, filter, refused);
  const candidates: Candidate[] = [];
  const evictions = [...new Map(filter.evictions.map((e) => [evictionLabel(e), e])).values()];
  for (const codec of codecs) {
    const paths = pathsOf(codec, filter.paths);
    if (paths.length === 0) {
      refused.push({
        id: codecLabel(g, codec),
        reason: `it has no path ${filter.paths?.join(' or ')}, but ${pathChoices(codec).join(', ')}`,
      });
      continue;
    }
    for (const choice of paths) {
      for (const eviction of evictions) {
        const reason = filter.refuses?.(codec.kind, eviction) ?? pathRefusal(g, codec, choice, eviction);
        if (reason === undefined) candidates.push({ codec, ...pathOf(choice), eviction });
        else
          refused.push({
            id: present([codecLabel(g, codec), choice, eviction && evictionLabel(eviction)]).join('/'),
            reason,
          });
      }
    }
  }
  candidates.push(...besideThese(g, filter));
  if (candidates.length === 0) {
    const first = refused[0];
    throw new UserError(
      first
        ? `none of the codecs, ratios and paths asked for can be: ${first.id}: ${first.reason}`
        : 'no combination of codec, ratio and path is left to plan',
      `change ${filter.refuses ? '--cache-type, ' : ''}--codec, --ratio, --ranks or --path`,
    );
  }
  return { candidates, refused };
}

/** Why a codec cannot be read so under a policy; undefined where it can. */
function pathRefusal(g: Geometry, codec: Codec, choice: PathChoice, eviction: Eviction | null): string | undefined {
  const unevictable = evictionRefusalOf(g, codec);
  if (eviction !== null && unevictable !== undefined)
    return `${codec.kind} goes with no eviction policy: ${unevictable}`;
  // Blocks are runs of consecutive positions. Pinned tokens are read apart; an unnamed policy may keep any others.
  return pathSpec(pathOf(choice).path).blocks && ringHasGaps(eviction)
    ? `${choice} needs consecutive positions, and an unnamed policy may leave gaps`
    : undefined;
}

/** Its fused path alone: a row of a table, not a question. */
function besideThese(g: Geometry, { beside }: CandidateFilter): Candidate[] {
  if (!beside) return [];
  const { kind, ratio, eviction } = beside;
  const codec = CODECS[kind].publishedRatios(g).includes(ratio) ? CODECS[kind].fromRatio(g, ratio) : 'not published';
  if (typeof codec === 'string' || refusalOf(g, codec) || evictionRefusalOf(g, codec)) return [];
  return [{ codec, ...pathOf('reconstruct'), eviction, beside: true }];
}

function listCodecs(g: Geometry, filter: CandidateFilter, refused: { id: string; reason: string }[]): Codec[] {
  const kinds = filter.kinds ?? (filter.ranks ? (['lla'] as const) : PLANNED_KINDS);
  const codecs: Codec[] = [];
  const seen = new Set<string>();
  const add = (asked: Codec): void => {
    const codec = codecSpec(asked).settings.includes('windowTokens')
      ? { ...asked, windowTokens: filter.windowTokens ?? asked.windowTokens ?? DEFAULT_WINDOW_TOKENS }
      : asked;
    const reason = refusalOf(g, codec);
    const key = JSON.stringify(codec);
    if (reason) refused.push({ id: describe(codec), reason });
    else if (!seen.has(key)) codecs.push(codec);
    seen.add(key);
  };
  for (const kind of kinds) {
    const spec: CodecSpec = CODECS[kind];
    if (filter.ranks && LATENT_KINDS.includes(kind)) {
      for (const ranks of filter.ranks) {
        const first = spec.settings.includes('rankFirst');
        if (ranks.rankFirst !== undefined && !first)
          refused.push({ id: describe({ kind, ...ranks }), reason: `${kind} has no latents of the first loop's own` });
        else add({ kind, ...(first ? { ...ranks, rankFirst: ranks.rankFirst ?? rankFirstOf(g) } : ranks) });
      }
      continue;
    }
    const { constants } = filter;
    if (constants && spec.settings.includes('constants')) {
      for (const tokens of FLASHLOOP_TOKENS) add({ kind, tokens, constants });
      continue;
    }
    // The full cache is always worth comparing with, whatever ratios are asked.
    // A codec that is named is planned on models that nobody tried it on, too.
    const published = spec.publishedRatios(g);
    const tried = published.length === 0 && filter.kinds ? genericRatios(g) : published;
    const ratios = spec.uncompressed ? [1] : (filter.ratios ?? tried);
    for (const ratio of ratios) {
      const codec = spec.fromRatio(g, exactRatio(ratio));
      if (typeof codec !== 'string') {
        if (filter.kinds || !spec.unusual?.(codec)) sharingsOf(codec, filter).forEach(add);
      } else if (filter.kinds) refused.push({ id: `${kind}-${ratioLabel(ratio)}x`, reason: codec });
    }
    if (!filter.ratios && !filter.ranks)
      for (const codec of filter.measured ?? []) if (codec.kind === kind) add(inOrder(codec));
  }
  return codecs;
}

/** A codec in the ways of sharing that are asked for; in all of them where it is named, in the usual ones else. */
function sharingsOf(codec: Codec, { kinds, shared }: CandidateFilter): Codec[] {
  if (!codecSpec(codec).settings.includes('shared')) return [codec];
  const asked = shared ?? (kinds === null ? PLANNED_SHARINGS : null);
  return asked ? asked.map((choice) => sharedAs(codec, choice)) : inEverySharing(codec);
}

/** With its settings in the order in which the codec's own constructor has them: one codec, one key. */
const inOrder = (codec: Codec): Codec => ({
  kind: codec.kind,
  ...Object.fromEntries(CODECS[codec.kind].settings.map((name) => [name, codec[name]])),
});

const describe = (c: Codec): string => (c.rankK === undefined ? c.kind : `${c.kind} ${ranksText(c)}`);

function pathsOf(codec: Codec, wanted: readonly PathChoice[] | null): PathChoice[] {
  const have = pathChoices(codec);
  // An uncompressed cache has one way to be read; a filter on latent paths keeps it for comparison.
  if (!wanted || isUncompressed(codec)) return have;
  return have.filter((p) => wanted.includes(p));
}

/** `lla-4x/reconstruct`, `lla-4x@int8/absorbed/streaming:4+256`: unique within a report. */
export function candidateId(g: Geometry, c: Candidate, cacheType: string): string {
  const spec = CODECS[c.codec.kind];
  const published = spec.publishedRatios(g).some((r) => sameRanks(spec.fromRatio(g, r), c.codec));
  const ranks = c.codec.rankK !== undefined && !published ? `(${ranksText(c.codec, ',')})` : '';
  const type = cacheType === 'f16' || cacheType === 'bf16' || hasOwnStorage(c.codec) ? '' : `@${cacheType}`;
  const parts = [`${codecLabel(g, c.codec)}${ranks}${type}`, c.materialised ? `${c.path}-materialised` : c.path];
  if (c.eviction) parts.push(evictionLabel(c.eviction));
  return parts.join('/');
}

/** The combination that a plan's id names. */
export const candidateOf = (
  { geometry, candidates, cacheType }: Pick<PlanRequest, 'geometry' | 'candidates' | 'cacheType'>,
  planId: string,
): Candidate | undefined => candidates.find((c) => candidateId(geometry, c, cacheType) === planId);

const sameRanks = (a: Codec | string, b: Codec): boolean =>
  typeof a !== 'string' && a.rankK === b.rankK && a.rankV === b.rankV && a.rankFirst === b.rankFirst;
