/** Layer times of casys-kaist/LLMServingSim (MIT): vLLM, profiled layer by layer on a few GPUs. */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { parse as parseYaml } from 'yaml';
import { UserError, show } from '../../errors.js';
import { displayPath, readTextFile } from '../../io/files.js';
import { cell, readCsvRows, wholeCells } from './csv-rows.js';
import { checkGpu, foldersIn, tablesOf } from './checkout.js';
import { Builders, type RawTable } from './raw-table.js';
import type { TableVersions } from './select.js';

const PROFILES = 'profiler/perf';
const REPOSITORY = 'casys-kaist/LLMServingSim';
const MAX_CONFIG_BYTES = 2 ** 20;

/** Folder of a GPU's profiles, and the catalogue's device. */
export const LLMSERVINGSIM_GPUS: Readonly<Record<string, string>> = {
  RTX4090: 'rtx-4090',
  RTXPRO6000: 'rtx-pro-6000',
};

/** Sizes of a profiled model that its layers follow from. */
interface Sizes {
  readonly hidden: number;
  readonly heads: number;
  readonly kvHeads: number;
  readonly headDim: number;
  readonly mlp: number;
  readonly vocab: number;
}

/**
 * The profiles of a GPU, a kind for each table of each model and degree of tensor parallelism.
 * @throws UserError where the folder is no such checkout or has nothing for the GPU
 */
export function llmServingSimTables(
  checkout: string,
  { gpu, commit }: { gpu: string; commit: string },
): { kinds: TableVersions[]; version: string } {
  const root = tablesOf(checkout, REPOSITORY, PROFILES);
  checkGpu(root, gpu, LLMSERVINGSIM_GPUS, 'profiles of');
  const kinds: TableVersions[] = [];
  let version = '';
  for (const owner of foldersIn(join(root, gpu)))
    for (const model of foldersIn(join(root, gpu, owner))) {
      const folder = [PROFILES, gpu, owner, model, 'bf16'].join('/');
      const config = join(checkout, 'configs/model', owner, `${model}.json`);
      // Mixtures of experts have layers that are not read.
      if (!existsSync(join(checkout, folder)) || !existsSync(config)) continue;
      const sizes = readSizes(config);
      if (sizes === null) continue;
      version = vllmVersion(join(checkout, folder, 'meta.yaml'));
      for (const tp of foldersIn(join(checkout, folder)).filter((name) => /^tp\d+$/.test(name)))
        for (const [file, read] of Object.entries(READERS)) {
          const path = `${folder}/${tp}/${file}`;
          if (!existsSync(join(checkout, path))) continue;
          const source = { repository: REPOSITORY, commit, path, framework: 'vllm', version, licence: 'MIT' };
          kinds.push({
            name: path,
            versions: [
              {
                path,
                read: (): Promise<RawTable[]> => {
                  const builders = new Builders();
                  read(join(checkout, path), divide(sizes, Number(tp.slice(2))), builders);
                  return Promise.resolve(builders.tables(source));
                },
              },
            ],
          });
        }
    }
  if (kinds.length === 0)
    throw new UserError(`the checkout has no tables of dense models on ${gpu}`, 'check that it is a complete checkout');
  return { kinds, version };
}

/** Sizes on one of `gpus`. */
const divide = (sizes: Sizes, gpus: number): Sizes => ({
  ...sizes,
  heads: sizes.heads / gpus,
  kvHeads: Math.max(1, sizes.kvHeads / gpus),
  mlp: sizes.mlp / gpus,
  vocab: Math.ceil(sizes.vocab / gpus),
});

const READERS: Readonly<Record<string, (path: string, sizes: Sizes, builders: Builders) => void>> = {
  'dense.csv': readLayers('tokens'),
  'per_sequence.csv': readLayers('sequences'),
  'attention.csv': readAttention,
};

function readLayers(rowsColumn: string) {
  return (path: string, s: Sizes, builders: Builders): void => {
    const products: Readonly<Record<string, readonly [columns: number, inner: number]>> = {
      qkv_proj: [(s.heads + 2 * s.kvHeads) * s.headDim, s.hidden],
      o_proj: [s.hidden, s.heads * s.headDim],
      gate_up_proj: [2 * s.mlp, s.hidden],
      down_proj: [s.hidden, s.mlp],
      lm_head: [s.vocab, s.hidden],
    };
    for (const row of readCsvRows(path, ['layer', rowsColumn, 'time_us'])) {
      const found = wholeCells(row, [rowsColumn]);
      const seconds = cell(row, 'time_us') / 1e6;
      if (!found || !(seconds > 0)) continue;
      const tokens = found[0]!;
      const product = products[row['layer']!];
      if (product) builders.add('product', {}, { rows: tokens, columns: product[0], inner: product[1] }, seconds);
      if (row['layer'] === 'layernorm') builders.add('norm', {}, { tokens, width: s.hidden }, seconds);
      if (row['layer'] === 'act_fn') builders.add('activation', {}, { tokens, width: s.mlp }, seconds);
      if (row['layer'] === 'rotary_emb')
        builders.add('rope', {}, { tokens, width: (s.heads + s.kvHeads) * s.headDim }, seconds);
    }
  };
}

/** Pure decode steps and whole prompts; mixed steps and later chunks of prompts are no class of ours. */
function readAttention(path: string, s: Sizes, builders: Builders): void {
  const columns = ['prefill_chunk', 'kv_prefill', 'n_decode', 'kv_decode'];
  const fixed = { headDim: s.headDim };
  const grouped = s.heads !== s.kvHeads;
  const of = grouped ? { kvHeads: s.kvHeads, group: s.heads / s.kvHeads } : { heads: s.heads };
  for (const row of readCsvRows(path, [...columns, 'time_us'])) {
    const found = wholeCells(row, columns, 0);
    const seconds = cell(row, 'time_us') / 1e6;
    if (!found || !(seconds > 0)) continue;
    const [chunk, carried, batch, context] = found as [number, number, number, number];
    if (chunk === 0 && batch > 0 && context > 0)
      builders.add(`decode-attention${grouped ? '-grouped' : ''}`, fixed, { ...of, batch, context }, seconds);
    if (batch === 0 && carried === 0 && chunk > 0)
      builders.add(`prefill-attention${grouped ? '-grouped' : ''}`, fixed, { ...of, batch: 1, tokens: chunk }, seconds);
  }
}

function readSizes(path: string): Sizes | null {
  let config: Record<string, unknown>;
  try {
    config = JSON.parse(readTextFile(path, 'model config', MAX_CONFIG_BYTES)) as Record<string, unknown>;
  } catch (error) {
    if (error instanceof UserError) throw error;
    throw new UserError(`model config ${show(displayPath(path))} is not JSON`, 'fetch it again: it is damaged');
  }
  const size = (name: string): number => (Number.isInteger(config[name]) ? (config[name] as number) : NaN);
  const heads = size('num_attention_heads');
  const sizes = {
    hidden: size('hidden_size'),
    heads,
    kvHeads: size('num_key_value_heads'),
    headDim: config['head_dim'] === undefined ? size('hidden_size') / heads : size('head_dim'),
    mlp: size('intermediate_size'),
    vocab: size('vocab_size'),
  };
  const usable = Object.values(sizes).every((value) => Number.isInteger(value) && value > 0);
  return usable && config['num_experts'] === undefined && config['num_local_experts'] === undefined ? sizes : null;
}

function vllmVersion(path: string): string {
  let meta: unknown;
  try {
    meta = parseYaml(readTextFile(path, 'profile', MAX_CONFIG_BYTES));
  } catch (error) {
    if (error instanceof UserError) throw error;
    throw new UserError(`profile ${show(displayPath(path))} is not YAML`, 'fetch it again: it is damaged');
  }
  const version = (meta as Record<string, unknown> | null)?.['vllm_version'];
  if (typeof version !== 'string')
    throw new UserError(`profile ${show(displayPath(path))} lacks vllm_version`, 'check that it is a whole profile');
  return version;
}
