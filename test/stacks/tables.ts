/** Tables as a checkout of aiconfigurator has them, made up: times by a known law with noise. */
import { mkdirSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { parquetWriteBuffer } from 'hyparquet-writer';
import { randomFrom } from '../../src/numbers/random.js';

export const DATA = 'aic-core/src/aiconfigurator_core/systems/data';

/** Columns of one table by name. */
export type Columns = Readonly<Record<string, readonly (string | number)[]>>;

export function parquet(columns: Columns): Uint8Array {
  const columnData = Object.entries(columns).map(([name, data]) => ({ name, data: [...data] }));
  return new Uint8Array(parquetWriteBuffer({ columnData }));
}

export function put(checkout: string, path: string, bytes: Uint8Array | string): string {
  const file = join(checkout, path);
  mkdirSync(dirname(file), { recursive: true });
  writeFileSync(file, bytes);
  return file;
}

/** Products of an H200 at 60 % of its bandwidth and half its peak; `speed` divides the times. */
export function gemm(seed: number, speed = 1): Columns {
  const random = randomFrom(seed);
  const rows: number[][] = [];
  for (const m of [1, 4, 16, 64, 256, 1024])
    for (const n of [512, 1024, 2048, 4096, 8192])
      for (const k of [512, 2048, 8192]) {
        const seconds = 3e-6 + Math.max((2 * (m * n + n * k + m * k)) / 2.9e12, (2 * m * n * k) / 4.9e14);
        rows.push([m, n, k, (seconds / speed) * 1e3 * (1 + 0.02 * (random() - 0.5))]);
      }
  const column = (i: number): number[] => rows.map((row) => row[i]!);
  return {
    gemm_dtype: rows.map(() => 'bfloat16'),
    m: column(0),
    n: column(1),
    k: column(2),
    latency: column(3),
    home: rows.map(() => '/home/somebody/secret'),
  };
}

export const gemmPath = (version: string): string => `${DATA}/h200_sxm/gemm/vllm/${version}/gemm_perf.parquet`;
