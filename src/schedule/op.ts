/** Operations as they are listed: complete, with what they bind. */
import { anchoredLoops } from '../codecs/registry.js';
import type { KernelName, ShapeOf } from '../../kernels/registry.js';
import { FLOAT8_BLOCKS, storedVariant } from '../../kernels/stored-weights.js';
import type { Frame } from './bind/frame.js';
import type { Bound } from './bind/refs.js';
import {
  inParts,
  spansLoops,
  type Axis,
  type Configuration,
  type Part,
  type PricedOp,
  type Visit,
  type When,
} from './configuration.js';

/** What an operation binds where it runs, and its launch options. Those of steps or prompts alone take such a frame. */
export type Bind = { of(f: Frame, visit: Visit): Bound }['of'];

/** An operation of a schedule. */
export interface Op extends PricedOp {
  /** For the decoder and the recorder; prices do not use it. */
  readonly binds: Bind | undefined;
}

/** An operation that is priced, and that the decoder does not execute. */
export const PRICED_ONLY = undefined;

/** What keys and values bind. Where a list's facts are not needed, it is made once, not for every list. */
export const byAxis = (of: (axis: Axis) => Bind): Readonly<Record<Axis, Bind>> => ({
  key: of('key'),
  value: of('value'),
});

/** An object with further fields behind its own: as fields behind a spread they take a microsecond or several. */
export const withMore = <T extends object, M extends object>(of: T, more: M): T & M => Object.assign({}, of, more);

export const op = <K extends KernelName>(
  label: string,
  kernel: K,
  variant: string,
  shape: ShapeOf<K>,
  binds: Bind | undefined,
  when: When = 'always',
): Op => ({ label, kernel, variant, shape, when, repeat: 1, binds });

/** Operations on as many items as each part has, as often as there are such parts. */
export const inEachPart = (parts: readonly Part[], list: (size: number) => readonly Op[]): Op[] =>
  parts.flatMap(({ size, repeat }) => (repeat === 1 ? list(size) : list(size).map((o) => withMore(o, { repeat }))));

/** A projection of a layer, whose weights a server may hold in fewer bits. */
export function projectInLayer(c: Configuration, ...of: Tail<typeof project>): Op[] {
  const { quantised: q } = c.geometry;
  if (!q) return project(c, ...of);
  const float8 = q.blocks ? FLOAT8_BLOCKS : 'f8';
  const variant = q.float8 ? float8 : storedVariant({ as: q.unpacked ? 'unpacked' : 'packed', bits: q.layerBits });
  return project(c, ...of).map((o) => ({ ...o, variant }));
}
type Tail<F> = F extends (first: never, ...rest: infer R) => unknown ? R : never;

/** A projection by a table or the head, which few formats store in fewer bits. */
export function projectByTable(c: Configuration, ...of: Tail<typeof project>): Op[] {
  const bits = c.geometry.quantised?.tableBits ?? 16;
  const ops = project(c, ...of);
  return bits < 16 ? ops.map((o) => ({ ...o, variant: storedVariant({ as: 'packed', bits }) })) : ops;
}

/** A projection. Weights beyond a binding are divided by columns, in pairs as they are stored. */
export function project(
  c: Configuration,
  label: string,
  m: number,
  k: number,
  n: number,
  binds: Bind | undefined,
  when: When = 'always',
): Op[] {
  const product = (columns: number): Op[] => [op(label, 'matmul', 'f16', { groups: 1, m, k, n: columns }, binds, when)];
  const pairs = Math.floor(n / 2);
  if (pairs * 4 * k <= c.bindingBytes) return product(n);
  const parts = inParts(pairs, 4 * k, c.bindingBytes);
  if (n % 2 === 0) return inEachPart(parts, (size) => product(2 * size));
  // An odd column joins the last part.
  const { size, repeat } = parts.pop() as Part;
  if (repeat > 1) parts.push({ size, repeat: repeat - 1 });
  return [...inEachPart(parts, (own) => product(2 * own)), ...product(2 * size + 1)];
}

/** A product with one matrix a KV head (or a shared one); `m` rows of all sequences and query heads that use it. */
export const perHead = (
  label: string,
  groups: number,
  m: number,
  k: number,
  n: number,
  binds: Bind,
  when: When = 'always',
): Op => op(label, 'matmul', 'f16', { groups, m, k, n }, binds, when);

/** The same operations for each of the loops up to the anchor's, in which they run. */
export function everyAnchoredLoop(c: Configuration, ops: readonly Op[]): Op[] {
  const loopsBack = Array.from({ length: anchoredLoops(c.geometry, c.codec) }, (_, i) => i).toReversed();
  return loopsBack.flatMap((loopsBack) => ops.map((o) => withMore(o, { loopsBack })));
}

/** The same operations for each of these loops; those of the place's own loop where a latent has one. */
export function everyRestoredLoop(c: Configuration, ops: readonly Op[]): Op[] {
  if (!spansLoops(c)) return [...ops];
  return Array.from({ length: c.geometry.loops }, (_, loop) => ops.map((o) => withMore(o, { loop }))).flat();
}
