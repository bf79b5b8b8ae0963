/** What docs/codecs.md holds: every codec of a model on one H200, and what was measured of bundled models. */
import { CODEC_KINDS } from '../codecs/codec.js';
import { ask } from '../plan/ask/on-disk.js';
import { isUseless, representatives } from '../plan/decide/representatives.js';
import type { Plan, PlanReport } from '../plan/types.js';
import type { Scenario } from '../schema/settings.js';
import type { Claim } from './claims.js';
import { measuredModels, type Here } from './measured.js';
import { claimsOnDisk } from './claim-rows.js';
import { ranked } from './ranked.js';
import { labelOf } from './ranking.js';

/** Models of the page, and the GPU. */
const PAGE_MODELS = ['ouro-1.4b', 'ouro-2.6b'] as const;
const PAGE_DEVICE = 'h200';
/** The context at which times and scores are given, and two at which only sequences are counted. */
export const PAGE_CONTEXTS = [4096, 32_768, 2 ** 20] as const;

export interface PageRow {
  readonly label: string;
  readonly plan: Plan;
  /** Sequences by context of the page. */
  readonly sequences: readonly number[];
}

export interface PageModel {
  readonly report: PlanReport;
  /** Most bytes a token first. */
  readonly rows: readonly PageRow[];
  readonly claims: readonly Claim[];
}

export interface Page {
  readonly models: readonly PageModel[];
  readonly here: readonly Here[];
}

export async function pageOf(): Promise<Page> {
  const models: PageModel[] = [];
  for (const model of PAGE_MODELS) {
    const { report, rows } = await sideBySide({ model, device: PAGE_DEVICE }, PAGE_CONTEXTS);
    const { claims } = await ranked(report, claimsOnDisk());
    models.push({ report, rows, claims });
  }
  return { models, here: measuredModels() };
}

/**
 * Every codec of a question.
 * @param contexts the first is that of times and scores; at the others sequences are counted
 */
export async function sideBySide(asked: Scenario, contexts: readonly number[]): Promise<Omit<PageModel, 'claims'>> {
  const reports: PlanReport[] = [];
  // Where sequences alone are counted, one batch is priced.
  for (const [i, context] of contexts.entries())
    reports.push(await ask({ ...asked, context, codec: CODEC_KINDS, ...(i === 0 ? {} : { batch: 1 }) }));
  const [report] = reports as [PlanReport, ...PlanReport[]];
  const rows = representatives(report.plans)
    .filter((p) => !p.beside && !isUseless(p))
    .map((plan): PageRow => ({
      label: labelOf(plan.id),
      plan,
      sequences: reports.map((r) => r.plans.find((p) => p.id === plan.id)?.maxBatch.exact ?? 0),
    }))
    .sort((a, b) => b.plan.memory.kvBytesPerToken - a.plan.memory.kvBytesPerToken);
  return { report, rows };
}
