/** What an option that a command does not have is called here. */
import { nearestName } from '../nearest.js';
import { SERVER_SETTINGS, servingFlag, WORKLOAD_SETTINGS, type WorkloadName } from './serving.js';

/** Options of vLLM, SGLang, TensorRT-LLM and their benchmarks, and other words for what is here. */
export const ELSEWHERE: readonly (readonly [names: readonly string[], here: readonly string[]])[] = [
  [['tensor-parallel-size', 'tensor-parallel', 'tp', 'tp-size', 'num-gpus', 'gpu-count'], ['gpus']],
  [['gpu', 'hardware', 'accelerator'], ['device']],
  [['memory', 'gpu-memory', 'ram'], ['vram']],
  [['gpu-memory-utilization', 'mem-fraction-static', 'free-gpu-memory-fraction'], ['utilization']],
  [['dtype', 'quantization', 'weights', 'precision'], ['weight-type']],
  [['kv-cache-dtype', 'kv-dtype', 'kv-cache-type'], ['cache-type']],
  [
    ['block-size', 'page-size'],
    ['block-tokens', 'page-tokens'],
  ],
  [
    ['context-length', 'max-seq-len', 'max-model-len', 'seq-len'],
    ['max-model-len', 'ctx'],
  ],
  [
    ['max-batch-size', 'max-running-requests', 'batch-size'],
    ['max-num-seqs', 'batch'],
  ],
  [['data-parallel-size', 'dp', 'dp-size'], ['replicas']],
  [['engine', 'backend', 'framework', 'server'], ['stack']],
  [['qps', 'rps', 'request-rate', 'requests-per-second'], ['rate']],
  [['concurrency', 'concurrent-users'], ['users']],
  [['num-prompts', 'num-requests'], ['requests']],
  [['isl', 'input-len', 'random-input-len', 'input-tokens', 'prompt-length'], ['prompt-tokens']],
  [['osl', 'output-len', 'random-output-len', 'max-tokens', 'output-length'], ['output-tokens']],
  [['itl', 'latency'], ['tpot']],
  [['price', 'cost', 'price-per-hour', 'cost-per-hour'], ['usd-per-hour']],
];

/** Options of servers that no setting stands for, and why. */
const NOT_PLANNED: readonly (readonly [names: readonly string[], why: string])[] = [
  [
    ['enforce-eager', 'eager', 'disable-cuda-graph'],
    'servers are planned with CUDA graphs, their default (--stack vllm-rlt: --execution); ',
  ],
  [['cpu-offload-gb', 'swap-space', 'kv-offloading-size'], 'memory of the host is not planned; '],
  [['enable-lora', 'lora-modules', 'lora'], 'adapters are not planned: plan the merged model; '],
  [['pipeline-parallel-size', 'pp', 'pp-size'], 'layers are not divided over GPUs here: --gpus divides heads; '],
];

const SERVING: readonly string[] = [
  ...Object.keys({ ...WORKLOAD_SETTINGS, ...SERVER_SETTINGS }).map((name) => servingFlag(name as WorkloadName)),
  'find-rate',
];

/**
 * @param unknown the option without its dashes
 * @param known names of the command's options
 * @returns words that end in a space; none where nothing is near
 */
export function meant(unknown: string, known: readonly string[]): string {
  const why = NOT_PLANNED.find(([names]) => names.includes(unknown))?.[1];
  if (why !== undefined) return why;
  const here = ELSEWHERE.find(([names]) => names.includes(unknown))?.[1] ?? [];
  const own = here.find((name) => known.includes(name));
  if (own !== undefined) return `here it is --${own}; `;
  const serving = [unknown, ...here].find((name) => SERVING.includes(name));
  if (serving !== undefined && !known.includes(serving)) return `lla-sim simulate has --${serving}; `;
  const guess = nearestName(unknown, known);
  return guess === undefined ? '' : `did you mean --${guess}? `;
}
