/** Why a row of a plan takes the time that it takes, and is as sure as it is. */
import { explainStep, type StepExplanation } from '../../cost/explain.js';
import { show, UserError } from '../../errors.js';
import { candidateOf } from '../ask/candidates.js';
import { configurationOf } from './evaluate.js';
import { representatives } from '../decide/representatives.js';
import type { Plan, PlanReport, PlanRequest } from '../types.js';

/** A row's step, explained. */
export interface Explained extends StepExplanation {
  readonly planId: string;
}

/**
 * @param row as the table names it (`full`, `lla-10.67x`), or its id (`lla-10.67x/reconstruct`)
 * @throws UserError where no row has that name, nothing of it fits, or nothing is known about its speed
 */
export function explainRow(r: PlanRequest, report: PlanReport, row: string): Explained {
  const plan = rowOf(report, row);
  const candidate = candidateOf(r, plan.id);
  const batch = (plan.knee ?? plan.decode).batch;
  if (!candidate || !r.pricer || batch < 1)
    throw new UserError(
      `--explain ${show(row)}: ${r.pricer ? 'not one sequence of it fits' : 'nothing is known about speed on this device'}`,
      r.pricer ? 'name a row that fits' : 'name a device of the catalogue with --device',
    );
  return { planId: plan.id, ...explainStep(configurationOf(r, candidate), r.pricer, batch, r.contextTokens) };
}

function rowOf({ plans }: PlanReport, row: string): Plan {
  const named = (p: Plan): boolean => p.id === row || p.codec.label === row || p.id.split('/')[0] === row;
  const found = plans.find((p) => p.id === row) ?? representatives(plans).find(named);
  if (found) return found;
  const some = representatives(plans).map((p) => p.codec.label);
  throw new UserError(
    `--explain knows no row ${show(row)}`,
    some.length > 0
      ? `write one of ${[...new Set(some)].slice(0, 8).join(', ')}, or the id of a plan`
      : 'no row is left',
  );
}
