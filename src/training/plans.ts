/** How the bundled models are trained: lengths grow, 256 to 1,024 tokens a step. */
import type { BundledName } from '../geometry/presets.js';
import type { TrainingPlan } from './trainer.js';

const TINY_PLAN: TrainingPlan = {
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

/** Texts of sums: their tables take several times as many examples as repeating does. */
const SUMS = { facts: 2, asked: 0.8, code: 0, copy: 0, sum: 0.8, sum3: 0.5 };

const SMALL_PLAN: TrainingPlan = {
  seed: 1,
  rate: 1e-3,
  warmupSteps: 50,
  horizonSteps: 2000,
  cooldownSteps: 60,
  otherWeight: 0.1,
  lessons: { copy: 0.6, sum3: 0.5 },
  stages: [
    { length: 32, texts: 12, steps: 200, guide: 1, loops: 2 },
    { length: 64, texts: 6, steps: 120, guide: 0.5 },
    { length: 128, texts: 4, steps: 80, guide: 0.5, span: 512 },
    { length: 32, texts: 12, steps: 200, guide: 0.25, lessons: SUMS },
    { length: 256, texts: 2, steps: 60, guide: 0.25, span: 1024 },
  ],
};

export const PLANS: Readonly<Record<BundledName, TrainingPlan>> = { 'lla-tiny': TINY_PLAN, 'lla-small': SMALL_PLAN };
