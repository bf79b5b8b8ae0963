/** The thread of training-thread.ts: trains what it is sent, one after another. */
import { parentPort } from 'node:worker_threads';
import { inMemory, listed } from '../decoder/weights.js';
import { UserError } from '../errors.js';
import { distil } from './distil.js';
import type { Asked, Said } from './training-thread.js';

const say = (said: Said): void => parentPort?.postMessage(said);
let before = Promise.resolve();

async function train({ id, distillation }: Asked): Promise<void> {
  try {
    const { model, start, ...others } = distillation;
    const { tensors } = await distil(
      { ...others, model: inMemory(model), start: inMemory(start) },
      { signal: new AbortController().signal, state: null, onProgress: (step) => say({ id, step }) },
    );
    say({ id, tensors: listed(tensors) });
  } catch (error) {
    say({ id, message: (error as Error).message, hint: error instanceof UserError ? error.hint : null });
  }
}

parentPort?.on('message', (asked: Asked) => {
  before = before.then(() => train(asked));
});
