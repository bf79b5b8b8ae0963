/**
 * Whole decode steps of real servers: what a server adds to its kernels is fitted to half of the published end-to-end
 * rows, and TPOT is judged on the other half.
 *
 *   npx esbuild --bundle --platform=node --format=esm scripts/stack-steps.ts --packages=external --outfile=dist/plan/stack-steps.mjs
 *   node dist/plan/stack-steps.mjs ROWS MODELS [--seed 1] [--write]
 *
 * ROWS is aic-core/src/aiconfigurator_core/systems/silicon_sample.csv of github.com/ai-dynamo/aiconfigurator
 * (Apache-2.0); MODELS a folder that holds a config.json a model as NAME.json, such as Qwen3-32B.json. Rows of dense
 * bf16 models up to 16 requests at once are taken, where the server holds all of them and other requests' prompts take
 * at most a fifth of the time. --write writes calibrations/servers.json.
 *
 * TPOT of a served request = step + f · (requests − 1) · prompt / output tokens + overhead: the other requests' prompts
 * are taken in between its steps. f is below 1 since requests that start together have no prompts between them.
 */
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { parse } from 'csv-parse/sync';
import { pricePrompt, priceStep, type Pricer } from '../src/cost/latency.js';
import { prepare } from '../src/plan/answer.js';
import { readSources } from '../src/plan/ask.js';
import { configurationOf } from '../src/plan/evaluate.js';
import { randomFrom } from '../src/random.js';
import { AIC_GPUS } from '../src/stacks/aic.js';
import type { ServerFile } from '../src/stacks/serving.js';
import { quantile } from '../src/statistics.js';

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: { seed: { type: 'string', default: '1' }, write: { type: 'boolean', default: false } },
});
const [table, models] = positionals as [string, string];
const MOST_REQUESTS = 16;

interface Row {
  readonly name: string;
  readonly stack: string;
  readonly measured: number;
  readonly step: { estimate: number; low: number; high: number };
  /** Prompts of others between two steps, all of them, seconds. */
  readonly prompts: number;
}

const silent = (pricer: Pricer): Pricer => ({
  ...pricer,
  stepOverhead: { ...pricer.stepOverhead, estimate: 0, low: 0, high: 0 },
});

async function readRows(): Promise<Row[]> {
  const rows: Row[] = [];
  for (const r of parse(readFileSync(table, 'utf8'), { columns: true }) as Record<string, string>[]) {
    const requests = Number(/silicon_concurrency=(\d+)/.exec(r['silicon_data_source']!)?.[1] ?? r['batch_size']);
    // A server that holds fewer requests than are sent: its times are those of a queue.
    if (Number(r['batch_size']) < requests) continue;
    const model = r['model_path']!.split('/')[1]!.replace(/-Instruct$/, '');
    const device = AIC_GPUS[r['system']!];
    const config = join(models, `${model}.json`);
    if (r['precision'] !== '' || requests > MOST_REQUESTS || !existsSync(config) || device === undefined) continue;
    if (!existsSync(join('calibrations', 'stacks', `${device}-${r['backend']}.json`))) continue;
    const [prompt, output] = [Number(r['isl']), Number(r['osl'])];
    const scenario = {
      device,
      gpus: Number(r['tp_size']),
      model: config,
      codec: ['full'],
      context: prompt,
      stack: r['backend']!,
    };
    const { request } = prepare(scenario, await readSources(scenario));
    const c = configurationOf(request, request.candidates[0]!);
    const pricer = silent(request.pricer!);
    const first = pricePrompt(c, pricer, { method: 'accumulated', promptTokens: prompt }).estimate;
    rows.push({
      name: `${model} ${device} ${r['backend']} TP ${r['tp_size']}, ${prompt} + ${output}, ${requests} requests`,
      stack: r['backend']!,
      measured: Number(r['silicon_tpot_ms']) / 1e3,
      step: priceStep(c, pricer, requests, prompt + output / 2),
      prompts: (first * (requests - 1)) / output,
    });
  }
  return rows;
}

interface Fit {
  readonly interleaved: number;
  readonly overhead: { estimate: number; low: number; high: number };
}

/** The share of prompts in between that leaves the least spread, and the spread of what is left over. */
function fit(rows: readonly Row[]): Fit {
  const rest = (f: number): number[] => rows.map((r) => r.measured - r.step.estimate - f * r.prompts);
  const spread = (f: number): number => {
    const list = rest(f);
    const middle = quantile(list, 0.5);
    return rows.reduce((sum, r, i) => sum + Math.abs(list[i]! - middle) / r.measured, 0);
  };
  const shares = Array.from({ length: 21 }, (_, i) => i / 20);
  const interleaved = shares.reduce((a, b) => (spread(b) < spread(a) ? b : a));
  const list = rest(interleaved);
  const positive = (x: number): number => Math.max(0, x);
  return {
    interleaved,
    overhead: {
      estimate: positive(quantile(list, 0.5)),
      low: positive(quantile(list, 0.1)),
      high: positive(quantile(list, 0.9)),
    },
  };
}

const predict = (r: Row, { interleaved, overhead }: Fit) => {
  const estimate = r.step.estimate + interleaved * r.prompts + overhead.estimate;
  const below = Math.hypot(r.step.estimate - r.step.low, overhead.estimate - overhead.low);
  const above = Math.hypot(r.step.high - r.step.estimate, overhead.high - overhead.estimate);
  return { estimate, low: estimate - below, high: estimate + above };
};

/** Rows whose time is mostly others' prompts tell about the queue, not about a step. */
const MOST_PROMPTS = 0.2;
const rows = (await readRows()).filter((r) => r.prompts <= MOST_PROMPTS * r.measured);
const random = randomFrom(Number(values.seed));
const fitted = new Set(rows.filter(() => random() < 0.5));
const stacks = [...new Set(rows.map((r) => r.stack))];
const servers: Record<string, Fit & { rows: number }> = {};
for (const stack of [...stacks, 'all']) {
  const of = rows.filter((r) => stack === 'all' || r.stack === stack);
  const own = fit(of.filter((r) => fitted.has(r)));
  const judged = of.filter((r) => !fitted.has(r)).map((r) => ({ r, p: predict(r, own) }));
  const errors = judged.map(({ r, p }) => Math.abs(p.estimate / r.measured - 1));
  const blind = judged.map(({ r }) => Math.abs((r.step.estimate + own.interleaved * r.prompts) / r.measured - 1));
  const inside = judged.filter(({ r, p }) => p.low <= r.measured && r.measured <= p.high).length / judged.length;
  const halves = judged.map(({ p }) => (p.high - p.low) / 2 / p.estimate);
  const percent = (x: number): string => `${(100 * x).toFixed(1)} %`;
  console.log(
    `${stack}: ${of.length - judged.length} rows fitted, ${judged.length} judged: median error ${percent(quantile(errors, 0.5))}, 90th percentile ${percent(quantile(errors, 0.9))}, inside ${percent(inside)}, half-width ${percent(quantile(halves, 0.5))}; without overhead ${percent(quantile(blind, 0.5))}; overhead ${Object.values(
      own.overhead,
    )
      .map((x) => `${(1e6 * x).toFixed(0)} µs`)
      .join(', ')}, ${own.interleaved} of the prompts`,
  );
  servers[stack] = { ...fit(of), rows: of.length };
}
if (values.write) {
  const file: ServerFile = {
    schema: 'lla-sim/servers',
    schemaVersion: 1,
    source: {
      repository: 'github.com/ai-dynamo/aiconfigurator',
      commit: '095f58a51c4ca8e61b66ec108d86f223f8d559ce',
      path: 'aic-core/src/aiconfigurator_core/systems/silicon_sample.csv',
      licence: 'Apache-2.0',
    },
    servers: Object.fromEntries(
      Object.entries(servers).map(([name, { overhead, rows: n }]) => [
        name,
        {
          rows: n,
          secondsPerStep: Object.fromEntries(
            Object.entries(overhead).map(([end, x]) => [end, Number(x.toPrecision(3))]),
          ) as ServerFile['servers'][string]['secondsPerStep'],
        },
      ]),
    ),
  };
  writeFileSync('calibrations/servers.json', `${JSON.stringify(file, null, 1)}\n`);
}
