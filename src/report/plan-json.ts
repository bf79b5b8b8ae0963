/** Reports as JSON: one as it is, several as `runs`. */
export const plansJson = (reports: readonly object[]): object =>
  reports.length === 1 ? (reports[0] as object) : { schema: 'lla-sim/plan', schemaVersion: 2, runs: reports };
