/**
 * The errors of src/cost/beside-prompts.ts on a checkout of casys-kaist/LLMServingSim: attention.csv has the time of a
 * prompt's chunk alone, of decoding sequences alone, and of both in one call.
 *
 *   npx esbuild --bundle --platform=node --format=esm scripts/beside-prompts.ts --packages=external
 *     --outfile=dist/plan/beside-prompts.mjs
 *   node dist/plan/beside-prompts.mjs CHECKOUT
 *
 * Shares of the matrix rate were chosen by Llama-3.1-8B on one GPU each; Qwen3-32B and two GPUs judge. Calls whose
 * chunk has 256 tokens or more.
 */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { parse } from 'csv-parse/sync';
import { besidePrompts, tileRate } from '../src/cost/beside-prompts.js';
import { findDevice } from '../src/devices/find.js';
import { quantile } from '../src/numbers/statistics.js';

const [checkout] = process.argv.slice(2);
if (checkout === undefined) throw new Error('name the folder of a checkout of LLMServingSim');
const LEAST_CHUNK = 256;
/** Bytes of a token in the cache of a KV head: keys and values of 128 numbers. */
const ROW_BYTES = 2 * 128 * 2;

function errorsOf(folder: string, id: string, group: number): void {
  const device = findDevice(id);
  const gpu = {
    units: device.units,
    bytesPerSecond: device.memoryBytesPerSecond,
    tileFlopsPerSecond: tileRate(device.matrixFlopsPerSecond, device.matrixHalved),
    l2Bytes: device.l2Bytes,
  };
  const file = readFileSync(join(checkout!, 'profiler/perf', folder, 'attention.csv'));
  const rows = (parse(file, { columns: true }) as Record<string, string>[]).map((r) => ({
    chunk: Number(r['prefill_chunk']),
    before: Number(r['kv_prefill']),
    sequences: Number(r['n_decode']),
    context: Number(r['kv_decode']),
    seconds: Number(r['time_us']) / 1e6,
  }));
  const key = (chunk: number, before: number, sequences: number, context: number): string =>
    [chunk, before, sequences, context].join(' ');
  const alone = new Map(rows.map((r) => [key(r.chunk, r.before, r.sequences, r.context), r.seconds]));
  for (const [from, to] of [
    [1, 8],
    [8, 32],
    [32, 64],
    [64, Infinity],
  ] as const) {
    const [added, mixed]: [number[], number[]] = [[], []];
    for (const { chunk, before, sequences, context, seconds } of rows) {
      if (chunk < LEAST_CHUNK || sequences < from || sequences >= to) continue;
      const prompt = alone.get(key(chunk, before, 0, 0));
      const decode = alone.get(key(0, 0, sequences, context));
      if (prompt === undefined || decode === undefined) continue;
      added.push((prompt + decode) / seconds - 1);
      const times = besidePrompts(gpu, group, sequences, sequences * context * ROW_BYTES);
      mixed.push((prompt + times * decode) / seconds - 1);
    }
    const words = (errors: readonly number[]): string =>
      `${(100 * quantile(errors, 0.5)).toFixed(0)} % (median; without sign ` +
      `${(100 * quantile(errors.map(Math.abs), 0.5)).toFixed(0)} %)`;
    console.log(`${folder}, ${from} to ${to - 1} sequences: ${added.length} calls, ${words(added)} → ${words(mixed)}`);
  }
}

const LLAMA = 'meta-llama/Llama-3.1-8B/bf16';
const QWEN = 'Qwen/Qwen3-32B/bf16';
errorsOf(`RTX4090/${LLAMA}/tp1`, 'rtx-4090', 4);
errorsOf(`RTXPRO6000/${LLAMA}/tp1`, 'rtx-pro-6000', 4);
errorsOf(`RTXPRO6000/${LLAMA}/tp2`, 'rtx-pro-6000', 4);
errorsOf(`RTXPRO6000/${QWEN}/tp1`, 'rtx-pro-6000', 8);
errorsOf(`RTXPRO6000/${QWEN}/tp2`, 'rtx-pro-6000', 8);
