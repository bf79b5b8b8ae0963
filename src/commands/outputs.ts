/**
 * What commands print with --format json or write as JSON, by the name in the field `schema`. schemas/ is made from
 * these types (`npm run schema`), and commands print nothing else (`asJson`).
 */
import type { AccuracyReport } from '../accuracy/report.js';
import type { BenchReport } from '../bench/regression/report.js';
import type { FidelityReport } from '../fidelity/report.js';
import type { SpectraReport } from '../fidelity/spectra-report.js';
import type { FitReport } from '../fit/report.js';
import type { PaperReport } from '../paper/types.js';
import type { FleetJson, PlanJson, PlanRuns } from '../report/plan-json.js';
import type { RankedReport } from '../ranking/ranked.js';
import type { ModelCard } from '../report/text/model-card.js';
import type { Calibration } from '../schema/calibration.js';
import type { SimulationReport } from '../serving/types.js';
import type { StackFile } from '../stacks/stack-schema.js';
import type { ValidationReport } from '../validate/report.js';
import type { DoctorJson } from './doctor.js';
import type { ClaimsJson } from './model/fidelity-claims.js';
import type { DevicesJson, ModelsJson } from './models.js';
import type { RunReport } from './model/run-report.js';

export interface Outputs {
  /** lla-sim plan and open; plans.json of a report */
  readonly plan: PlanJson | PlanRuns | RankedReport | PlanRuns<RankedReport>;
  /** lla-sim plan --users */
  readonly fleet: FleetJson;
  /** lla-sim simulate; simulation.json of a report */
  readonly simulation: SimulationReport;
  /** lla-sim paper */
  readonly paper: PaperReport;
  /** lla-sim accuracy */
  readonly accuracy: AccuracyReport;
  /** lla-sim models */
  readonly models: ModelsJson;
  /** lla-sim models --devices */
  readonly devices: DevicesJson;
  /** lla-sim models NAME */
  readonly model: ModelCard;
  /** lla-sim doctor */
  readonly doctor: DoctorJson;
  /** lla-sim bench */
  readonly bench: BenchReport;
  /** lla-sim validate */
  readonly validate: ValidationReport;
  /** lla-sim run */
  readonly run: RunReport;
  /** lla-sim fit */
  readonly fit: FitReport;
  /** lla-sim fit --spectra */
  readonly spectra: SpectraReport;
  /** lla-sim fidelity */
  readonly fidelity: FidelityReport;
  /** lla-sim fidelity --claims */
  readonly claims: ClaimsJson;
  /** the file of lla-sim calibrate and of the measuring page */
  readonly calibration: Calibration;
  /** the file of lla-sim import */
  readonly stack: StackFile;
}

export type Output = Outputs[keyof Outputs];
