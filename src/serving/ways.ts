/**
 * Ways of serving a looped model side by side: tokens one by one through all loops, all of them through fewer, tokens
 * that leave early, and speculation by the first loops, each with the full cache and with the best plan of every codec
 * that keeps quality. What each serves within the targets stands beside what is known to be left of quality.
 */
import { rollups } from 'd3-array';
import { isUncompressed } from '../codecs/registry.js';
import { UserError } from '../errors.js';
import type { ModelSource, Sources } from '../plan/ask/prepare.js';
import { withChosenLoops } from '../plan/ask/sources.js';
import { keptWithLoops } from '../plan/evaluate/quality-kept.js';
import { needsOf } from '../plan/words/words.js';
import { isFullCache, representatives } from '../plan/decide/representatives.js';
import type { Plan } from '../plan/types.js';
import { best } from '../numbers/best.js';
import { depthNames } from '../quality/exit-depths.js';
import { publishedLoops } from '../quality/loop-scores.js';
import { defined, present } from '../present.js';
import type { Server, Workload } from '../schema/serving.js';
import type { Scenario } from '../schema/settings.js';
import { choose, settle, simulate, sorted, type SimulationOptions } from './answer.js';
import type { Depth } from './depth.js';
import type { SimulationReport, SustainedRate, WayName, WayRow } from './types.js';

/** Proposals of a round, where none are asked for. */
const DRAFT_TOKENS = 4;

const UNWRITTEN = 'fewer loops are left out: no answer that the model wrote with so many was scored';

interface Way {
  readonly name: WayName;
  readonly scenario: Scenario;
  /** Loops of every token, where they are fewer than the model was trained with. */
  readonly loops?: number;
}

/** The ways that a scenario can be served in, and why others cannot. */
function waysOf(
  scenario: Scenario,
  { publishedAs: preset, geometry }: ModelSource,
): { readonly ways: Way[]; readonly notes: string[] } {
  const fewer = preset === null ? [] : publishedLoops(preset, geometry.loops);
  const { depth, draftAcceptance, ...workload } = scenario.workload ?? {};
  const { depthBatching, skippedKv, draftTokens, draftLoops, ...server } = scenario.server ?? {};
  const plain = { ...scenario, workload, server };
  const named = depth ?? depthNames(preset)[0];
  const exit = { depthBatching: depthBatching ?? 'loops', skippedKv: skippedKv ?? 'copy' };
  const draft = defined({ draftTokens: draftTokens ?? DRAFT_TOKENS, draftLoops });
  const served = (requests: Workload, way: Server): Scenario => ({
    ...plain,
    workload: { ...workload, ...requests },
    server: { ...server, ...way },
  });
  return {
    ways: present<Way>([
      { name: 'one by one', scenario: plain },
      ...fewer.map((loops): Way => ({ name: 'fewer loops', scenario: plain, loops })),
      named !== undefined && { name: 'early exit', scenario: served({ depth: named }, exit) },
      { name: 'speculation', scenario: served(defined({ draftAcceptance }), draft) },
    ]),
    notes:
      named === undefined
        ? ['early exit: nobody published how early tokens of this model leave; say it with --depth']
        : [],
  };
}

/** Of each kind of codec the plan that makes most tokens, by the slow end. */
function bestOfKinds(plans: readonly Plan[]): Plan[] {
  const speed = (p: Plan): number => p.decode.tokensPerSecond?.low ?? 0;
  const whole = representatives(plans).filter((p) => p.eviction === null);
  return rollups(
    whole,
    (of) => best(of, speed)!,
    ({ codec }) => codec.kind,
  ).map(([, fastest]) => fastest);
}

/** What is known of quality: rounds of proposals lose nothing, and figures of a codec say nothing of early exit. */
function qualityOf(way: WayName, plan: Plan, depth: Depth | null): WayRow['quality'] {
  if (way !== 'early exit') return { share: plan.qualityKept?.share ?? null, of: null };
  const published = isFullCache(plan) ? depth?.published?.quality : null;
  if (!published) return { share: null, of: null };
  const { right, allLoops, items, task } = published;
  // Half of a 95 % interval of a share of so many questions, in questions.
  const unsure = Math.round(1.96 * Math.sqrt(right * (1 - right / items)));
  return {
    share: right / allLoops,
    of: `${right} of ${items} right (± ${unsure}), ${allLoops} with all loops (${task})`,
  };
}

/** No other serves more and keeps more. What nothing is known of is on no front. */
export function onFront(rows: readonly Pick<WayRow, 'requestsPerSecond' | 'quality'>[]): boolean[] {
  const rate = (row: (typeof rows)[number]): number => row.requestsPerSecond.low;
  const kept = ({ quality }: (typeof rows)[number]): number | null =>
    quality.share === null ? null : Math.min(1, quality.share);
  return rows.map((row) => {
    const own = kept(row);
    if (own === null || rate(row) === 0) return false;
    return !rows.some((other) => {
      const theirs = kept(other);
      if (theirs === null || theirs < own || rate(other) < rate(row)) return false;
      return theirs > own || rate(other) > rate(row);
    });
  });
}

const rowOf = (way: WayName, rate: SustainedRate, plan: Plan, depth: Depth | null): Omit<WayRow, 'onFront'> => {
  const latency = rate.atEstimate?.mean_e2el_ms ?? null;
  return {
    way,
    ...rate,
    // Little's law: requests in the server on average.
    users: latency === null ? null : (rate.requestsPerSecond.estimate * latency) / 1e3,
    quality: qualityOf(way, plan, depth),
    needs:
      rate.servedBy === null && (plan.servedBy !== null || way === 'fewer loops')
        ? `a server that ${way === 'fewer loops' ? 'is told how many' : 'schedules loops'}`
        : needsOf({ ...plan, servedBy: rate.servedBy }),
  };
};

/**
 * The highest rate of each way and cache. A way that the server or the model has not is left out, with the reason.
 * @throws UserError as `simulate` for what no way can be
 */
export async function compareWays(
  scenario: Scenario,
  sources: Sources,
  o: Omit<SimulationOptions, 'findRate' | 'only' | 'shard'>,
): Promise<SimulationReport> {
  const { ways: tried, notes } = waysOf(scenario, sources.model);
  const rows: Omit<WayRow, 'onFront'>[] = [];
  let report: SimulationReport | null = null;
  let partial = false;
  for (const [i, { name, scenario: own, loops }] of tried.entries()) {
    if (partial) break;
    try {
      const its = loops === undefined ? sources : { ...sources, model: withChosenLoops(sources.model, loops) };
      const { setting, plan } = settle(own, its, o);
      const { depth } = setting.server;
      const kept = keptWithLoops(its.model.geometry);
      if (loops !== undefined) {
        // The fewest that keep enough. Choosing among given answers says little of answers that are written.
        if (rows.some((r) => r.way === name) || (kept?.share ?? 0) < setting.request.keep) continue;
        if (kept?.generationTasks === 0) {
          if (!notes.includes(UNWRITTEN)) notes.push(UNWRITTEN);
          continue;
        }
      }
      const kinds = bestOfKinds(choose(plan, setting.request, setting.server, true));
      // Scores with fewer loops are those of the full cache.
      const served = loops === undefined ? kinds : kinds.filter((p) => isUncompressed(p.codec));
      const found = await simulate(own, its, {
        ...o,
        findRate: true,
        shard: null,
        only: served.map(({ id }) => id),
        progress: (share, doing) => o.progress((i + share) / tried.length, `${name}, ${doing}`),
      });
      for (const rate of found.candidates ?? [])
        rows.push(rowOf(name, rate, served.find(({ id }) => id === rate.id) as Plan, depth));
      if (kept)
        notes.push(
          `fewer loops: ${loops} of ${sources.model.geometry.loops}; ` +
            kept.scores.map((x) => `${x.metric} ${x.value} against ${x.teacher} (${x.source})`).join(', '),
        );
      if (depth?.published) notes.push(`early exit: ${depth.published.label} (${depth.published.source})`);
      const { speculation } = setting.server;
      if (speculation)
        notes.push(
          `speculation: ${speculation.draftLoops} loops propose ${speculation.draftTokens} tokens, accepted with ` +
            `${(100 * speculation.acceptance).toFixed(1)} % after accepted ones ` +
            `(${speculation.source ?? 'as given'})`,
        );
      report ??= found;
      partial = found.partial;
    } catch (error) {
      if (!(error instanceof UserError) || report === null) throw error;
      notes.push(`${name} is left out: ${error.message}`);
    }
  }
  const { candidates: _candidates, ...rest } = report as SimulationReport;
  const front = onFront(rows);
  const all = rows.map((row, i): WayRow => ({ ...row, onFront: front[i] as boolean }));
  const ways = sorted(all, ({ way, id }) => `${way} ${id}`);
  return { ...rest, ways, partial, notes: [...notes, ...rest.notes] };
}
