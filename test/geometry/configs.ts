/** Configs of published models, written by hand from their public fields. */

type Sizes = readonly [hidden: number, mlp: number, layers: number, heads: number, kvHeads: number, vocab: number];

/** What configs of transformers' classes have in common. */
const model = (name: string, model_type: string, [hidden, mlp, layers, heads, kvHeads, vocab]: Sizes) => ({
  architectures: [`${name}ForCausalLM`],
  model_type,
  hidden_size: hidden,
  intermediate_size: mlp,
  num_hidden_layers: layers,
  num_attention_heads: heads,
  num_key_value_heads: kvHeads,
  vocab_size: vocab,
  tie_word_embeddings: false,
});
const BF16 = { torch_dtype: 'bfloat16' };
const NO_BIAS = { attention_bias: false, mlp_bias: false };
const NO_WINDOW = { use_sliding_window: false, sliding_window: null };

export const OURO = {
  ...model('Ouro', 'ouro', [2048, 5632, 24, 16, 16, 49152]),
  ...BF16,
  ...NO_WINDOW,
  head_dim: 128,
  rope_theta: 1000000.0,
  rope_scaling: null,
  rms_norm_eps: 1e-6,
  max_position_embeddings: 65536,
  total_ut_steps: 4,
  early_exit_threshold: 1.0,
  max_window_layers: 24,
  layer_types: Array.from({ length: 24 }, () => 'full_attention'),
};
export const HUGINN = {
  architectures: ['RavenForCausalLM'],
  model_type: 'huginn_raven',
  ...BF16,
  n_embd: 5280,
  n_heads: 55,
  num_attention_heads: 55,
  num_key_value_heads: 55,
  head_dim: 96,
  intermediate_size: 17920,
  vocab_size: 65536,
  padded_vocab_size: 65536,
  n_layers: 8,
  n_layers_in_prelude: 2,
  n_layers_in_recurrent_block: 4,
  n_layers_in_coda: 2,
  injection_type: 'linear',
  mean_recurrence: 32,
  mean_backprop_depth: 8,
  effective_expected_depth: 132,
  block_class_name: 'SandwichBlock',
  mlp_class_name: 'GatedMLP',
  norm_class_name: 'RMSNorm_llama',
  qk_bias: true,
  bias: false,
  tie_embeddings: true,
  rope_base: 50000,
  block_size: 4096,
};
export const NANBEIGE = {
  ...model('Nanbeige', 'nanbeige', [3072, 10752, 22, 48, 8, 166144]),
  ...BF16,
  head_dim: 128,
  kv_channels: 128,
  max_position_embeddings: 262144,
  rope_theta: 70000000,
  attention_bias: false,
  num_loops: 2,
  loop_loss_weights: [],
  skip_loop_final_norm: false,
};
export const LLAMA = {
  ...model('Llama', 'llama', [4096, 14336, 32, 32, 8, 128256]),
  ...BF16,
  ...NO_BIAS,
  rope_theta: 500000.0,
  max_position_embeddings: 131072,
  rope_scaling: { factor: 8.0, rope_type: 'llama3' },
};
export const QWEN2 = {
  ...model('Qwen2', 'qwen2', [3584, 18944, 28, 28, 4, 152064]),
  ...BF16,
  ...NO_WINDOW,
  sliding_window: 131072,
  rope_theta: 1000000.0,
  max_position_embeddings: 32768,
  max_window_layers: 28,
};
export const QWEN3 = {
  ...model('Qwen3', 'qwen3', [4096, 12288, 36, 32, 8, 151936]),
  ...BF16,
  ...NO_WINDOW,
  head_dim: 128,
  rope_theta: 1000000,
  attention_bias: false,
  max_position_embeddings: 40960,
};
export const MISTRAL = {
  ...model('Mistral', 'mistral', [4096, 14336, 32, 32, 8, 32768]),
  ...BF16,
  rope_theta: 1000000.0,
  sliding_window: null,
  max_position_embeddings: 32768,
};

/** Retrofitted with Huginn's loops: the file names Huginn's blocks. */
const retrofit = (
  [heads, kvHeads, headDim]: readonly [number, number, number],
  vocab: number,
  max_position_embeddings: number,
  fields: object,
): object => ({
  ...HUGINN,
  n_heads: heads,
  num_attention_heads: heads,
  num_key_value_heads: kvHeads,
  head_dim: headDim,
  vocab_size: vocab,
  padded_vocab_size: vocab,
  max_position_embeddings,
  n_layers: 14,
  n_layers_in_prelude: 4,
  n_layers_in_recurrent_block: 6,
  n_layers_in_coda: 4,
  n_embd: 2048,
  intermediate_size: 8192,
  qk_bias: false,
  tie_embeddings: false,
  rope_base: 500000.0,
  rope_theta: 500000.0,
  effective_expected_depth: 200,
  ...fields,
});
export const RECURRENT_LLAMA = retrofit([32, 8, 64], 128256, 131072, {
  rope_scaling: { factor: 32.0, low_freq_factor: 1.0, high_freq_factor: 4.0, rope_type: 'llama3' },
});
export const RECURRENT_OLMO = retrofit([16, 16, 128], 100352, 4096, {});
export const RECURRENT_TINYLLAMA = retrofit([32, 4, 64], 32000, 2048, {
  n_layers: 16,
  n_layers_in_recurrent_block: 8,
  intermediate_size: 5632,
  rope_theta: 10000.0,
});
export const RECURRENT_GEMMA = retrofit([8, 4, 256], 256000, 8192, {
  n_embd: 2304,
  intermediate_size: 9216,
  rope_theta: 10000.0,
  mean_recurrence: 16,
});

/**
 * Layers of one stack; transformers saves their runs and num_layers_per_stack, KoHRM's converter those of both stacks.
 */
export const HRM_TEXT = {
  ...model('HrmText', 'hrm_text', [1536, 4096, 16, 12, 12, 65536]),
  ...NO_BIAS,
  H_cycles: 2,
  L_cycles: 3,
  L_bp_cycles: [2],
  embedding_scale: 50.0,
  head_dim: 128,
  hidden_act: 'silu',
  max_position_embeddings: 4096,
  prefix_lm: true,
  rms_norm_eps: 1e-6,
  rope_parameters: { rope_theta: 10000.0, rope_type: 'default' },
  dtype: 'bfloat16',
};
export const KOHRM = { ...HRM_TEXT, num_hidden_layers: 32, vocab_size: 131072 };
export const MIMIR = { ...HRM_TEXT, num_hidden_layers: 128, num_layers_per_stack: 16, vocab_size: 262144 };

const parcae = (depth: number, hidden: number): object => ({
  _class_name: 'ParcaeConfig',
  name: 'parcae',
  block_size: 2048,
  vocab_size: 32768,
  padding_multiple: 64,
  padded_vocab_size: 32768,
  n_embd: hidden,
  num_attention_heads: hidden / 128,
  num_key_value_heads: hidden / 128,
  intermediate_size: 4 * hidden,
  bias: false,
  tie_embeddings: true,
  block_class_name: 'TransformerPreNormBlock',
  norm_class_name: 'RMSNorm',
  norm_eps: 1e-5,
  mlp_class_name: 'BaseMLP',
  nonlin_name: 'ReLU2',
  qk_norm: true,
  qk_bias: false,
  logit_softcap: null,
  prelude_norm: true,
  rope_settings: { use_rope: true, rope_condense_ratio: 1, rope_base: 50000 },
  injection_type: 'diagonal',
  state_init: 'like-init',
  recurrent_embedding_dimension: hidden,
  recurrent_intermediation_embedding_dimension: 4 * hidden,
  recurrent_num_attention_heads: null,
  n_layers_in_recurrent_block: depth,
  n_layers_in_prelude: depth,
  n_layers_in_coda: depth,
  mean_recurrence: 8,
  mean_backprop_depth: 4,
  sampling_scheme: 'poisson-truncated-full',
  recurrent_iteration_method: 'per-sequence',
});
export const PARCAE_140M = parcae(2, 768);
export const PARCAE_370M = parcae(4, 1024);
export const PARCAE_770M = parcae(6, 1280);
export const PARCAE_1_3B = parcae(8, 1536);

const CODER = {
  ...model('IQuestPLTCoder', 'iquestpltcoder', [5120, 27648, 80, 40, 8, 76800]),
  ...BF16,
  ...NO_BIAS,
  head_dim: 128,
  hidden_act: 'silu',
  max_position_embeddings: 131072,
  rms_norm_eps: 1e-5,
  rope_scaling: null,
  rope_theta: 500000.0,
};
export const IQUEST_LOOP = {
  ...CODER,
  architectures: ['IQuestLoopCoderForCausalLM'],
  model_type: 'iquestloopcoder',
  auto_map: { AutoModelForCausalLM: 'modeling_iquestloopcoder.IQuestLoopCoderForCausalLM' },
  loop_num: 2,
  loop_window_size: 64,
};
export const LOOPCODER_V2 = {
  ...CODER,
  auto_map: { AutoConfig: 'configuration_iquestpltcoder.IQuestPLTCoderConfig' },
  num_hidden_layers: 14,
  plt_num_loops: 2,
  plt_window_size: [64, 0],
  plt_normalize_per_loop: true,
  plt_emb_scale: 0.707,
  plt_hidden_scale: 0.053,
  plt_gate_use_hidden_states: true,
};

const FACTORIZED = { factorized_embedding: true, tie_word_embeddings: true, dtype: 'bfloat16' };
export const NANDI = {
  ...model('Nandi', 'nandi', [832, 2496, 16, 16, 4, 131072]),
  ...NO_BIAS,
  ...FACTORIZED,
  auto_map: { AutoModelForCausalLM: 'modeling_nandi.NandiForCausalLM' },
  embedding_rank: 196,
  head_dim: 52,
  layer_sharing: true,
  layer_sharing_repeats: 2,
  max_position_embeddings: 2048,
  rms_norm_eps: 1e-5,
  rope_parameters: { rope_theta: 100000, rope_type: 'default' },
  use_cache: false,
};
export const LUMMA = {
  ...model('Lumma', 'lumma', [1440, 3280, 30, 16, 8, 131072]),
  ...NO_BIAS,
  ...FACTORIZED,
  embedding_rank: 512,
  kv_cache_mode: 'shared',
  layer_sharing: false,
  layer_sharing_repeats: 1,
  max_position_embeddings: 12288,
  q_norm: true,
  qk_norm: false,
  rms_norm_eps: 1e-6,
  rope_parameters: { rope_theta: 1000000.0, rope_type: 'default' },
  shared_kv: true,
};

export const range = (from: number, to: number): number[] => Array.from({ length: to - from }, (_, i) => from + i);
export const LOOPUS = {
  architectures: ['LDSForCausalLM'],
  model_type: 'lds',
  ...BF16,
  N: 20,
  base_model_name_or_path: 'Qwen/Qwen3-1.7B',
  base_config_dict: { ...QWEN3, ...model('Qwen3', 'qwen3', [2048, 6144, 28, 16, 8, 151936]) },
  encoder_layer_indices: range(0, 2),
  reasoning_layer_indices: range(2, 27),
  decoder_layer_indices: [27],
  halting_strategy: 'threshold',
  q_threshold: 0.9,
  hidden_size: 2048,
  vocab_size: 151936,
};

/** The base of Phi4_LoopUS; layers are those of the model that it is put into. */
export const PHI_4 = {
  architectures: ['Phi3ForCausalLM'],
  model_type: 'phi3',
  hidden_size: 5120,
  intermediate_size: 17920,
  num_attention_heads: 40,
  num_key_value_heads: 10,
  head_dim: undefined,
  max_position_embeddings: 16384,
  partial_rotary_factor: 1.0,
  rope_parameters: { partial_rotary_factor: 1.0, rope_theta: 250000, rope_type: 'default' },
  rope_theta: undefined,
  rms_norm_eps: 1e-5,
  sliding_window: null,
  vocab_size: 100352,
};

/** Every family and preset, by the preset that it is read as. */
export const PUBLISHED: readonly (readonly [preset: string, config: object])[] = [
  ['ouro-1.4b', OURO],
  ['huginn-3.5b', HUGINN],
  ['nanbeige4.2-3b', NANBEIGE],
  ['hrm-text-1b', HRM_TEXT],
  ['kohrm-1.4b', KOHRM],
  ['mimir-1b', MIMIR],
  ['parcae-140m', PARCAE_140M],
  ['parcae-370m', PARCAE_370M],
  ['parcae-770m', PARCAE_770M],
  ['parcae-1.3b', PARCAE_1_3B],
  ['recurrent-llama-3.2-1b', RECURRENT_LLAMA],
  ['recurrent-olmo-2-1b', RECURRENT_OLMO],
  ['recurrent-tinyllama-1.1b', RECURRENT_TINYLLAMA],
  ['recurrent-gemma-2-2b', RECURRENT_GEMMA],
  ['loopus-qwen3-1.7b', LOOPUS],
  ['iquest-coder-v1-40b-loop', IQUEST_LOOP],
  ['loopcoder-v2-7b', LOOPCODER_V2],
  ['nandi-mini-150m', NANDI],
  ['lumma-0.6b', LUMMA],
];
