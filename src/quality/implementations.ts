/**
 * Latent attention as others have built and timed it. Each measurement tells which share of a tuned kernel's speed that
 * implementation reached. `reached` is that share by this program's prices: scripts/implementations.ts computes it from
 * the figures beside it, and a test holds both equal.
 */
import type { CodecKind, PathChoice } from '../codecs/codec.js';

/** One published measurement. */
export interface Implementation {
  readonly source: string;
  /** Short, for a line of text: the GPU and the server. */
  readonly where: string;
  /** Of the catalogue. */
  readonly device: string;
  readonly model: string;
  /** The codec; lla unless given. */
  readonly kind?: CodecKind;
  /** Of the latents. */
  readonly ratio: number;
  readonly contextTokens: number;
  /** Sequences; null: as many as fit. */
  readonly batch: number | null;
  /** Seconds a decode step of the whole model; of `layers` layers' attention alone where that is given. */
  readonly secondsPerStep?: number;
  readonly layers?: number;
  /** Tokens a second of all sequences. */
  readonly tokensPerSecond?: number;
  /** The same figure of the full cache, by the same authors. */
  readonly full: number;
  /** Share of the attainable speed, by path. */
  readonly reached: Readonly<Partial<Record<PathChoice, number>>>;
}

const OURO = { model: 'ouro-1.4b', contextTokens: 4096 } as const;
const HLA = {
  ...OURO,
  source: 'HLA (arXiv 2610.07940), Table 8',
  where: 'A100, vLLM 0.26',
  device: 'a100-80',
} as const;
const HLA_OWN = { ...HLA, kind: 'hla', ratio: 32 / 3 } as const;
const PAPER = { ...OURO, where: 'H200, paper', device: 'h200' } as const;
const ABSORBED = { ...PAPER, source: 'Table absorbed_latency', ratio: 4, batch: 1, layers: 1 } as const;

/** Measurements whose shapes are known well enough to price. */
export const IMPLEMENTATIONS: readonly Implementation[] = [
  {
    ...HLA,
    ratio: 4,
    batch: 1,
    secondsPerStep: 54.1e-3,
    full: 20.6e-3,
    reached: { reconstruct: 0.181, materialised: 0.226 },
  },
  {
    ...HLA,
    ratio: 4,
    batch: null,
    tokensPerSecond: 27.8,
    full: 373,
    reached: { reconstruct: 0.0949, materialised: 0.137 },
  },
  { ...HLA_OWN, batch: 1, secondsPerStep: 20.8e-3, full: 20.6e-3, reached: { rotated: 0.536 } },
  { ...HLA_OWN, batch: null, tokensPerSecond: 1429, full: 373, reached: { rotated: 0.964 } },
  {
    ...PAPER,
    source: 'Table memory',
    ratio: 64 / 3,
    batch: null,
    tokensPerSecond: 108,
    full: 748,
    reached: { reconstruct: 0.0202, materialised: 0.124 },
  },
  { ...ABSORBED, contextTokens: 32_768, secondsPerStep: 1.19e-3, full: 0.66e-3, reached: { absorbed: 0.373 } },
  { ...ABSORBED, contextTokens: 131_072, secondsPerStep: 2.32e-3, full: 2.29e-3, reached: { absorbed: 0.553 } },
  { ...ABSORBED, contextTokens: 262_144, secondsPerStep: 4.25e-3, full: 4.46e-3, reached: { absorbed: 0.565 } },
];

/**
 * Implementations of which only tokens a second over those of the full cache are published: the slowest and the fastest
 * of several variants.
 */
export const UNPRICED: readonly { path: PathChoice; source: string; where: string; ofFull: number }[] = [
  { path: 'absorbed', source: 'HLA (arXiv 2610.07940), text', where: HLA.where, ofFull: 0.39 },
  { path: 'absorbed', source: 'HLA (arXiv 2610.07940), text', where: HLA.where, ofFull: 1.39 },
];
