/**
 * What a `config.json` may say that is not modelled. A loop or another cache that nobody here knows is refused by name:
 * read as a model without it, its bytes would look right and be wrong.
 */
import { show } from '../errors.js';
import { CONVENTIONAL, received, type Config } from './config.js';

/** Features whose cache or weights a Geometry cannot express, in any family. */
const UNSUPPORTED: readonly (readonly [what: string, keys: readonly string[]])[] = [
  ['multi-head latent attention', ['kv_lora_rank', 'q_lora_rank']],
  [
    'a hybrid or state-space model',
    [
      'ssm_cfg',
      'mamba_d_state',
      'mamba_d_ssm',
      'state_size',
      'layers_block_type',
      'hybrid_override_pattern',
      'attn_layer_period',
      'linear_num_value_heads',
      'block_types',
    ],
  ],
  [
    'layers that share their cache',
    ['num_kv_shared_layers', 'cla_share_factor', 'cross_attention_layers', 'loop_share_kv'],
  ],
  ['a multimodal model', ['vision_config', 'audio_config', 'text_config', 'thinker_config']],
];
const EXPERTS = [
  'num_experts',
  'num_local_experts',
  'n_routed_experts',
  'moe_num_experts',
  'num_experts_per_tok',
  'n_shared_experts',
];

/** Keys that name a loop by themselves. */
const LOOP_LIKE = /loop|recur|ut_steps/i;
/** Other keys of published models that mean a loop or another cache. */
const LOOPS_OR_CACHES: readonly string[] = [
  'H_cycles',
  'L_cycles',
  'num_layers_per_stack',
  'layer_sharing',
  'layer_sharing_repeats',
  'plt_window_size',
  'num_stacks',
  'mu_rec',
  'max_iter',
  'reasoning_layer_indices',
  'num_mem_blocks',
  'shared_kv',
  'kv_cache_mode',
  'pondering_steps',
  'num_latent_thoughts',
  'n_physical_layers',
];

/** Of these, 1 is one more than nothing; of others it is one pass, as without a loop. */
const ON_AT_ONE: readonly string[] = ['num_mem_blocks', 'pondering_steps', 'num_latent_thoughts'];

/** Next action where a loop is not known: another class's name would only hide it. */
const ASK = 'name one of the built-in models, or ask for this class to be added, with its modelling code';

/** Models that are known and whose cache is not public, or out of reach. */
const KNOWN: readonly (readonly [type: string, key: string | null, why: string])[] = [
  [
    'mobilellm',
    'layer_sharing',
    'each block runs twice, and which run keeps which rows of the cache is not public (it ships without a cache)',
  ],
  ['zamba', null, 'beside its cache it keeps a state of fixed size (Mamba layers), which is not modelled'],
  ['zamba2', null, 'beside its cache it keeps a state of fixed size (Mamba layers), which is not modelled'],
  ['loopformer', null, "the number of loops stands in the repository's name alone, and its own code keeps no cache"],
];

/** Refuses by name what is known and cannot be planned. */
export function refuseKnown(c: Config): void {
  const type = c.get('model_type');
  const found = KNOWN.find(([name, key]) => name === type && (key === null || c.on(key)));
  if (found) c.refuse(`model_type ${show(found[0])} is not planned: ${found[2]}`, ASK);
}

const typeOf = (c: Config): string =>
  c.has('model_type') && typeof c.get('model_type') === 'string' ? show(c.get('model_type')) : 'missing';

/**
 * Refuses a field that means a loop or another cache where the family does not read it.
 * @param read fields of that kind that the family reads
 * @param field where the family has its number of loops; another name for the same number is no other loop
 */
export function refuseLoops(c: Config, read: readonly string[] = [], field: string | null = null): void {
  const loops = field === null ? undefined : c.get(field);
  const key = c.keys.find(
    (k) =>
      (LOOP_LIKE.test(k) || LOOPS_OR_CACHES.includes(k)) &&
      !read.includes(k) &&
      k !== field &&
      c.on(k) &&
      (c.get(k) !== 1 || ON_AT_ONE.includes(k)) &&
      c.get(k) !== loops,
  );
  if (key === undefined) return;
  if (field !== null && loops === undefined)
    c.refuse(
      `${show(key)} says that the model loops, but model_type ${typeOf(c)} has its loops in ${field}, which is missing`,
      `if it is the number of loops, call it ${field}`,
    );
  c.refuse(
    `${show(key)} says that the model loops or keeps another cache, for which its model_type (${typeOf(c)}) is ` +
      'not known',
    ASK,
  );
}

/** Classes of a family without loops are the library's own; code that comes with the weights may do anything. */
export function refuseOwnCode(c: Config): void {
  if (!c.on('auto_map')) return;
  const map = c.object('auto_map');
  const key = map.keys.find((k) => k.startsWith('AutoModel') || k === 'AutoConfig');
  if (key !== undefined)
    c.refuse(`auto_map names code of its own (${key}) beside model_type ${typeOf(c)}, which may loop`, ASK);
}

/** Refuses what no family has. */
export function refuseUnsupported(c: Config): void {
  for (const [what, keys] of UNSUPPORTED) {
    const key = keys.find((k) => c.on(k));
    if (key !== undefined) c.refuse(`${key} is set, which means ${what}; that is not modelled`, CONVENTIONAL);
  }
  for (const key of EXPERTS) {
    if (c.on(key) && c.get(key) !== 1)
      c.refuse(`${key} is set, which means a mixture of experts; that is not modelled`, CONVENTIONAL);
  }
  const types = c.get('layer_types');
  if (types !== undefined && !(Array.isArray(types) && types.every((t) => t === 'full_attention'))) {
    c.refuse(
      'layer_types must be "full_attention" throughout; sliding-window, linear and other layers keep another ' +
        'cache, which is not modelled',
      CONVENTIONAL,
    );
  }
  if (c.get('partial_rotary_factor') !== undefined && c.get('partial_rotary_factor') !== 1) {
    c.refuse(
      `partial_rotary_factor must be 1, ${received(c.get('partial_rotary_factor'))}; partly rotated heads are not ` +
        'modelled',
      CONVENTIONAL,
    );
  }
}

/**
 * Mistral's window is in force whenever set (and its class sets one when the key is absent); elsewhere a switch
 * decides.
 */
export function refuseSlidingWindow(c: Config, windowIsDefault: boolean): void {
  const hint = CONVENTIONAL;
  if (windowIsDefault) {
    if (!c.has('sliding_window'))
      c.refuse(
        'sliding_window must be stated (null for full attention), missing; the class default is 4096',
        'add "sliding_window": null if the model attends to everything',
      );
    if (c.get('sliding_window') !== undefined)
      c.refuse(
        `sliding_window must be null, ${received(c.get('sliding_window'))}; sliding-window layers keep another ` +
          'cache, which is not modelled',
        hint,
      );
  } else if (c.boolean('use_sliding_window', false)) {
    c.refuse(
      'use_sliding_window must be false, not true; sliding-window layers keep another cache, which is not modelled',
      hint,
    );
  }
}
