/** More of one row: why it takes its time and is as sure as it is, and its figures at every batch of the grid. */
import { explainStep, type StepExplanation } from '../../cost/explain.js';
import { UserError, show } from '../../errors.js';
import { candidateOf } from '../ask/candidates.js';
import { configurationOf, configurationOfPlan, evaluate, figuresAt } from './evaluate.js';
import { operate } from './operating.js';
import { representatives } from '../decide/representatives.js';
import type { DecodeFigures, Plan, PlanReport, PlanRequest } from '../types.js';
import { priceStep } from '../../cost/latency.js';
import { onGrid } from '../../cost/memory.js';

/** A row's step, explained. */
export interface Explained extends StepExplanation {
  readonly planId: string;
  readonly model: string;
  /** The GPU, by name. */
  readonly device: string;
  readonly gpus: number;
}

/**
 * @param row as the table names it (`full`, `lla-10.67x`), or its id (`lla-10.67x/reconstruct`)
 * @throws UserError where no row has that name, nothing of it fits, or nothing is known about its speed
 */
export function explainRow(r: PlanRequest, report: PlanReport, row: string): Explained {
  const plan = rowOf(report, row);
  const candidate = candidateOf(r, plan.id);
  // A path that a short table never shows is not priced with the others.
  const c = candidate && configurationOf(r, candidate);
  const run = plan.knee || !candidate || !c ? plan : operate(r, c, evaluate(r, candidate));
  const batch = (run.knee ?? run.decode).batch;
  if (!c || !r.pricer || batch < 1)
    throw new UserError(
      `--explain ${show(row)}: ` +
        (r.pricer ? 'not one sequence of it fits' : 'nothing is known about speed on this device'),
      r.pricer ? 'name a row that fits' : 'name a device of the catalogue with --device',
    );
  const explained = explainStep(c, r.pricer, batch, r.contextTokens);
  return { planId: plan.id, model: r.geometry.name, device: r.device.name, gpus: r.gpus, ...explained };
}

function rowOf({ plans }: PlanReport, row: string): Plan {
  const named = (p: Plan): boolean => p.id === row || p.codec.label === row || p.id.split('/')[0] === row;
  const found = plans.find((p) => p.id === row) ?? representatives(plans).find(named);
  if (found) return found;
  const names = [...new Set(representatives(plans).map((p) => p.codec.label))];
  throw new UserError(
    `--explain knows no row ${show(row)}`,
    names.length > 0
      ? `write a codec of the table, such as ${names.slice(0, 8).join(', ')}, or the id of a plan`
      : 'no row is left',
  );
}

/** Figures at 1, 2, 3, 4, 6, 8, 12, 16 … sequences, at the operating batch and at the largest. */
export function sweepOf(r: PlanRequest, p: Plan): DecodeFigures[] {
  const c = configurationOfPlan(r, p.id);
  const { pricer } = r;
  if (!c || !pricer) return [];
  const batches = new Set<number>([p.maxBatch.exact, ...(p.knee ? [p.knee.batch] : [])]);
  for (let batch = onGrid(p.maxBatch.exact); batch >= 1; batch = onGrid(batch - 1)) batches.add(batch);
  return [...batches]
    .filter((batch) => batch >= 1)
    .sort((a, b) => a - b)
    .map((batch) => figuresAt(r, priceStep(c, pricer, batch, r.contextTokens), batch));
}
