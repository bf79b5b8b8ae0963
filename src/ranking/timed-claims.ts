/**
 * Capacity and speed that the ledger holds of codecs, each beside the full cache of the same source, and the planner's
 * answers to the same questions. Times of codecs are what tuned kernels reach: what was built is not asked.
 */
import { CODEC_KINDS, type CodecKind } from '../codecs/codec.js';
import type { Interval } from '../cost/evidence.js';
import type { Plan, PlanReport } from '../plan/types.js';
import { isUseless } from '../plan/decide/representatives.js';
import type { LedgerRow } from '../schema/ledger.js';
import type { Row } from '../schema/ledger-file.js';
import type { Scenario } from '../schema/settings.js';
import { best } from '../numbers/best.js';
import { formatNumber } from '../numbers/units.js';
import type { Claim } from './claims.js';

/** What claims are held against. */
export interface ClaimSources {
  /** Of the ledger, those of sources that measured codecs (claim-rows.ts). */
  readonly rows: readonly Row[];
  /** Plans the scenario of a preset. */
  readonly plan: (scenario: Scenario) => Promise<PlanReport>;
}

const nameOf = ({ source }: Row): string => source.title ?? source.url ?? '';

/** The codec that a row names, in one word; undefined of the full cache. */
const kindOf = ({ codec }: Row): CodecKind | undefined =>
  codec && CODEC_KINDS.find((kind) => kind.replaceAll('-', '') === codec.name);

/** Counted sizes of a server differ by its working memory: as near as this is the same. */
const NEAR = 0.05;

/** A length at which a source measured a codec and the full cache. */
interface Point {
  readonly row: Row;
  readonly full: Row;
}

interface Compared {
  readonly tokens: number;
  readonly published: number;
  readonly here: Interval | null;
  readonly same: boolean;
}

/** What a source says of the capacity and the speed of codecs of a model, and whether it is so here. */
export async function timedClaims(model: string, { rows: all, plan }: ClaimSources): Promise<Claim[]> {
  const claims: Claim[] = [];
  for (const source of new Set(all.map(nameOf))) {
    const rows = all.filter((r) => r.model === model && nameOf(r) === source);
    for (const kind of new Set(rows.flatMap((r) => kindOf(r) ?? []))) {
      const those = rows.filter((r) => kindOf(r) === kind && r.gpus === 1);
      const [many, one] = [pointsOf(rows, those, false), pointsOf(rows, those, true)];
      const claim = async (what: string, points: readonly Point[], of: typeof rates) => {
        const compared = (await Promise.all(points.map((p) => of(p, plan)))).filter((c) => c !== null);
        if (compared.length > 0) claims.push(claimOf(kind, points[0]!.row, what, compared));
      };
      await claim('times the sequences', many, sequences);
      await claim('times the tokens a second, with as many sequences', many, rates);
      await claim('times the speed of one sequence', one, rates);
    }
  }
  return claims;
}

/** Best rows by length: of one sequence, or of as many as there are. */
function pointsOf(all: readonly Row[], own: readonly Row[], one: boolean): Point[] {
  const asked = (r: Row): boolean => (loadOf(r).concurrency === 1) === one;
  const bestAt = (rows: readonly Row[], tokens: number): Row | undefined =>
    best(
      rows.filter((r) => asked(r) && loadOf(r).inputTokens === tokens),
      (r) => rateOf(r) ?? 0,
    );
  const lengths = [...new Set(own.filter(asked).map((r) => loadOf(r).inputTokens))].sort((a, b) => a - b);
  return lengths.flatMap((tokens) => {
    const row = bestAt(own, tokens);
    const full = bestAt(
      all.filter((r) => !r.codec && r.campaign !== row?.campaign && r.device === row?.device),
      tokens,
    );
    return row && full ? [{ row, full }] : [];
  });
}

/** Lengths and sequences of a row; zeros where its source has none. */
function loadOf({ workload }: Row) {
  const fields = workload as Readonly<Record<string, unknown>>;
  const number = (name: string): number => (typeof fields[name] === 'number' ? fields[name] : 0);
  return {
    inputTokens: number('inputTokens'),
    outputTokens: number('outputTokens'),
    concurrency: number('concurrency'),
  };
}

type Statistics = LedgerRow['figures']['sequences'];
const statistic = (s: Statistics): number | null => s?.mean ?? s?.value ?? null;

/** Tokens a second of all sequences. */
function rateOf({ figures }: Row): number | null {
  const [rate, step] = [statistic(figures.tokensPerSecond), statistic(figures.tpotSeconds)];
  return rate ?? (step === null ? null : 1 / step);
}

/** The plan of a row's codec, or of the full cache. */
async function planOf(row: Row, batch: number | null, plan: ClaimSources['plan']): Promise<Plan | null> {
  const { inputTokens, outputTokens } = loadOf(row);
  const kind = kindOf(row) ?? 'full';
  // Where the batch is asked a step is taken half way through the output; what fits must hold all of it.
  const tokens = inputTokens + (batch === null ? outputTokens : Math.round(outputTokens / 2));
  const report = await plan({
    model: row.model,
    device: row.device as string,
    context: tokens,
    codec: [kind],
    ...(row.codec?.ratio === undefined ? {} : { ratio: [row.codec.ratio] }),
    ...(batch === null ? {} : { batch }),
  });
  const built = report.plans.filter((p) => !isUseless(p));
  return best(built, (p) => p.decode.tokensPerSecond?.estimate ?? 0) ?? null;
}

async function sequences({ row, full }: Point, plan: ClaimSources['plan']): Promise<Compared | null> {
  const [published, before] = [statistic(row.figures.sequences), statistic(full.figures.sequences)];
  if (published === null || before === null) return null;
  const [own, whole] = [await planOf(row, null, plan), await planOf(full, null, plan)];
  const ratio = own && whole ? own.maxBatch.exact / whole.maxBatch.exact : null;
  return {
    tokens: loadOf(row).inputTokens,
    published: published / before,
    here: ratio === null ? null : { estimate: ratio, low: ratio, high: ratio },
    same: ratio !== null && Math.abs(ratio / (published / before) - 1) <= NEAR,
  };
}

async function rates({ row, full }: Point, plan: ClaimSources['plan']): Promise<Compared | null> {
  const [own, whole] = [rateOf(row), rateOf(full)];
  if (own === null || whole === null) return null;
  const [mine, other] = [
    (await planOf(row, loadOf(row).concurrency, plan))?.decode.tokensPerSecond ?? null,
    (await planOf(full, loadOf(full).concurrency, plan))?.decode.tokensPerSecond ?? null,
  ];
  const here =
    mine && other
      ? { estimate: mine.estimate / other.estimate, low: mine.low / other.high, high: mine.high / other.low }
      : null;
  const published = own / whole;
  return {
    tokens: loadOf(row).inputTokens,
    published,
    here,
    same: here !== null && here.low <= published && published <= here.high,
  };
}

function claimOf(codec: CodecKind, row: Row, what: string, all: readonly Compared[]): Claim {
  const same = all.filter((c) => c.same);
  const lengths = (some: readonly Compared[]): string => some.map((c) => `${c.tokens / 1024}k`).join(', ');
  const sure = all.every(({ here }) => here === null || here.low === here.high);
  const verdict =
    same.length === 0
      ? 'not repeated'
      : same.length < all.length
        ? 'in part'
        : sure
          ? 'repeated'
          : 'within the estimate';
  const missed = all.filter((c) => !c.same);
  const above = missed.every((c) => c.here !== null && c.here.estimate > c.published);
  return {
    codec,
    source: nameOf(row),
    what: `${what} (${row.device}, ${row.server.name}; ${lengths(all)})`,
    published: all.map((c) => formatNumber(c.published)).join(', '),
    here: all
      .map(({ here }) =>
        here === null
          ? 'does not fit'
          : here.low === here.high
            ? formatNumber(here.estimate)
            : `${formatNumber(here.estimate)} (${formatNumber(here.low)}–${formatNumber(here.high)})`,
      )
      .join(', '),
    verdict,
    why:
      missed.length === 0
        ? null
        : (same.length > 0 ? `not at ${lengths(missed)}; ` : '') +
          (above ? 'what is published is less' : 'unexplained'),
  };
}
