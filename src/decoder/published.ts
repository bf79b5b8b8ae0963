/**
 * Tensors of published models, by their own names, as those of the decoder. A class needs the names alone: tensors of
 * the decoder that share a name lie in one published tensor, one after the other.
 */
import type { Geometry } from '../geometry/geometry.js';
import type { OpenTensors } from './checkpoint.js';
import { elementsOf, modelTensors, type TensorSpec } from './tensors.js';
import { checkedLength } from './weights.js';

/** Where a tensor of the decoder lies: elements of a published one, times a factor. */
export interface Piece {
  readonly tensor: string;
  readonly from: number;
  readonly factor: number;
}

export interface Layout {
  readonly published: readonly TensorSpec[];
  readonly pieces: ReadonlyMap<string, Piece>;
}

/**
 * @param specs the decoder's tensors
 * @param nameOf the published name of one
 * @param factors of its elements, 1 unless given
 */
export function layoutOf(
  specs: readonly TensorSpec[],
  nameOf: (name: string) => string,
  factors: Readonly<Record<string, number>> = {},
): Layout {
  const published = new Map<string, TensorSpec>();
  const pieces = new Map<string, Piece>();
  for (const spec of specs) {
    const name = nameOf(spec.name);
    const before = published.get(name)?.shape;
    const [rows, ...row] = spec.shape as [number, ...number[]];
    pieces.set(spec.name, { tensor: name, from: before ? elementsOf(before) : 0, factor: factors[spec.name] ?? 1 });
    published.set(name, { ...spec, name, shape: [(before?.[0] ?? 0) + rows, ...row] });
  }
  return { published: [...published.values()], pieces };
}

/** Published tensors under the decoder's names. @param source has those of the layout */
export function publishedTensors(g: Geometry, { pieces }: Layout, source: OpenTensors): OpenTensors {
  const shapes = new Map(modelTensors(g).map(({ name, shape }) => [name, shape]));
  return {
    shapes,
    read(name, from = 0, count) {
      const piece = pieces.get(name);
      if (!piece) throw new RangeError(`no tensor ${name}`);
      const length = checkedLength(name, elementsOf(shapes.get(name) ?? []), from, count);
      const values = source.read(piece.tensor, piece.from + from, length);
      if (piece.factor !== 1) values.forEach((value, i) => (values[i] = value * piece.factor));
      return values;
    },
    close: () => source.close(),
  };
}
