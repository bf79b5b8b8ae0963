/** Inputs that are wrong, hostile or odd, for thousands of cases: values, files, command lines. */
import { readFileSync } from 'node:fs';
import fc from 'fast-check';
import { CODEC_KINDS, PATH_CHOICES, SHARINGS } from '../../src/codecs/codec.js';
import { fitPredictor } from '../../src/cost/fit/fit.js';
import { DEVICES } from '../../src/devices/catalogue.js';
import { PRESETS } from '../../src/geometry/presets.js';
import { workOf } from '../../kernels/registry.js';
import { kernelHash } from '../../kernels/source.js';
import type { Calibration, Sample } from '../../src/schema/calibration.js';
import { flagOf, SETTINGS, type SettingName } from '../../src/schema/settings.js';
import { OURO } from '../geometry/configs.js';
import { words } from './program.js';

/** A value that no schema expects. Words that a result must not hold are not among them: a name may be shown. */
export const junk: fc.Arbitrary<unknown> = fc.oneof(
  fc.constantFrom<unknown>(
    ...[null, true, false, 0, -1, 1.5, 1e308, -1e308, 5e-324, 1e15],
    ...['', ' ', 'x', 'nan', '__proto__', '\u001b[31m', 'a\nb', '0', '1e999', '😀'.repeat(50), 'x'.repeat(3000)],
    ...[[], {}, [[]], [null], { a: 1 }],
  ),
  fc.jsonValue({ maxDepth: 2 }) as fc.Arbitrary<unknown>,
);

type Path = readonly (string | number)[];
export function pathsIn(value: unknown, at: Path = []): Path[] {
  if (typeof value !== 'object' || value === null) return [at];
  return [
    at,
    ...Object.entries(value).flatMap(([k, v]) => pathsIn(v, [...at, Array.isArray(value) ? Number(k) : k])),
  ].filter((p) => p.length > 0);
}
/** A copy with one place replaced, removed, or a stranger added beside it. */
export function mutate(value: unknown, path: Path, how: 'replace' | 'remove' | 'add', by: unknown): unknown {
  const copy = structuredClone(value);
  let parent = copy as Record<string | number, unknown>;
  for (const key of path.slice(0, -1)) parent = parent[key] as Record<string | number, unknown>;
  const last = path.at(-1) as string | number;
  if (how === 'replace') parent[last] = by;
  else if (how === 'remove') delete parent[last];
  else {
    // Of the name __proto__ an assignment would make no field.
    const name = `${last}${typeof by === 'string' ? by.slice(0, 20) : typeof by}`;
    Object.defineProperty(parent, name, { value: by, enumerable: true, configurable: true, writable: true });
  }
  return copy;
}
export const mutations = (value: unknown, by: fc.Arbitrary<unknown> = junk) =>
  fc
    .array(
      fc.tuple(
        fc.constantFrom(...pathsIn(value)),
        fc.constantFrom('replace' as const, 'replace' as const, 'remove' as const, 'add' as const),
        by,
      ),
      { minLength: 1, maxLength: 2 },
    )
    .map((list) =>
      list.reduce((v, [path, how, x]) => {
        try {
          return mutate(v, path, how, x);
        } catch {
          return v; // an earlier mutation took the place away
        }
      }, value),
    );

/** Text with a few characters changed, cut or doubled. */
export const garbled = (text: string) =>
  fc
    .array(
      fc.tuple(
        fc.nat(text.length),
        fc.constantFrom('\u0000', '"', '{', '}', ':', '-', '\n', '\t', '&a', '*a', '!!', '9', '#', '\u2028', 'é', ''),
        fc.nat(6),
      ),
      { minLength: 1, maxLength: 4 },
    )
    .map((edits) => edits.reduce((t, [at, insert, cut]) => t.slice(0, at) + insert + t.slice(at + cut), text));

export const SCENARIO = {
  name: 'n',
  description: 'd',
  model: 'ouro-1.4b',
  context: '4k',
  vram: '80GB',
  codec: ['full', 'lla'],
  ratio: [4],
  path: ['full', 'reconstruct'],
  eviction: 'none',
  min: { gsm8k: 0.1 },
  constants: { group: 32 },
  batch: 2,
  utilization: 0.9,
  reserve: '1GiB',
  cacheType: 'f16',
  tpot: '10s',
};

const FIELDS = [
  ...words('model_type architectures num_hidden_layers total_ut_steps num_attention_heads num_key_value_heads'),
  ...words('head_dim hidden_size intermediate_size vocab_size tie_word_embeddings rope_theta'),
  ...words('max_position_embeddings torch_dtype rms_norm_eps'),
];
export const CONFIG = Object.fromEntries(Object.entries(OURO).filter(([field]) => FIELDS.includes(field)));

/** A small, sound calibration of an H200. */
export function calibration(): Calibration {
  const samples = [1, 4, 16, 64].map((m): Sample => {
    const shape = { groups: 1, m, k: 2048, n: 6144 };
    const { readBytes, writeBytes, flops } = workOf({ kernel: 'matmul', variant: 'f16', shape });
    const work = { variant: 'f16', shape, tuning: {}, readBytes, writeBytes, flops };
    return { ...work, seconds: [(readBytes + writeBytes) / 3e12 + 4e-6], relativeError: 0 };
  });
  const predictors = { f16: fitPredictor('matmul', 'f16', samples) };
  return {
    schema: 'lla-sim/calibration',
    schemaVersion: 1,
    program: { name: 'lla-sim', version: '0.1.0' },
    device: {
      ...{ vendor: 'nvidia', architecture: 'hopper', device: '0x2335', description: 'NVIDIA H200', driver: 'x' },
      ...{ backend: 'vulkan', software: false, features: [], limits: {}, memoryBytes: 140e9 },
    },
    host: { os: 'linux', arch: 'x64', cpu: 'c', cores: 8, memoryBytes: 1e11, node: 'v20' },
    clock: { kind: 'gpu-timestamp', resolutionSeconds: 1e-9 },
    overheads: { submitSeconds: 2e-5, dispatchSeconds: 3e-6 },
    ceilings: {
      copyBytesPerSecond: 4.3e12,
      readBytesPerSecond: 4.4e12,
      f32FlopsPerSecond: 6e13,
      f16FlopsPerSecond: null,
      matrixFlopsPerSecond: null,
    },
    kernels: [{ kernel: 'matmul', sourceHash: kernelHash('matmul'), samples, gaps: [], predictors }],
  };
}

const bytes = fc
  .tuple(
    fc.constantFrom(0.5, 1, 3, 7.5, 24, 80, 141, 999, 123456),
    fc.constantFrom('B', 'kB', 'MB', 'GB', 'TB', 'KiB', 'MiB', 'GiB', 'TiB'),
  )
  .map(([n, u]) => `${n}${u}`);
const sensibleBytes = fc.constantFrom('8GB', '24GB', '80GB', '141GB', '192GiB', '1.1TB');
const tokens = fc.oneof(
  fc.constantFrom('1', '31', '32', '33', '4096', '4k', '64k', '1M', '1024M', '100000'),
  fc.integer({ min: 1, max: 2 ** 30 }).map(String),
);
const whole = (min: number, max: number) => fc.integer({ min, max }).map(String);
const listOf = (item: fc.Arbitrary<string>, max = 3) =>
  fc.array(item, { minLength: 1, maxLength: max }).map((l) => l.join(','));

/** Values that could be right. */
const GOOD: Record<SettingName, fc.Arbitrary<string>> = {
  model: fc.constantFrom(...PRESETS.map((p) => p.name), 'ByteDance/Ouro-1.4B', 'huginn'),
  loops: whole(1, 64),
  context: tokens,
  vram: fc.oneof({ weight: 4, arbitrary: sensibleBytes }, { weight: 1, arbitrary: bytes }),
  device: fc.constantFrom(...DEVICES.map((d) => d.id), 'NVIDIA H200 SXM'),
  fidelity: fc.constantFrom('no-such-file.json'),
  maxKl: fc.constantFrom('0.05', '1'),
  minRecall: fc.constantFrom('0.9', '1'),
  gpus: fc.constantFrom('1', '1', '2', '4', '5', '8', '11', '16', '55'),
  batch: whole(1, 5000),
  percentile: fc.constantFrom('50', '95', '99.9'),
  users: whole(1, 5000),
  usdPerHour: fc.constantFrom('3.5', '0.0001', '1000000', '12'),
  codec: listOf(fc.constantFrom(...CODEC_KINDS)),
  ratio: listOf(
    fc.oneof(
      fc.constantFrom('1', '1.33', '4', '5.33', '21.33', '128', '100000'),
      fc.double({ min: 1, max: 500, noNaN: true }).map((x) => x.toFixed(3)),
    ),
  ),
  ranks: listOf(fc.tuple(whole(1, 600), whole(1, 600)).map(([k, v]) => `${k}/${v}`)),
  window: fc.oneof(fc.constantFrom('128', '1', '4k'), tokens),
  constants: fc.constantFrom(...words('group=32 tail=0,keys=0.5 loop3=0.5,loop4=0.5 dense-loops=3 group=12 keys=2')),
  shared: listOf(fc.constantFrom(...SHARINGS), 2),
  path: listOf(fc.constantFrom(...PATH_CHOICES)),
  eviction: listOf(
    fc.oneof(
      fc.constantFrom('none', 'streaming:4+256', 'h2o:128+132'),
      fc.tuple(fc.constantFrom('streaming', 'h2o'), whole(1, 1e6), whole(1, 1e6)).map(([p, a, b]) => `${p}:${a}+${b}`),
    ),
    2,
  ),
  budget: tokens,
  cacheType: fc.constantFrom('f16', 'bf16', 'f32', 'int8', 'int4'),
  weightType: fc.constant('fp8'),
  groupSize: whole(8, 4096),
  ropeDim: fc.constantFrom('2', '64', '128', '1024'),
  ropeBranch: fc.constantFrom('shared', 'per-head'),
  utilization: fc.constantFrom('0.1', '0.5', '0.9', '1'),
  reserve: fc.oneof(fc.constantFrom('0', '512MiB', '8GB'), bytes),
  pageTokens: fc.constantFrom('32', '64', '4096', '65536'),
  prefill: fc.constantFrom('one-shot', 'by-layer', 'accumulated', 'chunked'),
  min: fc.constantFrom('gsm8k=0.75', 'gsm8k@isocache=0.7', 'passkey=0.9', 'train-kl=0.1', 'gsm8k=0.5,mmlu=0.1'),
  retrieval: tokens,
  tpot: fc.constantFrom('1us', '20ms', '80ms', '2s', '1000s'),
  ttft: fc.constantFrom('1us', '300ms', '10s', '5m'),
  confidence: fc.constantFrom('0.5', '0.9', '0.999'),
  keep: fc.constantFrom('0', '0.9', '1'),
  calibration: fc.constantFrom('/nonexistent.json', '/etc/passwd', '/'),
  execution: fc.constantFrom('eager', 'graphs', 'loop-graphs'),
  attention: fc.constantFrom('triton', 'flash-attn-4'),
  measuredStep: fc.constantFrom('59ms@160', '1us@1', '80ms', '@', '2s@4k'),
  stack: fc.constantFrom(
    ...words('vllm-rlt transformers vllm sglang trtllm lla-sim attainable x /nonexistent.json /etc/passwd .'),
  ),
};

const BAD = fc.oneof(
  fc.constantFrom(
    '',
    ' ',
    ...words('-1 0 1.5 -0 1e308 1e-308 NaN Infinity -Infinity 0x10 1_000 １ null undefined __proto__'),
    ...words('constructor toString = a=b=c 1/0 0/0 -4/9 4+ , ,, - -- ../.. %00'),
    '\u0000',
    '\u001b[2J',
    'a\nb',
    '$(id)',
    '"',
    "'",
    '9'.repeat(400),
    'x'.repeat(5000),
    ...words('streaming:0+0 streaming:1+ h2o:-1+5 h2o:1e9+1e9 gsm8k= gsm8k=NaN __proto__=1 gsm8k@=0.1'),
    ...words('gsm8k@@=0.1'),
  ),
  fc.string({ unit: 'binary', maxLength: 12 }),
  fc.double().map(String),
);

// With users `plan` answers with a fleet, which has tests of its own.
const names = (Object.keys(SETTINGS) as SettingName[]).filter((name) => name !== 'users');
const option = fc
  .constantFrom(...names)
  .chain((name) =>
    fc
      .tuple(
        fc.constant(`--${flagOf(name)}`),
        fc.oneof({ weight: 12, arbitrary: GOOD[name] }, { weight: 1, arbitrary: BAD }),
        fc.boolean(),
      )
      .map(([flag, value, glued]) => (glued ? [`${flag}=${value}`] : [flag, value])),
  );
/** Without this, most questions end at "the memory of the GPU is not given". */
const place = fc.oneof(
  GOOD.vram.map((v) => ['--vram', v]),
  GOOD.device.map((d) => ['--device', d]),
);
/** A narrow choice of candidates keeps thousands of plans cheap. */
const narrow = fc.oneof(
  listOf(fc.constantFrom('full', 'cla', 'kv-quant', 'final-loop'), 2).map((c) => ['--codec', c]),
  fc.tuple(fc.constantFrom('lla', 'lla-2d', 'mla-head'), GOOD.ratio).map(([c, r]) => ['--codec', c, '--ratio', r]),
  GOOD.ranks.map((r) => ['--ranks', r]),
);

/** A question that could be right. */
export const sensible = fc
  .tuple(place, narrow, fc.uniqueArray(option, { maxLength: 5, selector: (o) => o[0]?.split('=')[0] }))
  .map(([p, n, options]) => {
    const taken = new Set([...p, ...n].filter((w) => w.startsWith('--')));
    // Of a cache that is not compressed they are refused.
    if (n[1] === 'full') for (const idle of ['--ratio', '--path', '--ranks']) taken.add(idle);
    return [...p, ...n, ...options.filter((o) => !taken.has((o[0] as string).split('=')[0] as string)).flat()];
  });
/** Words in any order. */
export const wild = fc
  .array(
    fc.oneof(
      { weight: 6, arbitrary: option },
      { weight: 1, arbitrary: BAD.map((b) => [b]) },
      {
        weight: 1,
        arbitrary: fc.constantFrom(
          ...words('--all --quiet --help=1 -o -- --no-all --toString -x').map((flag) => [flag]),
          ['--__proto__', '1'],
          ['--vram', '80GB'],
        ),
      },
    ),
    { maxLength: 7 },
  )
  .map((l) => l.flat());

/** A small stack file that the program carries. */
export const STACK_FILE = JSON.parse(
  readFileSync(new URL('../../calibrations/stacks/rtx-4090-vllm.json', import.meta.url), 'utf8'),
) as object;
