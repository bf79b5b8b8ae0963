/** What joins GPUs, and what an exchange over it takes: by a ring, and through hosts that were measured. */
import type { CollectiveKind } from '../schedule/schedule.js';
import type { Interval, Price } from './evidence.js';

/** What joins GPUs: bytes per second and direction of one of them. */
export interface Link {
  readonly bytesPerSecondPerDirection: number;
  /** Where the rate is a sum over links to single neighbours: that of one of them. */
  readonly perPeerBytesPerSecond: number | null;
  /** Most GPUs that are joined so (bridges join two or four); null where any server's are. */
  readonly mostGpus: number | null;
  /** What joins more than that, bytes per second and direction; null where nothing is known. */
  readonly beyondBytesPerSecond: number | null;
  /** It goes through the server's board and processor, which differ. */
  readonly throughHost: boolean;
}

/**
 * Exchanges through a host. NCCL on machines with RTX PRO 6000 over PCIe 5.0 moved 22 to 41 of 64 GB/s, and took 24 to
 * 48 µs for 32 KB (voipmonitor/rtx6kpro 29f3863, hardware/pcie-bandwidth.md and optimization/nccl-tuning.md); vLLM's
 * own exchange takes 5 µs where GPUs reach each other's memory. Slower was only the machine of the tables of L40S, from
 * three GPUs on: 3.7 of 32 GB/s among four, 1.4 and up to 90 µs among eight (AIConfigurator).
 */
const FASTEST_HOST = { seconds: 5e-6, shareOfRate: 41 / 64 } as const;
const SLOW_HOST = { seconds: 48e-6, shareOfRate: 22.2 / 64 } as const;
const slowestHost = (gpus: number): Host =>
  gpus <= 2 ? SLOW_HOST : { seconds: 90e-6, shareOfRate: gpus <= 4 ? 3.7 / 32 : 1.4 / 32 };

interface Host {
  readonly seconds: number;
  readonly shareOfRate: number;
}

/** Seconds of an exchange at the ends of what was published, and on the slowest machine but one. */
export type HostEnds = Readonly<Record<'slowest' | 'slow' | 'fastest', number>>;

/** Whether GPUs that exchange are joined by the server's board, not by links of their own. */
export const throughHost = (link: Pick<Link, 'throughHost' | 'mostGpus'> | null, gpus: number): boolean =>
  link !== null && (link.throughHost || (link.mostGpus !== null && gpus > link.mostGpus));

/** Ends of such an exchange; null where no host is in the way. @param bytes of the result, as sent */
export function throughHostSeconds(
  kind: CollectiveKind,
  bytes: number,
  gpus: number,
  link: Link | null,
): HostEnds | null {
  const rate = linkRate(link, gpus);
  if (rate === null || !throughHost(link, gpus)) return null;
  const on = ({ seconds, shareOfRate }: Host): number => seconds + sentBytes(kind, bytes, gpus) / rate / shareOfRate;
  return { slowest: on(slowestHost(gpus)), slow: on(SLOW_HOST), fastest: on(FASTEST_HOST) };
}

/**
 * Bytes that each GPU sends: a ring's all-gather moves (n−1)/n of the result over each link, an all-reduce twice that.
 */
const sentBytes = (kind: CollectiveKind, bytes: number, gpus: number): number =>
  ((kind === 'all-reduce' ? 2 : 1) * (gpus - 1) * bytes) / gpus;

/**
 * Rate at which `gpus` exchange, bytes per second and direction of each: with links to single neighbours, only those to
 * the GPUs that take part carry anything.
 */
export function linkRate(link: Link | null, gpus: number): number | null {
  if (!link) return null;
  if (link.mostGpus !== null && gpus > link.mostGpus) return link.beyondBytesPerSecond;
  const { bytesPerSecondPerDirection: all, perPeerBytesPerSecond: each } = link;
  return each === null ? all : Math.min(all, each * (gpus - 1));
}

/**
 * Start-up latency of an all-reduce, seconds: servers' own take 3 to 4.4 µs over NVLink (tables of vLLM, SGLang and
 * TRT-LLM), NCCL's 10 to 30.
 */
const COLLECTIVE_LATENCY: Interval = { estimate: 6e-6, low: 3e-6, high: 30e-6 };

/** An exchange by a ring: 70 % of the link's rate assumed, 100 % and 40 % bracket it. */
export function exchange(kind: CollectiveKind, bytes: number, gpus: number, link: Link | null): Price | null {
  const rate = linkRate(link, gpus);
  if (rate === null) return null;
  const seconds = sentBytes(kind, bytes, gpus) / rate;
  return {
    estimate: COLLECTIVE_LATENCY.estimate + seconds / 0.7,
    low: COLLECTIVE_LATENCY.low + seconds,
    high: Math.max(COLLECTIVE_LATENCY.high + seconds / 0.4, throughHostSeconds(kind, bytes, gpus, link)?.slowest ?? 0),
    evidence: 'roofline',
    octavesOutside: 0,
    by: 'roofline',
  };
}
