/** A plan with its codecs in order, and with what became of published claims about its model. */
import type { PlanReport } from '../plan/types.js';
import { countedClaims, type Claim } from './claims.js';
import { rankingText } from './print.js';
import { rankingOf, type Ranking } from './ranking.js';
import { timedClaims } from './timed-claims.js';

export interface RankedReport extends PlanReport {
  readonly ranking: Ranking;
  readonly claims: readonly Claim[];
}

/** Claims are of published models: what was measured of one with `--fidelity` has none. */
export async function ranked(report: PlanReport): Promise<RankedReport> {
  const { model } = report;
  const claims = report.fidelity ? [] : [...countedClaims(model), ...(await timedClaims(model.name))];
  return { ...report, ranking: rankingOf(report), claims };
}

export const rankedText = (report: RankedReport, options: { readonly width: number }): string =>
  rankingText(report, report.ranking, report.claims, options);
