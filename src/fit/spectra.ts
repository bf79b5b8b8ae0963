/**
 * The structure of a model's keys and values (paper, Sec. "Cross-loop structure in the teacher cache"): how much of
 * them lies along the loops, the heads and the layers, and how they change from loop to loop.
 *
 * Along an axis of n places, a unit is a token's n vectors that differ in nothing else. Their mean is taken off, and
 * the squared singular values of what is left are its spectrum. The paper does not say whether it centres. Its figures
 * (60 % in one direction, effective rank 0.61 to 0.63 of 4, and 6 % of the variance along the loops) hold together only
 * so: without centring one direction would carry at least 94 % of K.
 */
import { cross, range } from 'd3-array';
import { EigenvalueDecomposition, Matrix } from 'ml-matrix';
import type { CodecAxis } from '../decoder/tensors.js';
import type { Geometry } from '../geometry/geometry.js';
import { mean, sum } from '../numbers/statistics.js';
import { effectiveRank, principalBasis } from './basis.js';
import { capture, type Teacher } from './capture.js';
import { Covariance } from './covariance.js';
import { AXES, byAxis } from './moments.js';

export type CacheAxis = 'loop' | 'head' | 'layer';

/** Mean spectrum of the units along an axis. */
interface AxisSpectrum {
  readonly axis: CacheAxis;
  /** Places along it. */
  readonly places: number;
  /** Share of the energy in each direction, largest first; the last is 0, as the mean is taken off. */
  readonly shares: readonly number[];
  /** exp(entropy of the shares) / places, mean over the units. */
  readonly effectiveRank: number;
}

/** How keys, or values, lie along the axes. */
export interface SideStructure {
  readonly side: CodecAxis;
  readonly axes: readonly AxisSpectrum[];
  /** Share of the variance of a layer and head, around one mean for all loops, that lies between a token's loops. */
  readonly varianceAlongLoops: number;
  /** ‖x of loop t + 1 − x of loop t‖ / ‖x of loop t‖, mean over tokens, layers and heads; T − 1 values. */
  readonly change: readonly number[];
  /** Cosine of each loop's vector with the last loop's. */
  readonly cosineToLast: readonly number[];
}

export interface SideSpectra extends SideStructure {
  /** Share of the variance of the stacked loops that the first r directions hold, mean over layers and heads. */
  readonly energyAtRank: readonly { readonly rank: number; readonly share: number }[];
  readonly stackedEffectiveRank: number;
}

export interface Spectra {
  readonly tokens: number;
  /** Layers and heads whose stacked loops are studied, and all of them. */
  readonly stacks: { readonly studied: number; readonly all: number };
  readonly key: SideSpectra;
  readonly value: SideSpectra;
}

/** Of one text. */
export type Structure = Readonly<Record<CodecAxis, SideStructure>>;

/** Tokens of a batch, and of a text, whose units are decomposed one by one. */
const SAMPLED = 24;
const SAMPLED_OF_TEXT = 8;

/** Running sums of keys or of values. */
export class Side {
  private readonly sums = new Map<CacheAxis, { count: number; rank: number; shares: Float64Array }>();
  /** Of the variance around a mean for all loops: sums by layer, head and component; squares of all; values of each. */
  private readonly totals = new Map<string, number>();
  private squares = 0;
  private values = 0;
  private between = 0;
  private readonly change: Float64Array;
  private readonly cosine: Float64Array;
  private units = 0;

  constructor(
    private readonly side: CodecAxis,
    private readonly g: Geometry,
  ) {
    this.change = new Float64Array(Math.max(0, g.loops - 1));
    this.cosine = new Float64Array(g.loops);
  }

  /** Takes tokens whose units are decomposed one by one. @param all [layer][loop][head][component] over tokens */
  add(all: readonly Float64Array[][][][], tokens: number): void {
    const { layers, loops, kvHeads: heads } = this.g;
    for (let token = 0; token < tokens; token++) {
      const vectorOf = (layer: number, loop: number, head: number): number[] =>
        (all[layer]?.[loop]?.[head] as Float64Array[]).map((column) => column[token] as number);
      for (const [layer, head] of cross(range(layers), range(heads))) {
        const unit = range(loops).map((loop) => vectorOf(layer, loop, head));
        this.unit('loop', unit);
        this.trajectory(unit);
      }
      for (const [layer, loop] of cross(range(layers), range(loops)))
        this.unit(
          'head',
          range(heads).map((head) => vectorOf(layer, loop, head)),
        );
      for (const [loop, head] of cross(range(loops), range(heads)))
        this.unit(
          'layer',
          range(layers).map((layer) => vectorOf(layer, loop, head)),
        );
    }
  }

  /** Takes the variance of one layer and head. @param own [loop][component] over tokens */
  addVariance(name: string, own: readonly (readonly Float64Array[])[], tokens: number): void {
    for (let i = 0; i < this.g.headDim; i++) {
      let [all, squares] = [0, 0];
      for (let token = 0; token < tokens; token++) {
        let [sum, ofLoops] = [0, 0];
        for (const loop of own) {
          const x = loop[i]?.[token] as number;
          sum += x;
          ofLoops += x * x;
        }
        this.between += ofLoops - (sum * sum) / own.length;
        all += sum;
        squares += ofLoops;
      }
      const key = `${name} ${i}`;
      this.totals.set(key, (this.totals.get(key) ?? 0) + all);
      this.squares += squares;
    }
    this.values += own.length * tokens;
  }

  private unit(axis: CacheAxis, vectors: readonly (readonly number[])[]): void {
    const n = vectors.length;
    if (n < 2) return;
    const width = (vectors[0] as readonly number[]).length;
    const mean = Array.from({ length: width }, (_, i) => vectors.reduce((sum, v) => sum + (v[i] as number), 0) / n);
    const centred = vectors.map((v) => v.map((x, i) => x - (mean[i] as number)));
    const gram = centred.map((a) => centred.map((b) => a.reduce((sum, x, i) => sum + x * (b[i] as number), 0)));
    const energies = new EigenvalueDecomposition(new Matrix(gram), { assumeSymmetric: true }).realEigenvalues
      .map((v) => Math.max(0, v))
      .sort((a, b) => b - a);
    const total = sum(energies);
    if (total === 0) return;
    const own = this.sums.get(axis) ?? { count: 0, rank: 0, shares: new Float64Array(n) };
    own.count++;
    own.rank += effectiveRank(energies);
    energies.forEach((v, i) => (own.shares[i] = (own.shares[i] as number) + v / total));
    this.sums.set(axis, own);
  }

  private trajectory(loops: readonly (readonly number[])[]): void {
    const norm = (v: readonly number[]): number => Math.hypot(...v);
    const last = loops.at(-1) as readonly number[];
    this.units++;
    loops.forEach((x, t) => {
      const inner = x.reduce((sum, a, i) => sum + a * (last[i] as number), 0);
      this.cosine[t] = (this.cosine[t] as number) + inner / (norm(x) * norm(last) || 1);
      const next = loops[t + 1];
      if (next)
        this.change[t] = (this.change[t] as number) + norm(next.map((a, i) => a - (x[i] as number))) / (norm(x) || 1);
    });
  }

  structure(): SideStructure {
    const { headDim } = this.g;
    // Each layer and head was given as many values of each component.
    const each = (this.values * headDim) / this.totals.size;
    const means = [...this.totals.values()].reduce((sum, total) => sum + (total * total) / each, 0);
    return {
      side: this.side,
      axes: [...this.sums].map(([axis, { count, rank, shares }]) => ({
        axis,
        places: shares.length,
        shares: [...shares].map((v) => v / count),
        effectiveRank: rank / count,
      })),
      varianceAlongLoops: this.between / (this.squares - means || 1),
      change: [...this.change].map((v) => v / this.units),
      cosineToLast: [...this.cosine].map((v) => v / this.units),
    };
  }

  /** @param stacked spectra of the stacked loops, largest first, one a layer and head that was studied */
  done(stacked: readonly (readonly number[])[]): SideSpectra {
    const { loops, headDim } = this.g;
    const width = loops * headDim;
    const ranks = [...new Set([1, 2, 4, 8, 16, 32, 64, 128, 256, width >> 2, width >> 1])]
      .filter((r) => r >= 1 && r <= width)
      .sort((a, b) => a - b);
    const meanOver = (value: (spectrum: readonly number[]) => number): number => mean(stacked.map(value));
    const shareAt = (rank: number) => (spectrum: readonly number[]) =>
      sum(spectrum.slice(0, rank)) / (sum(spectrum) || 1);
    return {
      ...this.structure(),
      energyAtRank: ranks.map((rank) => ({ rank, share: meanOver(shareAt(rank)) })),
      stackedEffectiveRank: meanOver(effectiveRank),
    };
  }
}

interface Unit {
  readonly layer: number;
  readonly head: number;
  readonly moments: Readonly<Record<CodecAxis, Covariance>>;
}

/** Units spread evenly over layers and heads, as many as the memory holds. */
function unitsOf(g: Geometry, memoryBytes: number): Unit[] {
  const all = g.layers * g.kvHeads;
  const width = g.loops * g.headDim;
  // One is decomposed beside all of them.
  const room = (memoryBytes - Covariance.basisBytes(width, 1)) / (2 * Covariance.bytes(width));
  const count = Math.max(1, Math.min(all, Math.floor(room)));
  return range(count).map((n) => {
    const at = Math.floor((n * all) / count);
    const moments = byAxis(() => new Covariance(width));
    return { layer: Math.floor(at / g.kvHeads), head: at % g.kvHeads, moments };
  });
}

/** Places of tokens, as evenly spread over `count` of them as `wanted` allows. */
function spread(from: number, count: number, wanted: number): number[] {
  const step = Math.max(1, Math.floor(count / wanted));
  return range(Math.ceil(count / step)).map((n) => from + n * step);
}

const tokensOf = (columns: readonly Float64Array[][][], chosen: readonly number[]): Float64Array[][][] =>
  columns.map((heads) =>
    heads.map((own) => own.map((column) => Float64Array.from(chosen, (token) => column[token] as number))),
  );

/**
 * Studies a model's keys and values over windows of tokens: single tokens of all layers and heads, and the stacked
 * loops of as many layers and heads as the memory holds.
 * @param memoryBytes for their covariances
 */
export async function spectraOf(
  teacher: Teacher,
  windows: readonly (readonly number[])[],
  memoryBytes: number,
  onProgress?: (done: number) => void,
): Promise<Spectra> {
  const { geometry: g } = teacher;
  const units = unitsOf(g, memoryBytes);
  const sides = byAxis((side) => new Side(side, g));
  await capture(teacher, windows, async (captured, done) => {
    const { tokens } = captured;
    const chosen = spread(0, tokens, SAMPLED);
    for (const side of AXES) {
      const all: Float64Array[][][][] = [];
      for (const layer of range(g.layers)) {
        const columns = await captured.columns(side, layer);
        all.push(tokensOf(columns, chosen));
        for (const unit of units.filter((own) => own.layer === layer)) {
          const own = columns.map((heads) => heads[unit.head] as Float64Array[]);
          unit.moments[side].add(own.flat(), tokens);
          sides[side].addVariance(`${layer} ${unit.head}`, own, tokens);
        }
      }
      sides[side].add(all, chosen.length);
    }
    onProgress?.(done / windows.length);
  });
  const spectra = byAxis((side) =>
    sides[side].done(units.map(({ moments }) => principalBasis(moments[side], 1).variances)),
  );
  return {
    tokens: sum(windows.map((window) => window.length)),
    stacks: { studied: units.length, all: g.layers * g.kvHeads },
    ...spectra,
  };
}

/** The structure of each window by itself, so that windows can be resampled. No covariances are kept. */
export async function structureOf(teacher: Teacher, windows: readonly (readonly number[])[]): Promise<Structure[]> {
  const { geometry: g } = teacher;
  const out: Structure[] = [];
  await capture(teacher, windows, async (captured, done) => {
    const lengths = windows.slice(out.length, done).map((window) => window.length);
    const sides = lengths.map(() => byAxis((side) => new Side(side, g)));
    for (const side of AXES) {
      const sampled = lengths.map((): Float64Array[][][][] => []);
      for (const layer of range(g.layers)) {
        const columns = await captured.columns(side, layer);
        let from = 0;
        for (const [window, length] of lengths.entries()) {
          sampled[window]?.push(tokensOf(columns, spread(from, length, SAMPLED_OF_TEXT)));
          for (const head of range(g.kvHeads)) {
            const own = columns.map((heads) =>
              (heads[head] as Float64Array[]).map((column) => column.subarray(from, from + length)),
            );
            sides[window]?.[side].addVariance(`${layer} ${head}`, own, length);
          }
          from += length;
        }
      }
      for (const [window, all] of sampled.entries())
        sides[window]?.[side].add(all, (all[0]?.[0]?.[0]?.[0] as Float64Array).length);
    }
    out.push(...sides.map((own) => byAxis((side) => own[side].structure())));
  });
  return out;
}
