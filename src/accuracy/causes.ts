/**
 * Why figures of the ledger lie outside their intervals. Each cause was checked by the number that stands in it; what has
 * none here is unexplained.
 */
import type { Judged } from './judge.js';

interface Cause {
  readonly holds: (j: Judged) => boolean;
  readonly words: string;
}

const CAUSES: readonly Cause[] = [
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
