/** Servers that are priced with their runtime, and how they launch kernels: names alone, for the settings. */
export const RUNTIMES = ['vllm-rlt'] as const;
export type RuntimeName = (typeof RUNTIMES)[number];

/** Every kernel launched by itself; a graph of a whole step; a graph of one pass over the looped layers. */
export const EXECUTIONS = ['eager', 'graphs', 'loop-graphs'] as const;
export type Execution = (typeof EXECUTIONS)[number];

export const isRuntime = (stack: string | undefined): stack is RuntimeName =>
  (RUNTIMES as readonly string[]).includes(stack ?? '');
