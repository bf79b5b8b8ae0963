/** What a plan's answer names, and what it warns of. */
import type { Score, BreakEven } from './types.js';

/** Something that a reader must know, with a name that programs can look for. */
export interface Warning {
  readonly code: string;
  readonly message: string;
}

/** A plan that an answer names; its figures are those of the row, at the operating point. */
export interface Choice {
  readonly planId: string;
  readonly name: string;
  /** Sequences at the operating point. */
  readonly batch: number;
  /** Whether every published score keeps the share `keep`; unknown without any. */
  readonly quality: 'kept' | 'lost' | 'unknown';
  /** The checkpoint that the scores below belong to, where it has to be trained; the answer needs that one. */
  readonly checkpoint: string | null;
  /** Published scores that count at this context, worst first; empty for the full cache and without any. */
  readonly qualityLost: readonly Score[];
}

/** Another plan that keeps quality, where it differs by more than a tenth. */
export interface Alternative extends Choice {
  readonly kind: 'cheapest' | 'safest' | 'largest';
}

/** The recommendation, with its reasons and risks. */
export interface Answer {
  /** The question as understood. */
  readonly question: string;
  /**
   * What `deploy` and `upside` were chosen by: `step`, tokens a second of one decode step; `simulation`, the rate of
   * requests that they serve within the targets. Each at the slow end of its prices.
   */
  readonly chosenBy: 'step' | 'simulation';
  /**
   * `deploy`: a plan runs today and its kernels were measured. `estimates-only`: plans keep quality, and no stack is
   * known to run them, so none is recommended with confidence. `not-recommended`: no plan is known to keep quality.
   * `nothing`: not one sequence fits.
   */
  readonly verdict: 'deploy' | 'estimates-only' | 'not-recommended' | 'nothing';
  /** Why there is no `deploy`. */
  readonly reason: string | null;
  /** The fastest plan that runs today and keeps quality. */
  readonly deploy: Choice | null;
  /**
   * What compression would bring if its kernels reached the attainable rate: at the slow end of its interval more than
   * `deploy` at its own; of close ones the best known.
   */
  readonly upside: (Choice & { readonly breakEven: BreakEven | null }) | null;
  /**
   * Where there is no upside, or that is an estimated full cache: faster by the estimate, but not at the slow end; with
   * a workload faster by a decode step, but not by simulation.
   */
  readonly unsure: (Choice & { readonly breakEven: BreakEven | null }) | null;
  /** Where nothing is recommended: the fastest plan that fits; where no speed is known the one that holds most. */
  readonly fallback: Choice | null;
  /** The fastest plan whose scores fail, where it is faster than what is recommended. */
  readonly fails: Choice | null;
  readonly alternatives: readonly Alternative[];
  /** Gravest first. */
  readonly risks: readonly Warning[];
  /** Of `deploy`, worst first. */
  readonly qualityLost: readonly Score[];
  /** The command that starts the server of `deploy`, where its stack is known. */
  readonly serve?: string;
}

/** Something that the buyer must know about a plan. */
export interface Mark {
  readonly code:
    | 'codec-outweighs-model'
    | 'no-memory-saved'
    | 'no-saving'
    | 'prefill-does-not-fit'
    | 'contradicted-quality'
    | 'destroys-generation'
    | 'unfaithful-post-hoc'
    | 'communication-not-priced';
  readonly message: string;
}
