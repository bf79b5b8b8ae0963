/// <reference lib="webworker" />
/** A simulation beside the page: the same program, without a document. */
import { UserError } from '../errors.js';
import type { Sources } from '../plan/ask/prepare.js';
import { simulationTable } from '../report/text/simulation-table.js';
import type { Scenario } from '../schema/settings.js';
import { simulate } from '../serving/answer.js';
import { compareWays } from '../serving/ways.js';
import type { SimulationReport } from '../serving/types.js';

/** What a worker is given. Sources are plain data. */
export interface Task {
  readonly scenario: Scenario;
  readonly sources: Sources;
  readonly findRate: boolean;
  /** Early exit, speculation and compression side by side, each at its highest rate. */
  readonly ways: boolean;
}

export type Said =
  | { readonly kind: 'progress'; readonly share: number; readonly doing: string }
  | { readonly kind: 'done'; readonly report: SimulationReport; readonly text: string }
  | { readonly kind: 'wrong'; readonly message: string };

/** Progress is said at most so often. */
const EVERY_MS = 100;

export function serveTasks(): void {
  const say = (said: Said): void => postMessage(said);
  addEventListener('message', ({ data }: MessageEvent<Task>) => {
    let last = 0;
    const progress = (share: number, doing: string): boolean => {
      const now = performance.now();
      if (now - last < EVERY_MS) return false;
      last = now;
      say({ kind: 'progress', share, doing });
      return false;
    };
    const { scenario, sources, findRate, ways } = data;
    const common = { skipBad: false, progress };
    (ways
      ? compareWays(scenario, sources, common)
      : simulate(scenario, sources, { ...common, findRate, shard: null, curve: findRate })
    )
      .then((report) => say({ kind: 'done', report, text: simulationTable(report, { colour: false }) }))
      .catch((error: unknown) => {
        if (!(error instanceof UserError)) throw error;
        say({ kind: 'wrong', message: `${error.message}; ${error.hint}` });
      });
  });
}
