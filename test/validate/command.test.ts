/** `validate --only memory` on the device: a sample of what it opens, as all of it takes minutes. */
import '../gpu/narrow.js';
import { expect, test, vi } from 'vitest';
import { pathSpec } from '../../src/codecs/paths.js';
import type { CorrectnessReport } from '../../src/validate/memory/correctness.js';
import type { DecoderCase } from '../../src/validate/decoding.js';
import { memoryCases, type MemoryReport } from '../../src/validate/memory/memory.js';
import { inProcess } from '../cli/program.js';
import { describeGpu } from '../gpu/device.js';
import { randomOf, SEED } from '../gpu/random.js';
import { everyNth, FULL } from '../gpu/sample.js';
import { expectAllBytes } from './bytes.js';

/**
 * Of an eighth of the codecs a case, others by each seed, and one that evicts nothing; all with LLA_SIM_CONTRACT=full.
 * gpu-blocks.test.ts has those of the block-absorbed path, whose kernels need eight lanes.
 */
function sampled(all: readonly DecoderCase[]): readonly DecoderCase[] {
  const cases = all.filter(({ c }) => !pathSpec(c.path).blocks);
  if (FULL) return cases;
  const random = randomOf(SEED);
  const kinds = everyNth([...new Set(cases.map(({ c }) => c.codec.kind))], 8);
  return [
    random.pick(cases.filter(({ c }) => c.codec.kind === 'lla' && c.eviction === null)),
    ...kinds.map((kind) => random.pick(cases.filter(({ c }) => c.codec.kind === kind))),
  ];
}
vi.mock(import('../../src/validate/memory/memory.js'), async (original) => {
  const own = await original();
  return { ...own, memoryCases: (quick: boolean) => [...sampled(own.memoryCases(quick))] };
});

describeGpu(`validate (LLA_SIM_SEED=${SEED})`, () => {
  test('bytes are those of the model and logits are right, and the report says so', async () => {
    const cases = memoryCases(false);
    const o = await inProcess('validate', '--only', 'memory', '--format', 'json', '--seed', String(SEED));
    expect(o.code, o.err).toBe(0);
    const { checks, memory, correctness } = JSON.parse(o.out) as {
      checks: { name: string; status: string }[];
      memory: MemoryReport;
      correctness: CorrectnessReport;
    };
    expectAllBytes(memory);
    expect(memory.rows.map((row) => row.id)).toEqual(cases.map(({ id }) => id));
    const unevicted = new Set(cases.filter(({ c }) => c.eviction === null).map(({ id }) => id));
    expect(correctness.notRun).toEqual([]);
    expect(new Set(correctness.rows.map((row) => row.id))).toEqual(unevicted);
    for (const name of ['correctness', 'memory'])
      expect(checks.find((c) => c.name === name)?.status, name).toBe('holds');
  });
});
