/** Tables of ai-dynamo/aiconfigurator (Apache-2.0): kernel times of vLLM, SGLang and TensorRT-LLM on NVIDIA GPUs. */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { UserError, show } from '../../errors.js';
import { checkGpu, foldersIn, tablesOf } from './checkout.js';
import { millisecondsIn, readParquet, sizeIn, type Row } from './parquet.js';
import { Builders, type RawTable } from './raw-table.js';
import type { TableVersions } from './select.js';
import { STACKS, type Stack } from '../serving.js';

/** Where the tables lie in a checkout. */
const DATA = 'aic-core/src/aiconfigurator_core/systems/data';
const REPOSITORY = 'ai-dynamo/aiconfigurator';
const LICENCE = 'Apache-2.0';

/** Folder of a GPU's tables, and the catalogue's device. */
export const AIC_GPUS: Readonly<Record<string, string>> = {
  h200_sxm: 'h200',
  h100_sxm: 'h100',
  a100_sxm: 'a100-80',
  b200_sxm: 'b200',
  b300_sxm: 'b300',
  gb200: 'gb200',
  gb300: 'gb300',
  l40s: 'l40s',
  rtx_pro_6000_server: 'rtx-pro-6000',
};

/** DeepSeek's latent attention, which the MLA tables are measured on. */
const MLA = { latentWidth: 512, branchWidth: 64 };
/** Head widths that tables are made of; models with others are rare, and files are small. */
const HEAD_DIMS: readonly number[] = [64, 128];
/** Of caches in 8-bit floats one width is enough for the presets. */
const FP8_HEAD_DIMS: readonly number[] = [128];

interface Reader {
  readonly folder: string;
  readonly file: string;
  /** Element type of cache or weights, where not bf16. */
  readonly elements?: 'fp8';
  readonly columns: readonly string[];
  readonly optional?: readonly string[];
  /** Stacks whose kernels it is read of; all where absent. */
  readonly of?: readonly Stack[];
  /** A table of the same version with what the kernels of this stack do not take of each time. */
  readonly less?: { readonly stack: Stack; readonly folder: string; readonly file: string };
  /**
   * Adds one row; rows of other types than bf16 are passed over.
   * @param saved seconds of `less`, by rows and inner size
   */
  add(row: Row, builders: Builders, saved: ReadonlyMap<string, number> | null): void;
}

/** Sizes of a row; null where one cannot be read: it is no measurement of ours. */
function sizes(row: Row, columns: readonly string[]): number[] | null {
  const list = columns.map((column) => sizeIn(row, column));
  return list.every((size) => size !== undefined) ? list : null;
}

/** Sizes of a row of this type with its seconds; null for a row of another, and where one cannot be read. */
function measured(row: Row, columns: readonly string[], [column, type]: readonly [column: string, type: string]) {
  const found = sizes(row, columns);
  const seconds = millisecondsIn(row, 'latency');
  return found && seconds !== undefined && row[column] === type ? { sizes: found, seconds } : null;
}

/** Tables in 8-bit floats are selected apart: where they fail the screen, those in bf16 are used still. */
const attention = (file: string, decode: boolean, cache?: 'fp8'): Reader => ({
  folder: 'attention',
  file,
  ...(cache ? { elements: cache } : {}),
  columns: ['batch_size', 'isl', 'num_heads', 'num_key_value_heads', 'head_dim', 'kv_cache_dtype', 'step', 'latency'],
  optional: ['window_size', 'beam_width', 'attn_dtype'],
  add(row, builders) {
    const type = ['kv_cache_dtype', cache ?? 'bfloat16'] as const;
    const found = measured(row, ['batch_size', 'isl', 'num_heads', 'head_dim'], type);
    const step = sizeIn(row, 'step', 0);
    const kv = sizeIn(row, 'num_key_value_heads', 0);
    if (!found || step === undefined || kv === undefined || (sizeIn(row, 'window_size', 0) ?? 0) !== 0) return;
    // Attention that multiplies in 8 bits, too, is another kernel.
    if (cache && row['attn_dtype'] !== 'bfloat16') return;
    const { seconds } = found;
    const [batch, isl, heads, headDim] = found.sizes as [number, number, number, number];
    // 0 KV heads stand for as many as there are query heads.
    const kvHeads = kv === 0 ? heads : kv;
    if (!(cache ? FP8_HEAD_DIMS : HEAD_DIMS).includes(headDim) || heads % kvHeads !== 0 || (!decode && step !== 0))
      return;
    const at: Record<string, number> = decode ? { batch, context: step + isl } : { batch, tokens: isl };
    const kind = decode ? 'decode-attention' : 'prefill-attention';
    const of = cache ? (`-${cache}` as const) : '';
    if (kvHeads === heads) builders.add(`${kind}${of}`, { headDim }, { heads, ...at }, seconds);
    else builders.add(`${kind}-grouped${of}`, { headDim }, { kvHeads, group: heads / kvHeads, ...at }, seconds);
  },
});

/**
 * Products in 8 bits were measured with scales that are computed from the activations. TensorRT-LLM's own checkpoints
 * bring fixed ones, so that it does not compute them: the time of that is a table of its own, on the same sizes.
 * @param weights `fp8`: a scale a tensor or column; those of blocks (`fp8_block`) have other kernels
 */
const products = (weights?: 'fp8'): Reader => ({
  folder: 'gemm',
  file: 'gemm_perf.parquet',
  ...(weights
    ? { elements: weights, less: { stack: 'trtllm', folder: 'quantize', file: 'computescale_perf.parquet' } }
    : {}),
  columns: ['gemm_dtype', 'm', 'n', 'k', 'latency'],
  add(row, builders, saved) {
    const found = measured(row, ['m', 'n', 'k'], ['gemm_dtype', weights ?? 'bfloat16']);
    if (!found) return;
    const [rows, columns, inner] = found.sizes as [number, number, number];
    const less = saved ? saved.get(`${rows} ${inner}`) : 0;
    if (less === undefined || less >= found.seconds) return;
    builders.add(weights ? `product-${weights}` : 'product', {}, { rows, columns, inner }, found.seconds - less);
  },
});

/** Seconds that fixed scales save, by rows and inner size of the product. */
async function savedBy(path: string): Promise<ReadonlyMap<string, number>> {
  const saved = new Map<string, number>();
  for (const row of await readParquet(path, ['m', 'k', 'quant_dtype', 'latency'])) {
    const found = sizes(row, ['m', 'k']);
    // A difference of two times: it may be zero.
    const seconds = Math.max(0, Number(row['latency'])) / 1e3;
    if (found && row['quant_dtype'] === 'fp8' && Number.isFinite(seconds)) saved.set(found.join(' '), seconds);
  }
  return saved;
}

const READERS: readonly Reader[] = [
  products(),
  products('fp8'),
  attention('generation_attention_perf.parquet', true),
  attention('context_attention_perf.parquet', false),
  attention('generation_attention_perf.parquet', true, 'fp8'),
  attention('context_attention_perf.parquet', false, 'fp8'),
  {
    folder: 'mla',
    file: 'generation_mla_perf.parquet',
    columns: ['num_heads', 'batch_size', 'isl', 'step', 'kv_cache_dtype', 'latency'],
    add(row, builders) {
      const found = measured(row, ['num_heads', 'batch_size', 'isl'], ['kv_cache_dtype', 'bfloat16']);
      const step = sizeIn(row, 'step', 0);
      if (!found || step === undefined) return;
      const [heads, batch, isl] = found.sizes as [number, number, number];
      builders.add('decode-attention-latent', { ...MLA }, { heads, batch, context: step + isl }, found.seconds);
    },
  },
  {
    folder: 'quantize',
    file: 'scale_matrix_perf.parquet',
    of: ['trtllm'],
    columns: ['quant_dtype', 'm', 'k', 'latency'],
    add(row, builders) {
      const found = measured(row, ['m', 'k'], ['quant_dtype', 'fp8']);
      if (found) builders.add('quantise', {}, { tokens: found.sizes[0]!, width: found.sizes[1]! }, found.seconds);
    },
  },
  {
    folder: 'comm',
    file: 'custom_allreduce_perf.parquet',
    columns: ['allreduce_dtype', 'num_gpus', 'message_size', 'latency'],
    optional: ['kernel_source'],
    add(row, builders) {
      const found = measured(row, ['num_gpus', 'message_size'], ['allreduce_dtype', 'bfloat16']);
      // Servers replay their steps from CUDA graphs.
      if (!found || String(row['kernel_source']).endsWith('_eager')) return;
      const [gpus, elements] = found.sizes as [number, number];
      if (gpus > 1) builders.add('all-reduce', {}, { gpus, bytes: 2 * elements }, found.seconds);
    },
  },
];

/**
 * The tables that a checkout has for a GPU and a stack.
 * @param version only this one
 * @throws UserError where the folder is no such checkout, or has nothing for the GPU or stack
 */
export function aicTables(
  checkout: string,
  { gpu, stack, version, commit }: { gpu: string; stack: Stack; version: string | null; commit: string },
): TableVersions[] {
  const root = tablesOf(checkout, REPOSITORY, DATA);
  checkGpu(root, gpu, AIC_GPUS, 'GPU');
  const found: string[] = [];
  const kinds = READERS.filter(({ of }) => of?.includes(stack) ?? true).map((reader) => {
    const folder = join(root, gpu, reader.folder, stack);
    const less = reader.less?.stack === stack ? reader.less : null;
    const lessOf = (v: string): string | null => less && [DATA, gpu, less.folder, stack, v, less.file].join('/');
    const all = foldersIn(folder).filter((v) => {
      const beside = lessOf(v);
      return existsSync(join(folder, v, reader.file)) && (beside === null || existsSync(join(checkout, beside)));
    });
    found.push(...all);
    const versions = all
      .filter((v) => version === null || v === version)
      .sort((a, b) => -compareVersions(a, b))
      .map((v) => {
        const path = [DATA, gpu, reader.folder, stack, v, reader.file].join('/');
        return {
          path,
          async read(): Promise<RawTable[]> {
            const builders = new Builders();
            const beside = lessOf(v);
            const saved = beside === null ? null : await savedBy(join(checkout, beside));
            for (const row of await readParquet(join(checkout, path), reader.columns, reader.optional))
              reader.add(row, builders, saved);
            return builders.tables({
              repository: REPOSITORY,
              commit,
              path,
              ...(beside === null ? {} : { less: beside }),
              framework: stack,
              version: v,
              licence: LICENCE,
            });
          },
        };
      });
    return { name: [reader.folder, reader.file, ...(reader.elements ? [reader.elements] : [])].join('/'), versions };
  });
  if (kinds.every((kind) => kind.versions.length === 0))
    throw new UserError(
      `the checkout has no tables of ${stack}${version === null ? '' : ` ${show(version)}`} on ${gpu}`,
      found.length === 0
        ? `write another --stack: ${STACKS.join(', ')}`
        : `write --version with one of ${[...new Set(found)].sort(compareVersions).join(', ')}`,
    );
  return kinds;
}

/** Order of versions such as 0.9.2, 0.10.0, 1.3.0rc5, 1.3.0 and 0.5.6.post2. */
export function compareVersions(a: string, b: string): number {
  const parts = (v: string): number[] =>
    (v.match(/\d+|[a-z]+/g) ?? []).map((part) => (/\d/.test(part) ? Number(part) : part === 'post' ? 0.5 : -1));
  const [x, y] = [parts(a), parts(b)];
  for (let i = 0; i < Math.max(x.length, y.length); i++) {
    const difference = (x[i] ?? 0) - (y[i] ?? 0);
    if (difference !== 0) return difference;
  }
  return 0;
}
