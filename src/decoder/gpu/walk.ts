/** The operations of a schedule in the order in which a step runs them, one by one, with the place of each. */
import type { Configuration, Op, Schedule } from '../../schedule/schedule.js';
import type { LayerBlock } from '../../geometry/geometry.js';

/** Where an operation of a stack runs. */
export interface Place {
  readonly block: LayerBlock;
  /** Within its block. */
  readonly layer: number;
  readonly loop: number;
  /** The layer among those stored: prelude, core and coda one after the other. */
  readonly stored: number;
}

export interface Visit {
  readonly op: Op;
  /** The last layer for what follows a loop; undefined outside the stacks. */
  readonly place: Place | undefined;
  /**
   * Number of this part where bindings make several of one operation, and what the parts before it took: columns,
   * sequences or rows.
   */
  readonly part: number;
  readonly before: number;
}

/** What the parts of an operation share out. */
function sizeOf({ kernel, shape }: Op): number {
  return (kernel === 'matmul' ? shape.n : (shape.sequences ?? shape.rows)) ?? 0;
}

/** The operations of one list. Neighbours of equal `repeat` run part by part (schedule/configuration.ts). */
function* inOrder(ops: readonly Op[], place: Place | undefined): Generator<Visit> {
  const taken = new Map<string, { parts: number; size: number }>();
  const visit = (op: Op): Visit => {
    const key = `${op.label} ${op.from ?? ''}`;
    const before = taken.get(key) ?? { parts: 0, size: 0 };
    taken.set(key, { parts: before.parts + 1, size: before.size + sizeOf(op) });
    return { op, place, part: before.parts, before: before.size };
  };
  for (let i = 0; i < ops.length;) {
    const { repeat } = ops[i] as Op;
    let end = i + 1;
    while (repeat > 1 && end < ops.length && (ops[end] as Op).repeat === repeat) end++;
    for (let part = 0; part < repeat; part++) for (const op of ops.slice(i, end)) yield visit(op);
    i = end;
  }
}

/** True where an operation of a layer runs at a place. */
function runs(c: Configuration, { when }: Op, { block, layer, loop }: Place): boolean {
  const share = c.codec.shareLayers ?? 1;
  switch (when) {
    case 'always':
      return true;
    case 'first-loop':
      return loop === 0;
    case 'last-loop':
      return loop === block.loops - 1;
    case 'owning-layer':
      return layer % share === 0;
    case 'closing-layer':
      return layer % share === share - 1;
  }
}

/** Every operation of a step, in order. */
export function* walk(c: Configuration, schedule: Schedule): Generator<Visit> {
  let first = 0;
  for (const stage of schedule.stages) {
    if (stage.kind === 'once') {
      // A pass of the network begins with its embedding.
      first = 0;
      yield* inOrder(stage.ops, undefined);
      continue;
    }
    const { block } = stage;
    for (let loop = 0; loop < block.loops; loop++) {
      const at = (layer: number): Place => ({ block, layer, loop, stored: first + layer });
      yield* inOrder(stage.loopStart, at(0));
      for (let layer = 0; layer < block.layers; layer++)
        yield* inOrder(
          stage.layer.filter((op) => runs(c, op, at(layer))),
          at(layer),
        );
      yield* inOrder(stage.loopEnd, at(block.layers - 1));
    }
    first += block.layers;
  }
}
