/** Words of a file of claims, for those who write it and those who read it. */
export const VERDICTS = ['agrees', 'contradicts', 'not shown by this', 'not decided'] as const;
export type Verdict = (typeof VERDICTS)[number];

/** What the trainings of the claims were of. */
export interface ClaimTraining {
  readonly steps: number;
  readonly stepTokens: number;
}

export const trainingText = ({ steps, stepTokens }: ClaimTraining): string =>
  `Trained for ${steps} steps of ${stepTokens} tokens each, model and twin alike (the paper: 3,000 of 4,096, 300 ` +
  'in its ablations).';
