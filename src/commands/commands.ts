/**
 * All commands. A command is registered when it works. `plan` comes with the program: loading it apart costs a tenth of
 * a cold plan.
 */
import type { Command } from './command.js';
import { planCommand } from './plan.js';

export const COMMANDS: Readonly<Record<string, { readonly help: string; readonly load: () => Promise<Command> }>> = {
  plan: { help: 'what fits, how fast it decodes, what to take', load: () => Promise.resolve(planCommand) },
  open: {
    help: 'the plan that a link asks for (plan --link, or the page)',
    load: async () => (await import('./link.js')).openCommand,
  },
  simulate: {
    help: 'what happens when requests arrive: latencies, throughput, the rate that a configuration sustains',
    load: async () => (await import('./simulate.js')).simulateCommand,
  },
  paper: {
    help: "the paper's systems figures beside the planner's own",
    load: async () => (await import('./paper.js')).paperCommand,
  },
  report: {
    help: 'a plan as a folder: one HTML page, Markdown, CSV, JSON and pictures',
    load: async () => (await import('./report.js')).reportCommand,
  },
  accuracy: {
    help: 'predictions beside what others measured on real servers',
    load: async () => (await import('./accuracy.js')).accuracyCommand,
  },
  calibrate: {
    help: "measure the kernels on this machine's GPU",
    load: async () => (await import('./calibrate.js')).calibrateCommand,
  },
  bench: {
    help: 'how close the kernels come to the ceilings, and whether they became slower',
    load: async () => (await import('./bench.js')).benchCommand,
  },
  validate: {
    help: 'compares the predictions with a real decoder',
    load: async () => (await import('./validate.js')).validateCommand,
  },
  run: {
    help: 'decodes with the bundled decoder: try a codec and path',
    load: async () => (await import('./model/run.js')).runCommand,
  },
  fit: {
    help: "makes a codec's weights from a model's own keys and values",
    load: async () => (await import('./model/fit.js')).fitCommand,
  },
  fidelity: {
    help: 'what compressing the cache costs on a model: KL, agreement, retrieval',
    load: async () => (await import('./model/fidelity.js')).fidelityCommand,
  },
  doctor: {
    help: 'what GPU adapters there are, and what is missing',
    load: async () => (await import('./doctor.js')).doctorCommand,
  },
  import: {
    help: 'kernel times of serving stacks that others measured, as a stack file',
    load: async () => (await import('./import.js')).importCommand,
  },
  mcp: {
    help: 'plan, simulate, compare, models and accuracy for programs, over standard input (Model Context Protocol)',
    load: async () => (await import('./mcp.js')).mcpCommand,
  },
  models: {
    help: 'models and devices that are known by name',
    load: async () => (await import('./models.js')).modelsCommand,
  },
};
