/**
 * All commands. A command is registered when it works. `plan` comes with the program: loading it apart costs a tenth of
 * a cold plan.
 */
import type { Command } from './command.js';
import * as plan from './plan.js';

interface Entry {
  readonly help: string;
  readonly load: () => Promise<{ readonly command: Command }>;
}

export const COMMANDS: Readonly<Record<string, Entry>> = {
  plan: { help: 'what fits, how fast it decodes, what to take', load: () => Promise.resolve(plan) },
  open: { help: 'the plan that a link asks for (plan --link, or the page)', load: () => import('./link.js') },
  simulate: {
    help: 'what happens when requests arrive: latencies, throughput, the rate that a configuration sustains',
    load: () => import('./simulate.js'),
  },
  paper: { help: "the paper's systems figures beside the planner's own", load: () => import('./paper.js') },
  report: {
    help: 'a plan as a folder: one HTML page, Markdown, CSV, JSON and pictures',
    load: () => import('./report.js'),
  },
  accuracy: { help: 'predictions beside what others measured on real servers', load: () => import('./accuracy.js') },
  calibrate: { help: "measure the kernels on this machine's GPU", load: () => import('./calibrate.js') },
  bench: {
    help: 'how close the kernels come to the ceilings, and whether they became slower',
    load: () => import('./bench.js'),
  },
  validate: { help: 'compares the predictions with a real decoder', load: () => import('./validate.js') },
  run: { help: 'decodes with the bundled decoder: try a codec and path', load: () => import('./model/run.js') },
  fit: { help: "makes a codec's weights from a model's own keys and values", load: () => import('./model/fit.js') },
  fidelity: {
    help: 'what compressing the cache costs on a model: KL, agreement, retrieval',
    load: () => import('./model/fidelity.js'),
  },
  doctor: { help: 'what GPU adapters there are, and what is missing', load: () => import('./doctor.js') },
  import: {
    help: 'kernel times of serving stacks that others measured, as a stack file',
    load: () => import('./import.js'),
  },
  mcp: {
    help: 'plan, simulate, compare, models and accuracy for programs, over standard input (Model Context Protocol)',
    load: () => import('./mcp.js'),
  },
  models: { help: 'models and devices that are known by name', load: () => import('./models.js') },
};
