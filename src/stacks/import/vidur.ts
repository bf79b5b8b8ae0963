/** Layer times of microsoft/vidur (MIT): the small operations of vLLM's kernels on A100 and H100. */
import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { UserError } from '../../errors.js';
import { checkGpu, tablesOf } from './checkout.js';
import { cell, readCsvRows, wholeCells, type CsvRow } from './csv-rows.js';
import type { OpClass } from '../../../kernels/op-classes.js';
import { Builders, type RawTable } from './raw-table.js';
import type { TableVersions } from './select.js';

const PROFILES = 'data/profiling/compute';
const REPOSITORY = 'microsoft/vidur';

/** Folder of a GPU's profiles, and the catalogue's device. */
export const VIDUR_GPUS: Readonly<Record<string, string>> = { a100: 'a100-80', h100: 'h100' };

/** Sizes of a row: a model and a degree of tensor parallelism. */
const SIZES = ['n_head', 'n_kv_head', 'n_embd', 'n_expanded_embd', 'num_tokens', 'num_tensor_parallel_workers'];

/** Times come in whole microseconds: below this one digit says nothing. */
const LEAST_SECONDS = 2e-6;

const OPERATIONS: readonly { op: OpClass; column: string; width: (sizes: readonly number[]) => number }[] = [
  { op: 'norm', column: 'time_stats.input_layernorm.median', width: ([, , hidden]) => hidden! },
  {
    op: 'rope',
    column: 'time_stats.attn_rope.median',
    width: ([heads, kvHeads, hidden, , , gpus]) => ((heads! + kvHeads!) * (hidden! / heads!)) / gpus!,
  },
  { op: 'activation', column: 'time_stats.mlp_act.median', width: ([, , , mlp, , gpus]) => mlp! / gpus! },
  { op: 'add', column: 'time_stats.add.median', width: ([, , hidden]) => hidden! },
];

/**
 * The small operations of a GPU, all models in one table a class.
 * @throws UserError where the folder is no such checkout or has nothing for the GPU
 */
export function vidurTables(checkout: string, { gpu, commit }: { gpu: string; commit: string }): TableVersions[] {
  checkGpu(tablesOf(checkout, REPOSITORY, PROFILES), gpu, VIDUR_GPUS, 'profiles of');
  const folder = `${PROFILES}/${gpu}`;
  const files = readdirSync(join(checkout, folder), { recursive: true, encoding: 'utf8' })
    .map((name) => name.replaceAll('\\', '/'))
    .filter((name) => name.endsWith('/mlp.csv'))
    .sort();
  if (files.length === 0)
    throw new UserError(`the checkout has no mlp.csv of ${gpu}`, 'check that it is a complete checkout');
  const read = (): Promise<RawTable[]> => {
    const builders = new Builders();
    for (const file of files) readFile(join(checkout, folder, file), builders);
    return Promise.resolve(
      builders.tables({
        repository: REPOSITORY,
        commit,
        path: `${folder}/*/mlp.csv`,
        framework: 'vllm',
        version: 'as profiled by Vidur',
        licence: 'MIT',
      }),
    );
  };
  return [{ name: folder, versions: [{ path: folder, read }] }];
}

function readFile(path: string, builders: Builders): void {
  const rows = readCsvRows(path, SIZES);
  // Models with parallel attention have no second addition.
  const present = OPERATIONS.filter(({ column }) => Object.hasOwn(rows[0]!, column));
  for (const row of rows) addRow(row, present, builders);
}

function addRow(row: CsvRow, present: typeof OPERATIONS, builders: Builders): void {
  const sizes = wholeCells(row, SIZES);
  if (!sizes) return;
  for (const { op, column, width } of present) {
    const seconds = cell(row, column) / 1e3;
    const scalars = width(sizes);
    if (seconds >= LEAST_SECONDS && Number.isInteger(scalars))
      builders.add(op, {}, { tokens: sizes[4]!, width: scalars }, seconds);
  }
}
