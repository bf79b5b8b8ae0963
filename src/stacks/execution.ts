/** Servers that are priced with their runtime: names alone. */
export const RUNTIMES = ['vllm-rlt'] as const;
export type RuntimeName = (typeof RUNTIMES)[number];

export const isRuntime = (stack: string | undefined): stack is RuntimeName =>
  (RUNTIMES as readonly string[]).includes(stack ?? '');
