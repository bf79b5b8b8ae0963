/** Trains on a thread of its own, so that the program can use the GPU meanwhile. It loads what trains. */
import { Worker } from 'node:worker_threads';
import { UserError } from '../errors.js';
import { PACKAGE_ROOT } from '../io/root.js';
import { inMemory, listed, type NamedTensor, type TensorSource } from '../decoder/weights.js';
import type { Distillation } from './distil.js';

type Sent = readonly NamedTensor[];

export interface Asked {
  readonly id: number;
  readonly distillation: Omit<Distillation, 'model' | 'start'> & { readonly model: Sent; readonly start: Sent };
}

/** What it says: a step that was made, the best weights, or why there are none. */
export type Said = { readonly id: number } & (
  { readonly step: number } | { readonly tensors: Sent } | { readonly message: string; readonly hint: string | null }
);

interface Waiting {
  readonly onStep: (step: number) => void;
  readonly resolve: (tensors: TensorSource) => void;
  readonly reject: (error: Error) => void;
}

export class TrainingThread {
  private readonly worker = new Worker(`${PACKAGE_ROOT}dist/src/training/thread.js`);
  private readonly waiting = new Map<number, Waiting>();
  private asked = 0;

  constructor() {
    this.worker.on('message', (said: Said) => this.hear(said));
    this.worker.on('error', (error) => this.fail(error));
    this.worker.on('exit', () => this.fail(new Error('the thread that trains ended')));
  }

  /**
   * Trains behind what was asked before. Its best weights; no state is kept.
   * @throws UserError for a loss that is no number any more, and an Error where the thread was closed
   */
  train({ model, start, ...others }: Distillation, onStep: (step: number) => void): Promise<TensorSource> {
    const id = this.asked++;
    const made = new Promise<TensorSource>((resolve, reject) => this.waiting.set(id, { onStep, resolve, reject }));
    // Whoever asked may have failed before it waits.
    made.catch(() => undefined);
    const asked: Asked = { id, distillation: { ...others, model: listed(model), start: listed(start) } };
    this.worker.postMessage(asked);
    return made;
  }

  private hear(said: Said): void {
    const waiting = this.waiting.get(said.id);
    if (!waiting) return;
    if ('step' in said) return waiting.onStep(said.step);
    this.waiting.delete(said.id);
    if ('tensors' in said) waiting.resolve(inMemory(said.tensors));
    else waiting.reject(said.hint === null ? new Error(said.message) : new UserError(said.message, said.hint));
  }

  private fail(error: Error): void {
    for (const { reject } of this.waiting.values()) reject(error);
    this.waiting.clear();
  }

  async close(): Promise<void> {
    await this.worker.terminate();
  }
}
