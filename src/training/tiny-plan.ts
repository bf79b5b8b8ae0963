/** How the bundled model is trained: lengths grow, 512 to 1,024 tokens a step. */
import type { TrainingPlan } from './trainer.js';

export const TINY_PLAN: TrainingPlan = {
  seed: 1,
  rate: 2e-3,
  warmupSteps: 50,
  lastRate: 0.05,
  otherWeight: 0.1,
  stages: [
    { length: 32, texts: 16, steps: 1200 },
    { length: 64, texts: 8, steps: 600 },
    { length: 128, texts: 6, steps: 500 },
    { length: 256, texts: 4, steps: 350 },
    { length: 512, texts: 2, steps: 150 },
  ],
};
