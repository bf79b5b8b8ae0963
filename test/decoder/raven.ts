/**
 * A shrunken Huginn as it is published, and its forward pass in float64, written from the publishers' description
 * (github.com/seal-rg/recurrent-pretraining, recpre/raven_modeling_minimal.py, Apache-2.0) and independent of the
 * decoder: packed projections stay packed, the embedding is scaled, the state begins at zero.
 */
import { randomFrom } from '../../src/numbers/random.js';
import { bytesOf, type PlainTensor } from './files.js';

/** Every field of the publishers' config.json, with small sizes. */
export const RAVEN = {
  architectures: ['RavenForCausalLM'],
  model_type: 'huginn_raven',
  architecture_class_name: 'RecurrentGPT',
  block_class_name: 'SandwichBlock',
  mlp_class_name: 'GatedMLP',
  norm_class_name: 'RMSNorm_llama',
  nonlin_name: 'SiLU',
  activation_checkpoint_impl: 'per-iteration',
  auto_map: { AutoConfig: 'raven_config_minimal.RavenConfig' },
  bias: false,
  block_size: 128,
  init_orthogonal: false,
  init_strategy: 'takase',
  injection_type: 'linear',
  intermediate_size: 40,
  mean_backprop_depth: 8,
  mean_recurrence: 3,
  n_embd: 32,
  n_heads: 2,
  n_layers: 4,
  n_layers_in_coda: 1,
  n_layers_in_prelude: 1,
  n_layers_in_recurrent_block: 2,
  norm_eps: 1e-6,
  num_key_value_heads: 2,
  padded_vocab_size: 64,
  padding_multiple: 4096,
  qk_bias: true,
  rope_base: 50000,
  sampling_scheme: 'poisson-lognormal-filling',
  state_init: 'like-init',
  tie_embeddings: true,
  tie_word_embeddings: true,
  torch_dtype: 'bfloat16',
  vocab_size: 64,
};
export type RavenConfig = typeof RAVEN & {
  readonly rope_theta?: number;
  readonly init_values?: { readonly embed_scale: number };
};

/**
 * A Llama that was retrofitted with Huginn's loops: its file differs from Huginn's in these fields, its layers in more
 * (github.com/LoopedLMs/retrofitting-recurrence, convert_llama.py and raven_modeling_minimal_llama.py).
 */
export const RETROFIT: RavenConfig = {
  ...RAVEN,
  qk_bias: false,
  num_key_value_heads: 1,
  tie_embeddings: false,
  tie_word_embeddings: false,
  rope_theta: 10_000,
  init_values: { embed_scale: 1 },
};

const [PRELUDE, CORE, CODA] = ['prelude', 'core_block', 'coda'] as const;
const blocksOf = (c: RavenConfig): readonly (readonly [string, number])[] => [
  [PRELUDE, c.n_layers_in_prelude],
  [CORE, c.n_layers_in_recurrent_block],
  [CODA, c.n_layers_in_coda],
];

/** Published tensors with random values, as bf16 holds them. */
export function ravenWeights(c: RavenConfig, seed: number): Record<string, PlainTensor> {
  const random = randomFrom(seed);
  const out: Record<string, PlainTensor> = {};
  const put = (name: string, shape: number[], centre: number, spread: number): void => {
    const count = shape.reduce((product, n) => product * n, 1);
    const drawn = Array.from({ length: count }, () => centre + spread * Math.sqrt(3) * (2 * random() - 1));
    const bytes = bytesOf({ dtype: 'BF16', shape, values: drawn });
    const values = drawn.map((_, i) => {
      const word = Buffer.alloc(4);
      bytes.copy(word, 2, 2 * i, 2 * i + 2);
      return word.readFloatLE();
    });
    out[name] = { dtype: 'BF16', shape, values };
  };
  const h = c.n_embd;
  const matrix = (name: string, shape: [number, number]): void => put(name, shape, 0, shape[1] ** -0.5);
  matrix('transformer.wte.weight', [c.padded_vocab_size, h]);
  matrix('transformer.adapter.weight', [h, 2 * h]);
  put('transformer.ln_f.weight', [h], 1, 0.2);
  for (const [block, layers] of blocksOf(c))
    for (let i = 0; i < layers; i++) {
      const at = `transformer.${block}.${i}`;
      for (const n of c.qk_bias ? [1, 2, 3, 4] : [1, 2]) put(`${at}.norm_${n}.weight`, [h], 1, 0.2);
      matrix(`${at}.attn.Wqkv.weight`, [h + (2 * h * c.num_key_value_heads) / c.n_heads, h]);
      if (c.qk_bias) put(`${at}.attn.qk_bias`, [2, 1, c.n_heads, h / c.n_heads], 0, 0.3);
      matrix(`${at}.attn.proj.weight`, [h, h]);
      matrix(`${at}.mlp.fc.weight`, [2 * c.intermediate_size, h]);
      matrix(`${at}.mlp.proj.weight`, [h, c.intermediate_size]);
    }
  if (!c.tie_embeddings) matrix('lm_head.weight', [c.padded_vocab_size, h]);
  // A table that the published files carry along, in f32.
  out['freqs_cis'] = { dtype: 'F32', shape: [1, 2, 1, 1, 2], values: [1, 0, 1, 0] };
  return out;
}

type V = number[];

/** Logits of every token. */
export function ravenForward(c: RavenConfig, weights: Record<string, PlainTensor>, tokens: readonly number[]): V[] {
  const w = (name: string): V => weights[name]!.values;
  const times = (name: string, x: V): V => {
    const m = w(name);
    return Array.from({ length: m.length / x.length }, (_, row) =>
      x.reduce((sum, value, i) => sum + value * m[row * x.length + i]!, 0),
    );
  };
  const norm = (name: string, x: V): V => {
    const size = Math.sqrt(x.reduce((sum, value) => sum + value * value, 0) / x.length + c.norm_eps);
    return x.map((value, i) => (value / size) * w(name)[i]!);
  };
  const plus = (a: V, b: V): V => a.map((value, i) => value + b[i]!);
  const h = c.n_embd;
  const d = h / c.n_heads;
  const retrofit = !c.qk_bias;
  const rotated = (x: V, position: number): V =>
    x.map((value, i) => {
      // Llama turns number i with number i + d/2, Huginn neighbours.
      const [pair, first] = retrofit ? [i % (d / 2), i < d / 2] : [Math.floor(i / 2), i % 2 === 0];
      const apart = retrofit ? d / 2 : 1;
      const angle = position * (c.rope_theta ?? c.rope_base) ** ((-2 * pair) / d);
      const other = x[first ? i + apart : i - apart]!;
      return value * Math.cos(angle) + (first ? -1 : 1) * other * Math.sin(angle);
    });
  const attention = (at: string, xs: V[]): V[] => {
    const packed = xs.map((x) => times(`${at}.attn.Wqkv.weight`, x));
    const shared = c.n_heads / c.num_key_value_heads;
    const begins = [0, h, h + h / shared];
    const headOf = (n: number, part: number, queryHead: number): V => {
      const head = part === 0 ? queryHead : Math.floor(queryHead / shared);
      const from = begins[part]! + head * d;
      const own = packed[n]!.slice(from, from + d);
      if (part === 2) return own;
      return rotated(retrofit ? own : plus(own, w(`${at}.attn.qk_bias`).slice(from, from + d)), n);
    };
    return xs.map((_, n) => {
      const heads = Array.from({ length: c.n_heads }, (_, head) => {
        const q = headOf(n, 0, head);
        const scores = Array.from({ length: n + 1 }, (_, m) =>
          Math.exp(headOf(m, 1, head).reduce((sum, k, i) => sum + k * q[i]!, 0) / Math.sqrt(d)),
        );
        const total = scores.reduce((sum, s) => sum + s, 0);
        return scores.reduce<V>(
          (sum, s, m) =>
            plus(
              sum,
              headOf(m, 2, head).map((v) => (v * s) / total),
            ),
          Array.from({ length: d }, () => 0),
        );
      });
      return times(`${at}.attn.proj.weight`, heads.flat());
    });
  };
  const mlp = (at: string, x: V): V => {
    const both = times(`${at}.mlp.fc.weight`, x);
    const gate = both.slice(0, c.intermediate_size);
    return times(
      `${at}.mlp.proj.weight`,
      gate.map((g, i) => (g / (1 + Math.exp(-g))) * both[c.intermediate_size + i]!),
    );
  };
  const block = (name: string, layers: number, xs: V[]): V[] => {
    for (let i = 0; i < layers; i++) {
      const at = `transformer.${name}.${i}`;
      const mixed = attention(
        at,
        xs.map((x) => norm(`${at}.norm_1.weight`, x)),
      );
      if (retrofit) {
        xs = xs.map((x, n) => plus(mixed[n]!, x));
        xs = xs.map((x) => plus(mlp(at, norm(`${at}.norm_2.weight`, x)), x));
        continue;
      }
      xs = xs.map((x, n) => norm(`${at}.norm_2.weight`, plus(mixed[n]!, x)));
      xs = xs.map((x) => norm(`${at}.norm_4.weight`, plus(mlp(at, norm(`${at}.norm_3.weight`, x)), x)));
    }
    return xs;
  };
  const embedded = tokens.map((token) =>
    w('transformer.wte.weight')
      .slice(token * h, (token + 1) * h)
      .map((value) => value * (retrofit ? 1 : Math.sqrt(h))),
  );
  const prelude = block(PRELUDE, c.n_layers_in_prelude, embedded);
  let state = prelude.map((x) => x.map(() => 0));
  for (let t = 0; t < c.mean_recurrence; t++)
    state = block(
      CORE,
      c.n_layers_in_recurrent_block,
      state.map((x, n) => times('transformer.adapter.weight', [...x, ...prelude[n]!])),
    );
  const last = block(CODA, c.n_layers_in_coda, retrofit ? state : state.map((x) => norm('transformer.ln_f.weight', x)));
  const head = c.tie_embeddings ? 'transformer.wte.weight' : 'lm_head.weight';
  return last.map((x) => times(head, norm('transformer.ln_f.weight', x)));
}
