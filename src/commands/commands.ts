/** All commands. A command is registered when it works. */
import type { Command } from './command.js';

export const COMMANDS: Readonly<Record<string, { readonly help: string; readonly load: () => Promise<Command> }>> = {
  plan: { help: 'what fits, how fast it decodes, what to take', load: async () => (await import('./plan.js')).planCommand },
  models: { help: 'models and devices that are known by name', load: async () => (await import('./models.js')).modelsCommand },
};
