/**
 * Why figures of the ledger lie outside their intervals. Each cause was checked by the number that stands in it; what has
 * none here is unexplained.
 */
import type { Judged } from './judge.js';

interface Cause {
  readonly holds: (j: Judged) => boolean;
  readonly words: string;
}

/** Of Ouro in vLLM on A100. */
const LAUNCHES =
  'too slow by 2.2 ms at 1k to 0.7 ms at 16k with 96 layer calls, by twice as much with 192: 23 µs a call that CUDA graphs save and the kernels of the tables hold';

const CAUSES: readonly Cause[] = [
  { holds: ({ row, kind }) => row.campaign === 'a100-full' && kind === 'step', words: LAUNCHES },
  {
    holds: ({ row }) => row.model === 'ouro-1.4b' && row.source.title.startsWith('ResidualQuant'),
    words:
      'its attention does not divide a sequence: at one sequence the cache of 14,336 tokens, 11.3 GB, adds 40 ms to a step, 0.28 TB/s of 1.8',
  },
  {
    holds: ({ row, kind }) => row.server.name === 'sglang' && kind === 'step',
    words:
      'with outputs of 128 tokens 24 to 54 % too slow, of 512 4 to 20 %: SGLang takes prompts before steps and apart from them, the simulated scheduler between',
  },
  {
    holds: ({ row }) => row.device === 'gb200',
    words:
      'the source has 8 ms a step with one user, 42 with two and 28 with eight, on a server that is said to hold one request: its flags or lengths are not those that it names',
  },
  {
    holds: ({ row }) => row.id.startsWith('l20x-bf16-http-'),
    words:
      'over HTTP this server took 70.3 ms a token for one user, offline on the same host 59.3 (the named cell): what HTTP takes from the host is not modelled',
  },
  {
    holds: ({ row, figure }) => row.id === 'h800-http-2rps-native' && figure === 'ttftSeconds',
    words:
      'the client keeps at most 8 requests open and counts from sending: 1.21 of the predicted 1.29 s are the wait before that',
  },
  {
    holds: ({ row }) => row.server.name === 'transformers',
    words:
      'eager Transformers is priced as tuned kernels: 8 ms a token; with the launches of vllm-rlt on this host it would be 59',
  },
];

export const UNEXPLAINED = 'unexplained';

export const causeOf = (j: Judged): string => CAUSES.find((c) => c.holds(j))?.words ?? UNEXPLAINED;
