/** `lla-sim simulate` in this process. */
import { expect } from 'vitest';
import { EXIT } from '../../src/errors.js';
import type { Run, SimulationReport } from '../../src/serving/types.js';
import { inProcess, words, type Outcome } from '../cli/program.js';

export const H200 = words('--device h200 --codec full');
export const BASE = [...H200, ...words('--requests 60 --prompt-tokens 300 --output-tokens 40')];

export const simulate = (...argv: string[]): Promise<Outcome> => inProcess('simulate', ...argv);

/** The report of a simulation that ends well, or finds no rate. */
export async function report(...argv: string[]): Promise<SimulationReport & Run> {
  const o = await simulate(...argv, '--format', 'json');
  const found = JSON.parse(o.out) as SimulationReport & Run;
  // No rate at all is no solution.
  const none = found.candidates?.every((c) => c.requestsPerSecond.estimate === 0) === true;
  expect(o.code, o.err).toBe(none ? EXIT.noSolution : EXIT.ok);
  return found;
}
