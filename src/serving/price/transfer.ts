/**
 * How fast a cache goes from a replica that prefills to one that decodes: bytes a second of each GPU.
 *
 * Servers reach a small part of what a link carries, unless somebody has tuned them. Published rates of NIXL over UCX,
 * read 2026-11-27, GB/s: 0.4 (ai-dynamo/nixl issue 922: two A100 joined by NVLink), 0.5 and 49 (vllm-project/vllm issue
 * 52607: reading and writing between GPUs of one node), 1.6 (vllm issue 41230: 2.25 MB at a time), 4.3 (vllm issue
 * 50913: three prefilling, one decoding), 7.1 (vllm pull request 25388: one of 70 MB). Ends are their ends, the
 * estimate is their median.
 */
import type { Bound } from './price.js';

const PUBLISHED: Readonly<Record<Bound, number>> = { low: 49e9, estimate: 3e9, high: 0.4e9 };

/**
 * @param asked `--transfer-rate`; null: nobody knows
 * @param link bytes a second of the GPUs' link; null where there is none
 * @param bound of the times: the fast end has the highest rate
 */
export const transferRate = (asked: number | null, link: number | null, bound: Bound): number =>
  asked ?? Math.min(link ?? Infinity, PUBLISHED[bound]);

interface Transferring {
  readonly prefillReplicas: number;
  readonly transferBytesPerSecond: number | null;
}

/** Published rates stand in for a server's own. */
export const transfersUnknown = (server: Transferring): boolean =>
  server.prefillReplicas > 0 && server.transferBytesPerSecond === null;

/** Says where published rates stand in for a server's own. */
export const transferNotes = (server: Transferring): string[] =>
  transfersUnknown(server)
    ? [
        `the cache goes to the GPUs that decode at ${PUBLISHED.high / 1e9} to ${PUBLISHED.low / 1e9} GB/s each, as ` +
          'published transfers by NIXL did; --transfer-rate sets what you measured',
      ]
    : [];
