/** A plan with its codecs in order, and with what became of published claims about its model. */
import { CODEC_KINDS } from '../codecs/codec.js';
import type { PlanReport } from '../plan/types.js';
import type { Scenario } from '../schema/settings.js';
import { countedClaims, type Claim } from './claims.js';
import { rankingOf, type Ranking } from './ranking.js';
import { timedClaims, type ClaimSources } from './timed-claims.js';

export { rankedText } from './print.js';

export interface RankedReport extends PlanReport {
  readonly ranking: Ranking;
  readonly claims: readonly Claim[];
}

/** The question of a ranking: of all codecs, where none is named. */
export const rankedScenario = (scenario: Scenario): Scenario =>
  scenario.codec === undefined ? { ...scenario, codec: CODEC_KINDS } : scenario;

/** Claims are of published models: what was measured of one with `--fidelity` has none. */
export async function ranked(report: PlanReport, sources: ClaimSources): Promise<RankedReport> {
  const { model } = report;
  const claims = report.fidelity ? [] : [...countedClaims(model), ...(await timedClaims(model.name, sources))];
  return { ...report, ranking: rankingOf(report), claims };
}
