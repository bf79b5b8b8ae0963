/**
 * Kernel times from elsewhere: every call that a schedule can list can be imported, and is then priced from the row.
 */
import { afterAll, describe, expect, it } from 'vitest';
import { CODECS } from '../../src/codecs/registry.js';
import type { Codec, Path } from '../../src/codecs/codec.js';
import { importedPricer, pricesOf, predictorKey } from '../../src/cost/pricers.js';
import { parseEviction } from '../../src/eviction/policy.js';
import { findPreset } from '../../src/geometry/presets.js';
import { readKernelTimes } from '../../src/plan/import-csv.js';
import { KERNELS, type KernelCall } from '../../src/kernels/registry.js';
import { forEachOp, schedule, type Configuration } from '../../src/schedule/schedule.js';
import { scratch } from '../cli/program.js';

const CODEC_SETTINGS: readonly (readonly [string, Codec, readonly Path[]])[] = [
  ['full', { kind: 'full' }, ['full']],
  ['kv-quant', { kind: 'kv-quant', bits: 4 }, ['full']],
  ['lla', { kind: 'lla', rankK: 96, rankV: 160 }, CODECS.lla.paths],
  ['lla-2d', { kind: 'lla-2d', rankK: 96, rankV: 160 }, CODECS['lla-2d'].paths],
];
const files = scratch();
afterAll(() => files.remove());

describe.each(CODEC_SETTINGS)('--import of a step with %s', (_, codec, paths) => {
  // Block-absorbed attention needs consecutive positions, which H2O does not leave.
  it.each(
    paths.flatMap((path) =>
      (['none', 'streaming:4+60', 'h2o:40+24'] as const)
        .filter((e) => path !== 'block-absorbed' || !e.startsWith('h2o'))
        .map((eviction) => [path, eviction] as const),
    ),
  )('by %s with eviction %s', (path, eviction) => {
    const geometry = findPreset('ouro-1.4b');
    const c: Configuration = {
      geometry,
      codec,
      path,
      materialised: path === 'reconstruct',
      choice: { storage: 'f16', groupSize: 64 },
      branch: { width: 64, perHead: false },
      eviction: parseEviction(eviction, 'eviction'),
      gpus: 1,
      targetWorkgroups: 512,
      bindingBytes: Infinity,
    };
    const calls = new Map<string, KernelCall>();
    forEachOp(c, schedule(c, 2, 4096), ({ kernel, variant, shape }) =>
      calls.set(`${kernel} ${variant} ${JSON.stringify(shape)}`, { kernel, variant, shape }),
    );
    const dims = [...new Set([...calls.values()].flatMap(({ kernel }) => KERNELS[kernel].dims))];
    const rows = [...calls.values()].map(({ kernel, variant, shape }, i) =>
      [kernel, variant, ...dims.map((d) => shape[d] ?? ''), `${(i + 1) * 1e-5}`].join(','),
    );
    const { kernels, source } = readKernelTimes(
      files.file('times.csv', [`kernel,variant,${dims.join(',')},seconds`, ...rows].join('\n')),
    );
    const pricer = importedPricer(
      new Map(
        kernels.map((k) => [predictorKey(k.kernel, k.variant), pricesOf(k.kernel, k.variant, k.samples, k.fitted)]),
      ),
      { bytesPerSecond: 4.8e12, f32FlopsPerSecond: 67e12, matrixFlopsPerSecond: 989e12 },
      null,
      source,
    );
    for (const [name, call] of calls) expect(pricer.price(call).evidence, name).toBe('measured');
  });
});
