/** What every report on bytes has to say. */
import { expect } from 'vitest';
import { differing, type MemoryReport } from '../../src/validate/memory/memory.js';

/** Every case was opened and allocates what the model counts; the failure names the buffers that do not. */
export function expectAllBytes({ mismatches, notRun }: MemoryReport): void {
  const words = mismatches.map(
    (row) =>
      `${row.id} batch ${row.batch}: ${differing(row)
        .map((k) => `${k.kind} ${k.allocatedBytes}, predicted ${k.predictedBytes}`)
        .join('; ')}`,
  );
  expect(words).toEqual([]);
  expect(notRun).toEqual([]);
}
