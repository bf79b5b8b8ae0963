/** How the bundled model is trained: lengths grow, 512 to 1,024 tokens a step. */
import type { TrainingPlan } from './trainer.js';

export const TINY_PLAN: TrainingPlan = {
  seed: 1,
  rate: 3e-3,
  warmupSteps: 50,
  horizonSteps: 1250,
  cooldownSteps: 170,
  otherWeight: 0.1,
  stages: [
    { length: 32, texts: 16, steps: 400, guide: 1 },
    { length: 64, texts: 8, steps: 130 },
    { length: 128, texts: 5, steps: 70 },
    { length: 128, texts: 5, steps: 60, guide: 0.5 },
    { length: 256, texts: 3, steps: 140, guide: 0.5 },
  ],
};
