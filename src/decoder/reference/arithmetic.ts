/** The few operations of a transformer in float64, as their definitions have them. */
import type { Geometry } from '../../geometry/geometry.js';

/** W of y = W x: `rows` outputs by `columns` inputs, row-major. */
export interface Matrix {
  readonly rows: number;
  readonly columns: number;
  readonly data: Float64Array;
}

export type Vector = Float64Array;

/** Σ a_i b_i over the length of `a`. */
export function dot(a: Vector, b: Vector): number {
  let sum = 0;
  for (let i = 0; i < a.length; i++) sum += (a[i] as number) * (b[i] as number);
  return sum;
}

/** y = W x (+ bias). */
export function product(w: Matrix, x: Vector, bias?: Vector): Vector {
  const { rows, columns, data } = w;
  const y = new Float64Array(rows);
  for (let row = 0; row < rows; row++) {
    let sum = 0;
    for (let i = 0; i < columns; i++) sum += (x[i] as number) * (data[row * columns + i] as number);
    y[row] = sum + (bias ? (bias[row] as number) : 0);
  }
  return y;
}

/** y += factor · x, in place. */
export function accumulate(y: Vector, x: Vector, factor = 1): void {
  for (let i = 0; i < y.length; i++) y[i] = (y[i] as number) + factor * (x[i] as number);
}

/** RMSNorm: x / √(mean x² + ε) · weight (Zhang and Sennrich, eq. 4). */
export function rmsNorm(x: Vector, weight: Vector, epsilon: number): Vector {
  const factor = 1 / Math.sqrt(dot(x, x) / x.length + epsilon);
  const y = new Float64Array(x.length);
  for (let i = 0; i < x.length; i++) y[i] = (x[i] as number) * factor * (weight[i] as number);
  return y;
}

export const swiglu = (gate: Vector, up: Vector): Vector =>
  gate.map((g, i) => (g / (1 + Math.exp(-g))) * (up[i] as number));

/**
 * Rotary position embedding (Su et al., eq. 34): rotates pair m of a vector by position · base^(−2m/width). Pairs are
 * (m, m + width/2) for `half-split` and (2m, 2m + 1) for `adjacent`. Rotating by p and then by q is rotating by p + q.
 */
export function rotate(x: Vector, position: number, rope: Geometry['rope']): Vector {
  const y = new Float64Array(x.length);
  const half = x.length / 2;
  const table = anglesOf(position, x.length, rope);
  for (let m = 0; m < half; m++) {
    const a = rope.pairing === 'adjacent' ? 2 * m : m;
    const b = rope.pairing === 'adjacent' ? 2 * m + 1 : m + half;
    const cos = table[2 * m] as number;
    const sin = table[2 * m + 1] as number;
    y[a] = (x[a] as number) * cos - (x[b] as number) * sin;
    y[b] = (x[a] as number) * sin + (x[b] as number) * cos;
  }
  return y;
}

const lastRotated = new WeakMap<Vector, { readonly position: number; readonly rope: object; readonly y: Vector }>();

/** `rotate` of a vector that does not change, computed once: every later query scores the same rotated keys. */
export function turned(x: Vector, position: number, rope: Geometry['rope']): Vector {
  const last = lastRotated.get(x);
  if (last?.position === position && last.rope === rope) return last.y;
  const y = rotate(x, position, rope);
  lastRotated.set(x, { position, rope, y });
  return y;
}

/** Rotary tables by width and position: every query needs those of the same positions. */
const rotaryTables = new WeakMap<Geometry['rope'], Map<number, Map<number, Vector>>>();

function valueAt<K, V>(of: Map<K, V>, key: K, make: () => V): V {
  let value = of.get(key);
  if (value === undefined) of.set(key, (value = make()));
  return value;
}

/** [cos, sin] of every pair of a vector of this width. */
function anglesOf(position: number, width: number, rope: Geometry['rope']): Vector {
  const ofRope = rotaryTables.get(rope) ?? new Map<number, Map<number, Vector>>();
  rotaryTables.set(rope, ofRope);
  const ofWidth = valueAt(ofRope, width, () => new Map<number, Vector>());
  return valueAt(ofWidth, position, () => {
    const table = new Float64Array(width);
    for (let m = 0; m < width / 2; m++) {
      const angle = position * rope.theta ** ((-2 * m) / width);
      table[2 * m] = Math.cos(angle);
      table[2 * m + 1] = Math.sin(angle);
    }
    return table;
  });
}

export function softmax(scores: readonly number[]): number[] {
  const top = scores.reduce((a, b) => Math.max(a, b), -Infinity);
  const weights = scores.map((s) => Math.exp(s - top));
  const total = weights.reduce((a, b) => a + b, 0);
  return weights.map((w) => w / total);
}

/** Attention of one query: Σ p v with p = softmax(q·k / √d), and these weights. */
export function attention(
  query: Vector,
  keys: readonly Vector[],
  values: readonly Vector[],
): { output: Vector; weights: number[] } {
  const weights = softmax(keys.map((key) => dot(query, key) / Math.sqrt(query.length)));
  const output = new Float64Array(query.length);
  values.forEach((value, i) => accumulate(output, value, weights[i]));
  return { output, weights };
}

/** A vector cut into equal parts: one a head. */
export const split = (x: Vector, width: number): Vector[] =>
  Array.from({ length: x.length / width }, (_, i) => x.slice(i * width, (i + 1) * width));

export function joined(parts: readonly Vector[]): Vector {
  const out = new Float64Array(parts.reduce((length, part) => length + part.length, 0));
  let at = 0;
  for (const part of parts) {
    out.set(part, at);
    at += part.length;
  }
  return out;
}
