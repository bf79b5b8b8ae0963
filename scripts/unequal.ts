/**
 * The constant of src/cost/unequal.ts, from a checkout of casys-kaist/LLMServingSim: what decode attention loses on
 * batches of unequal lengths (skew.csv: decode alone, measured beside as many sequences of the mean length).
 *
 *   npx esbuild --bundle --platform=node --format=esm scripts/unequal.ts --packages=external
 *     --outfile=dist/plan/unequal.mjs
 *   node dist/plan/unequal.mjs CHECKOUT
 *
 * Fitted by least absolute errors to Llama-3.1-8B on one GPU each; Qwen3-32B and two GPUs judge.
 */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { parse } from 'csv-parse/sync';
import { findDevice } from '../src/devices/find.js';
import { LEAST_ROUNDS } from '../src/cost/unequal.js';

interface Batch {
  readonly rounds: number;
  readonly ratio: number;
  /** Share by which it took longer. */
  readonly loss: number;
}

const [checkout] = process.argv.slice(2);
if (checkout === undefined) throw new Error('name the folder of a checkout of LLMServingSim');

/** @param kvHeads of one GPU */
function batchesOf(folder: string, device: string, kvHeads: number): Batch[] {
  const rows = parse(readFileSync(join(checkout!, 'profiler/perf', folder, 'skew.csv')), { columns: true });
  return (rows as Record<string, string>[])
    .filter((r) => Number(r['pc']) === 0 && r['t_skew_us'] !== '')
    .map((r) => ({
      rounds: (Number(r['n']) * kvHeads) / findDevice(device).units!,
      ratio: Number(r['kv_big']) / Number(r['kv_mean']),
      loss: Number(r['t_skew_us']) / Number(r['t_mean_us']) - 1,
    }))
    .filter((b) => b.rounds >= LEAST_ROUNDS);
}

const LLAMA = 'meta-llama/Llama-3.1-8B/bf16';
const QWEN = 'Qwen/Qwen3-32B/bf16';
const groups = {
  'fits: Llama-3.1-8B, RTX 4090': batchesOf(`RTX4090/${LLAMA}/tp1`, 'rtx-4090', 8),
  'fits: Llama-3.1-8B, RTX PRO 6000': batchesOf(`RTXPRO6000/${LLAMA}/tp1`, 'rtx-pro-6000', 8),
  'judges: Llama-3.1-8B, two RTX PRO 6000': batchesOf(`RTXPRO6000/${LLAMA}/tp2`, 'rtx-pro-6000', 4),
  'judges: Qwen3-32B, RTX PRO 6000': batchesOf(`RTXPRO6000/${QWEN}/tp1`, 'rtx-pro-6000', 8),
  'judges: Qwen3-32B, two RTX PRO 6000': batchesOf(`RTXPRO6000/${QWEN}/tp2`, 'rtx-pro-6000', 4),
};
const term = ({ rounds, ratio }: Batch): number => (ratio - 1) / rounds;

/** Least absolute errors of loss = c · term: the weighted median of loss / term. */
function fitted(batches: readonly Batch[]): number {
  const points = batches.filter((b) => term(b) > 0).sort((a, b) => a.loss / term(a) - b.loss / term(b));
  const half = points.reduce((sum, b) => sum + term(b), 0) / 2;
  let sum = 0;
  for (const b of points) if ((sum += term(b)) >= half) return b.loss / term(b);
  throw new Error('no batch of unequal lengths');
}

const c = fitted(Object.entries(groups).flatMap(([name, batches]) => (name.startsWith('fits') ? batches : [])));
console.log(`c = ${c.toFixed(3)}`);
const percent = (errors: readonly number[]): string =>
  `${((100 * errors.reduce((sum, e) => sum + Math.abs(e), 0)) / errors.length).toFixed(1)} %`;
for (const [name, batches] of Object.entries(groups)) {
  const before = percent(batches.map((b) => b.loss));
  const after = percent(batches.map((b) => b.loss - c * term(b)));
  console.log(`${name}: ${batches.length} batches, mean error ${before} → ${after}`);
}
