/**
 * How well stack files predict. Files are made from a random half of each table (five seeds), read back, and judged on
 * the other half; then from tables that lack whole configurations, whole lines or the longest octave, judged on those.
 *
 *   npx esbuild --bundle --platform=node --format=esm scripts/stack-accuracy.ts --packages=external > accuracy.mjs
 *   node accuracy.mjs CHECKOUT [--gpus h200_sxm,h100_sxm,a100_sxm] [--stacks vllm,sglang,trtllm] [--seeds 5] [--only
 *     product] [--halves] [--head-dim 128]
 *
 * CHECKOUT is a clone of https://github.com/ai-dynamo/aiconfigurator. accuracy.mjs must lie where it finds
 * node_modules.
 */
import { parseArgs } from 'node:util';
import { randomFrom } from '../src/numbers/random.js';
import { stackTableSchema } from '../src/stacks/stack-schema.js';
import { AIC_GPUS, aicTables } from '../src/stacks/import/aic.js';
import { STACKS, type Stack } from '../src/stacks/serving.js';
import type { OpClass } from '../kernels/op-classes.js';
import { fitTable, type MeasuredTime } from '../src/stacks/fit/fit-table.js';
import { ratesOf } from '../src/stacks/fit/gpus.js';
import { TablePredictor } from '../src/stacks/predict.js';
import type { ScreenRates } from '../src/stacks/import/screen.js';
import { selectTables } from '../src/stacks/import/select.js';
import { MOST_KNOTS, type PassedTable } from '../src/stacks/fit/stack-file.js';
import { quantile } from '../src/numbers/statistics.js';
import { keepScores, type Judged } from './scores.js';

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    gpus: { type: 'string', default: 'h200_sxm,h100_sxm,a100_sxm' },
    stacks: { type: 'string', default: STACKS.join() },
    seeds: { type: 'string', default: '5' },
    only: { type: 'string', default: '' },
    halves: { type: 'boolean', default: false },
    'head-dim': { type: 'string', default: '' },
  },
});
const seeds = Array.from({ length: Number(values.seeds) }, (_, i) => 101 + 17 * i);
/** Points that a table is judged by, for each seed. */
const MOST_JUDGED = 4000;

/** Fits to `known`, writes and reads the table as a file would, and judges it on `hidden`. */
function judge(table: PassedTable, known: MeasuredTime[], hidden: MeasuredTime[], rates: ScreenRates): Judged[] {
  const fitted = fitTable(table.op, table.fixed, known, rates, MOST_KNOTS[table.op]);
  const read = stackTableSchema.parse(JSON.parse(JSON.stringify({ ...fitted, source: 0 })));
  const predictor = new TablePredictor(read, rates);
  return hidden.slice(0, MOST_JUDGED).map(({ shape, seconds }) => {
    const { estimate, low, high } = predictor.predict({ ...shape, ...table.fixed });
    return { error: Math.log(seconds / estimate), low: Math.log(low / estimate), high: Math.log(high / estimate) };
  });
}

function shuffled<T>(list: readonly T[], seed: number): T[] {
  const random = randomFrom(seed);
  return list
    .map((item) => [random(), item] as const)
    .sort((a, b) => a[0] - b[0])
    .map(([, item]) => item);
}

const percent = (x: number): string => `${(100 * x).toFixed(1)} %`;

/** @param of the table, where the label is of a part that was held out */
function print(label: string, scores: readonly Judged[], of = ''): void {
  if (scores.length === 0) return;
  keepScores(`${of}${label}`, scores);
  const errors = scores.map((s) => Math.abs(s.error));
  console.log(
    [
      label.padEnd(64),
      String(scores.length).padStart(6),
      percent(quantile(errors, 0.5)).padStart(8),
      percent(quantile(errors, 0.9)).padStart(8),
      percent(scores.filter((s) => s.low <= s.error && s.error <= s.high).length / scores.length).padStart(8),
      percent(
        quantile(
          scores.map((s) => s.high),
          0.5,
        ),
      ).padStart(9),
    ].join(' '),
  );
}

/** What is hidden whole: a name, and the rows that it takes away. */
interface Hiding {
  readonly name: string;
  readonly hides: (shape: Readonly<Record<string, number>>) => boolean;
}

const heads = (s: Readonly<Record<string, number>>): number => s['heads'] ?? s['kvHeads']! * s['group']!;

function hidings(op: OpClass, rows: readonly MeasuredTime[]): Hiding[] {
  const most = (field: string): number => rows.reduce((a, row) => Math.max(a, row.shape[field]!), 0);
  if (op === 'product')
    return [
      ...[512, 2048, 5120].map((k) => ({
        name: `whole inner ${k}`,
        hides: (s: MeasuredTime['shape']) => s['inner'] === k,
      })),
      { name: 'longest octave of rows', hides: (s) => s['rows']! > most('rows') / 2 },
    ];
  const long = op.startsWith('decode') ? 'context' : 'tokens';
  return [
    { name: 'all of 16 heads', hides: (s) => heads(s) === 16 },
    ...(op.includes('grouped')
      ? [2, 4].map((kv) => ({
          name: `all of ${kv} KV heads`,
          hides: (s: MeasuredTime['shape']) => s['kvHeads'] === kv,
        }))
      : []),
    { name: `longest octave of ${long}`, hides: (s) => s[long]! > most(long) / 2 },
  ];
}

const [checkout] = positionals;
if (checkout === undefined) throw new Error('name the checkout');
console.log(`seeds ${seeds.join(', ')}`);
console.log(
  `${''.padEnd(64)} ${'points'.padStart(6)} ${['median', 'p90', 'inside'].map((h) => h.padStart(8)).join(' ')} ` +
    'half-width',
);
for (const gpu of values.gpus.split(','))
  for (const stack of values.stacks.split(',') as Stack[]) {
    const rates = ratesOf(AIC_GPUS[gpu]!);
    const kinds = aicTables(checkout, { gpu, stack, version: null, commit: 'unknown' });
    const { tables, notes } = await selectTables(kinds, rates);
    for (const note of notes) console.log(`# ${note}`);
    for (const table of tables) {
      if (values.only !== '' && !values.only.split(',').some((op) => table.op === op)) continue;
      if (
        values['head-dim'] !== '' &&
        (table.fixed['headDim'] ?? Number(values['head-dim'])) !== Number(values['head-dim'])
      )
        continue;
      const label = `${gpu} ${stack} ${table.source.version} ${table.op} ${Object.values(table.fixed).join('+')}`;
      const halves = seeds.flatMap((seed) => {
        const rows = shuffled(table.rows, seed);
        const half = rows.length >> 1;
        return judge(table, rows.slice(0, half), rows.slice(half), rates);
      });
      print(label, halves);
      if (table.op === 'all-reduce' || values.halves) continue;
      for (const { name, hides } of hidings(table.op, table.rows)) {
        const hidden = table.rows.filter((row) => hides(row.shape));
        const known = table.rows.filter((row) => !hides(row.shape));
        if (hidden.length > 0 && known.length > 0)
          print(`  held out: ${name}`, judge(table, known, shuffled(hidden, seeds[0]!), rates), label);
      }
      if (table.op === 'decode-attention' && table.rows.some((row) => row.shape['heads'] === 16)) {
        const known = table.rows.filter((row) => row.shape['heads']! <= 8);
        print(
          '  16 heads from 8 at twice the batch',
          judge(
            table,
            known,
            table.rows.filter((r) => r.shape['heads'] === 16),
            rates,
          ),
          label,
        );
      }
    }
  }
