/** The whole comparison. */
import { CONTRADICTIONS } from '../quality/contradictions.js';
import { FIGURES_OF_THE_PAPER } from '../quality/quality.js';
import { ROOFLINE_NOTE } from '../cost/pricers.js';
import { present } from '../present.js';
import { answer } from './answers.js';
import { beyondThePaper } from './beyond.js';
import { PAPER_FIGURES } from './figures.js';
import { judge } from './judge.js';
import type { PaperModel } from './model.js';
import { VERDICTS, type PaperReport, type Verdict } from './types.js';

const PAPER = 'Looped Latent Attention: Cross-Loop KV Compression for Looped Transformers';

/** Holds every systems figure of the paper against the planner. */
export function paperReport(m: PaperModel): PaperReport {
  const comparisons = PAPER_FIGURES.map((f) => judge(f, answer(m, f.subject)));
  const verdicts = Object.fromEntries(
    VERDICTS.map((v) => [v, comparisons.filter((c) => c.verdict === v).length]),
  ) as Record<Verdict, number>;
  const { choice, pricer, notes } = m.device;
  return {
    schema: 'lla-sim/paper',
    schemaVersion: 3,
    paper: PAPER,
    device: { ...choice, pricing: pricer.source },
    verdicts,
    comparisons,
    beyond: beyondThePaper(m),
    quality: { figures: FIGURES_OF_THE_PAPER, contradictions: CONTRADICTIONS },
    notes: present([
      !choice.calibration &&
        `times are roofline only, ${ROOFLINE_NOTE}; --calibration FILE prices from measured kernels of an H200`,
      ...notes,
    ]),
  };
}

/** True when no figure that must be exact is wrong. */
export const holds = (r: PaperReport): boolean => r.verdicts.wrong === 0;
