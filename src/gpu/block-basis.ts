/**
 * The functions of block-absorbed attention, from the rotary frequencies in float64. In a block of B positions with offsets
 * δ = ±½, ±1½, … from its centre, the tables cos(θ_m δ) and sin(θ_m δ) over offsets and pairs are numerically of low rank, and the
 * same in every block. A singular value decomposition factors each into Φ·Ψ; the fastest pairs stay as they are.
 */
import { lowRank } from './low-rank.js';
import { rotaryFrequencies } from './rotary.js';

export const BLOCK_TOKENS = 256;
const HALF = BLOCK_TOKENS / 2;
/** Most quads of functions, of both parities, that the kernel holds in registers. */
const MOST_QUADS = 16;
/**
 * Largest error of any pair at any offset. It bounds the score error by √2 times itself relative to ‖q‖·‖k‖ even for a query that is
 * concentrated on the worst pair.
 */
const TOLERANCE = 5e-6;

export interface BlockBasis {
  /** Fast pairs that are taken as they are. */
  exact: number;
  /** Even and odd functions for the other pairs. */
  even: number;
  odd: number;
  evenQuads: number;
  oddQuads: number;
  /** [offset][even quads, odd quads]: cos of the exact pairs, even functions; sin of the exact pairs, odd functions. */
  phi: Float32Array<ArrayBuffer>;
  /** [pair][even quads, odd quads]: what each pair takes of each function; one of its own if it is exact. */
  psi: Float32Array<ArrayBuffer>;
  /** Multiply-adds a cached token, query head and latent component, set-up included. */
  macsPerRank: number;
  /** Largest error of any pair at any offset. */
  largestError: number;
}

interface Factors {
  /** Functions of the offset, and what each pair takes of them. */
  phi: Float64Array[];
  psi: Float64Array[];
  error: number;
}

const quads = (count: number): number => Math.ceil(count / 4);
const offsetAt = (row: number): number => row + 0.5;

/** Far below the tolerance, far above rounding. */
const FLOOR = 1e-12;
/** Phases θ_m B/2 of the fastest pair that is expanded: above it takes more functions than it saves, below nothing is gained. */
const PHASES = { most: 14, least: 1 };

/** Smallest factorisation of f(θ_m δ) over all offsets and the given pairs whose largest error is within the tolerance. */
function factorise(theta: Float64Array, f: (angle: number) => number): Factors {
  const rest = Array.from(theta, (t) => Float64Array.from({ length: HALF }, (_, d) => f(t * offsetAt(d))));
  const { left, right } = lowRank(rest, FLOOR);
  let rank = 0;
  let error = largest(rest);
  while (error > TOLERANCE && rank < left.length) {
    const [u, v] = [left[rank] as Float64Array, right[rank] as Float64Array];
    rest.forEach((column, m) => column.forEach((x, d) => (column[d] = x - (u[d] as number) * (v[m] as number))));
    rank++;
    error = largest(rest);
  }
  return { phi: left.slice(0, rank), psi: right.slice(0, rank), error };
}

const largest = (columns: readonly Float64Array[]): number => columns.reduce((most, c) => c.reduce((a, x) => Math.max(a, Math.abs(x)), most), 0);

const cache = new Map<string, BlockBasis>();

/** The cheapest basis for a rotary base and head width. */
export function blockBasis(ropeBase: number, headDim: number): BlockBasis {
  const key = `${ropeBase} ${headDim}`;
  let best = cache.get(key);
  if (best) return best;
  const theta = rotaryFrequencies(ropeBase, headDim);
  for (let exact = 0; exact < theta.length; exact++) {
    const phase = (theta[exact] as number) * HALF;
    if (phase > PHASES.most && exact + 1 < theta.length) continue;
    if (phase < PHASES.least && best) break;
    const rest = theta.subarray(exact);
    const [even, odd] = [factorise(rest, Math.cos), factorise(rest, Math.sin)];
    const [me, mo] = [even.psi.length, odd.psi.length];
    const [evenQuads, oddQuads] = [quads(exact + me), quads(exact + mo)];
    if (evenQuads + oddQuads > MOST_QUADS) continue;
    // Each quad of functions serves ± an offset. Per block every pair of quads, even and odd, sums the pairs that it needs: 4 products
    // turn a pair, 8 go to the sums.
    const macsPerRank = 2 * (evenQuads + oddQuads) + 2 + (12 * quadSums(theta.length, exact, Math.max(evenQuads, oddQuads))) / BLOCK_TOKENS;
    if (best && best.macsPerRank <= macsPerRank) continue;
    best = { exact, even: me, odd: mo, evenQuads, oddQuads, macsPerRank, largestError: Math.max(even.error, odd.error), phi: phiTable(theta, exact, even, odd, evenQuads, oddQuads), psi: psiTable(theta.length, exact, even, odd, evenQuads, oddQuads) };
  }
  if (!best) throw new Error(`no block basis for rotary base ${ropeBase} and head width ${headDim} fits the kernel`);
  cache.set(key, best);
  return best;
}

/** Pairs summed by `count` quads: four by a quad of exact pairs, all that are not exact by the others. */
function quadSums(pairs: number, exact: number, count: number): number {
  const plain = Math.floor(exact / 4);
  return 4 * plain + (pairs - exact) * (count - plain) + (exact % 4);
}

function phiTable(theta: Float64Array, exact: number, even: Factors, odd: Factors, evenQuads: number, oddQuads: number): Float32Array<ArrayBuffer> {
  const width = 4 * (evenQuads + oddQuads);
  const table = new Float32Array(HALF * width);
  for (let d = 0; d < HALF; d++) {
    const row = table.subarray(d * width, (d + 1) * width);
    for (let m = 0; m < exact; m++) {
      row[m] = Math.cos((theta[m] as number) * offsetAt(d));
      row[4 * evenQuads + m] = Math.sin((theta[m] as number) * offsetAt(d));
    }
    even.phi.forEach((u, j) => (row[exact + j] = u[d] as number));
    odd.phi.forEach((u, j) => (row[4 * evenQuads + exact + j] = u[d] as number));
  }
  return table;
}

function psiTable(pairs: number, exact: number, even: Factors, odd: Factors, evenQuads: number, oddQuads: number): Float32Array<ArrayBuffer> {
  const width = 4 * (evenQuads + oddQuads);
  const table = new Float32Array(pairs * width);
  for (let m = 0; m < pairs; m++) {
    const row = table.subarray(m * width, (m + 1) * width);
    if (m < exact) {
      row[m] = 1;
      row[4 * evenQuads + m] = 1;
      continue;
    }
    even.psi.forEach((v, j) => (row[exact + j] = v[m - exact] as number));
    odd.psi.forEach((v, j) => (row[4 * evenQuads + exact + j] = v[m - exact] as number));
  }
  return table;
}

/** (cos, sin) of each pair at the centre of each block, from float64 angles. */
export function blockPhases(ropeBase: number, headDim: number, firstPosition: number, context: number): Float32Array<ArrayBuffer> {
  const theta = rotaryFrequencies(ropeBase, headDim);
  const blocks = Math.ceil(context / BLOCK_TOKENS);
  const table = new Float32Array(blocks * theta.length * 2);
  for (let b = 0; b < blocks; b++) {
    const centre = firstPosition + b * BLOCK_TOKENS + (BLOCK_TOKENS - 1) / 2;
    theta.forEach((t, m) => {
      table[2 * (b * theta.length + m)] = Math.cos(t * centre);
      table[2 * (b * theta.length + m) + 1] = Math.sin(t * centre);
    });
  }
  return table;
}
